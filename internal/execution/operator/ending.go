package operator

import (
	"context"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/job"
)

// awaitFinalize keeps an execution in phase rollback_ready until it is finalized or the rollback
// window ends.
func (r *reconciler) awaitFinalize(ctx context.Context, t *reconcileState) error {
	r.releaseGate(t.ke, t.now) // in case the response of the earlier write was lost
	if err := r.setJobTTLs(ctx, t.ke); err != nil {
		return err
	}
	end := phaseStart(t.ke, v1alpha1.PhaseRollbackReady, t.now).Add(r.cfg.RollbackWindow)
	if !t.ke.Spec.Finalize && t.now.Before(end) {
		t.requeueAt(end)
		return nil
	}
	enterFinalPhase(t)
	return nil
}

// enterFinalPhase ends an execution in phase rollback_ready, as failed or completed by its outcome.
func enterFinalPhase(t *reconcileState) {
	if t.ke.Status.Outcome == v1alpha1.OutcomeFailed {
		enterPhase(t, v1alpha1.PhaseFailed)
		return
	}
	enterPhase(t, v1alpha1.PhaseCompleted)
}

// cleanUpEnded deletes an ended execution once its retention period is over.
func (r *reconciler) cleanUpEnded(ctx context.Context, t *reconcileState) error {
	r.releaseGate(t.ke, t.now)
	if err := r.setJobTTLs(ctx, t.ke); err != nil {
		return err
	}
	if r.cfg.Audited && !isRecorded(t.ke) {
		return nil // the write of the auditor wakes it
	}
	if !r.cfg.Audited && len(t.ke.Status.PendingChangeEvents) == 0 { // otherwise the auditor removes it
		if err := r.executions.SetFinalizer(ctx, t.ke, false); err != nil {
			return asStaleError(err)
		}
	}
	ttl := r.cfg.TTL
	if own := t.ke.Spec.TTLSecondsAfterFinished; own != nil {
		ttl = time.Duration(*own) * time.Second
	}
	end := phaseStart(t.ke, t.ke.Status.Phase, t.now).Add(ttl)
	if t.now.Before(end) {
		t.requeueAt(end)
		return nil
	}
	if len(t.ke.Status.PendingChangeEvents) > 0 { // until they are delivered or expire
		t.requeueIn(undeliveredPollInterval)
		return nil
	}
	if err := r.executions.Delete(ctx, t.ke); err != nil {
		return err
	}
	r.metrics.deleted.Inc()
	return nil
}

// releaseGate releases the gate slot of an execution that is over, if it still has one.
func (r *reconciler) releaseGate(ke *v1alpha1.KubernetesExecution, now time.Time) {
	s := &ke.Status
	switch {
	case s.ExecutionResults == nil: // nothing was executed
		r.gate.Forget(ke.UID)
	case s.Reason == v1alpha1.ReasonCancelled: // a cancel is no result of the action
		r.gate.Leave(ke.UID, "", now)
	default:
		r.gate.Leave(ke.UID, s.Outcome, now)
	}
}

