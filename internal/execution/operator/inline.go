package operator

import (
	"context"
	"fmt"
	"time"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/job"
)

// inlineTimeout limits an action that runs in this process, because it blocks a reconcile.
const inlineTimeout = 20 * time.Second

// stopPollInterval is how often an inline action checks whether an emergency stop is over.
const stopPollInterval = 2 * time.Second

// inlineRun is the state of an inline action, which only this process knows.
type inlineRun struct {
	tries  int32
	result *job.Observation // the result until it is written
}

// runInline runs the action in this process, as the service account of the action. A second run
// finds the changes of the first.
func (r *reconciler) runInline(ctx context.Context, t *reconcileState) error {
	r.mu.Lock()
	known, ours := r.inlineRuns[t.ke.UID]
	r.mu.Unlock()
	if known.result != nil { // the result is known, but its write failed
		return r.finishAction(ctx, t, *known.result)
	}
	a, _ := action.Find(t.ke.Spec.Action)
	if failure := r.inlineRefusal(t, a, ours && known.tries == 0); failure != nil {
		return r.finishAction(ctx, t, job.Observation{State: job.Failed, Failure: failure, Retries: max(0, known.tries-1)})
	}
	if r.gate.Stats().Stopped { // the gate admitted it, but no attempt or retry has started
		s := &t.ke.Status
		s.ReasonDetail, s.Message = v1alpha1.DetailEmergencyStop, "waiting for the emergency stop to end"
		t.requeueIn(stopPollInterval)
		return nil
	}
	attempt := known.tries + 1
	if !ours {
		attempt++ // an attempt of an earlier operator may exist
	}
	c, err := r.identities.Client(ctx, a)
	if err != nil {
		return r.retryOrFailUnavailable(ctx, t, fmt.Errorf("use service account of the action: %w", err))
	}
	r.mu.Lock()
	r.inlineRuns[t.ke.UID] = inlineRun{tries: attempt}
	r.mu.Unlock()
	result := action.Execute(ctx, c, t.ke.Status.Plan, action.Run{
		Subject: subjectOf(t.ke), Attempt: attempt, Deadline: t.now.Add(inlineTimeout),
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if result.Code.Retry() && attempt <= maxRetriesFor(t.ke, a) {
		t.requeueIn(time.Second << min(attempt-1, 5))
		return nil
	}
	o := job.Observation{State: job.Succeeded, Result: &result, Started: &result.Started, Ended: &result.Ended, Retries: attempt - 1}
	if result.Code != action.CodeOK {
		o.State, o.Failure = job.Failed, job.FailureOf(&result)
	}
	r.mu.Lock()
	r.inlineRuns[t.ke.UID] = inlineRun{tries: attempt, result: &o}
	r.mu.Unlock()
	return r.finishAction(ctx, t, o)
}

// markUnknownIfAttempted returns the failure of an inline action that cannot run, or cannot run again. The
// result is unknown if an earlier attempt may have started.
func (r *reconciler) markUnknownIfAttempted(t *reconcileState, f execution.Failure) *execution.Failure {
	r.mu.Lock()
	known, ours := r.inlineRuns[t.ke.UID]
	r.mu.Unlock()
	if !ours || known.tries > 0 {
		f.Detail = v1alpha1.DetailResultUnknown
		f.Message = truncateText("an earlier attempt started and its result is unknown: "+f.Message, maxMessage)
	}
	return &f
}

// inlineRefusal returns why an inline action may not run, or not again. Nil means that it may run.
// neverAttempted means that no attempt has started.
func (r *reconciler) inlineRefusal(t *reconcileState, a *action.Action, neverAttempted bool) *execution.Failure {
	unknown := execution.Failure{
		Reason: v1alpha1.ReasonExecutionFailed, Detail: v1alpha1.DetailResultUnknown,
		Message: fmt.Sprintf("the action started, but its result is unknown. The controller does not retry the action: check %s", t.ke.Status.Target),
	}
	started := t.ke.Status.ExecutionResults.StartTime
	switch {
	case a == nil || started == nil:
		return &unknown
	case t.ke.Spec.Cancel && neverAttempted:
		failure := cancelledFailure(t.ke)
		return &failure
	case t.ke.Spec.Cancel || r.cfg.DryRun:
		unknown.Reason = v1alpha1.ReasonCancelled
		return &unknown
	case !t.now.Before(started.Add(timeoutFor(t.ke, a))) && neverAttempted:
		detail := v1alpha1.DetailExecutorUnavailable
		if t.ke.Status.ReasonDetail == v1alpha1.DetailEmergencyStop {
			detail = v1alpha1.DetailEmergencyStop
		}
		return &execution.Failure{
			Reason: v1alpha1.ReasonExecutionTimeout, Detail: detail,
			Message: truncateText("the action timed out before it could start, and nothing was changed. "+t.ke.Status.Message, maxMessage),
		}
	case !t.now.Before(started.Add(timeoutFor(t.ke, a))):
		unknown.Reason = v1alpha1.ReasonExecutionTimeout
		return &unknown
	}
	return nil
}

// maxRetriesFor returns how often an action may be retried.
func maxRetriesFor(ke *v1alpha1.KubernetesExecution, a *action.Action) int32 {
	if ke.Spec.MaxRetries != nil {
		return *ke.Spec.MaxRetries
	}
	return a.Retries
}
