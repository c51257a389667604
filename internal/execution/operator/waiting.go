package operator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
)

// executorUnavailable is the reason of the condition Queued while no executor can run the action.
const executorUnavailable = "ExecutorUnavailable"

// startRetries retries the start of actions that cannot start at present.
type startRetries struct {
	cfg    *Config
	runs   *runs
	slots  *gateSlots
	events *eventEmitter
	log    *slog.Logger
}

// retryOrGiveUp retries a start that cannot succeed at present, such as a Job that a quota forbids. It
// shows the cause in the status. After a timeout it returns the failure that ends the execution.
func (r *startRetries) retryOrGiveUp(ctx context.Context, t *reconcileState, cause error) (failure *execution.Failure, err error) {
	if ctx.Err() != nil {
		return nil, cause
	}
	s := &t.ke.Status
	message := truncateText(cause.Error(), maxMessage)
	queued := findCondition(s, v1alpha1.ConditionQueued)
	if failure := r.timeoutFailure(t, queued, message); failure != nil {
		// The last attempt may have created the Job although its response was an error.
		if j, err := r.runs.jobs.Job(ctx, t.ke, runName(t.ke), true); err != nil || j != nil {
			return nil, err
		}
		return failure, nil
	}
	s.ReasonDetail = v1alpha1.DetailExecutorUnavailable
	if queued == nil || queued.Reason != executorUnavailable {
		removeCondition(s, v1alpha1.ConditionQueued)
		s.Message = message
		setCondition(t, v1alpha1.ConditionQueued, metav1.ConditionTrue, executorUnavailable, message)
		t.addAfterWrite(func(ctx context.Context) {
			r.events.emitWarning(t.ke, executorUnavailable, message)
			r.log.WarnContext(ctx, "action not started, retrying", "execution", logKey(t.ke), "err", cause)
		})
	}
	wait := 5 * time.Second
	if retry := (*execution.RetryError)(nil); errors.As(cause, &retry) {
		wait = retry.After // a late retry loses its place
	}
	t.requeueIn(wait)
	return nil, nil
}

// timeoutFailure returns the failure of a start that has been retried for too long. Nil means that it
// is retried. An execution that is blocked alternately by this and by the gate also fails, because
// its queue time continues.
func (r *startRetries) timeoutFailure(t *reconcileState, queued *metav1.Condition, why string) *execution.Failure {
	failure := execution.Failure{Reason: v1alpha1.ReasonExecutionFailed, Detail: v1alpha1.DetailExecutorUnavailable, Message: why}
	end := r.slots.gate.Deadline(readyTime(t.ke))
	switch {
	case queued == nil:
		return nil // retry at least once
	case queued.Reason == executorUnavailable && !t.now.Before(queued.LastTransitionTime.Add(r.cfg.CheckTimeout)):
		return &failure
	case t.ke.Status.Phase != v1alpha1.PhaseExecuting && !t.now.Before(end): // a running action has its own timeout
		failure.Reason = v1alpha1.ReasonExecutionTimeout
		failure.Message = truncateText(fmt.Sprintf("the action could not start by %s: %s", end.UTC().Format(time.RFC3339), why), maxMessage)
		return &failure
	}
	return nil
}
