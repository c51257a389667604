package execcli

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/kube/executions"
)

// Explain is explain, for tests.
func Explain(err error, doing string) error { return explainError(err, doing) }

// CancelPatch is what a cancel asks for, for tests.
func CancelPatch(ke *v1alpha1.KubernetesExecution, by string) client.Patch {
	return executions.CancelPatch(ke, by)
}
