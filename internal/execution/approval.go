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
	now := InitialApprovalStatus(d, nil)
	others := len(now.Groups) > 0 && (len(a.Groups) == 0 || slices.ContainsFunc(a.Groups, func(g string) bool { return !slices.Contains(now.Groups, g) }))
	return now.RequiredCount > max(a.RequiredCount, 1) || now.RequesterCannotApprove && !a.RequesterCannotApprove || others
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
func DecideApproval(ke *v1alpha1.KubernetesExecution, approversUnverified error, now time.Time) (status v1alpha1.ApprovalStatus, failure *Failure, waitUntil time.Time) {
	a := approvalStatusOrPending(ke)
	if a.State != v1alpha1.ApprovalPending {
		return a, approvalFailure(ke, a, approversUnverified), time.Time{}
	}
	rejection, rejected := firstPlanRejection(ke)
	a.CountedDecisions = validApprovals(ke, a)
	switch {
	case rejected && approversUnverified == nil:
		a.State, a.CountedDecisions = v1alpha1.ApprovalRejected, []v1alpha1.Approval{rejection}
	case a.Deadline != nil && !now.Before(a.Deadline.Time):
		a.State = v1alpha1.ApprovalExpired
	case approversUnverified == nil && hasEnoughApprovals(ke, a):
		a.State = v1alpha1.ApprovalApproved
	case a.Deadline != nil:
		return dropDecisionsIfUnverified(a, approversUnverified), nil, a.Deadline.Time
	default:
		return dropDecisionsIfUnverified(a, approversUnverified), nil, time.Time{}
	}
	at := metav1.NewTime(now)
	a.DecidedAt = &at
	a = dropDecisionsIfUnverified(a, approversUnverified)
	return a, approvalFailure(ke, a, approversUnverified), time.Time{}
}

// DescribePendingApproval returns a sentence that explains what an undecided execution waits for.
// The detail is set if something is wrong.
func DescribePendingApproval(ke *v1alpha1.KubernetesExecution, approversUnverified error) (detail v1alpha1.Detail, message string) {
	a := approvalStatusOrPending(ke)
	if approversUnverified != nil {
		return v1alpha1.DetailAdmissionPoliciesMissing, fmt.Sprintf("approvals are not valid while the admission policies that verify approvers are not in force: %v", approversUnverified)
	}
	if isRequesterUnknown(ke, a) {
		return "", "approvals are not valid: the policy excludes the requester from approving, but spec.requestedBy is empty; create the execution again with spec.requestedBy"
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
	i := slices.IndexFunc(ke.Spec.Approvals, func(a v1alpha1.Approval) bool {
		return a.Decision == v1alpha1.Reject && a.PlanHash == plan && plan != ""
	})
	if i < 0 {
		return v1alpha1.Approval{}, false
	}
	return ke.Spec.Approvals[i], true
}

// validApprovals returns the approvals that count for the plan.
func validApprovals(ke *v1alpha1.KubernetesExecution, a v1alpha1.ApprovalStatus) []v1alpha1.Approval {
	plan := planHash(ke)
	if plan == "" || isRequesterUnknown(ke, a) {
		return nil
	}
	var list []v1alpha1.Approval
	for _, one := range ke.Spec.Approvals {
		known := slices.ContainsFunc(list, func(other v1alpha1.Approval) bool { return other.Approver == one.Approver })
		if one.Decision != v1alpha1.Approve || one.PlanHash != plan || known || one.Approver == "" {
			continue
		}
		if a.RequesterCannotApprove && one.Approver == ke.Spec.RequestedBy {
			continue
		}
		list = append(list, one)
	}
	return list
}

// hasEnoughApprovals reports whether the required number of approvals is reached.
func hasEnoughApprovals(ke *v1alpha1.KubernetesExecution, a v1alpha1.ApprovalStatus) bool {
	return len(a.CountedDecisions)+approvalReceivedCount(ke, a) >= int(max(a.RequiredCount, 1))
}

// approvalReceivedCount returns 1 if approvalReceived counts as an approval, and 0 otherwise. The field
// names neither a person nor a plan, so it counts only if spec.approvals is empty. Beside an entry
// it could be the same person, or refer to the previous plan.
func approvalReceivedCount(ke *v1alpha1.KubernetesExecution, a v1alpha1.ApprovalStatus) int {
	if ke.Spec.ApprovalReceived && !a.ReceivedTooEarly && len(ke.Spec.Approvals) == 0 && planHash(ke) != "" && !isRequesterUnknown(ke, a) {
		return 1
	}
	return 0
}

// isRequesterUnknown reports whether the requester is excluded from approving but unknown. An
// approver cannot be distinguished from the requester then.
func isRequesterUnknown(ke *v1alpha1.KubernetesExecution, a v1alpha1.ApprovalStatus) bool {
	return a.RequesterCannotApprove && ke.Spec.RequestedBy == ""
}

// dropDecisionsIfUnverified clears the counted decisions while the guard is missing, because their authors are
// unverified.
func dropDecisionsIfUnverified(a v1alpha1.ApprovalStatus, approversUnverified error) v1alpha1.ApprovalStatus {
	if approversUnverified != nil {
		a.CountedDecisions = nil
	}
	return a
}

// approvalFailure returns the failure of an execution that was rejected or has expired, and nil
// otherwise.
func approvalFailure(ke *v1alpha1.KubernetesExecution, a v1alpha1.ApprovalStatus, approversUnverified error) *Failure {
	switch a.State {
	case v1alpha1.ApprovalRejected:
		by, _ := firstPlanRejection(ke)
		if len(a.CountedDecisions) > 0 {
			by = a.CountedDecisions[0]
		}
		text := fmt.Sprintf("%s rejected plan %s", cmp.Or(by.Approver, "somebody"), shortHash(by.PlanHash))
		if by.Reason != "" {
			text += ": " + by.Reason
		}
		return &Failure{Reason: v1alpha1.ReasonApprovalRejected, Message: text}
	case v1alpha1.ApprovalExpired:
		text := formatApprovalCount(ke, a) + " when the approval deadline passed"
		if a.Deadline != nil {
			text += " at " + a.Deadline.UTC().Format(time.RFC3339)
		}
		f := &Failure{Reason: v1alpha1.ReasonApprovalTimeout, Message: text + "; create the execution again if it is still needed"}
		if approversUnverified != nil {
			f.Detail = v1alpha1.DetailAdmissionPoliciesMissing
			f.Message += fmt.Sprintf(", after the admission policies are in force: %v", approversUnverified)
		}
		return f
	default:
		return nil
	}
}

// formatApprovalCount formats the number of approvals and the number required.
func formatApprovalCount(ke *v1alpha1.KubernetesExecution, a v1alpha1.ApprovalStatus) string {
	return fmt.Sprintf("%d of %d approvals", len(validApprovals(ke, a))+approvalReceivedCount(ke, a), max(a.RequiredCount, 1))
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
