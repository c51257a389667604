// Package approval counts approvals of executions.
//
// Who wrote an approval, and whether they may, is what the API server checks
// with the policies of package guard; here is decided what the approvals that
// passed there come to. An approval counts for the plan whose hash it names, and
// for no other. The hash covers the time without a gap in the policies, so that
// what was written before a gap names another. One person counts once; whoever
// asked does not count where the policy wants somebody else. While the guard is
// missing nothing counts: the execution goes on waiting, and ends as expired when
// its time is over.
package approval

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
)

// Begin is what the approval of a plan starts with. No deadline is waiting
// without end.
func Begin(d execution.Decision, deadline *metav1.Time) v1alpha1.ApprovalStatus {
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

// Stricter says whether a decision wants more than an approval was asked for
// with: whoever has approved was not asked whether they are enough.
func Stricter(a v1alpha1.ApprovalStatus, d execution.Decision) bool {
	if !d.RequireApproval {
		return false
	}
	now := Begin(d, nil)
	others := len(now.Groups) > 0 && (len(a.Groups) == 0 || slices.ContainsFunc(a.Groups, func(g string) bool { return !slices.Contains(now.Groups, g) }))
	return now.RequiredCount > max(a.RequiredCount, 1) || now.RequesterCannotApprove && !a.RequesterCannotApprove || others
}

// Decide says what the approvals of an execution come to at now, and until when
// to wait if nothing is decided: the zero time is without end. What was decided
// before stays decided. A failure is there exactly if the state is Rejected or
// Expired.
//
// The rules stand in the order in which they decide: one rejection rejects; at
// the deadline it is too late, however many approvals have come, because nobody
// can tell when; without a guard nothing counts; then they are counted.
func Decide(ke *v1alpha1.KubernetesExecution, guardMissing error, now time.Time) (v1alpha1.ApprovalStatus, *execution.Failure, time.Time) {
	a := currentStatus(ke)
	if a.State != v1alpha1.ApprovalPending {
		return a, failureFor(ke, a, guardMissing), time.Time{}
	}
	rejection, rejected := rejectionOf(ke)
	a.CountedDecisions = countedApprovals(ke, a)
	switch {
	case rejected && guardMissing == nil:
		a.State, a.CountedDecisions = v1alpha1.ApprovalRejected, []v1alpha1.Approval{rejection}
	case a.Deadline != nil && !now.Before(a.Deadline.Time):
		a.State = v1alpha1.ApprovalExpired
	case guardMissing == nil && hasEnough(ke, a):
		a.State = v1alpha1.ApprovalApproved
	case a.Deadline != nil:
		return withoutGuard(a, guardMissing), nil, a.Deadline.Time
	default:
		return withoutGuard(a, guardMissing), nil, time.Time{}
	}
	at := metav1.NewTime(now)
	a.DecidedAt = &at
	a = withoutGuard(a, guardMissing)
	return a, failureFor(ke, a, guardMissing), time.Time{}
}

// Waiting says what an execution that is not decided waits for, in a sentence,
// with the detail if something is wrong.
func Waiting(ke *v1alpha1.KubernetesExecution, guardMissing error) (v1alpha1.Detail, string) {
	a := currentStatus(ke)
	if guardMissing != nil {
		return v1alpha1.DetailAdmissionPoliciesMissing, fmt.Sprintf("approvals are not valid while the admission policies that verify approvers are not in force: %v", guardMissing)
	}
	if unknownRequester(ke, a) {
		return "", "approvals are not valid: the policy excludes the requester from approving, but spec.requestedBy is empty; create the execution again with spec.requestedBy"
	}
	text := fmt.Sprintf("%s received for plan %s", approvalTally(ke, a), shortHash(planHash(ke)))
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

// currentStatus is the approval as it is known so far. An execution that has none was
// not asked about, so nothing can have been approved.
func currentStatus(ke *v1alpha1.KubernetesExecution) v1alpha1.ApprovalStatus {
	if ke.Status.Approval == nil {
		return v1alpha1.ApprovalStatus{State: v1alpha1.ApprovalPending, Required: true, RequiredCount: 1}
	}
	a := *ke.Status.Approval.DeepCopy()
	if a.State == "" {
		a.State = v1alpha1.ApprovalPending
	}
	return a
}

// rejectionOf is the first rejection of the plan.
func rejectionOf(ke *v1alpha1.KubernetesExecution) (v1alpha1.Approval, bool) {
	plan := planHash(ke)
	i := slices.IndexFunc(ke.Spec.Approvals, func(a v1alpha1.Approval) bool {
		return a.Decision == v1alpha1.Reject && a.PlanHash == plan && plan != ""
	})
	if i < 0 {
		return v1alpha1.Approval{}, false
	}
	return ke.Spec.Approvals[i], true
}

// countedApprovals are the approvals that count.
func countedApprovals(ke *v1alpha1.KubernetesExecution, a v1alpha1.ApprovalStatus) []v1alpha1.Approval {
	plan := planHash(ke)
	if plan == "" || unknownRequester(ke, a) {
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

// hasEnough says whether as many approve as have to.
func hasEnough(ke *v1alpha1.KubernetesExecution, a v1alpha1.ApprovalStatus) bool {
	return len(a.CountedDecisions)+bareApproval(ke, a) >= int(max(a.RequiredCount, 1))
}

// bareApproval is 1 if approvalReceived is an approval. It names neither person nor
// plan, so it is one only where there is no entry: beside an entry it may be the
// same person, or be about the plan of before.
func bareApproval(ke *v1alpha1.KubernetesExecution, a v1alpha1.ApprovalStatus) int {
	if ke.Spec.ApprovalReceived && !a.ReceivedTooEarly && len(ke.Spec.Approvals) == 0 && planHash(ke) != "" && !unknownRequester(ke, a) {
		return 1
	}
	return 0
}

// unknownRequester says that nobody can tell whether whoever approves is whoever
// asked.
func unknownRequester(ke *v1alpha1.KubernetesExecution, a v1alpha1.ApprovalStatus) bool {
	return a.RequesterCannotApprove && ke.Spec.RequestedBy == ""
}

// withoutGuard takes back what was counted although nobody checked it.
func withoutGuard(a v1alpha1.ApprovalStatus, guardMissing error) v1alpha1.ApprovalStatus {
	if guardMissing != nil {
		a.CountedDecisions = nil
	}
	return a
}

// failureFor is why an execution ends whose approval was decided against it.
func failureFor(ke *v1alpha1.KubernetesExecution, a v1alpha1.ApprovalStatus, guardMissing error) *execution.Failure {
	switch a.State {
	case v1alpha1.ApprovalRejected:
		by, _ := rejectionOf(ke)
		if len(a.CountedDecisions) > 0 {
			by = a.CountedDecisions[0]
		}
		text := fmt.Sprintf("%s rejected plan %s", cmp.Or(by.Approver, "somebody"), shortHash(by.PlanHash))
		if by.Reason != "" {
			text += ": " + by.Reason
		}
		return &execution.Failure{Reason: v1alpha1.ReasonApprovalRejected, Message: text}
	case v1alpha1.ApprovalExpired:
		text := approvalTally(ke, a) + " when the approval deadline passed"
		if a.Deadline != nil {
			text += " at " + a.Deadline.UTC().Format(time.RFC3339)
		}
		f := &execution.Failure{Reason: v1alpha1.ReasonApprovalTimeout, Message: text + "; create the execution again if it is still needed"}
		if guardMissing != nil {
			f.Detail = v1alpha1.DetailAdmissionPoliciesMissing
			f.Message += fmt.Sprintf(", after the admission policies are in force: %v", guardMissing)
		}
		return f
	default:
		return nil
	}
}

// approvalTally says how many approvals there are of how many.
func approvalTally(ke *v1alpha1.KubernetesExecution, a v1alpha1.ApprovalStatus) string {
	return fmt.Sprintf("%d of %d approvals", len(countedApprovals(ke, a))+bareApproval(ke, a), max(a.RequiredCount, 1))
}

func planHash(ke *v1alpha1.KubernetesExecution) string {
	if ke.Status.Plan == nil {
		return ""
	}
	return ke.Status.Plan.Hash
}

// shortHash is what people call a hash.
func shortHash(hash string) string {
	const digits = 12
	return hash[:min(len(hash), digits)]
}
