package execution_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
)

const (
	plan  = "1111111111111111"
	older = "2222222222222222"
)

var (
	start    = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	deadline = metav1.NewTime(start.Add(time.Hour))

	errMissing = errors.New("the policy is not there")
)

func approvedBy(who string) v1alpha1.Approval {
	return v1alpha1.Approval{Approver: who, Decision: v1alpha1.Approve, PlanHash: plan}
}

// rejection is anna's.
func rejection() v1alpha1.Approval {
	return v1alpha1.Approval{Approver: "anna", Decision: v1alpha1.Reject, PlanHash: plan, Reason: "not on a Friday"}
}

func forPlan(hash string, a v1alpha1.Approval) v1alpha1.Approval {
	a.PlanHash = hash
	return a
}

// newPending is an execution that rita asked for and that waits.
func newPending(change func(ke *v1alpha1.KubernetesExecution)) *v1alpha1.KubernetesExecution {
	ke := &v1alpha1.KubernetesExecution{Spec: v1alpha1.KubernetesExecutionSpec{RequestedBy: "rita"}}
	begun := execution.InitialApprovalStatus(execution.Decision{RequireApproval: true}, &deadline)
	ke.Status.Phase, ke.Status.Approval, ke.Status.Plan = v1alpha1.PhaseWaitingApproval, &begun, &v1alpha1.Plan{Hash: plan}
	change(ke)
	return ke
}

