package operator

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/guard"
)

// periodCheckInterval is how often a waiting approval is compared with the period of the guard.
// After a gap, approvers need the new plan hash.
const periodCheckInterval = 30 * time.Second

// guardRetryInterval is how often a waiting approval checks whether a missing guard is back.
const guardRetryInterval = 10 * time.Second

// approval requests and evaluates the approvals of plans.
type approval struct {
	cfg     *Config
	guard   admissionGuard
	events  *eventEmitter
	metrics *metrics
	log     *slog.Logger
	now     func() time.Time
}

// requestApprovalIfRequired requests an approval of a plan that needs one.
func (a *approval) requestApprovalIfRequired(_ context.Context, state *reconcileState) (proceed bool, err error) {
	if state.ke.Spec.DryRunMode == v1alpha1.DryRunOnly {
		return true, nil
	}
	status := state.ke.Status.Approval
	if status == nil || !status.Required || status.State == v1alpha1.ApprovalApproved {
		return true, nil
	}
	a.requestOrRenewApproval(state)
	return false, nil
}

// requestOrRenewApproval asks for an approval, for the first time or again after a gap of the guard.
// Earlier approvals do not count, because they cannot name the new plan hash.
func (a *approval) requestOrRenewApproval(state *reconcileState) {
	status := &state.ke.Status
	requestedBefore := status.Phase == v1alpha1.PhaseWaitingApproval

	// The hash covers the period of the guard, so that approvers need the hash of this request.
	period, approversUnverified := a.guard.Period()
	status.Plan.AdmissionPolicyPeriod = period.ID
	status.Plan.Hash = action.HashPlanEffect(status.Plan)

	pending := status.Approval
	pending.State = v1alpha1.ApprovalPending
	pending.CountedDecisions = nil
	pending.DecidedAt = nil
	pending.ReceivedTooEarly = state.ke.Spec.ApprovalReceived
	pending.Deadline = a.approvalDeadline(state)

	status.ReasonDetail, status.Message = execution.DescribePendingApproval(state.ke, approversUnverified)
	if requestedBefore {
		status.Message = "the admission policies changed, so earlier approvals are no longer valid; " + status.Message
	}
	removeCondition(status, v1alpha1.ConditionQueued)
	setCondition(state, v1alpha1.ConditionApproved, metav1.ConditionFalse, "Pending", status.Message)
	if !requestedBefore {
		enterPhase(state, v1alpha1.PhaseWaitingApproval)
	}
	state.addAfterWrite(func(context.Context) {
		note := fmt.Sprintf("%s; to approve: fleetloop approve %s -n %s", status.Message, state.ke.Name, state.ke.Namespace)
		a.events.emitNormal(state.ke, "ApprovalRequired", note)
	})
}

// approvalDeadline returns when an approval that is requested now expires. It rounds up to a second,
// because API times have no fractions of a second.
func (a *approval) approvalDeadline(state *reconcileState) *metav1.Time {
	timeout := a.cfg.ApprovalTimeout
	if requested := state.ke.Spec.ApprovalTimeout; requested != nil && requested.Duration > 0 {
		timeout = requested.Duration
	}
	return toAPITime(state.now.Add(timeout).Add(time.Second - 1))
}

