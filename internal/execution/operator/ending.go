package operator

import (
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/job"
)

// ending keeps executions that are over until they may be deleted. It also ends those that a user deletes.
type ending struct {
	cfg     *Config
	slots   *gateSlots
	runs    *runs
	writer  *statusWriter
	launch  *launch
	running *running
	metrics *metrics
}

// leaveGateAndExpireJobs releases the gate slot and the Jobs of an execution whose action is over. The
// transition released the slot, but its response may have been lost.
func (e *ending) leaveGateAndExpireJobs(ctx context.Context, state *reconcileState) (proceed bool, err error) {
	e.slots.releaseSlotAndRecordOutcome(state.ke, state.now)
	return true, e.runs.setTTLOfExecutionJobs(ctx, state.ke, state.now)
}

// enterFinalPhaseAfterRollbackWindow keeps an execution in phase rollback_ready until it is finalized or the
// rollback window ends.
func (e *ending) enterFinalPhaseAfterRollbackWindow(_ context.Context, state *reconcileState) (proceed bool, err error) {
	end := execution.PhaseStartOrNow(state.ke, v1alpha1.PhaseRollbackReady, state.now).Add(e.cfg.RollbackWindow)
	if !state.ke.Spec.Finalize && state.now.Before(end) {
		state.requeueAt(end)
		return false, nil
	}
	enterFinalPhase(state)
	return false, nil
}

// enterFinalPhase ends an execution in phase rollback_ready, as failed or completed by its outcome.
func enterFinalPhase(state *reconcileState) {
	if state.ke.Status.Outcome == v1alpha1.OutcomeFailed {
		enterPhase(state, v1alpha1.PhaseFailed)
		return
	}
	enterPhase(state, v1alpha1.PhaseCompleted)
}

// checkAuditOrRemoveFinalizer proceeds once an ended execution is recorded. Without an auditor, it removes
// the finalizer instead and proceeds at once.
func (e *ending) checkAuditOrRemoveFinalizer(ctx context.Context, state *reconcileState) (proceed bool, err error) {
	if e.cfg.Audited {
		return isAuditRecorded(state.ke), nil // the write of the auditor wakes it
	}
	if len(state.ke.Status.PendingChangeEvents) == 0 {
		err = e.writer.executions.SetFinalizer(ctx, state.ke, false)
	}
	return true, asStaleError(err)
}

// requeueUntilRetentionEnds keeps an ended execution until its retention period is over and its change events
// are delivered or expired.
func (e *ending) requeueUntilRetentionEnds(_ context.Context, state *reconcileState) (proceed bool, err error) {
	ttl := e.cfg.TTL
	if seconds := state.ke.Spec.TTLSecondsAfterFinished; seconds != nil {
		ttl = time.Duration(*seconds) * time.Second
	}
	end := execution.PhaseStartOrNow(state.ke, state.ke.Status.Phase, state.now).Add(ttl)
	switch {
	case state.now.Before(end):
		state.requeueAt(end)
		return false, nil
	case len(state.ke.Status.PendingChangeEvents) > 0:
		state.requeueIn(undeliveredPollInterval)
		return false, nil
	}
	return true, nil
}

// deleteExecution deletes an ended execution.
func (e *ending) deleteExecution(ctx context.Context, state *reconcileState) (proceed bool, err error) {
	if err := e.writer.executions.Delete(ctx, state.ke); err != nil {
		return false, err
	}
	e.metrics.deleted.Inc()
	return false, nil
}

// isAuditRecorded reports whether the audit of an execution is complete.
func isAuditRecorded(ke *v1alpha1.KubernetesExecution) bool {
	c := findCondition(&ke.Status, v1alpha1.ConditionAuditRecorded)
	return c != nil && c.Status == metav1.ConditionTrue
}

// deletionGracePeriod is how long a deleted execution keeps its finalizer so that its running
// action can report a result.
const deletionGracePeriod = time.Minute

// requeueUntilResultAfterDeletion gives the running action of a deleted execution time to report a result.
func (e *ending) requeueUntilResultAfterDeletion(ctx context.Context, state *reconcileState) (proceed bool, err error) {
	if !mayStillReportResult(state.ke, state.now) {
		return true, nil
	}
	state.requeueAt(state.ke.DeletionTimestamp.Add(deletionGracePeriod))
	if state.ke.Status.Phase == v1alpha1.PhaseExecuting {
		state.ke.Spec.Cancel = true
		return false, runSteps(ctx, state, executingSteps(e.running))
	}
	return false, e.adoptJobOrEndUnchanged(ctx, state)
}

