package operator

import (
	"context"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/job"
)

// settle gives the parent its time to look at what was done.
func (r *reconciler) settle(ctx context.Context, t *turn) error {
	r.leaveGate(t.ke, t.now) // if the answer was lost to the write that said so
	if err := r.expireRun(ctx, t.ke); err != nil {
		return err
	}
	end := since(t.ke, v1alpha1.PhaseRollbackReady, t.now).Add(r.cfg.RollbackWindow)
	if !t.ke.Spec.Finalize && t.now.Before(end) {
		t.until(end)
		return nil
	}
	settled(t)
	return nil
}

// settled ends what can be taken back and is not going to be.
func settled(t *turn) {
	if t.ke.Status.Outcome == v1alpha1.OutcomeFailed {
		enter(t, v1alpha1.PhaseFailed)
		return
	}
	enter(t, v1alpha1.PhaseCompleted)
}

// keep keeps an execution that has ended as long as it should be.
func (r *reconciler) keep(ctx context.Context, t *turn) error {
	r.leaveGate(t.ke, t.now)
	if err := r.expireRun(ctx, t.ke); err != nil {
		return err
	}
	if r.cfg.Audited && !recorded(t.ke) {
		return nil // the auditor's write wakes it
	}
	if !r.cfg.Audited && len(t.ke.Status.PendingChangeEvents) == 0 { // else the auditor does
		if err := r.executions.SetFinalizer(ctx, t.ke, false); err != nil {
			return fresh(err)
		}
	}
	ttl := r.cfg.TTL
	if own := t.ke.Spec.TTLSecondsAfterFinished; own != nil {
		ttl = time.Duration(*own) * time.Second
	}
	end := since(t.ke, t.ke.Status.Phase, t.now).Add(ttl)
	if t.now.Before(end) {
		t.until(end)
		return nil
	}
	if len(t.ke.Status.PendingChangeEvents) > 0 { // until sinks have them, or they are too old
		t.wait(undeliveredAgain)
		return nil
	}
	if err := r.executions.Delete(ctx, t.ke); err != nil {
		return err
	}
	r.metrics.deleted.Inc()
	return nil
}

// leaveGate gives up the turn of an execution that is over, if it still has it.
func (r *reconciler) leaveGate(ke *v1alpha1.KubernetesExecution, now time.Time) {
	s := &ke.Status
	switch {
	case s.ExecutionResults == nil: // nothing was done
		r.gate.Forget(ke.UID)
	case s.Reason == v1alpha1.ReasonCancelled: // which says nothing of the action
		r.gate.Leave(ke.UID, "", now)
	default:
		r.gate.Leave(ke.UID, s.Outcome, now)
	}
}

