package operator

import (
	"context"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
)

// settle gives the parent its time to look at what was done.
func (r *reconciler) settle(ctx context.Context, t *turn) error {
	if err := r.expireRun(ctx, t.ke); err != nil {
		return err
	}
	end := since(t.ke, v1alpha1.PhaseRollbackReady, t.now).Add(r.cfg.RollbackWindow)
	if !t.ke.Spec.Finalize && t.now.Before(end) {
		t.until(end)
		return nil
	}
	if t.ke.Status.Outcome == v1alpha1.OutcomeFailed {
		enter(t, v1alpha1.PhaseFailed)
		return nil
	}
	enter(t, v1alpha1.PhaseCompleted)
	return nil
}

// keep keeps an execution that has ended as long as it should be.
func (r *reconciler) keep(ctx context.Context, t *turn) error {
	if err := r.expireRun(ctx, t.ke); err != nil {
		return err
	}
	if r.cfg.Audited && !recorded(t.ke) {
		return nil // the auditor's write wakes it
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
	return r.executions.Delete(ctx, t.ke)
}

// expireRun lets the Job of an execution go after a while: its result is
// stored.
func (r *reconciler) expireRun(ctx context.Context, ke *v1alpha1.KubernetesExecution) error {
	if ke.Status.JobName == "" {
		return nil
	}
	j, err := r.jobs.Job(ctx, ke, ke.Status.JobName, false)
	if err != nil || j == nil {
		return err
	}
	return r.expire(ctx, j)
}

func (r *reconciler) expire(ctx context.Context, j *batchv1.Job) error {
	if j.Spec.TTLSecondsAfterFinished != nil {
		return nil
	}
	return r.jobs.Patch(ctx, j, map[string]any{"ttlSecondsAfterFinished": int64(r.cfg.JobTTL.Seconds())})
}

// deleted stops what is under way for an execution that somebody deletes. The
// auditor lets it go.
func (r *reconciler) deleted(ctx context.Context, t *turn) error {
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
	return nil
}

// recorded says whether what became of an execution is in the audit.
func recorded(ke *v1alpha1.KubernetesExecution) bool {
	c := condition(&ke.Status, v1alpha1.ConditionAuditRecorded)
	return c != nil && c.Status == metav1.ConditionTrue
}

// passed tells of a transition that is written.
func (r *reconciler) passed(ctx context.Context, before, ke *v1alpha1.KubernetesExecution, now time.Time) {
	s := &ke.Status
	r.metrics.passed(before, ke, now)
	r.log.InfoContext(ctx, "phase", "execution", key(ke), "action", ke.Spec.Action, "target", s.Target,
		"from", string(before.Status.Phase), "to", string(s.Phase), "reason", string(s.Reason), "detail", string(s.ReasonDetail), "message", s.Message)
	done := execution.Ended(s.Phase) || s.Phase == v1alpha1.PhaseRollbackReady
	if done || before.Status.Phase == v1alpha1.PhaseValidating {
		r.targets.leave(nameOf(ke))
	}
	ran := before.Status.Phase == v1alpha1.PhaseExecuting
	switch {
	case done && ran:
		r.leave(ke.UID, s.Outcome, now)
	case done:
		r.leave(ke.UID, "", now)
	}
	if done {
		r.mu.Lock()
		delete(r.launched, ke.UID)
		r.mu.Unlock()
	}
	r.announce(ctx, before, ke)
}

// announce tells people and other systems.
func (r *reconciler) announce(ctx context.Context, before, ke *v1alpha1.KubernetesExecution) {
	s := &ke.Status
	switch s.Phase {
	case v1alpha1.PhaseRollbackReady:
		if s.Outcome == v1alpha1.OutcomeFailed {
			r.tell.warn(ke, "ExecutionFailed", s.Message)
			r.change(ctx, ke, execution.ChangeFailed, "", s.Message)
			return
		}
		r.tell.say(ke, "ExecutionCompleted", s.Message)
		r.succeeded(ctx, ke)
	case v1alpha1.PhaseCompleted:
		r.tell.say(ke, "ExecutionCompletedPermanent", s.Message)
		if before.Status.Phase == v1alpha1.PhaseExecuting {
			r.succeeded(ctx, ke)
		}
	case v1alpha1.PhaseFailed:
		if before.Status.Phase == v1alpha1.PhaseRollbackReady {
			return // it was told when the postcondition did not hold
		}
		r.tell.warn(ke, "ExecutionFailed", string(s.Reason)+": "+s.Message)
		r.change(ctx, ke, execution.ChangeFailed, "", s.Message)
	case v1alpha1.PhaseNew, v1alpha1.PhaseValidating, v1alpha1.PhaseValidated, v1alpha1.PhaseWaitingApproval, v1alpha1.PhaseExecuting:
	}
}

func (r *reconciler) succeeded(ctx context.Context, ke *v1alpha1.KubernetesExecution) {
	what := execution.ChangeSucceeded
	if ke.Spec.RollbackOf != nil {
		what = execution.ChangeRolledBack
	}
	r.change(ctx, ke, what, ke.Spec.RequestedBy, ke.Status.Message)
}
