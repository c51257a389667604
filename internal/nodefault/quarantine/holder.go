package quarantine

import (
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
)

// A holder is who has cordoned a node, by the managed fields.
type holder int

const (
	nobodyKnown holder = iota // nothing says so
	us
	others
)

// ancientChanges is how the API server calls the oldest of too many managers:
// nobody in particular.
const ancientChanges = "ancient-changes"

// holderOf says who has set spec.unschedulable, and if it was us, when. Whoever applies it too holds it
// as well, and then it is not ours to clear.
func holderOf(node *corev1.Node) (h holder, since time.Time) {
	for _, entry := range node.ManagedFields {
		if entry.Subresource != "" || entry.FieldsV1 == nil || entry.Manager == ancientChanges {
			continue
		}
		var fields struct {
			Spec map[string]json.RawMessage `json:"f:spec"`
		}
		if err := json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields); err != nil {
			continue // the API server wrote it: it says nothing of the flag
		}
		if _, holds := fields.Spec["f:unschedulable"]; !holds {
			continue
		}
		if entry.Manager != v1alpha1.FieldManager {
			return others, time.Time{}
		}
		h = us
		if entry.Time != nil {
			since = entry.Time.Time
		}
	}
	return h, since
}