// adoptJobOrEndUnchanged adopts the Job that an earlier process started and did not record. Without one, the deleted
// execution ends, because nothing was changed.
func (e *ending) adoptJobOrEndUnchanged(ctx context.Context, state *reconcileState) error {
	noJob, err := e.launch.adoptExistingJob(ctx, state)
	if err == nil && noJob {
		failExecution(state, execution.Failure{
			Reason:  v1alpha1.ReasonCancelled,
			Message: "the execution was deleted before anything was changed",
		})
	}
	return err
}

// endAfterDeletionGrace ends a deleted execution whose action did not stop in time, so that the audit and
// the sinks receive an end.
func (e *ending) endAfterDeletionGrace(ctx context.Context, state *reconcileState) (proceed bool, err error) {
	if !mayHaveUnstoredEnd(state.ke) {
		return true, nil
	}
	if state.ke.Status.Phase != v1alpha1.PhaseExecuting {
		return false, e.adoptJobOrEndUnchanged(ctx, state)
	}

	// The action may have ended just now.
	state.ke.Spec.Cancel = true
	err = runSteps(ctx, state, executingSteps(e.running))
	if err != nil || state.ke.Status.Phase != v1alpha1.PhaseExecuting {
		return false, err
	}

	// The Job goes first: once the result is stored, the gate lets others act on the target.
	if err := e.runs.deleteActionJobs(ctx, state.ke); err != nil {
		return false, err
	}
	failure := execution.Failure{
		Reason: v1alpha1.ReasonCancelled, Detail: v1alpha1.DetailResultUnknown,
		Message: "the execution was deleted, and its action did not stop in time: check " + state.ke.Status.Target,
	}
	e.running.storeRunResult(state, job.Observation{State: job.Failed, Failure: &failure})
	return false, nil
}

// deleteJobsAndLeaveGate deletes the Jobs of a deleted execution and releases its gate slot.
func (e *ending) deleteJobsAndLeaveGate(ctx context.Context, state *reconcileState) (proceed bool, err error) {
	if err := e.runs.deleteActionJobs(ctx, state.ke); err != nil {
		return false, err
	}
	e.slots.gate.Forget(state.ke.UID)
	return true, nil
}

// removeFinalizerOnceDelivered removes the finalizer once the change events are delivered, unless the
// auditor does.
func (e *ending) removeFinalizerOnceDelivered(ctx context.Context, state *reconcileState) (proceed bool, err error) {
	switch {
	case hasUndeliveredEvents(state.ke, state.now):
		state.requeueIn(undeliveredPollInterval)
	case !e.cfg.Audited:
		err = wrapFinalizerErrorUnlessGone(e.writer.executions.SetFinalizer(ctx, state.ke, false))
	}
	return false, err
}

// undeliveredPollInterval is how often pending change events of an ending execution are checked, in
// case a wake-up was missed.
const undeliveredPollInterval = 10 * time.Second

// hasUndeliveredEvents reports whether pending change events hold back the deletion of an execution.
// After auditGiveUpAfter, the events are only in memory.
func hasUndeliveredEvents(ke *v1alpha1.KubernetesExecution, now time.Time) bool {
	return len(ke.Status.PendingChangeEvents) > 0 && now.Before(ke.DeletionTimestamp.Add(auditGiveUpAfter))
}

// mayStillReportResult reports whether a deleted execution may still report a result: it has the finalizer,
// so its action runs or was about to start.
func mayStillReportResult(ke *v1alpha1.KubernetesExecution, now time.Time) bool {
	return mayHaveUnstoredEnd(ke) && now.Before(ke.DeletionTimestamp.Add(deletionGracePeriod))
}

// mayHaveUnstoredEnd reports whether an execution has the finalizer and no end, although its action runs, was about to
// start, or was started by a process that did not record it.
func mayHaveUnstoredEnd(ke *v1alpha1.KubernetesExecution) bool {
	switch ke.Status.Phase {
	case v1alpha1.PhaseValidated, v1alpha1.PhaseWaitingApproval, v1alpha1.PhaseExecuting:
		return slices.Contains(ke.Finalizers, v1alpha1.Finalizer)
	case v1alpha1.PhaseNew, v1alpha1.PhaseValidating, v1alpha1.PhaseRollbackReady, v1alpha1.PhaseCompleted, v1alpha1.PhaseFailed:
	}
	return false
}
