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
func (r *running) runInline(ctx context.Context, state *reconcileState) (job.Observation, error) {
	run, known := r.runs.getInlineRun(state.ke.UID)
	if run.result != nil { // the action has ended, but the write of its result failed
		return *run.result, nil
	}
	neverAttempted := known && run.tries == 0
	a, _ := action.Find(state.ke.Spec.Action)
	if failure := r.checkInlineAttempt(state, a, neverAttempted); failure != nil {
		return job.Observation{State: job.Failed, Failure: failure, Retries: max(0, run.tries-1)}, nil
	}
	if r.slots.gate.Stats().Stopped { // the gate admitted it, but no attempt or retry has started
		state.ke.Status.ReasonDetail = v1alpha1.DetailEmergencyStop
		state.ke.Status.Message = "waiting for the emergency stop to end"
		state.requeueIn(stopPollInterval)
		return job.Observation{}, nil
	}

	client, err := r.identities.Client(ctx, a)
	if err != nil {
		err = fmt.Errorf("use service account of the action: %w", err)
		return r.requeueOrFailInlineStart(ctx, state, err, neverAttempted)
	}
	attempt := run.tries + 1
	if !known {
		attempt++ // an attempt of an earlier operator may exist
		run.earlier.ResultLost = true
	}
	// The attempt is remembered before it starts, so that a repeat is never taken for the first.
	r.runs.inline.Store(state.ke.UID, inlineRun{tries: attempt, earlier: run.earlier})
	result := action.Execute(ctx, client, state.ke.Status.Plan, action.Run{
		Subject:  planSubject(state.ke),
		Attempt:  attempt,
		Deadline: state.now.Add(inlineTimeout),
	})
	if ctx.Err() != nil {
		return job.Observation{}, context.Cause(ctx)
	}
	if result.Code.Retry() && attempt <= maxActionRetries(state.ke, a) {
		run.earlier.Changed = run.earlier.Changed || result.Changed
		r.runs.inline.Store(state.ke.UID, inlineRun{tries: attempt, earlier: run.earlier})
		state.requeueIn(inlineRetryDelay(attempt))
		return job.Observation{}, nil
	}

	observed := job.Observation{
		State:   job.Succeeded,
		Result:  &result,
		Started: &result.Started,
		Ended:   &result.Ended,
		Retries: attempt - 1,
	}
	if result.Code != action.CodeOK {
		observed.State = job.Failed
		observed.Failure = run.earlier.AddTo(job.FailureFromResult(&result))
	}
	r.runs.inline.Store(state.ke.UID, inlineRun{tries: attempt, result: &observed})
	return observed, nil
}

// inlineRetryDelay returns the pause after an attempt. It doubles from one second to 32 seconds.
func inlineRetryDelay(attempt int32) time.Duration {
	const maxDoublings = 5
	return time.Second << min(attempt-1, maxDoublings)
}

// requeueOrFailInlineStart retries an attempt that cannot start at present. After a timeout it returns a failed
// observation.
func (r *running) requeueOrFailInlineStart(
	ctx context.Context, state *reconcileState, cause error, neverAttempted bool,
) (job.Observation, error) {
	failure, err := r.retries.requeueOrFail(ctx, state, cause)
	if failure == nil {
		return job.Observation{}, err
	}
	if !neverAttempted {
		failure.Detail = v1alpha1.DetailResultUnknown
		failure.Message = action.TruncateText("an earlier attempt started and its result is unknown: "+failure.Message, maxMessage)
	}
	return job.Observation{State: job.Failed, Failure: failure}, nil
}

// checkInlineAttempt returns why an inline action may not run, or not again. Nil means that it may run.
// neverAttempted means that no attempt has started.
func (r *running) checkInlineAttempt(state *reconcileState, a *action.Action, neverAttempted bool) *execution.Failure {
	status := &state.ke.Status
	unknownResult := execution.Failure{
		Reason: v1alpha1.ReasonExecutionFailed, Detail: v1alpha1.DetailResultUnknown,
		Message: fmt.Sprintf("the action started, but its result is unknown. "+
			"The controller does not retry the action: check %s", status.Target),
	}
	started := status.ExecutionResults.StartTime
	if a == nil || started == nil { // another version or another client wrote the status
		return &unknownResult
	}
	timedOut := !state.now.Before(started.Add(actionTimeout(state.ke, a)))
	switch {
	case state.ke.Spec.Cancel && neverAttempted:
		failure := cancelledFailure(state.ke)
		return &failure
	case state.ke.Spec.Cancel || r.cfg.DryRun:
		unknownResult.Reason = v1alpha1.ReasonCancelled
		return &unknownResult
	case timedOut && neverAttempted:
		return inlineStartTimeoutFailure(status)
	case timedOut:
		unknownResult.Reason = v1alpha1.ReasonExecutionTimeout
		return &unknownResult
	}
	return nil
}

// inlineStartTimeoutFailure is the failure of an inline action that timed out before its first attempt.
func inlineStartTimeoutFailure(status *v1alpha1.KubernetesExecutionStatus) *execution.Failure {
	detail := v1alpha1.DetailExecutorUnavailable
	if status.ReasonDetail == v1alpha1.DetailEmergencyStop {
		detail = v1alpha1.DetailEmergencyStop
	}
	message := "the action timed out before it could start, and nothing was changed. " + status.Message
	return &execution.Failure{
		Reason: v1alpha1.ReasonExecutionTimeout, Detail: detail, Message: action.TruncateText(message, maxMessage),
	}
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
