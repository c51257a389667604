package execcli

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// Explain is explain, for tests.
func Explain(err error, doing string) error { return explain(err, doing) }

// CancelPatch is what a cancel asks for, for tests.
func CancelPatch(ke *v1alpha1.KubernetesExecution, by string) client.Patch {
	return steering{field: "cancel", name: "cancelledBy"}.patch(ke, by)
}
