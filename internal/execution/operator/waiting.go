package operator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/action"
)

// executorUnavailable is the reason of the condition Queued while no executor can run the action.
const executorUnavailable = "ExecutorUnavailable"

// startRetryDelay is the delay before a start that cannot succeed at present is retried.
const startRetryDelay = 5 * time.Second

// startRetries retries the start of actions that cannot start at present.
type startRetries struct {
	cfg    *Config
	runs   *runs
	slots  *gateSlots
	events *eventEmitter
	log    *slog.Logger
}

// requeueOrFail retries a start that cannot succeed at present, such as a Job that a quota forbids. It
// shows the cause in the status. After a timeout it returns the failure that ends the execution.
func (r *startRetries) requeueOrFail(ctx context.Context, state *reconcileState, cause error) (failure *execution.Failure, err error) {
	if ctx.Err() != nil {
		return nil, cause
	}
	status := &state.ke.Status
	message := action.TruncateText(cause.Error(), maxMessage)
	queued := findCondition(status, v1alpha1.ConditionQueued)
	if failure := r.failureIfRetriedTooLong(state, queued, message); failure != nil {
		// The last attempt may have created the Job although its response was an error. The next
		// reconcile adopts that Job.
		j, err := r.runs.jobs.Job(ctx, state.ke, actionJobName(state.ke), true)
		if err != nil || j != nil {
			return nil, err
		}
		return failure, nil
	}

	status.ReasonDetail = v1alpha1.DetailExecutorUnavailable
	if queued == nil || queued.Reason != executorUnavailable {
		removeCondition(status, v1alpha1.ConditionQueued)
		status.Message = message
		setCondition(state, v1alpha1.ConditionQueued, metav1.ConditionTrue, executorUnavailable, message)
		state.addAfterWrite(func(ctx context.Context) {
			r.events.emitWarning(state.ke, executorUnavailable, message)
			r.log.WarnContext(ctx, "action not started, retrying", "execution", logKey(state.ke), "err", cause)
		})
	}
	delay := startRetryDelay
	if retry, ok := errors.AsType[*execution.RetryError](cause); ok {
		delay = retry.After // a late retry loses its place
	}
	state.requeueIn(delay)
	return nil, nil
}

// failureIfRetriedTooLong returns the failure of a start that has been retried for too long. Nil means
// that it is retried. An execution that is blocked alternately by this and by the gate also fails,
// because its queue time continues.
func (r *startRetries) failureIfRetriedTooLong(state *reconcileState, queued *metav1.Condition, why string) *execution.Failure {
	if queued == nil {
		return nil // retry at least once
	}
	retriesEnd := queued.LastTransitionTime.Add(r.cfg.CheckTimeout)
	if queued.Reason == executorUnavailable && !state.now.Before(retriesEnd) {
		return &execution.Failure{
			Reason: v1alpha1.ReasonExecutionFailed, Detail: v1alpha1.DetailExecutorUnavailable, Message: why,
		}
	}
	queueEnd := r.slots.gate.QueueDeadline(readyTime(state.ke))
	isRunning := state.ke.Status.Phase == v1alpha1.PhaseExecuting // a running action has its own timeout
	if !isRunning && !state.now.Before(queueEnd) {
		message := fmt.Sprintf("the action could not start by %s: %s", queueEnd.UTC().Format(time.RFC3339), why)
		return &execution.Failure{
			Reason: v1alpha1.ReasonExecutionTimeout, Detail: v1alpha1.DetailExecutorUnavailable,
			Message: action.TruncateText(message, maxMessage),
		}
	}
	return nil
}

// gateSlots takes and releases the slots of executions at the gate.
type gateSlots struct {
	gate *execution.Gate

	mu      sync.Mutex
	claimed map[types.NamespacedName]types.UID // executions that the gate knows, by name
}

// enter asks the gate for a slot.
func (g *gateSlots) enter(ke *v1alpha1.KubernetesExecution, now time.Time) execution.GateVerdict {
	c := newGateClaim(ke)
	g.mu.Lock()
	g.claimed[c.Key] = c.UID
	g.mu.Unlock()
	return g.gate.EnterOrQueue(c, now)
}

