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

// findAndCheckOriginal returns the execution that rollbackOf names, and nil if it names none. It refuses an
// execution that does not revert exactly the change of the original one.
func (c *Checker) findAndCheckOriginal(ctx context.Context, ke *v1alpha1.KubernetesExecution, request action.Request, out *Outcome) (*v1alpha1.KubernetesExecution, error) {
	ref := ke.Spec.RollbackOf
	if ref == nil {
		return nil, nil //nolint:nilnil // most executions are no rollback
	}
	name := client.ObjectKey{Namespace: cmp.Or(ref.Namespace, ke.Namespace), Name: ref.Name}
	var original v1alpha1.KubernetesExecution
	err := c.deps.Reader.Get(ctx, name, &original)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read execution %s: %w", name, err)
	}
	if original.Name == "" || ref.UID != "" && ref.UID != original.UID {
		out.failValidation(v1alpha1.DetailInvalidParameters, "rollbackOf: execution %s does not exist any more, so its rollback is unknown: omit rollbackOf to run the action anyway", name)
		return nil, nil //nolint:nilnil // refused
	}
	back := original.Status.RollbackInformation
	switch {
	case back == nil || original.Status.Plan == nil:
		why := "it made no known change"
		if original.Status.ExecutionResults == nil {
			why = "it never started"
		}
		out.failValidation(v1alpha1.DetailInvalidTargetState, "rollbackOf: nothing to roll back for execution %s: %s", name, why)
		return nil, nil //nolint:nilnil // refused
	case !back.Available:
		why := cmp.Or(back.Reason, "its plan has no rollback")
		out.failValidation(v1alpha1.DetailInvalidTargetState, "rollbackOf: execution %s cannot be rolled back: %s", name, why)
		return nil, nil //nolint:nilnil // refused
	case !matchesRollback(request, back):
		out.failValidation(v1alpha1.DetailInvalidParameters,
			"rollbackOf: action or parameters differ from status.rollbackInformation of execution %s: copy them from there, or omit rollbackOf", name)
		return nil, nil //nolint:nilnil // refused
	}
	return &original, nil
}

// matchesRollback reports whether the request matches the given rollback.
func matchesRollback(request action.Request, back *v1alpha1.RollbackInformation) bool {
	way, err := action.Parse(&v1alpha1.KubernetesExecutionSpec{Action: back.RollbackAction, Parameters: back.RollbackParameters})
	return err == nil && way.Action.Name == request.Action.Name && bytes.Equal(way.Parameters, request.Parameters)
}

// refuseIfChangedSinceOriginal verifies that the target has not changed since the original execution.
func (r *round) refuseIfChangedSinceOriginal(ctx context.Context) error {
	if r.original == nil {
		return nil
	}
	c := r.client
	if r.seen != nil {
		c.Dynamic = r.seen.newReplayClient()
	}
	err := action.CheckTargetUnchanged(ctx, c, r.original.Status.Plan, r.original.Status.RollbackInformation.ExpectedCurrentValues)
	var refused *action.RefusedError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused):
		r.out.failValidation(refused.Detail, "rollbackOf: the target has changed since execution %s: %s. To change it anyway, omit rollbackOf", r.original.Name, refused.Message)
		return nil
	}
	return r.account.failUnlessTransient(ctx, err)
}