func TestBeginApproval(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason   string
		decision execution.Decision
		deadline *metav1.Time
		want     v1alpha1.ApprovalStatus
	}{
		"NotRequired": {"the policy wants none", execution.Decision{Approvals: execution.Approvals{Count: 2}}, &deadline, v1alpha1.ApprovalStatus{State: "NotRequired"}},
		"One":         {"unless more are named", execution.Decision{RequireApproval: true}, &deadline, v1alpha1.ApprovalStatus{State: "Pending", Required: true, RequiredCount: 1, Deadline: &deadline}},
		"WithoutEnd":  {"no deadline is none", execution.Decision{RequireApproval: true}, nil, v1alpha1.ApprovalStatus{State: "Pending", Required: true, RequiredCount: 1}},
		"Negative":    {"is no approval less than one", execution.Decision{RequireApproval: true, Approvals: execution.Approvals{Count: -1}}, nil, v1alpha1.ApprovalStatus{State: "Pending", Required: true, RequiredCount: 1}},
		"All": {
			"what the policy wants",
			execution.Decision{RequireApproval: true, Approvals: execution.Approvals{Count: 3, Groups: []string{"oncall"}, RequesterCannotApprove: true}},
			&deadline,
			v1alpha1.ApprovalStatus{State: "Pending", Required: true, RequiredCount: 3, Groups: []string{"oncall"}, RequesterCannotApprove: true, Deadline: &deadline},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, execution.InitialApprovalStatus(tc.decision, tc.deadline)); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

func TestDecideApproval(t *testing.T) {
	t.Parallel()
	type ke = v1alpha1.KubernetesExecution
	for name, tc := range map[string]struct {
		reason   string
		change   func(ke *ke)
		missing  error
		after    time.Duration
		state    string
		received int
		failed   v1alpha1.Reason
		says     string
	}{
		"Nobody": {"nothing has come", func(*ke) {}, nil, 0, "Pending", 0, "", "0 of 1 approvals received for plan 111111111111, deadline 2026-01-02T04:04:05Z"},
		"One":    {"one will do", func(ke *ke) { ke.Spec.Approvals = []v1alpha1.Approval{approvedBy("adam")} }, nil, 0, "Approved", 1, "", ""},
		"Tick":   {"one without a name", func(ke *ke) { ke.Spec.ApprovalReceived = true }, nil, 0, "Approved", 0, "", ""},
		"TickAndName": {"one person", func(ke *ke) {
			ke.Spec.ApprovalReceived = true
			ke.Spec.Approvals = []v1alpha1.Approval{approvedBy("adam")}
		}, nil, 0, "Approved", 1, "", ""},
		"OlderPlan": {"adam has looked at another", func(ke *ke) { ke.Spec.Approvals = []v1alpha1.Approval{forPlan(older, approvedBy("adam"))} }, nil, 0, "Pending", 0, "", "0 of 1"},
		"TickOfOlderPlan": {"the tick came with the name", func(ke *ke) {
			ke.Spec.ApprovalReceived = true
			ke.Spec.Approvals = []v1alpha1.Approval{forPlan(older, approvedBy("adam"))}
		}, nil, 0, "Pending", 0, "", "0 of 1"},
		"NoPlan": {"two empty hashes are not the same plan", func(ke *ke) {
			ke.Status.Plan = nil
			ke.Spec.Approvals = []v1alpha1.Approval{forPlan("", approvedBy("adam"))}
		}, nil, 0, "Pending", 0, "", "0 of 1"},
		"TickOfNoPlan":  {"there was nothing to look at", func(ke *ke) { ke.Status.Plan = nil; ke.Spec.ApprovalReceived = true }, nil, 0, "Pending", 0, "", "0 of 1"},
		"NotAskedAbout": {"an execution without an approval was not asked about yet", func(ke *ke) { ke.Status.Approval = nil }, nil, 0, "Pending", 0, "", "0 of 1"},
		"TwoOfTwo": {"a quorum", func(ke *ke) {
			ke.Status.Approval.RequiredCount, ke.Spec.Approvals = 2, []v1alpha1.Approval{approvedBy("adam"), approvedBy("anna")}
		}, nil, 0, "Approved", 2, "", ""},
		"OneOfTwo": {"not yet", func(ke *ke) {
			ke.Status.Approval.RequiredCount, ke.Spec.Approvals = 2, []v1alpha1.Approval{approvedBy("adam")}
		}, nil, 0, "Pending", 1, "", "1 of 2 approvals"},
		"TickOfTwo": {"it may be adam's", func(ke *ke) {
			ke.Status.Approval.RequiredCount, ke.Spec.Approvals, ke.Spec.ApprovalReceived = 2, []v1alpha1.Approval{approvedBy("adam")}, true
		}, nil, 0, "Pending", 1, "", "1 of 2 approvals"},
		"Twice": {"one person", func(ke *ke) {
			ke.Status.Approval.RequiredCount, ke.Spec.Approvals = 2, []v1alpha1.Approval{approvedBy("adam"), approvedBy("adam")}
		}, nil, 0, "Pending", 1, "", "1 of 2 approvals"},
		"Requester": {"two eyes will do", func(ke *ke) { ke.Spec.Approvals = []v1alpha1.Approval{approvedBy("rita")} }, nil, 0, "Approved", 1, "", ""},
		"FourEyes": {"not these two", func(ke *ke) {
			ke.Status.Approval.RequesterCannotApprove, ke.Spec.Approvals = true, []v1alpha1.Approval{approvedBy("rita")}
		}, nil, 0, "Pending", 0, "", "the requester rita cannot approve"},
		"FourEyesOfAnother": {"these", func(ke *ke) {
			ke.Status.Approval.RequesterCannotApprove, ke.Spec.Approvals = true, []v1alpha1.Approval{approvedBy("adam")}
		}, nil, 0, "Approved", 1, "", ""},
		"FourEyesOfNobody": {"adam may be who asked", func(ke *ke) {
			ke.Spec.RequestedBy, ke.Status.Approval.RequesterCannotApprove, ke.Spec.Approvals = "", true, []v1alpha1.Approval{approvedBy("adam")}
		}, nil, 0, "Pending", 0, "", "spec.requestedBy is empty"},
		"FourEyesOfATick": {"the guard knows who it was", func(ke *ke) { ke.Status.Approval.RequesterCannotApprove, ke.Spec.ApprovalReceived = true, true }, nil, 0, "Approved", 0, "", ""},
		"FourEyesTickOfNo": {"and not who asked", func(ke *ke) {
			ke.Spec.RequestedBy, ke.Status.Approval.RequesterCannotApprove, ke.Spec.ApprovalReceived = "", true, true
		}, nil, 0, "Pending", 0, "", "spec.requestedBy"},
		"Groups":   {"the guard has checked them", func(ke *ke) { ke.Status.Approval.Groups = []string{"oncall", "leads"} }, nil, 0, "Pending", 0, "", "approvers must be in group oncall or leads"},
		"Rejected": {"one no", func(ke *ke) { ke.Spec.Approvals = []v1alpha1.Approval{rejection()} }, nil, 0, "Rejected", 1, "approval_rejected", "anna rejected plan 111111111111: not on a Friday"},
		"RejectedByOneOf": {"is a no, however many say yes", func(ke *ke) {
			ke.Spec.Approvals = []v1alpha1.Approval{approvedBy("adam"), rejection(), approvedBy("nick")}
		}, nil, 0, "Rejected", 1, "approval_rejected", "anna rejected"},
		"RejectedOlder": {"it may not be from anna: nothing checked it", func(ke *ke) { ke.Spec.Approvals = []v1alpha1.Approval{forPlan(older, rejection())} }, nil, 0, "Pending", 0, "", "0 of 1"},
		"TickTooEarly": {"it was set before anybody asked for it", func(ke *ke) {
			ke.Spec.ApprovalReceived, ke.Status.Approval.ReceivedTooEarly = true, true
		}, nil, 0, "Pending", 0, "", "0 of 1"},
		"InTime":          {"there is still time", func(ke *ke) { ke.Spec.Approvals = []v1alpha1.Approval{approvedBy("adam")} }, nil, time.Hour - 1, "Approved", 1, "", ""},
		"Deadline":        {"at the deadline it is over", func(*ke) {}, nil, time.Hour, "Expired", 0, "approval_timeout", "0 of 1 approvals when the approval deadline passed at 2026-01-02T04:04:05Z"},
		"TooLate":         {"nobody knows when adam said so", func(ke *ke) { ke.Spec.Approvals = []v1alpha1.Approval{approvedBy("adam")} }, nil, time.Hour, "Expired", 1, "approval_timeout", "1 of 1 approvals when"},
		"WithoutEnd":      {"it waits for years", func(ke *ke) { ke.Status.Approval.Deadline = nil }, nil, 9000 * time.Hour, "Pending", 0, "", "0 of 1 approvals received for plan 111111111111"},
		"NoGuard":         {"anybody could have written it", func(ke *ke) { ke.Spec.Approvals = []v1alpha1.Approval{approvedBy("adam")} }, errMissing, 0, "Pending", 0, "", "are not in force: the policy is not there"},
		"NoGuardTick":     {"likewise", func(ke *ke) { ke.Spec.ApprovalReceived = true }, errMissing, 0, "Pending", 0, "", "that verify approvers are not in force"},
		"NoGuardRejected": {"a no, too", func(ke *ke) { ke.Spec.Approvals = []v1alpha1.Approval{rejection()} }, errMissing, 0, "Pending", 0, "", "that verify approvers are not in force"},
		"NoGuardTooLate":  {"the time does not stop for it", func(ke *ke) { ke.Spec.Approvals = []v1alpha1.Approval{approvedBy("adam")} }, errMissing, time.Hour, "Expired", 0, "approval_timeout", "after the admission policies are in force: the policy is not there"},
		"DecidedBefore": {"what was approved stays so", func(ke *ke) {
			ke.Status.Approval.State = "Approved"
			ke.Spec.Approvals = []v1alpha1.Approval{rejection()}
		}, nil, 2 * time.Hour, "Approved", 0, "", ""},
		"ExpiredBefore": {"what is over stays so", func(ke *ke) {
			ke.Status.Approval.State = "Expired"
			ke.Spec.Approvals = []v1alpha1.Approval{approvedBy("adam")}
		}, nil, 0, "Expired", 0, "approval_timeout", "create the execution again"},
		"RejectedBefore": {"and is told again", func(ke *ke) {
			ke.Status.Approval.State = "Rejected"
			ke.Spec.Approvals = []v1alpha1.Approval{rejection()}
		}, errMissing, 0, "Rejected", 0, "approval_rejected", "anna rejected"},
		"NotRequired": {"whatever is said", func(ke *ke) { ke.Status.Approval.State = "NotRequired" }, nil, 2 * time.Hour, "NotRequired", 0, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ke := newPending(tc.change)
			before := ke.DeepCopy()
			now := start.Add(tc.after)
			got, failed, until := execution.DecideApproval(ke, tc.missing, now)
			if diff := cmp.Diff(before, ke); diff != "" {
				t.Errorf("the execution was changed: %s", diff)
			}
			if got.State != tc.state || len(got.CountedDecisions) != tc.received {
				t.Errorf("%s: %s with %d approvals, want %s with %d", tc.reason, got.State, len(got.CountedDecisions), tc.state, tc.received)
			}
			var reason v1alpha1.Reason
			_, text := execution.DescribePendingApproval(ke, tc.missing)
			if failed != nil {
				reason, text = failed.Reason, failed.Message
			}
			if reason != tc.failed || !strings.Contains(text, tc.says) {
				t.Errorf("%s: %s, %q, want %s with %q", tc.reason, reason, text, tc.failed, tc.says)
			}
			var want time.Time
			if got.State == "Pending" && got.Deadline != nil {
				want = deadline.Time
			}
			if !until.Equal(want) {
				t.Errorf("%s: it is waited until %s, want %s", tc.reason, until, want)
			}
			if decided := got.DecidedAt != nil; decided != (got.State != "Pending" && !strings.HasSuffix(name, "Before") && name != "NotRequired") {
				t.Errorf("%s: decided at %s", tc.reason, got.DecidedAt)
			}
		})
	}
}

