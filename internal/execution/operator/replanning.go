package operator

import (
	"context"
	"fmt"
	"strings"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/check"
)

// replanAndCheck computes the plan again after a wait and reports whether it may run. If not, the status
// shows why.
func (l *launch) replanAndCheck(ctx context.Context, t *reconcileState) (mayRun bool, err error) {
	if t.checked {
		return true, nil
	}
	s := &t.ke.Status
	out, err := l.check.Replan(ctx, t.ke, t.now)
	if err != nil {
		return false, l.retryOrFail(ctx, t, fmt.Errorf("compute the plan again: %w", err))
	}
	if out.Failed == nil {
		storeKilledResults(s, out.Results.PreConditionResults, nil)
	}
	switch approved := s.Approval != nil && s.Approval.Required; {
	case out.Failed != nil:
		s.ValidationResults = mergeResults(s.ValidationResults, out.Results)
		failExecution(t, *out.Failed)
		return false, nil
	case out.Plan.Hash != s.Plan.Hash && approved:
		failExecution(t, stalePlanFailure(s.Plan, out.Plan))
		return false, nil
	case approved && execution.RequiresStricterApproval(*s.Approval, out.Decision):
		failExecution(t, execution.Failure{
			Reason: v1alpha1.ReasonPlanStale, Detail: v1alpha1.Detail(v1alpha1.ReasonPlanStale),
			Message: "the policies now require more or other approvers than when the plan was made. Nothing was changed. Create the execution again to request their approval",
		})
		return false, nil
	case !approved && out.Decision.RequireApproval: // the policy has changed
		replacePlan(t, out)
		l.approval.requestApproval(t)
		return false, nil
	case out.Plan.Hash != s.Plan.Hash:
		replacePlan(t, out)
	}
	s.Plan.Target = out.Plan.Target // version and generation may have changed
	return true, nil
}

// replacePlan replaces a plan that is not approved.
func replacePlan(t *reconcileState, out check.Outcome) {
	t.ke.Status.Plan = out.Plan
	t.ke.Status.ValidationResults = mergeResults(t.ke.Status.ValidationResults, out.Results)
	if out.Decision.RequireApproval {
		pending := approvalOf(out.Decision)
		t.ke.Status.Approval = &pending
	}
}

// stalePlanFailure describes how the current plan differs from the approved one.
func stalePlanFailure(approved, now *v1alpha1.Plan) execution.Failure {
	what := "its steps"
	detail := v1alpha1.Detail(v1alpha1.ReasonPlanStale)
	switch {
	case approved.Target.UID != now.Target.UID:
		what, detail = "the target, now another object with the same name", v1alpha1.DetailTargetChanged
	case string(rawBytes(approved.Before)) != string(rawBytes(now.Before)):
		what, detail = "the target: "+strings.Join(action.Differences(approved.Before, now.Before), "; "), v1alpha1.DetailTargetChanged
	case approved.PolicyHash != now.PolicyHash:
		what = "the policies"
	}
	return execution.Failure{
		Reason: v1alpha1.ReasonPlanStale, Detail: detail,
		Message: truncateText(fmt.Sprintf("the plan is stale, changed since planning: %s. Nothing was changed. Create the execution again to have the new plan approved", what), maxMessage),
	}
}
