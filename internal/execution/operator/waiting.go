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
func (r *startRetries) requeueOrFail(ctx context.Context, t *reconcileState, cause error) (failure *execution.Failure, err error) {
	if ctx.Err() != nil {
		return nil, cause
	}
	s := &t.ke.Status
	message := action.TruncateText(cause.Error(), maxMessage)
	queued := findCondition(s, v1alpha1.ConditionQueued)
	if failure := r.failureIfRetriedTooLong(t, queued, message); failure != nil {
		// The last attempt may have created the Job although its response was an error.
		if j, err := r.runs.jobs.Job(ctx, t.ke, actionJobName(t.ke), true); err != nil || j != nil {
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

// failureIfRetriedTooLong returns the failure of a start that has been retried for too long. Nil means that it
// is retried. An execution that is blocked alternately by this and by the gate also fails, because
// its queue time continues.
func (r *startRetries) failureIfRetriedTooLong(t *reconcileState, queued *metav1.Condition, why string) *execution.Failure {
	failure := execution.Failure{Reason: v1alpha1.ReasonExecutionFailed, Detail: v1alpha1.DetailExecutorUnavailable, Message: why}
	end := r.slots.gate.QueueDeadline(readyTime(t.ke))
	switch {
	case queued == nil:
		return nil // retry at least once
	case queued.Reason == executorUnavailable && !t.now.Before(queued.LastTransitionTime.Add(r.cfg.CheckTimeout)):
		return &failure
	case t.ke.Status.Phase != v1alpha1.PhaseExecuting && !t.now.Before(end): // a running action has its own timeout
		failure.Reason = v1alpha1.ReasonExecutionTimeout
		failure.Message = action.TruncateText(fmt.Sprintf("the action could not start by %s: %s", end.UTC().Format(time.RFC3339), why), maxMessage)
		return &failure
	}
	return nil
}

// gateSlots takes and releases the slots of executions at the gate.
type gateSlots struct {
	gate *execution.Gate

	mu      sync.Mutex
	claimed map[types.NamespacedName]types.UID // executions that the gate knows
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
	for _, c := range inside {
		g.claimed[c.Key] = c.UID // otherwise an execution that is deleted before its first reconcile would keep its slot
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

// releaseSlot releases the slot of an execution that is over, if it still has one.
func (g *gateSlots) releaseSlot(ke *v1alpha1.KubernetesExecution, now time.Time) {
	s := &ke.Status
	switch {
	case s.ExecutionResults == nil: // nothing was executed
		g.gate.Forget(ke.UID)
	case s.Reason == v1alpha1.ReasonCancelled: // a cancel is no result of the action
		g.gate.Leave(ke.UID, "", now)
	default:
		g.gate.Leave(ke.UID, s.Outcome, now)
	}
}

// newGateClaim returns the claim of an execution for the gate.
func newGateClaim(ke *v1alpha1.KubernetesExecution) execution.Claim {
	p := ke.Status.Plan
	c := execution.Claim{
		UID: ke.UID, Key: nameOf(ke), Action: ke.Spec.Action, Created: ke.CreationTimestamp.Time, Rollback: ke.Spec.RollbackOf != nil,
		Requester: ke.Spec.RequestedBy,
	}
	if p != nil {
		c.Action = p.Action // the request may name an alias
		c.Target, c.TargetNamespace, c.Node = execution.TargetKey(p.Target), p.Target.Namespace, p.Target.Kind == "Node"
	}
	if a, known := action.Find(c.Action); known && a.ReadOnly {
		c.ReadOnly, c.Node = true, false
	}
	c.Since = readyTime(ke) // possibly at an earlier operator
	return c
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
	s := &ke.Status
	if s.ExecutionResults == nil || s.ExecutionResults.EndTime == nil || s.Plan == nil {
		return execution.PastExecution{}, false
	}
	p := execution.PastExecution{
		Action: s.Plan.Action, Target: execution.TargetKey(s.Plan.Target),
		Outcome: s.Outcome, Ended: s.ExecutionResults.EndTime.Time,
	}
	if s.Reason == v1alpha1.ReasonCancelled { // a cancel is no result of the action
		p.Outcome = ""
	}
	return p, true
}