// expireRun lets the Jobs of an execution go after a while: their results are
// stored.
func (r *reconciler) expireRun(ctx context.Context, ke *v1alpha1.KubernetesExecution) error {
	for _, name := range []string{ke.Status.JobName, job.Name(ke.UID, v1alpha1.PurposeDryRun, 1)} {
		if name == "" {
			continue
		}
		j, err := r.jobs.Job(ctx, ke, name, false)
		switch {
		case err != nil:
		case j == nil:
		case abandoned(ke, j):
			err = r.abandon(ctx, j)
		default:
			err = r.expire(ctx, j)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// abandoned says whether a Job tries something out, or did, for which nobody has
// waited up to its end.
func abandoned(ke *v1alpha1.KubernetesExecution, j *batchv1.Job) bool {
	return ke.Status.Reason == v1alpha1.ReasonCancelled && j.Labels[v1alpha1.LabelPurpose] == v1alpha1.PurposeDryRun &&
		j.Spec.TTLSecondsAfterFinished == nil
}

// abandon ends a dry run that nobody waits for any more: it would run up to its
// deadline. What it finds is of no use, and so it need not say it.
func (r *reconciler) abandon(ctx context.Context, j *batchv1.Job) error {
	pods, err := r.jobs.Pods(ctx, j, false)
	if err != nil {
		return err
	}
	if o := job.Observe(j, pods, r.now()); o.State == job.Succeeded || o.State == job.Failed {
		return r.expire(ctx, j)
	}
	if !j.DeletionTimestamp.IsZero() {
		return nil
	}
	return r.jobs.Delete(ctx, j)
}

func (r *reconciler) expire(ctx context.Context, j *batchv1.Job) error {
	if j.Spec.TTLSecondsAfterFinished != nil {
		return nil
	}
	return r.jobs.Patch(ctx, j, map[string]any{"ttlSecondsAfterFinished": int64(r.cfg.JobTTL.Seconds())})
}

// lastWord is for how long an execution that somebody deletes is held back so
// that what runs can say what it did.
const lastWord = time.Minute

// deleted stops what is under way for an execution that somebody deletes. The
// auditor lets it go.
func (r *reconciler) deleted(ctx context.Context, t *turn) error {
	if underWay(t.ke, t.now) {
		t.until(t.ke.DeletionTimestamp.Add(lastWord))
		if t.ke.Status.Phase == v1alpha1.PhaseExecuting {
			t.ke.Spec.Cancel = true
			return r.watch(ctx, t)
		}
		taken, err := r.adopt(ctx, t)
		if err == nil && !taken {
			fail(t, execution.Failure{Reason: v1alpha1.ReasonCancelled, Message: "the execution was deleted before anything was changed"})
		}
		return err
	}
	for _, name := range []string{runName(t.ke), t.ke.Status.JobName} {
		if name == "" {
			continue
		}
		j, err := r.jobs.Job(ctx, t.ke, name, false)
		if err != nil {
			return err
		}
		if j != nil && j.DeletionTimestamp.IsZero() {
			if err := r.jobs.Delete(ctx, j); err != nil {
				return err
			}
		}
	}
	r.gate.Forget(t.ke.UID)
	switch {
	case undelivered(t.ke, t.now):
		t.wait(undeliveredAgain)
	case !r.cfg.Audited: // and so has no auditor
		return ignored(r.executions.SetFinalizer(ctx, t.ke, false))
	}
	return nil
}

// undeliveredAgain is how often it is seen whether the change events of an execution
// that is to go are delivered, in case that was missed.
const undeliveredAgain = 10 * time.Second

// undelivered reports whether an execution that somebody deletes is held back for its
// change events. After that time they are in memory alone.
func undelivered(ke *v1alpha1.KubernetesExecution, now time.Time) bool {
	return len(ke.Status.PendingChangeEvents) > 0 && now.Before(ke.DeletionTimestamp.Add(giveUp))
}

// underWay says whether an execution that somebody deletes is to be heard first:
// one that is held runs, or was about to.
func underWay(ke *v1alpha1.KubernetesExecution, now time.Time) bool {
	switch ke.Status.Phase {
	case v1alpha1.PhaseValidated, v1alpha1.PhaseWaitingApproval, v1alpha1.PhaseExecuting:
		return slices.Contains(ke.Finalizers, v1alpha1.Finalizer) && now.Before(ke.DeletionTimestamp.Add(lastWord))
	case v1alpha1.PhaseNew, v1alpha1.PhaseValidating, v1alpha1.PhaseRollbackReady, v1alpha1.PhaseCompleted, v1alpha1.PhaseFailed:
	}
	return false
}

// recorded says whether what became of an execution is in the audit.
func recorded(ke *v1alpha1.KubernetesExecution) bool {
	c := condition(&ke.Status, v1alpha1.ConditionAuditRecorded)
	return c != nil && c.Status == metav1.ConditionTrue
}

// passed tells of a transition that is written.
func (r *reconciler) passed(ctx context.Context, before, ke *v1alpha1.KubernetesExecution) {
	s, now := &ke.Status, r.now()
	r.metrics.passed(before, ke)
	r.log.InfoContext(ctx, "phase", "execution", key(ke), "action", canonical(ke.Spec.Action), "target", s.Target,
		"from", string(before.Status.Phase), "to", string(s.Phase), "reason", string(s.Reason), "detail", string(s.ReasonDetail), "message", s.Message)
	done := execution.Ended(s.Phase) || s.Phase == v1alpha1.PhaseRollbackReady
	if done || checking(before.Status.Phase) && !checking(s.Phase) {
		r.targets.leave(nameOf(ke))
	}
	if done {
		r.leaveGate(ke, now)
		r.mu.Lock()
		delete(r.launched, ke.UID)
		delete(r.begun, ke.UID)
		r.mu.Unlock()
	}
	for _, p := range passages(before, ke) {
		r.announce(p, ke)
	}
}

// checking says whether checks are yet to pass, or to be made.
func checking(p v1alpha1.Phase) bool {
	return p == v1alpha1.PhaseNew || p == v1alpha1.PhaseValidating
}

// A passage is one of the transitions that were one write.
type passage struct {
	from, to    v1alpha1.Phase
	first, last bool
}

// passages are the transitions of one write.
func passages(before, ke *v1alpha1.KubernetesExecution) (list []passage) {
	from, passed := before.Status.Phase, ke.Status.PhaseTransitions[len(before.Status.PhaseTransitions):]
	for i, t := range passed {
		list = append(list, passage{from: from, to: t.Phase, first: i == 0, last: i == len(passed)-1})
		from = t.Phase
	}
	return list
}

// announce tells people of a transition.
func (r *reconciler) announce(p passage, ke *v1alpha1.KubernetesExecution) {
	s := &ke.Status
	switch p.to {
	case v1alpha1.PhaseRollbackReady:
		switch {
		case s.Outcome == v1alpha1.OutcomeFailed:
			r.tell.warn(ke, "ExecutionFailed", s.Message)
		case p.last: // or its end says the same
			r.tell.done(ke, "ExecutionCompleted")
		}
	case v1alpha1.PhaseCompleted:
		if p.from == v1alpha1.PhaseRollbackReady && p.first { // what was done was told
			r.tell.say(ke, "ExecutionCompletedPermanent", s.Message)
			return
		}
		r.tell.done(ke, "ExecutionCompletedPermanent")
	case v1alpha1.PhaseFailed:
		if p.from != v1alpha1.PhaseRollbackReady { // it was told when the postcondition did not hold
			r.tell.failed(ke)
		}
	case v1alpha1.PhaseExecuting:
		r.tell.began(ke)
	case v1alpha1.PhaseNew, v1alpha1.PhaseValidating, v1alpha1.PhaseValidated, v1alpha1.PhaseWaitingApproval:
	}
}

// reportPassage records the change event of a transition that is about to be written.
func (r *reconciler) reportPassage(t *turn, p passage) {
	s := &t.ke.Status
	succeeded := execution.ChangeSucceeded
	if t.ke.Spec.RollbackOf != nil {
		succeeded = execution.ChangeRolledBack
	}
	switch {
	case p.to == v1alpha1.PhaseRollbackReady && s.Outcome == v1alpha1.OutcomeFailed,
		p.to == v1alpha1.PhaseFailed && p.from != v1alpha1.PhaseRollbackReady:
		r.report(t, execution.ChangeFailed, "", s.Message)
	case p.to == v1alpha1.PhaseRollbackReady, p.to == v1alpha1.PhaseCompleted && p.from == v1alpha1.PhaseExecuting:
		r.report(t, succeeded, t.ke.Spec.RequestedBy, s.Message)
	}
}
