package check

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution/action"
)

// checkRollback verifies that an execution with rollbackOf reverts exactly the change of the
// original execution.
func (r *round) checkRollback(ctx context.Context) error {
	ref := r.ke.Spec.RollbackOf
	if ref == nil {
		return nil
	}
	name := client.ObjectKey{Namespace: cmp.Or(ref.Namespace, r.ke.Namespace), Name: ref.Name}
	var original v1alpha1.KubernetesExecution
	err := r.deps.Reader.Get(ctx, name, &original)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read execution %s: %w", name, err)
	}
	if original.Name == "" || ref.UID != "" && ref.UID != original.UID {
		r.failWith(v1alpha1.DetailInvalidParameters, "rollbackOf: execution %s does not exist any more, so its rollback is unknown: omit rollbackOf to run the action anyway", name)
		return nil
	}
	back := original.Status.RollbackInformation
	switch {
	case back == nil || original.Status.Plan == nil:
		why := "it made no known change"
		if original.Status.ExecutionResults == nil {
			why = "it never started"
		}
		r.failWith(v1alpha1.DetailInvalidTargetState, "rollbackOf: nothing to roll back for execution %s: %s", name, why)
		return nil
	case !back.Available:
		why := cmp.Or(back.Reason, "its plan has no rollback")
		r.failWith(v1alpha1.DetailInvalidTargetState, "rollbackOf: execution %s cannot be rolled back: %s", name, why)
		return nil
	case !r.revertsOriginal(back):
		r.failWith(v1alpha1.DetailInvalidParameters,
			"rollbackOf: action or parameters differ from status.rollbackInformation of execution %s: copy them from there, or omit rollbackOf", name)
		return nil
	}
	r.original = &original
	return nil
}

// revertsOriginal reports whether the request matches the given rollback.
func (r *round) revertsOriginal(back *v1alpha1.RollbackInformation) bool {
	way, err := action.Parse(&v1alpha1.KubernetesExecutionSpec{Action: back.RollbackAction, Parameters: back.RollbackParameters})
	return err == nil && way.Action.Name == r.request.Action.Name && bytes.Equal(way.Parameters, r.request.Parameters)
}

// checkUnchangedSinceOriginal verifies that the target has not changed since the original execution.
func (r *round) checkUnchangedSinceOriginal(ctx context.Context) error {
	if r.original == nil {
		return nil
	}
	c := r.client
	if r.seen != nil {
		c.Dynamic = r.seen.cachedClient()
	}
	err := action.CheckUnchanged(ctx, c, r.original.Status.Plan, r.original.Status.RollbackInformation.ExpectedCurrentValues)
	var refused *action.RefusedError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused):
		r.failWith(refused.Detail, "rollbackOf: the target has changed since execution %s: %s. To change it anyway, omit rollbackOf", r.original.Name, refused.Message)
		return nil
	}
	return r.failUnlessTransient(ctx, err)
}