// TestDecideApprovalDetail: who watches for a missing guard sees it by the detail.
func TestDecideApprovalDetail(t *testing.T) {
	t.Parallel()
	ke := newPending(func(*v1alpha1.KubernetesExecution) {})
	if detail, _ := execution.DescribePendingApproval(ke, errMissing); detail != v1alpha1.DetailAdmissionPoliciesMissing {
		t.Errorf("it waits because of %q", detail)
	}
	if detail, _ := execution.DescribePendingApproval(ke, nil); detail != "" {
		t.Errorf("it waits because of %q with a guard", detail)
	}
	_, failed, _ := execution.DecideApproval(ke, errMissing, deadline.Time)
	if failed == nil || failed.Detail != v1alpha1.DetailAdmissionPoliciesMissing {
		t.Errorf("it fails with %+v", failed)
	}
}

// TestNoForgedApproval applies edits in random order and verifies the invariants. An approved
// execution has the required number of distinct approvers, none of them the requester if that is
// excluded, all for the present plan. A decision is final.
func TestNoForgedApproval(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		people := rapid.SampledFrom([]string{"", "rita", "adam", "anna", "nick"})
		hashes := rapid.SampledFrom([]string{"", plan, older})
		ke := newPending(func(ke *v1alpha1.KubernetesExecution) {
			ke.Spec.RequestedBy = people.Draw(t, "requester")
			begun := execution.InitialApprovalStatus(execution.Decision{RequireApproval: true, Approvals: execution.Approvals{
				Count: rapid.Int32Range(0, 3).Draw(t, "count"), RequesterCannotApprove: rapid.Bool().Draw(t, "requesterCannotApprove"),
			}}, &deadline)
			ke.Status.Approval = &begun
		})
		now := start
		var missing error
		t.Repeat(map[string]func(*rapid.T){
			"approve": func(t *rapid.T) {
				one := v1alpha1.Approval{Approver: people.Draw(t, "approver"), Decision: v1alpha1.Approve, PlanHash: hashes.Draw(t, "of")}
				if rapid.IntRange(0, 9).Draw(t, "no") == 0 {
					one.Decision = v1alpha1.Reject
				}
				ke.Spec.Approvals = append(ke.Spec.Approvals, one)
			},
			"tick":  func(*rapid.T) { ke.Spec.ApprovalReceived = true },
			"plan":  func(t *rapid.T) { ke.Status.Plan = &v1alpha1.Plan{Hash: hashes.Draw(t, "plan")} },
			"guard": func(t *rapid.T) { missing = rapid.SampledFrom([]error{nil, errMissing}).Draw(t, "missing") },
			"wait": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.Int64Range(0, int64(time.Hour/3)).Draw(t, "wait")))
			},
			"decide": func(t *rapid.T) {
				before := ke.Status.Approval.State
				got, failed, until := execution.DecideApproval(ke, missing, now)
				checkApproval(t, ke, got, missing, now)
				if before != v1alpha1.ApprovalPending && got.State != before {
					t.Errorf("%s became %s", before, got.State)
				}
				if (failed != nil) != (got.State == v1alpha1.ApprovalRejected || got.State == v1alpha1.ApprovalExpired) {
					t.Errorf("%s fails with %v", got.State, failed)
				}
				if got.State == v1alpha1.ApprovalPending && !until.After(now) {
					t.Errorf("at %s it is waited until %s", now, until)
				}
				ke.Status.Approval = &got
			},
		})
	})
}