// setJobTTLs sets a TTL on the Jobs of an execution, because their results are stored.
func (r *reconciler) setJobTTLs(ctx context.Context, ke *v1alpha1.KubernetesExecution) error {
	for _, name := range []string{ke.Status.JobName, job.Name(ke.UID, v1alpha1.PurposeDryRun, 1)} {
		if name == "" {
			continue
		}
		j, err := r.jobs.Job(ctx, ke, name, false)
		switch {
		case err != nil:
		case j == nil:
		case isAbandoned(ke, j):
			err = r.deleteUnfinishedDryRun(ctx, j)
		default:
			err = r.setJobTTL(ctx, j)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// isAbandoned reports whether a Job is the dry run of a cancelled execution whose result was never
// read.
func isAbandoned(ke *v1alpha1.KubernetesExecution, j *batchv1.Job) bool {
	return ke.Status.Reason == v1alpha1.ReasonCancelled && j.Labels[v1alpha1.LabelPurpose] == v1alpha1.PurposeDryRun &&
		j.Spec.TTLSecondsAfterFinished == nil
}

// deleteUnfinishedDryRun deletes an abandoned dry run, which would otherwise run up to its deadline. Its
// result is not needed.
func (r *reconciler) deleteUnfinishedDryRun(ctx context.Context, j *batchv1.Job) error {
	pods, err := r.jobs.Pods(ctx, j, false)
	if err != nil {
		return err
	}
	if o := job.Observe(j, pods, r.now()); o.State == job.Succeeded || o.State == job.Failed {
		return r.setJobTTL(ctx, j)
	}
	if !j.DeletionTimestamp.IsZero() {
		return nil
	}
	return r.jobs.Delete(ctx, j)
}

func (r *reconciler) setJobTTL(ctx context.Context, j *batchv1.Job) error {
	if j.Spec.TTLSecondsAfterFinished != nil {
		return nil
	}
	return r.jobs.Patch(ctx, j, map[string]any{"ttlSecondsAfterFinished": int64(r.cfg.JobTTL.Seconds())})
}

// deletionGracePeriod is how long a deleted execution keeps its finalizer so that its running
// action can report a result.
const deletionGracePeriod = time.Minute

// handleDeletion stops the Jobs of a deleted execution. The auditor removes the finalizer.
func (r *reconciler) handleDeletion(ctx context.Context, t *reconcileState) error {
	if mayStillReportResult(t.ke, t.now) {
		t.requeueAt(t.ke.DeletionTimestamp.Add(deletionGracePeriod))
		if t.ke.Status.Phase == v1alpha1.PhaseExecuting {
			t.ke.Spec.Cancel = true
			return r.advanceRunningAction(ctx, t)
		}
		taken, err := r.adoptJob(ctx, t)
		if err == nil && !taken {
			failExecution(t, execution.Failure{Reason: v1alpha1.ReasonCancelled, Message: "the execution was deleted before anything was changed"})
		}
		return err
	}
	if t.ke.Status.Phase == v1alpha1.PhaseExecuting && slices.Contains(t.ke.Finalizers, v1alpha1.Finalizer) {
		return r.endDeletedAfterGrace(ctx, t)
	}
	if err := r.deleteActionJobs(ctx, t.ke); err != nil {
		return err
	}
	r.gate.Forget(t.ke.UID)
	switch {
	case hasUndelivered(t.ke, t.now):
		t.requeueIn(undeliveredPollInterval)
	case !r.cfg.Audited: // no auditor removes the finalizer
		return finalizerErrorUnlessGone(r.executions.SetFinalizer(ctx, t.ke, false))
	}
	return nil
}

// endDeletedAfterGrace ends a deleted execution whose action did not stop in time, so that the audit and the
// sinks receive an end.
func (r *reconciler) endDeletedAfterGrace(ctx context.Context, t *reconcileState) error {
	t.ke.Spec.Cancel = true
	if err := r.advanceRunningAction(ctx, t); err != nil || t.ke.Status.Phase != v1alpha1.PhaseExecuting {
		return err
	}
	if err := r.deleteActionJobs(ctx, t.ke); err != nil { // before the gate lets others act on the target
		return err
	}
	return r.finishAction(ctx, t, job.Observation{State: job.Failed, Failure: &execution.Failure{
		Reason: v1alpha1.ReasonCancelled, Detail: v1alpha1.DetailResultUnknown,
		Message: fmt.Sprintf("the execution was deleted, and its action did not stop within %s: check %s", deletionGracePeriod, t.ke.Status.Target),
	}})
}

// deleteActionJobs deletes the Jobs that run the action of an execution.
func (r *reconciler) deleteActionJobs(ctx context.Context, ke *v1alpha1.KubernetesExecution) error {
	for _, name := range []string{runName(ke), ke.Status.JobName} {
		if name == "" {
			continue
		}
		j, err := r.jobs.Job(ctx, ke, name, false)
		if err != nil {
			return err
		}
		if j != nil && j.DeletionTimestamp.IsZero() {
			if err := r.jobs.Delete(ctx, j); err != nil {
				return err
			}
		}
	}
	return nil
}

// undeliveredPollInterval is how often pending change events of an ending execution are checked, in
// case a wake-up was missed.
const undeliveredPollInterval = 10 * time.Second

// hasUndelivered reports whether pending change events hold back the deletion of an execution.
// After auditGiveUpAfter, the events are only in memory.
func hasUndelivered(ke *v1alpha1.KubernetesExecution, now time.Time) bool {
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

// isRecorded reports whether the audit of an execution is complete.
func isRecorded(ke *v1alpha1.KubernetesExecution) bool {
	c := findCondition(&ke.Status, v1alpha1.ConditionAuditRecorded)
	return c != nil && c.Status == metav1.ConditionTrue
}

// publishTransition updates metrics, logs, events and the gate after a transition is written.
func (r *reconciler) publishTransition(ctx context.Context, before, ke *v1alpha1.KubernetesExecution) {
	s, now := &ke.Status, r.now()
	r.metrics.countTransitions(before, ke)
	r.log.InfoContext(ctx, "phase", "execution", logKey(ke), "action", canonicalAction(ke.Spec.Action), "target", s.Target,
		"from", string(before.Status.Phase), "to", string(s.Phase), "reason", string(s.Reason), "detail", string(s.ReasonDetail), "message", s.Message)
	done := execution.Ended(s.Phase) || s.Phase == v1alpha1.PhaseRollbackReady
	if done || isChecking(before.Status.Phase) && !isChecking(s.Phase) {
		r.targets.stopWaiting(nameOf(ke))
	}
	if done {
		r.releaseGate(ke, now)
		r.mu.Lock()
		delete(r.launched, ke.UID)
		delete(r.inlineRuns, ke.UID)
		r.mu.Unlock()
	}
	for _, p := range phaseChanges(before, ke) {
		r.emitPhaseEvent(p, ke)
	}
}

// isChecking reports whether the checks of a phase have not passed yet.
func isChecking(p v1alpha1.Phase) bool {
	return p == v1alpha1.PhaseNew || p == v1alpha1.PhaseValidating
}

// phaseChange is one of the transitions in one write.
type phaseChange struct {
	from, to    v1alpha1.Phase
	first, last bool
}

// phaseChanges returns the transitions in one write.
func phaseChanges(before, ke *v1alpha1.KubernetesExecution) (list []phaseChange) {
	from, passed := before.Status.Phase, ke.Status.PhaseTransitions[len(before.Status.PhaseTransitions):]
	for i, t := range passed {
		list = append(list, phaseChange{from: from, to: t.Phase, first: i == 0, last: i == len(passed)-1})
		from = t.Phase
	}
	return list
}

// emitPhaseEvent emits the Kubernetes events of a transition.
func (r *reconciler) emitPhaseEvent(p phaseChange, ke *v1alpha1.KubernetesExecution) {
	s := &ke.Status
	switch p.to {
	case v1alpha1.PhaseRollbackReady:
		switch {
		case s.Outcome == v1alpha1.OutcomeFailed:
			r.events.emitWarning(ke, "ExecutionFailed", s.Message)
		case p.last: // otherwise the event of the next phase reports it
			r.events.emitSucceeded(ke, "ExecutionCompleted")
		}
	case v1alpha1.PhaseCompleted:
		if p.from == v1alpha1.PhaseRollbackReady && p.first { // the result was already reported
			r.events.emitNormal(ke, "ExecutionCompletedPermanent", s.Message)
			return
		}
		r.events.emitSucceeded(ke, "ExecutionCompletedPermanent")
	case v1alpha1.PhaseFailed:
		if p.from != v1alpha1.PhaseRollbackReady { // the failed postcondition was already reported
			r.events.emitFailed(ke)
		}
	case v1alpha1.PhaseExecuting:
		r.events.emitJobCreated(ke)
	case v1alpha1.PhaseNew, v1alpha1.PhaseValidating, v1alpha1.PhaseValidated, v1alpha1.PhaseWaitingApproval:
	}
}

// recordPhaseChange adds the change event of a transition to the status before the write.
func (r *reconciler) recordPhaseChange(t *reconcileState, p phaseChange) {
	s := &t.ke.Status
	succeeded := execution.ChangeSucceeded
	if t.ke.Spec.RollbackOf != nil {
		succeeded = execution.ChangeRolledBack
	}
	switch {
	case p.to == v1alpha1.PhaseRollbackReady && s.Outcome == v1alpha1.OutcomeFailed,
		p.to == v1alpha1.PhaseFailed && p.from != v1alpha1.PhaseRollbackReady:
		r.recordChange(t, execution.ChangeFailed, "", s.Message)
	case p.to == v1alpha1.PhaseRollbackReady, p.to == v1alpha1.PhaseCompleted && p.from == v1alpha1.PhaseExecuting:
		r.recordChange(t, succeeded, t.ke.Spec.RequestedBy, s.Message)
	}
}
