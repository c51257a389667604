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
	return slices.DeleteFunc(poolsNotInManifest(manifest, live), func(w shoot.Worker) bool { return !isPoolOwnedByOtherManager(manager, live, w.Name) })
}

// poolsNotInManifest returns the live pools that are not in the manifest.
func poolsNotInManifest(manifest shoot.Manifest, live *storedShoot) []shoot.Worker {
	return slices.DeleteFunc(slices.Clone(live.spec.Provider.Workers), func(w shoot.Worker) bool {
		return slices.ContainsFunc(manifest.Spec.Provider.Workers, func(x shoot.Worker) bool { return x.Name == w.Name })
	})
}

// isPoolOwnedByOtherManager reports whether another manager owns a whole pool, and not only some of
// its fields. The applies of this manager do not count.
func isPoolOwnedByOtherManager(manager string, live *storedShoot, poolName string) bool {
	type level map[string]json.RawMessage
	for _, m := range live.Metadata.Managers {
		if m.Manager == manager && m.Operation == "Apply" {
			continue
		}
		fields := m.Fields
		for _, step := range []string{"f:spec", "f:provider", "f:workers", fmt.Sprintf(`k:{"name":%q}`, poolName), "."} {
			var l level
			if json.Unmarshal(fields, &l) != nil {
				l = nil // without fields, the manager owns nothing of the pool
			}
			fields = l[step]
		}
		if len(fields) > 0 {
			return true
		}
	}
	return false
}

// removePools removes pools by a separate request.
func (w *shootWriter) removePools(ctx context.Context, live *storedShoot, pools []shoot.Worker) (*storedShoot, error) {
	type op struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value string `json:"value,omitempty"`
	}
	// The version makes a concurrent change of the Shoot a conflict.
	patch := []op{{"replace", "/metadata/resourceVersion", live.Metadata.ResourceVersion}}
	for i, w := range slices.Backward(live.spec.Provider.Workers) { // backward, so that the earlier indexes stay valid
		if slices.ContainsFunc(pools, func(x shoot.Worker) bool { return x.Name == w.Name }) {
			patch = append(patch, op{Op: "remove", Path: fmt.Sprintf("/spec/provider/workers/%d", i)})
		}
	}
	return w.patchShoot(ctx, live.Metadata.Name, "application/json-patch+json", patch)
}
