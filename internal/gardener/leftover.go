package gardener

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

// poolsOwnedByOtherManagers returns the live pools that are not in the manifest and that an apply would
// leave. Another manager created or also applied those.
func poolsOwnedByOtherManagers(manager string, manifest shoot.Manifest, live *storedShoot) []shoot.Worker {
	return slices.DeleteFunc(poolsNotInManifest(manifest, live), func(pool shoot.Worker) bool {
		return !isPoolOwnedByOtherManager(manager, live, pool.Name)
	})
}

// poolsNotInManifest returns the live pools that are not in the manifest.
func poolsNotInManifest(manifest shoot.Manifest, live *storedShoot) []shoot.Worker {
	return slices.DeleteFunc(slices.Clone(live.spec.Provider.Workers), func(pool shoot.Worker) bool {
		return hasPool(manifest.Spec.Provider.Workers, pool.Name)
	})
}

func hasPool(pools []shoot.Worker, name string) bool {
	return slices.ContainsFunc(pools, func(pool shoot.Worker) bool { return pool.Name == name })
}

// isPoolOwnedByOtherManager reports whether another manager owns a whole pool, and not only some of
// its fields. The applies of this manager do not count.
func isPoolOwnedByOtherManager(manager string, live *storedShoot, poolName string) bool {
	path := []string{"f:spec", "f:provider", "f:workers", fmt.Sprintf(`k:{"name":%q}`, poolName), "."}
	for _, entry := range live.Metadata.Managers {
		if entry.Manager == manager && entry.Operation == "Apply" {
			continue
		}
		if len(managedField(entry.Fields, path)) > 0 {
			return true
		}
	}
	return false
}

// managedField returns the entry at a path of managed fields, or nil if they do not have it.
func managedField(fields json.RawMessage, path []string) json.RawMessage {
	for _, key := range path {
		var children map[string]json.RawMessage
		if err := json.Unmarshal(fields, &children); err != nil {
			return nil
		}
		fields = children[key]
	}
	return fields
}

// removePools removes pools by a separate request.
func (w *shootWriter) removePools(
	ctx context.Context, live *storedShoot, pools []shoot.Worker,
) (*storedShoot, error) {
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value string `json:"value,omitempty"`
	}
	// The version makes a concurrent change of the Shoot a conflict.
	patch := []operation{{Op: "replace", Path: "/metadata/resourceVersion", Value: live.Metadata.ResourceVersion}}
	// Pools are removed backward, so that the earlier indexes stay valid.
	for i, pool := range slices.Backward(live.spec.Provider.Workers) {
		if hasPool(pools, pool.Name) {
			patch = append(patch, operation{Op: "remove", Path: fmt.Sprintf("/spec/provider/workers/%d", i)})
		}
	}
	return w.patchShoot(ctx, live.Metadata.Name, "application/json-patch+json", patch)
}