// checkApproval holds a decision that is new to what was said.
func checkApproval(t *rapid.T, ke *v1alpha1.KubernetesExecution, got v1alpha1.ApprovalStatus, missing error, now time.Time) {
	if got.State == v1alpha1.ApprovalNotRequired {
		t.Errorf("an approval was required")
	}
	if got.State != v1alpha1.ApprovalApproved || ke.Status.Approval.State == v1alpha1.ApprovalApproved {
		return
	}
	if missing != nil || !now.Before(deadline.Time) {
		t.Errorf("approved at %s, without a guard: %v", now, missing)
	}
	current := ke.Status.Plan.Hash
	good := map[string]bool{}
	for _, a := range ke.Spec.Approvals {
		if a.Decision == v1alpha1.Reject && a.PlanHash == current {
			t.Errorf("approved although %s rejected", a.Approver)
		}
		if a.PlanHash == current && a.Approver != "" && (!got.RequesterCannotApprove || a.Approver != ke.Spec.RequestedBy) {
			good[a.Approver] = true
		}
	}
	if len(ke.Spec.Approvals) == 0 && ke.Spec.ApprovalReceived {
		good["somebody"] = true
	}
	switch {
	case current == "":
		t.Errorf("approved without a plan")
	case got.RequesterCannotApprove && ke.Spec.RequestedBy == "":
		t.Errorf("approved by whoever asked, perhaps")
	case len(good) < int(got.RequiredCount):
		t.Errorf("approved by %v, of %d", good, got.RequiredCount)
	}
}

