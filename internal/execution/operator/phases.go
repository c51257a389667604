package operator

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// step is one part of the work in a phase. It changes the status in t. proceed reports whether the
// next step runs before the status is written.
type step func(ctx context.Context, t *reconcileState) (proceed bool, err error)

// phaseTable returns the steps of each phase. The comment of a phase names the phases that can follow
// it, as in execution.Transitions. A later phase joins the same write if its steps have no effect yet.
func (r *reconciler) phaseTable() map[v1alpha1.Phase][]step {
	validate := []step{
		failIfCancelled, r.validation.verifyRequest, r.launch.checkInlineAllowed, r.validation.awaitDryRunJob, r.validation.runChecks,
		r.approval.requestIfRequired, completeIfDryRun, r.launch.launchInline,
	}
	ended := []step{r.ending.releaseResources, r.ending.awaitAudit, r.ending.awaitRetention, r.ending.deleteExecution}
	return map[v1alpha1.Phase][]step{
		// → validating
		v1alpha1.PhaseNew: append([]step{acceptExecution}, validate...),
		// → validated, failed
		v1alpha1.PhaseValidating: validate,
		// → waiting_approval, executing, completed, failed
		v1alpha1.PhaseValidated: {
			r.launch.adoptJob, failIfCancelled, r.validation.verifyRequest, r.approval.requestIfRequired, completeIfDryRun, r.launch.launchAction,
		},
		// → executing, completed, failed
		v1alpha1.PhaseWaitingApproval: {
			r.launch.adoptJob, failIfCancelled, r.validation.verifyRequest, r.approval.awaitApproval, completeIfDryRun, r.launch.launchAction,
		},
		// → rollback_ready, completed, failed
		v1alpha1.PhaseExecuting: executingSteps(r.running),
		// → completed, failed
		v1alpha1.PhaseRollbackReady: {r.ending.releaseResources, r.ending.awaitFinalize},
		v1alpha1.PhaseCompleted:     ended,
		v1alpha1.PhaseFailed:        ended,
	}
}

// executingSteps returns the steps of phase executing.
func executingSteps(r *running) []step {
	return []step{failIfRunUnknown, r.followRun, r.verifyPostConditions}
}

// deletionSteps returns the steps of a deleted execution in any phase.
func deletionSteps(e *ending) []step {
	return []step{e.awaitResult, e.endAfterGrace, e.deleteJobs, e.removeFinalizer}
}

// runPhase runs the steps of the current phase, or those of a deletion.
func (r *reconciler) runPhase(ctx context.Context, t *reconcileState) error {
	if !t.ke.DeletionTimestamp.IsZero() {
		return runSteps(ctx, t, deletionSteps(r.ending))
	}
	steps, known := r.phases[t.ke.Status.Phase]
	if !known {
		return reconcile.TerminalError(fmt.Errorf("execution %s is in phase %q, which this version does not support", logKey(t.ke), t.ke.Status.Phase))
	}
	return runSteps(ctx, t, steps)
}

// runSteps runs steps until one waits, ends the execution or fails.
func runSteps(ctx context.Context, t *reconcileState, steps []step) error {
	for _, s := range steps {
		if proceed, err := s(ctx, t); err != nil || !proceed {
			return err
		}
	}
	return nil
}
