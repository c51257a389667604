package execution

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// InitialApprovalStatus returns the initial approval status of a plan. A nil deadline means that the
// approval never expires.
func InitialApprovalStatus(d Decision, deadline *metav1.Time) v1alpha1.ApprovalStatus {
	if !d.RequireApproval {
		return v1alpha1.ApprovalStatus{State: v1alpha1.ApprovalNotRequired}
	}
	return v1alpha1.ApprovalStatus{
		State:                  v1alpha1.ApprovalPending,
		Required:               true,
		RequiredCount:          max(d.Approvals.Count, 1),
		RequesterCannotApprove: d.Approvals.RequesterCannotApprove,
		Groups:                 slices.Clone(d.Approvals.Groups),
		Deadline:               deadline.DeepCopy(),
	}
}

// ExcludeRequesterOfAgent returns a decision in which the requester cannot approve if an assistant made the
// request. The assistant acts in the name of the requester, so a setting of the policies cannot allow it.
func ExcludeRequesterOfAgent(d Decision, ke *v1alpha1.KubernetesExecution) Decision {
	d.Approvals.RequesterCannotApprove = d.Approvals.RequesterCannotApprove || ke.Spec.RequestedByAgent != ""
	return d
}

// RequiresStricterApproval reports whether a decision requires more than the approval that is
// already requested. The approvals given so far were not checked against the new requirements.
func RequiresStricterApproval(a v1alpha1.ApprovalStatus, d Decision) bool {
	if !d.RequireApproval {
		return false
	}
	needed := InitialApprovalStatus(d, nil)
	switch {
	case needed.RequiredCount > max(a.RequiredCount, 1):
		return true
	case needed.RequesterCannotApprove && !a.RequesterCannotApprove:
		return true
	}
	return excludesApprovers(needed.Groups, a.Groups)
}

// excludesApprovers reports whether a change of groups removes an approver.
// An empty list of groups allows everybody.
func excludesApprovers(groups, formerGroups []string) bool {
	if len(groups) == 0 {
		return false
	}
	if len(formerGroups) == 0 {
		return true
	}
	for _, former := range formerGroups {
		if !slices.Contains(groups, former) {
			return true
		}
	}
	return false
}

// DecideApproval returns the approval status at now and, while it is undecided, the time until
// which to wait. A zero time means no deadline. An earlier decision is final. The failure is
// non-nil exactly if the state is Rejected or Expired.
//
// The API server verifies the author of an approval and their rights, with the admission policies
// of package guard. DecideApproval decides on the approvals that passed those policies. An
// approval counts only for the plan whose hash it names. The hash covers the period in which the
// policies were in force without a gap, so an approval from before a gap names another plan. Each
// person counts once. The requester does not count if the policy excludes the requester. While the
// guard is missing, no approval counts: the execution keeps waiting, and expires at its deadline.
//
// The rules apply in this order. One rejection rejects the execution. After the deadline, the
// execution expires whatever the number of approvals, because the time at which an approval arrived
// is unknown. Without a guard, no approval counts. Otherwise the approvals are counted.
func DecideApproval(ke *v1alpha1.KubernetesExecution, approversUnverified error, now time.Time) (
	status v1alpha1.ApprovalStatus, failure *Failure, waitUntil time.Time,
) {
	status = approvalStatusOrPending(ke)
	if status.State != v1alpha1.ApprovalPending {
		return status, approvalFailure(ke, status, approversUnverified), time.Time{}
	}

	approversVerified := approversUnverified == nil
	status.CountedDecisions = nil
	if approversVerified {
		status.CountedDecisions = validApprovals(ke, status)
	}
	rejection, rejected := firstPlanRejection(ke)
	switch {
	case rejected && approversVerified:
		status.State = v1alpha1.ApprovalRejected
		status.CountedDecisions = []v1alpha1.Approval{rejection}
	case status.Deadline != nil && !now.Before(status.Deadline.Time):
		status.State = v1alpha1.ApprovalExpired
	case approversVerified && hasEnoughApprovals(ke, status):
		status.State = v1alpha1.ApprovalApproved
	case status.Deadline != nil:
		return status, nil, status.Deadline.Time
	default:
		return status, nil, time.Time{}
	}
	decidedAt := metav1.NewTime(now)
	status.DecidedAt = &decidedAt
	return status, approvalFailure(ke, status, approversUnverified), time.Time{}
}

// DescribePendingApproval returns a sentence that explains what an undecided execution waits for.
// The detail is set if something is wrong.
func DescribePendingApproval(ke *v1alpha1.KubernetesExecution, approversUnverified error) (detail v1alpha1.Detail, message string) {
	a := approvalStatusOrPending(ke)
	if approversUnverified != nil {
		return v1alpha1.DetailAdmissionPoliciesMissing, fmt.Sprintf(
			"approvals are not valid while the admission policies that verify approvers are not in force: %v", approversUnverified)
	}
	if isRequesterUnknown(ke, a) {
		return "", "approvals are not valid: the policy excludes the requester from approving, but spec.requestedBy is empty; " +
			"create the execution again with spec.requestedBy"
	}
	text := fmt.Sprintf("%s received for plan %s", formatApprovalCount(ke, a), shortHash(planHash(ke)))
	if len(a.Groups) > 0 {
		text += ", approvers must be in group " + strings.Join(a.Groups, " or ")
	}
	if a.RequesterCannotApprove {
		text += fmt.Sprintf(", the requester %s cannot approve", ke.Spec.RequestedBy)
	}
	if a.Deadline != nil {
		text += ", deadline " + a.Deadline.UTC().Format(time.RFC3339)
	}
	return "", text
}

