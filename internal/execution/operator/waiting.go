package operator

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/gate"
	"github.com/fleetloop/fleetloop/internal/execution/job"
)

// executorUnavailable is the reason of the condition Queued while no executor can run the action.
const executorUnavailable = "ExecutorUnavailable"

// gateClaim returns the claim of an execution for the gate.
func (r *reconciler) gateClaim(ke *v1alpha1.KubernetesExecution) gate.Claim {
	p := ke.Status.Plan
	c := gate.Claim{
		UID: ke.UID, Key: nameOf(ke), Action: ke.Spec.Action, Created: ke.CreationTimestamp.Time, Rollback: ke.Spec.RollbackOf != nil,
		Requester: ke.Spec.RequestedBy,
	}
	if p != nil {
		c.Action = p.Action // the request may name an alias
		c.Target, c.TargetNamespace, c.Node = gate.TargetKey(p.Target), p.Target.Namespace, p.Target.Kind == "Node"
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
	return phaseStart(ke, v1alpha1.PhaseValidated, time.Time{})
}

func (r *reconciler) enterGate(t *reconcileState) gate.Verdict {
	c := r.gateClaim(t.ke)
	r.mu.Lock()
	r.claimed[c.Key] = c.UID
	r.mu.Unlock()
	return r.gate.Enter(c, t.now)
}

// forgetPrevious drops the state of a name, unless it belongs to the execution that has the name
// now. An empty UID means that no such execution exists.
func (r *reconciler) forgetPrevious(name types.NamespacedName, currentUID types.UID) {
	r.mu.Lock()
	uid, known := r.claimed[name]
	if known && uid == currentUID {
		r.mu.Unlock()
		return
	}
	delete(r.claimed, name)
	delete(r.launched, uid)
	delete(r.inlineRuns, uid)
	r.mu.Unlock()
	if currentUID != "" && !known {
		return
	}
	r.targets.stopWaiting(name)
	if known {
		r.gate.Forget(uid)
	}
}

// queueOrFailAtGate makes an execution wait at the gate, or fails it if the gate refuses it.
func (r *reconciler) queueOrFailAtGate(t *reconcileState, v gate.Verdict) {
	s := &t.ke.Status
	t.atGate = !v.Failed
	if v.Failed {
		t.addAfterWrite(func(context.Context) { r.metrics.countBlocked(v.Detail) })
		reason := v1alpha1.ReasonExecutionTimeout
		if v.Detail == v1alpha1.DetailCircuitOpen {
			reason = v1alpha1.ReasonValidationError
		}
		failExecution(t, execution.Failure{Reason: reason, Detail: v.Detail, Message: v.Message})
		return
	}
	reason := conditionReason(v.Detail)
	if c := findCondition(s, v1alpha1.ConditionQueued); c == nil || c.Reason != reason { // only once, because the queue changes all the time
		s.ReasonDetail, s.Message = v.Detail, v.Message
		setCondition(t, v1alpha1.ConditionQueued, metav1.ConditionTrue, reason, v.Message)
		t.addAfterWrite(func(context.Context) {
			r.metrics.countBlocked(v.Detail)
			r.events.emitNormal(t.ke, reason, v.Message)
		})
	}
	if v.After > 0 {
		t.requeueIn(v.After)
	}
}

// retryOrFailUnavailable retries an operation that cannot succeed at present, such as a Job that a quota
// forbids. It shows the error in the status and gives up after a timeout.
func (r *reconciler) retryOrFailUnavailable(ctx context.Context, t *reconcileState, cause error) error {
	if ctx.Err() != nil {
		return cause
	}
	s := &t.ke.Status
	message := truncateText(cause.Error(), maxMessage)
	queued := findCondition(s, v1alpha1.ConditionQueued)
	if failure := r.retryTimeoutFailure(t, queued, message); failure != nil {
		// The last attempt may have created the Job although its response was an error.
		if j, err := r.jobs.Job(ctx, t.ke, runName(t.ke), true); err != nil || j != nil {
			return err
		}
		if s.Phase == v1alpha1.PhaseExecuting { // inline, so an earlier attempt may have started
			return r.finishAction(ctx, t, job.Observation{State: job.Failed, Failure: r.markUnknownIfAttempted(t, *failure)})
		}
		failExecution(t, *failure)
		return nil
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
	return nil
}

// retryTimeoutFailure returns the failure of an operation that has been retried for too long. Nil means that it
// is retried. An execution that is blocked alternately by this and by the gate also fails, because
// its queue time continues.
func (r *reconciler) retryTimeoutFailure(t *reconcileState, queued *metav1.Condition, why string) *execution.Failure {
	failure := execution.Failure{Reason: v1alpha1.ReasonExecutionFailed, Detail: v1alpha1.DetailExecutorUnavailable, Message: why}
	end := r.gate.Deadline(readyTime(t.ke))
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
