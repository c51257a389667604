package quarantine

import (
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// isTracked says whether the API server keeps who writes a node. It does not where
// the managed fields are empty, whoever writes.
func isTracked(node *corev1.Node) bool { return len(node.ManagedFields) > 0 }

// trackCordon has it keep that we have cordoned the node, and who writes it from then
// on: a person who uncordons and cordons it would else not be told from us.
func trackCordon(node *corev1.Node, now time.Time) {
	at := metav1.NewTime(now)
	node.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: v1alpha1.FieldManager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &at,
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:unschedulable":{}}}`),
	}}
}
