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

// runInline runs the action in this process, as the service account of the action. A second run
// finds the changes of the first. The zero observation means that another attempt follows.
func (r *running) runInline(ctx context.Context, t *reconcileState) (job.Observation, error) {
	known, ours := r.runs.getInlineRun(t.ke.UID)
	if known.result != nil { // the result is known, but its write failed
		return *known.result, nil
	}
	a, _ := action.Find(t.ke.Spec.Action)
	if failure := r.inlineRunFailure(t, a, ours && known.tries == 0); failure != nil {
		return job.Observation{State: job.Failed, Failure: failure, Retries: max(0, known.tries-1)}, nil
	}
	if r.slots.gate.Stats().Stopped { // the gate admitted it, but no attempt or retry has started
		s := &t.ke.Status
		s.ReasonDetail, s.Message = v1alpha1.DetailEmergencyStop, "waiting for the emergency stop to end"
		t.requeueIn(stopPollInterval)
		return job.Observation{}, nil
	}
	attempt := known.tries + 1
	if !ours {
		attempt++ // an attempt of an earlier operator may exist
	}
	c, err := r.identities.Client(ctx, a)
	if err != nil {
		failure, err := r.retries.requeueOrFail(ctx, t, fmt.Errorf("use service account of the action: %w", err))
		if failure == nil {
			return job.Observation{}, err
		}
		if !ours || known.tries > 0 {
			failure.Detail = v1alpha1.DetailResultUnknown
			failure.Message = action.TruncateText("an earlier attempt started and its result is unknown: "+failure.Message, maxMessage)
		}
		return job.Observation{State: job.Failed, Failure: failure}, nil
	}
	r.runs.inline.Store(t.ke.UID, inlineRun{tries: attempt})
	result := action.Execute(ctx, c, t.ke.Status.Plan, action.Run{
		Subject: planSubject(t.ke), Attempt: attempt, Deadline: t.now.Add(inlineTimeout),
	})
	if ctx.Err() != nil {
		return job.Observation{}, context.Cause(ctx)
	}
	if result.Code.Retry() && attempt <= maxActionRetries(t.ke, a) {
		t.requeueIn(time.Second << min(attempt-1, 5))
		return job.Observation{}, nil
	}
	o := job.Observation{State: job.Succeeded, Result: &result, Started: &result.Started, Ended: &result.Ended, Retries: attempt - 1}
	if result.Code != action.CodeOK {
		o.State, o.Failure = job.Failed, job.FailureFromResult(&result)
	}
	r.runs.inline.Store(t.ke.UID, inlineRun{tries: attempt, result: &o})
	return o, nil
}

// inlineRunFailure returns why an inline action may not run, or not again. Nil means that it may run.
// neverAttempted means that no attempt has started.
func (r *running) inlineRunFailure(t *reconcileState, a *action.Action, neverAttempted bool) *execution.Failure {
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
	case !t.now.Before(started.Add(actionTimeout(t.ke, a))) && neverAttempted:
		detail := v1alpha1.DetailExecutorUnavailable
		if t.ke.Status.ReasonDetail == v1alpha1.DetailEmergencyStop {
			detail = v1alpha1.DetailEmergencyStop
		}
		return &execution.Failure{
			Reason: v1alpha1.ReasonExecutionTimeout, Detail: detail,
			Message: action.TruncateText("the action timed out before it could start, and nothing was changed. "+t.ke.Status.Message, maxMessage),
		}
	case !t.now.Before(started.Add(actionTimeout(t.ke, a))):
		unknown.Reason = v1alpha1.ReasonExecutionTimeout
		return &unknown
	}
	return nil
}

// maxActionRetries returns how often an action may be retried.
func maxActionRetries(ke *v1alpha1.KubernetesExecution, a *action.Action) int32 {
	if ke.Spec.MaxRetries != nil {
		return *ke.Spec.MaxRetries
	}
	return a.Retries
}

// actionTimeout returns how long an execution of an action may take.
func actionTimeout(ke *v1alpha1.KubernetesExecution, a *action.Action) time.Duration {
	if ke.Spec.Timeout != nil {
		return ke.Spec.Timeout.Duration
	}
	return a.Timeout
}