// TestExcludeRequesterOfAgent verifies that the user of an assistant cannot approve its request, whatever the
// policies say, and that nothing else changes.
func TestExcludeRequesterOfAgent(t *testing.T) {
	t.Parallel()
	lax := execution.Decision{Allow: true, RequireApproval: true, Approvals: execution.Approvals{Count: 2, Groups: []string{"sre"}}}
	strict := lax
	strict.Approvals.RequesterCannotApprove = true
	for name, tc := range map[string]struct {
		agent    string
		decision execution.Decision
		want     execution.Decision
	}{
		"Person":          {"", lax, lax},
		"PersonExcluded":  {"", strict, strict},
		"Agent":           {"claude-code 2.1", lax, strict},
		"AgentOfExcluded": {"claude-code 2.1", strict, strict},
	} {
		ke := &v1alpha1.KubernetesExecution{Spec: v1alpha1.KubernetesExecutionSpec{RequestedBy: "rita", RequestedByAgent: tc.agent}}
		if diff := cmp.Diff(tc.want, execution.ExcludeRequesterOfAgent(tc.decision, ke)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestRequiresStricterApproval(t *testing.T) {
	asked := v1alpha1.ApprovalStatus{Required: true, RequiredCount: 2, Groups: []string{"leads", "sre"}}
	for name, tc := range map[string]struct {
		reason  string
		asked   v1alpha1.ApprovalStatus
		decides execution.Decision
		want    bool
	}{
		"Same":       {"nothing has changed", asked, execution.Decision{RequireApproval: true, Approvals: execution.Approvals{Count: 2, Groups: []string{"sre", "leads"}}}, false},
		"None":       {"it needs none any more", asked, execution.Decision{}, false},
		"Fewer":      {"one would have done", asked, execution.Decision{RequireApproval: true, Approvals: execution.Approvals{Count: 1}}, false},
		"More":       {"there is one too few", asked, execution.Decision{RequireApproval: true, Approvals: execution.Approvals{Count: 3}}, true},
		"FourEyes":   {"whoever asked may have approved", asked, execution.Decision{RequireApproval: true, Approvals: execution.Approvals{RequesterCannotApprove: true}}, true},
		"FewerMayBe": {"somebody of sre may have approved", asked, execution.Decision{RequireApproval: true, Approvals: execution.Approvals{Groups: []string{"leads"}}}, true},
		"NotAnybody": {"somebody of no group may have", v1alpha1.ApprovalStatus{Required: true}, execution.Decision{RequireApproval: true, Approvals: execution.Approvals{Groups: []string{"leads"}}}, true},
		"MoreMayBe":  {"those who were asked are among them", asked, execution.Decision{RequireApproval: true, Approvals: execution.Approvals{Groups: []string{"leads", "sre", "dba"}}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := execution.RequiresStricterApproval(tc.asked, tc.decides); got != tc.want {
				t.Errorf("%s: %t", tc.reason, got)
			}
		})
	}
}
