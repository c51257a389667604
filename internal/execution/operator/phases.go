package operator

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// step is one part of the work in a phase. It changes the status in state. proceed reports whether
// the next step runs before the status is written.
type step func(ctx context.Context, t *reconcileState) (proceed bool, err error)

// newPhaseTable returns the steps of each phase. The comment of a phase names the phases that can follow
// it, as in execution.Transitions. A later phase joins the same write if its steps have no effect yet.
func (r *reconciler) newPhaseTable() map[v1alpha1.Phase][]step {
	validate := []step{
		failIfCancelled,
		r.validation.verifyAdmittedByPolicies,
		r.launch.failIfInlineNotAllowed,
		r.validation.requeueUntilDryRunJobEnds,
		r.validation.runChecks,
		r.approval.requestApprovalIfRequired,
		completeIfDryRun,
		r.launch.launchIfInline,
	}
	ended := []step{
		r.ending.leaveGateAndExpireJobs,
		r.ending.checkAuditOrRemoveFinalizer,
		r.ending.requeueUntilRetentionEnds,
		r.ending.deleteExecution,
	}
	return map[v1alpha1.Phase][]step{
		// → validating
		v1alpha1.PhaseNew: append([]step{startValidating}, validate...),
		// → validated, failed
		v1alpha1.PhaseValidating: validate,
		// → waiting_approval, executing, completed, failed
		v1alpha1.PhaseValidated: {
			r.launch.adoptExistingJob,
			failIfCancelled,
			r.validation.verifyAdmittedByPolicies,
			r.approval.requestApprovalIfRequired,
			completeIfDryRun,
			r.launch.launchIfAdmitted,
		},
		// → executing, completed, failed
		v1alpha1.PhaseWaitingApproval: {
			r.launch.adoptExistingJob,
			failIfCancelled,
			r.validation.verifyAdmittedByPolicies,
			r.approval.requeueUntilApproved,
			completeIfDryRun,
			r.launch.launchIfAdmitted,
		},
		// → rollback_ready, completed, failed
		v1alpha1.PhaseExecuting: executingSteps(r.running),
		// → completed, failed
		v1alpha1.PhaseRollbackReady: {r.ending.leaveGateAndExpireJobs, r.ending.enterFinalPhaseAfterRollbackWindow},
		v1alpha1.PhaseCompleted:     ended,
		v1alpha1.PhaseFailed:        ended,
	}
}

// executingSteps returns the steps of phase executing.
func executingSteps(r *running) []step {
	return []step{failIfRunNotInStatus, r.runInlineOrFollowJob, r.finishOncePostConditionsDecided}
}

// deletionSteps returns the steps of a deleted execution in any phase.
func deletionSteps(e *ending) []step {
	return []step{
		e.requeueUntilResultAfterDeletion,
		e.endAfterDeletionGrace,
		e.deleteJobsAndLeaveGate,
		e.removeFinalizerOnceDelivered,
	}
}

// runPhase runs the steps of the current phase, or those of a deletion.
func (r *reconciler) runPhase(ctx context.Context, state *reconcileState) error {
	if !state.ke.DeletionTimestamp.IsZero() {
		return runSteps(ctx, state, deletionSteps(r.ending))
	}
	steps, known := r.phases[state.ke.Status.Phase]
	if !known {
		return reconcile.TerminalError(fmt.Errorf("execution %s is in phase %q, which this version does not support",
			logKey(state.ke), state.ke.Status.Phase))
	}
	return runSteps(ctx, state, steps)
}

// runSteps runs steps until one waits, ends the execution or fails.
func runSteps(ctx context.Context, state *reconcileState, steps []step) error {
	for _, s := range steps {
		if proceed, err := s(ctx, state); err != nil || !proceed {
			return err
		}
	}
	return nil
}
