package gardener

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

// leftovers are the live pools that the manifest does not want and that would
// stay nevertheless, or what is left of them: an apply takes away only what
// nobody else has written to, and Gardener itself writes to pools, when it
// raises the version of their image.
func (c *Client) leftovers(m shoot.Manifest, live *found) []shoot.Worker {
	var left []shoot.Worker
	for _, w := range live.spec.Provider.Workers {
		wanted := slices.ContainsFunc(m.Spec.Provider.Workers, func(x shoot.Worker) bool { return x.Name == w.Name })
		if !wanted && c.othersWrote(live, w.Name) {
			left = append(left, w)
		}
	}
	return left
}

// othersWrote is whether any other than our applies wrote to a pool.
func (c *Client) othersWrote(live *found, pool string) bool {
	type level map[string]json.RawMessage
	key := fmt.Sprintf(`k:{"name":%q}`, pool)
	for _, m := range live.Metadata.Managers {
		if m.Manager == c.manager && m.Operation == "Apply" {
			continue
		}
		fields := m.Fields
		for _, step := range []string{"f:spec", "f:provider", "f:workers", key} {
			var l level
			if json.Unmarshal(fields, &l) != nil {
				fields = nil
				break
			}
			fields = l[step]
		}
		if fields != nil {
			return true
		}
	}
	return false
}

// cut takes pools away by a request of its own.
func (c *Client) cut(ctx context.Context, live *found, pools []shoot.Worker) (*found, error) {
	type op struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value string `json:"value,omitempty"`
	}
	// With its version given, a Shoot that changed meanwhile is a conflict.
	patch := []op{{"replace", "/metadata/resourceVersion", live.Metadata.ResourceVersion}}
	for i, w := range slices.Backward(live.spec.Provider.Workers) { // the places of those before stay as they are
		if slices.ContainsFunc(pools, func(x shoot.Worker) bool { return x.Name == w.Name }) {
			patch = append(patch, op{Op: "remove", Path: fmt.Sprintf("/spec/provider/workers/%d", i)})
		}
	}
	a, err := c.send(ctx, request{method: http.MethodPatch, path: c.shoot(live.Metadata.Name), query: c.writing(), content: "application/json-patch+json", body: patch})
	if err != nil {
		return nil, err
	}
	return decodeFound(a)
}