// forceEnter makes the gate count a running execution, even if the gate refuses it.
func (g *gateSlots) forceEnter(ke *v1alpha1.KubernetesExecution, now time.Time) {
	if g.enter(ke, now).In {
		return
	}
	c := newGateClaim(ke)
	g.gate.Forget(c.UID)
	g.gate.Restore([]execution.Claim{c}, nil)
}

// restore loads running and past executions into the gate.
func (g *gateSlots) restore(inside []execution.Claim, past []execution.PastExecution) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, claim := range inside {
		// Otherwise an execution that is deleted before its first reconcile would keep its slot.
		g.claimed[claim.Key] = claim.UID
	}
	g.gate.Restore(inside, past)
}

// takePreviousClaim removes and returns the claim of a name, unless it belongs to the current execution.
func (g *gateSlots) takePreviousClaim(name types.NamespacedName, currentUID types.UID) (previous types.UID, found bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	previous, found = g.claimed[name]
	if !found || previous == currentUID {
		return "", false
	}
	delete(g.claimed, name)
	return previous, true
}

// releaseSlotAndRecordOutcome releases the slot of an execution that is over, if it still has one.
func (g *gateSlots) releaseSlotAndRecordOutcome(ke *v1alpha1.KubernetesExecution, now time.Time) {
	status := &ke.Status
	switch {
	case status.ExecutionResults == nil: // nothing was executed
		g.gate.Forget(ke.UID)
	case status.Reason == v1alpha1.ReasonCancelled: // a cancel is no result of the action
		g.gate.Leave(ke.UID, "", now)
	default:
		g.gate.Leave(ke.UID, status.Outcome, now)
	}
}

// newGateClaim returns the claim of an execution for the gate.
func newGateClaim(ke *v1alpha1.KubernetesExecution) execution.Claim {
	claim := execution.Claim{
		UID:       ke.UID,
		Key:       nameOf(ke),
		Action:    ke.Spec.Action,
		Requester: ke.Spec.RequestedBy,
		Rollback:  ke.Spec.RollbackOf != nil,
		Created:   ke.CreationTimestamp.Time,
		Since:     readyTime(ke), // possibly at an earlier operator
	}
	if plan := ke.Status.Plan; plan != nil {
		claim.Action = plan.Action // the request may name an alias
		claim.Target = execution.TargetKey(plan.Target)
		claim.TargetNamespace = plan.Target.Namespace
		claim.Node = plan.Target.Kind == "Node"
	}
	if a, known := action.Find(claim.Action); known && a.ReadOnly {
		claim.ReadOnly = true
		claim.Node = false
	}
	return claim
}

// readyTime returns when an execution was first ready to run. From then on it waits for the gate or
// for its Job. Zero means that it is not ready yet.
func readyTime(ke *v1alpha1.KubernetesExecution) time.Time {
	if a := ke.Status.Approval; a != nil && a.State == v1alpha1.ApprovalApproved && a.DecidedAt != nil {
		return a.DecidedAt.Time
	}
	return execution.PhaseStartOrNow(ke, v1alpha1.PhaseValidated, time.Time{})
}

// newGatePast returns a finished execution for the gate.
func newGatePast(ke *v1alpha1.KubernetesExecution) (past execution.PastExecution, finished bool) {
	status := &ke.Status
	if status.ExecutionResults == nil || status.ExecutionResults.EndTime == nil || status.Plan == nil {
		return execution.PastExecution{}, false
	}
	past = execution.PastExecution{
		Action:  status.Plan.Action,
		Target:  execution.TargetKey(status.Plan.Target),
		Outcome: status.Outcome,
		Ended:   status.ExecutionResults.EndTime.Time,
	}
	if status.Reason == v1alpha1.ReasonCancelled { // a cancel is no result of the action
		past.Outcome = ""
	}
	return past, true
}
