package quarantine

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
)

// OwnedOf returns the changes of the pipeline to a node from its annotation.
func OwnedOf(node *corev1.Node) (owned v1alpha1.Owned, found bool) {
	m, err := readOwnedMark(node)
	if err != nil || m == nil {
		return v1alpha1.Owned{}, false
	}
	return m.Owned, true
}
