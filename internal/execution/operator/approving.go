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
func (a *approval) requestApprovalIfRequired(_ context.Context, t *reconcileState) (proceed bool, err error) {
	if status := t.ke.Status.Approval; t.ke.Spec.DryRunMode == v1alpha1.DryRunOnly || status == nil || !status.Required || status.State == v1alpha1.ApprovalApproved {
		return true, nil
	}
	a.requestApproval(t)
	return false, nil
}

// requestApproval asks for an approval, for the first time or again after a gap of the guard.
// Earlier approvals do not count, because they cannot name the new plan hash.
func (a *approval) requestApproval(t *reconcileState) {
	s := &t.ke.Status
	again := s.Phase == v1alpha1.PhaseWaitingApproval
	period, missing := a.guard.Period()
	s.Plan.AdmissionPolicyPeriod = period.ID
	s.Plan.Hash = action.HashPlanEffect(s.Plan)
	status := s.Approval
	status.State, status.CountedDecisions, status.DecidedAt, status.ReceivedTooEarly = v1alpha1.ApprovalPending, nil, nil, t.ke.Spec.ApprovalReceived
	timeout := a.cfg.ApprovalTimeout
	if own := t.ke.Spec.ApprovalTimeout; own != nil && own.Duration > 0 {
		timeout = own.Duration
	}
	status.Deadline = toAPITime(t.now.Add(timeout).Add(time.Second - 1)) // API times have no fractions of a second
	s.ReasonDetail, s.Message = execution.DescribePendingApproval(t.ke, missing)
	if again {
		s.Message = "the admission policies changed, so earlier approvals are no longer valid; " + s.Message
	}
	removeCondition(s, v1alpha1.ConditionQueued)
	setCondition(t, v1alpha1.ConditionApproved, metav1.ConditionFalse, "Pending", s.Message)
	if !again {
		enterPhase(t, v1alpha1.PhaseWaitingApproval)
	}
	t.addAfterWrite(func(context.Context) {
		a.events.emitNormal(t.ke, "ApprovalRequired", fmt.Sprintf("%s; to approve: fleetloop approve %s -n %s", s.Message, t.ke.Name, t.ke.Namespace))
	})
}

// requeueUntilApproved waits until the plan is approved. An approval is written before the action starts,
// because a Job must not outlive its operator without an approval.
func (a *approval) requeueUntilApproved(ctx context.Context, t *reconcileState) (proceed bool, err error) {
	period, missing := a.currentOrConfirmedPeriod(ctx, t.ke)
	if p := t.ke.Status.Plan; missing == nil && p != nil && p.AdmissionPolicyPeriod != period.ID {
		a.requestApproval(t)
		t.requeueIn(periodCheckInterval)
		t.requeueAt(t.ke.Status.Approval.Deadline.Time)
		return false, nil
	}
	status, failed, until := execution.DecideApproval(t.ke, missing, t.now)
	before := t.ke.Status.Approval
	t.ke.Status.Approval = &status
	switch {
	case failed != nil:
		reason := "Expired"
		if status.State == v1alpha1.ApprovalRejected {
			reason = "Rejected"
		}
		setCondition(t, v1alpha1.ConditionApproved, metav1.ConditionFalse, reason, failed.Message)
		failExecution(t, *failed)
		if status.State == v1alpha1.ApprovalRejected {
			a.recordDecision(t, v1alpha1.Reject)
		}
		return false, nil
	case missing != nil || status.State != v1alpha1.ApprovalApproved:
		setPendingApprovalAndRequeue(t, missing, until)
		return false, nil
	}
	setCondition(t, v1alpha1.ConditionApproved, metav1.ConditionTrue, "Approved", approvedByText(status))
	if before == nil || before.State != v1alpha1.ApprovalApproved {
		t.ke.Status.ReasonDetail, t.ke.Status.Message = "", approvedByText(status)
		a.recordDecision(t, v1alpha1.Approve)
		t.continueNow = true
		return false, nil
	}
	return true, nil
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

// setPendingApprovalAndRequeue writes which approval is missing, or why an approval does not count, to the
// status.
func setPendingApprovalAndRequeue(t *reconcileState, approversUnverified error, until time.Time) {
	detail, waiting := execution.DescribePendingApproval(t.ke, approversUnverified)
	t.requeueIn(periodCheckInterval)
	if approversUnverified != nil {
		t.requeueIn(10 * time.Second)
	}
	t.ke.Status.ReasonDetail, t.ke.Status.Message = detail, waiting
	setCondition(t, v1alpha1.ConditionApproved, metav1.ConditionFalse, "Pending", waiting)
	if !until.IsZero() {
		t.requeueAt(until)
	}
}

// recordDecision records the change event, the metric and the log line of an approval or rejection.
func (a *approval) recordDecision(t *reconcileState, d v1alpha1.ApprovalDecision) {
	what := execution.ChangeApproved
	if d == v1alpha1.Reject {
		what = execution.ChangeRejected
	}
	by, said := latestDecision(&t.ke.Status, d)
	t.addChangeEvent(what, by, said)
	t.addAfterWrite(func(ctx context.Context) {
		a.metrics.countDecision(t.ke, d, a.now())
		a.log.InfoContext(ctx, "decided", "execution", logKey(t.ke), "decision", string(d), "by", by, "why", said)
	})
}

// latestDecision returns who decided, and why.
func latestDecision(s *v1alpha1.KubernetesExecutionStatus, d v1alpha1.ApprovalDecision) (by, reason string) {
	reason = s.Message
	for _, received := range s.Approval.CountedDecisions {
		if received.Decision == d {
			by, reason = received.Approver, received.Reason
		}
	}
	return by, reason
}
