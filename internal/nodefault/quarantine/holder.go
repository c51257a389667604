package quarantine

import (
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
)

// A cordonOwner is the owner of a cordon according to the managed fields.
type cordonOwner int

const (
	nobodyKnown cordonOwner = iota // not recorded
	us
	others
)

// ancientChanges is the manager under which the API server merges the oldest entries when
// there are too many.
const ancientChanges = "ancient-changes"

// cordonOwnerFromManagedFields returns who has set spec.unschedulable, and when if it was the
// pipeline. A field that others have also applied belongs to them, and the pipeline must not
// clear it.
func cordonOwnerFromManagedFields(node *corev1.Node) (owner cordonOwner, since time.Time) {
	for _, entry := range node.ManagedFields {
		if entry.Subresource != "" || entry.FieldsV1 == nil || entry.Manager == ancientChanges {
			continue
		}
		var fields struct {
			Spec map[string]json.RawMessage `json:"f:spec"`
		}
		if err := json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields); err != nil {
			continue // an invalid entry shows nothing about the field
		}
		if _, owns := fields.Spec["f:unschedulable"]; !owns {
			continue
		}
		if entry.Manager != v1alpha1.FieldManager {
			return others, time.Time{}
		}
		owner = us
		if entry.Time != nil {
			since = entry.Time.Time
		}
	}
	return owner, since
}

// hasManagedFields reports whether the API server records the field managers of a node. It does
// not while the managed fields are empty.
func hasManagedFields(node *corev1.Node) bool { return len(node.ManagedFields) > 0 }

// setManagedFieldsToOwnCordon restores the managed fields with the pipeline as manager of the cordon.
// Otherwise a person who uncordons and cordons the node could not be told apart from the
// pipeline.
func setManagedFieldsToOwnCordon(node *corev1.Node, now time.Time) {
	at := metav1.NewTime(now)
	node.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager:    v1alpha1.FieldManager,
		Operation:  metav1.ManagedFieldsOperationUpdate,
		APIVersion: "v1",
		Time:       &at,
		FieldsType: "FieldsV1",
		FieldsV1:   metav1.NewFieldsV1(`{"f:spec":{"f:unschedulable":{}}}`),
	}}
}