// requeueUntilApproved waits until the plan is approved. It ends an execution that is rejected or whose
// approval expires.
func (a *approval) requeueUntilApproved(ctx context.Context, state *reconcileState) (proceed bool, err error) {
	// After a gap of the guard, approvals are requested again.
	period, approversUnverified := a.currentOrConfirmedPeriod(ctx, state.ke)
	plan := state.ke.Status.Plan
	if approversUnverified == nil && plan != nil && plan.AdmissionPolicyPeriod != period.ID {
		a.requestOrRenewApproval(state)
		state.requeueIn(periodCheckInterval)
		state.requeueAt(state.ke.Status.Approval.Deadline.Time)
		return false, nil
	}

	before := state.ke.Status.Approval
	decided, failure, waitUntil := execution.DecideApproval(state.ke, approversUnverified, state.now)
	state.ke.Status.Approval = &decided
	switch {
	case failure != nil:
		a.failUnapproved(state, decided.State, *failure)
		return false, nil
	case approversUnverified != nil || decided.State != v1alpha1.ApprovalApproved:
		setPendingApproval(state, approversUnverified)
		requeueForApproval(state, approversUnverified, waitUntil)
		return false, nil
	}

	setCondition(state, v1alpha1.ConditionApproved, metav1.ConditionTrue, "Approved", approvedByText(decided))
	if before != nil && before.State == v1alpha1.ApprovalApproved {
		return true, nil
	}
	// The approval is written before the action starts, because a Job must not outlive its operator
	// without an approval.
	state.ke.Status.ReasonDetail = ""
	state.ke.Status.Message = approvedByText(decided)
	a.addDecisionEventAndMetrics(state, v1alpha1.Approve)
	state.continueNow = true
	return false, nil
}

// failUnapproved ends an execution whose plan was rejected or whose approval expired.
func (a *approval) failUnapproved(state *reconcileState, decided string, failure execution.Failure) {
	conditionReason := "Expired"
	if decided == v1alpha1.ApprovalRejected {
		conditionReason = "Rejected"
	}
	setCondition(state, v1alpha1.ConditionApproved, metav1.ConditionFalse, conditionReason, failure.Message)
	failExecution(state, failure)
	if decided == v1alpha1.ApprovalRejected {
		a.addDecisionEventAndMetrics(state, v1alpha1.Reject)
	}
}

// currentOrConfirmedPeriod returns the period without a gap in which approvals are checked, or the
// reason why none exists. If the execution has approvals, the period is confirmed after they were
// read.
func (a *approval) currentOrConfirmedPeriod(ctx context.Context, ke *v1alpha1.KubernetesExecution) (guard.Period, error) {
	if len(ke.Spec.Approvals) == 0 && !ke.Spec.ApprovalReceived {
		return a.guard.Period()
	}
	return a.guard.Confirm(ctx)
}

// setPendingApproval writes which approval is missing, or why an approval does not count, to the status.
func setPendingApproval(state *reconcileState, approversUnverified error) {
	detail, message := execution.DescribePendingApproval(state.ke, approversUnverified)
	state.ke.Status.ReasonDetail = detail
	state.ke.Status.Message = message
	setCondition(state, v1alpha1.ConditionApproved, metav1.ConditionFalse, "Pending", message)
}

// requeueForApproval requeues an undecided execution for its deadline and for a change of the guard. The
// watch of executions reports a new approval.
func requeueForApproval(state *reconcileState, approversUnverified error, deadline time.Time) {
	state.requeueIn(periodCheckInterval)
	if approversUnverified != nil {
		state.requeueIn(guardRetryInterval)
	}
	if !deadline.IsZero() {
		state.requeueAt(deadline)
	}
}

// addDecisionEventAndMetrics records the change event, the metric and the log line of an approval or rejection.
func (a *approval) addDecisionEventAndMetrics(state *reconcileState, d v1alpha1.ApprovalDecision) {
	change := execution.ChangeApproved
	if d == v1alpha1.Reject {
		change = execution.ChangeRejected
	}
	by, why := latestDecisionOrStatusMessage(&state.ke.Status, d)
	state.addChangeEvent(change, by, why)
	state.addAfterWrite(func(ctx context.Context) {
		a.metrics.countDecision(state.ke, d, a.now())
		a.log.InfoContext(ctx, "decided", "execution", logKey(state.ke), "decision", string(d), "by", by, "why", why)
	})
}

// latestDecisionOrStatusMessage returns the last approver and the reason. Without a recorded approver, the reason is the message of
// the status.
func latestDecisionOrStatusMessage(s *v1alpha1.KubernetesExecutionStatus, d v1alpha1.ApprovalDecision) (by, reason string) {
	reason = s.Message
	for _, received := range s.Approval.CountedDecisions {
		if received.Decision == d {
			by, reason = received.Approver, received.Reason
		}
	}
	return by, reason
}