// approvalStatusOrPending returns the approval status recorded so far. An execution without one was never
// offered for approval, so it cannot have been approved.
func approvalStatusOrPending(ke *v1alpha1.KubernetesExecution) v1alpha1.ApprovalStatus {
	if ke.Status.Approval == nil {
		return v1alpha1.ApprovalStatus{State: v1alpha1.ApprovalPending, Required: true, RequiredCount: 1}
	}
	a := *ke.Status.Approval.DeepCopy()
	if a.State == "" {
		a.State = v1alpha1.ApprovalPending
	}
	return a
}

// firstPlanRejection returns the first rejection of the plan.
func firstPlanRejection(ke *v1alpha1.KubernetesExecution) (first v1alpha1.Approval, found bool) {
	plan := planHash(ke)
	if plan == "" {
		return v1alpha1.Approval{}, false
	}
	for _, decision := range ke.Spec.Approvals {
		if decision.Decision == v1alpha1.Reject && decision.PlanHash == plan {
			return decision, true
		}
	}
	return v1alpha1.Approval{}, false
}

// validApprovals returns the approvals that count for the plan, one of each person.
func validApprovals(ke *v1alpha1.KubernetesExecution, a v1alpha1.ApprovalStatus) []v1alpha1.Approval {
	plan := planHash(ke)
	if plan == "" || isRequesterUnknown(ke, a) {
		return nil
	}
	var valid []v1alpha1.Approval
	counted := make(map[string]bool) // approvers
	for _, decision := range ke.Spec.Approvals {
		approver := decision.Approver
		if decision.Decision != v1alpha1.Approve || decision.PlanHash != plan {
			continue
		}
		if approver == "" || counted[approver] {
			continue
		}
		if a.RequesterCannotApprove && approver == ke.Spec.RequestedBy {
			continue
		}
		valid = append(valid, decision)
		counted[approver] = true
	}
	return valid
}

// hasEnoughApprovals reports whether the required number of approvals is reached.
func hasEnoughApprovals(ke *v1alpha1.KubernetesExecution, a v1alpha1.ApprovalStatus) bool {
	return len(a.CountedDecisions)+countApprovalReceivedFlag(ke, a) >= int(max(a.RequiredCount, 1))
}

// countApprovalReceivedFlag returns 1 if approvalReceived counts as an approval, and 0 otherwise. The field
// names neither a person nor a plan, so it counts only if spec.approvals is empty. Beside an entry
// it could be the same person, or refer to the previous plan.
func countApprovalReceivedFlag(ke *v1alpha1.KubernetesExecution, a v1alpha1.ApprovalStatus) int {
	if !ke.Spec.ApprovalReceived || a.ReceivedTooEarly || len(ke.Spec.Approvals) > 0 {
		return 0
	}
	if planHash(ke) == "" || isRequesterUnknown(ke, a) {
		return 0
	}
	return 1
}

// isRequesterUnknown reports whether the requester is excluded from approving but unknown. An
// approver cannot be distinguished from the requester then.
func isRequesterUnknown(ke *v1alpha1.KubernetesExecution, a v1alpha1.ApprovalStatus) bool {
	return a.RequesterCannotApprove && ke.Spec.RequestedBy == ""
}

// approvalFailure returns the failure of an execution that was rejected or has expired, and nil
// otherwise.
func approvalFailure(ke *v1alpha1.KubernetesExecution, a v1alpha1.ApprovalStatus, approversUnverified error) *Failure {
	switch a.State {
	case v1alpha1.ApprovalRejected:
		rejection, _ := firstPlanRejection(ke)
		if len(a.CountedDecisions) > 0 { // the decision as it was recorded, which cannot change any more
			rejection = a.CountedDecisions[0]
		}
		text := fmt.Sprintf("%s rejected plan %s", cmp.Or(rejection.Approver, "somebody"), shortHash(rejection.PlanHash))
		if rejection.Reason != "" {
			text += ": " + rejection.Reason
		}
		return &Failure{Reason: v1alpha1.ReasonApprovalRejected, Message: text}
	case v1alpha1.ApprovalExpired:
		text := formatApprovalCount(ke, a) + " when the approval deadline passed"
		if a.Deadline != nil {
			text += " at " + a.Deadline.UTC().Format(time.RFC3339)
		}
		failure := &Failure{
			Reason:  v1alpha1.ReasonApprovalTimeout,
			Message: text + "; create the execution again if it is still needed",
		}
		if approversUnverified != nil {
			failure.Detail = v1alpha1.DetailAdmissionPoliciesMissing
			failure.Message += fmt.Sprintf(", after the admission policies are in force: %v", approversUnverified)
		}
		return failure
	default:
		return nil
	}
}

// formatApprovalCount formats the number of approvals and the number required.
func formatApprovalCount(ke *v1alpha1.KubernetesExecution, a v1alpha1.ApprovalStatus) string {
	received := len(validApprovals(ke, a)) + countApprovalReceivedFlag(ke, a)
	return fmt.Sprintf("%d of %d approvals", received, max(a.RequiredCount, 1))
}

func planHash(ke *v1alpha1.KubernetesExecution) string {
	if ke.Status.Plan == nil {
		return ""
	}
	return ke.Status.Plan.Hash
}

// shortHash returns the first 12 digits of a hash, for messages.
func shortHash(hash string) string {
	const digits = 12
	return hash[:min(len(hash), digits)]
}
