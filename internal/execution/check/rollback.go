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

// findAndCheckOriginal reads the execution that rollbackOf names, if any. It refuses an execution
// that does not revert exactly the change of the original one.
func (r *round) findAndCheckOriginal(ctx context.Context) error {
	ref := r.ke.Spec.RollbackOf
	if ref == nil {
		return nil
	}
	name := client.ObjectKey{Namespace: cmp.Or(ref.Namespace, r.ke.Namespace), Name: ref.Name}
	var original v1alpha1.KubernetesExecution
	err := r.checker.deps.Reader.Get(ctx, name, &original)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read execution %s: %w", name, err)
	}
	back := original.Status.RollbackInformation
	replaced := ref.UID != "" && ref.UID != original.UID
	switch {
	case original.Name == "" || replaced:
		r.out.failValidation(v1alpha1.DetailInvalidParameters,
			"rollbackOf: execution %s does not exist any more, so its rollback is unknown: omit rollbackOf to run the action anyway", name)
	case back == nil || original.Status.Plan == nil:
		why := "it made no known change"
		if original.Status.ExecutionResults == nil {
			why = "it never started"
		}
		r.out.failValidation(v1alpha1.DetailInvalidTargetState, "rollbackOf: nothing to roll back for execution %s: %s", name, why)
	case !back.Available:
		why := cmp.Or(back.Reason, "its plan has no rollback")
		r.out.failValidation(v1alpha1.DetailInvalidTargetState, "rollbackOf: execution %s cannot be rolled back: %s", name, why)
	case !matchesRollback(r.request, back):
		r.out.failValidation(
			v1alpha1.DetailInvalidParameters,
			"rollbackOf: action or parameters differ from status.rollbackInformation of execution %s: copy them from there, or omit rollbackOf",
			name,
		)
	default:
		r.original = &original
	}
	return nil
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
		c.Dynamic = r.seen.newReplayOnceClient()
	}
	rollback := r.original.Status.RollbackInformation
	err := action.CheckTargetUnchanged(ctx, c, r.original.Status.Plan, rollback.ExpectedCurrentValues)
	if err == nil {
		return nil
	}
	if refused, ok := errors.AsType[*action.RefusedError](err); ok {
		r.out.failValidation(refused.Detail, "rollbackOf: the target has changed since execution %s: %s. To change it anyway, omit rollbackOf",
			r.original.Name, refused.Message)
		return nil
	}
	return r.account.failUnlessTransient(ctx, err)
}
