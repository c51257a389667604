package operator

import (
	"context"
	"fmt"
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
func (e *ending) leaveGateAndExpireJobs(ctx context.Context, t *reconcileState) (proceed bool, err error) {
	e.slots.releaseSlot(t.ke, t.now)
	return true, e.runs.expireJobs(ctx, t.ke, t.now)
}

// requeueOrEnterFinalPhase keeps an execution in phase rollback_ready until it is finalized or the rollback window ends.
func (e *ending) requeueOrEnterFinalPhase(_ context.Context, t *reconcileState) (proceed bool, err error) {
	end := execution.PhaseStartOrNow(t.ke, v1alpha1.PhaseRollbackReady, t.now).Add(e.cfg.RollbackWindow)
	if !t.ke.Spec.Finalize && t.now.Before(end) {
		t.requeueAt(end)
		return false, nil
	}
	enterFinalPhase(t)
	return false, nil
}

// enterFinalPhase ends an execution in phase rollback_ready, as failed or completed by its outcome.
func enterFinalPhase(t *reconcileState) {
	if t.ke.Status.Outcome == v1alpha1.OutcomeFailed {
		enterPhase(t, v1alpha1.PhaseFailed)
		return
	}
	enterPhase(t, v1alpha1.PhaseCompleted)
}

// checkAuditOrRemoveFinalizer waits until an execution is recorded. It removes the finalizer if no auditor does.
func (e *ending) checkAuditOrRemoveFinalizer(ctx context.Context, t *reconcileState) (proceed bool, err error) {
	if e.cfg.Audited {
		return isAuditRecorded(t.ke), nil // the write of the auditor wakes it
	}
	if len(t.ke.Status.PendingChangeEvents) == 0 {
		err = e.writer.executions.SetFinalizer(ctx, t.ke, false)
	}
	return true, asStaleError(err)
}

// requeueUntilRetentionEnds keeps an ended execution until its retention period is over and its change events
// are delivered or expired.
func (e *ending) requeueUntilRetentionEnds(_ context.Context, t *reconcileState) (proceed bool, err error) {
	ttl := e.cfg.TTL
	if own := t.ke.Spec.TTLSecondsAfterFinished; own != nil {
		ttl = time.Duration(*own) * time.Second
	}
	end := execution.PhaseStartOrNow(t.ke, t.ke.Status.Phase, t.now).Add(ttl)
	switch {
	case t.now.Before(end):
		t.requeueAt(end)
		return false, nil
	case len(t.ke.Status.PendingChangeEvents) > 0:
		t.requeueIn(undeliveredPollInterval)
		return false, nil
	}
	return true, nil
}

// deleteExecution deletes an ended execution.
func (e *ending) deleteExecution(ctx context.Context, t *reconcileState) (proceed bool, err error) {
	if err := e.writer.executions.Delete(ctx, t.ke); err != nil {
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
func (e *ending) requeueUntilResultAfterDeletion(ctx context.Context, t *reconcileState) (proceed bool, err error) {
	if !mayStillReportResult(t.ke, t.now) {
		return true, nil
	}
	t.requeueAt(t.ke.DeletionTimestamp.Add(deletionGracePeriod))
	if t.ke.Status.Phase == v1alpha1.PhaseExecuting {
		t.ke.Spec.Cancel = true
		return false, runSteps(ctx, t, executingSteps(e.running))
	}
	none, err := e.launch.adoptExistingJob(ctx, t)
	if err == nil && none {
		failExecution(t, execution.Failure{Reason: v1alpha1.ReasonCancelled, Message: "the execution was deleted before anything was changed"})
	}
	return false, err
}

// endAfterDeletionGrace ends a deleted execution whose action did not stop in time, so that the audit and
// the sinks receive an end.
func (e *ending) endAfterDeletionGrace(ctx context.Context, t *reconcileState) (proceed bool, err error) {
	if t.ke.Status.Phase != v1alpha1.PhaseExecuting || !slices.Contains(t.ke.Finalizers, v1alpha1.Finalizer) {
		return true, nil
	}
	t.ke.Spec.Cancel = true
	if err := runSteps(ctx, t, executingSteps(e.running)); err != nil || t.ke.Status.Phase != v1alpha1.PhaseExecuting {
		return false, err
	}
	if err := e.runs.deleteActionJobs(ctx, t.ke); err != nil { // before the gate lets others act on the target
		return false, err
	}
	e.running.storeRunResult(t, job.Observation{State: job.Failed, Failure: &execution.Failure{
		Reason: v1alpha1.ReasonCancelled, Detail: v1alpha1.DetailResultUnknown,
		Message: fmt.Sprintf("the execution was deleted, and its action did not stop within %s: check %s", deletionGracePeriod, t.ke.Status.Target),
	}})
	return false, nil
}

// deleteJobsAndLeaveGate deletes the Jobs of a deleted execution and releases its gate slot.
func (e *ending) deleteJobsAndLeaveGate(ctx context.Context, t *reconcileState) (proceed bool, err error) {
	if err := e.runs.deleteActionJobs(ctx, t.ke); err != nil {
		return false, err
	}
	e.slots.gate.Forget(t.ke.UID)
	return true, nil
}

// removeFinalizerOnceDelivered removes the finalizer once the change events are delivered, unless the auditor does.
func (e *ending) removeFinalizerOnceDelivered(ctx context.Context, t *reconcileState) (proceed bool, err error) {
	switch {
	case hasUndeliveredEvents(t.ke, t.now):
		t.requeueIn(undeliveredPollInterval)
	case !e.cfg.Audited:
		err = wrapFinalizerErrorUnlessGone(e.writer.executions.SetFinalizer(ctx, t.ke, false))
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
	switch ke.Status.Phase {
	case v1alpha1.PhaseValidated, v1alpha1.PhaseWaitingApproval, v1alpha1.PhaseExecuting:
		return slices.Contains(ke.Finalizers, v1alpha1.Finalizer) && now.Before(ke.DeletionTimestamp.Add(deletionGracePeriod))
	case v1alpha1.PhaseNew, v1alpha1.PhaseValidating, v1alpha1.PhaseRollbackReady, v1alpha1.PhaseCompleted, v1alpha1.PhaseFailed:
	}
	return false
}
