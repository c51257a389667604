package gardener

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

// leftovers returns the live pools that are not in the manifest and that an apply would
// leave. Another manager created or also applied those.
func leftovers(manager string, m shoot.Manifest, live *found) []shoot.Worker {
	return slices.DeleteFunc(unwantedPools(m, live), func(w shoot.Worker) bool { return !isPoolHeldByOthers(manager, live, w.Name) })
}

// unwantedPools returns the live pools that are not in the manifest.
func unwantedPools(m shoot.Manifest, live *found) []shoot.Worker {
	return slices.DeleteFunc(slices.Clone(live.spec.Provider.Workers), func(w shoot.Worker) bool {
		return slices.ContainsFunc(m.Spec.Provider.Workers, func(x shoot.Worker) bool { return x.Name == w.Name })
	})
}

// isPoolHeldByOthers reports whether a manager other than the applies of this one owns a whole pool,
// and not only some of its fields.
func isPoolHeldByOthers(manager string, live *found, pool string) bool {
	type level map[string]json.RawMessage
	for _, m := range live.Metadata.Managers {
		if m.Manager == manager && m.Operation == "Apply" {
			continue
		}
		fields := m.Fields
		for _, step := range []string{"f:spec", "f:provider", "f:workers", fmt.Sprintf(`k:{"name":%q}`, pool), "."} {
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
func (w *shootWriter) removePools(ctx context.Context, live *found, pools []shoot.Worker) (*found, error) {
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
