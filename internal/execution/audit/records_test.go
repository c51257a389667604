package audit_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/audit"
)

var begin = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// newExecution is one that was asked for.
func newExecution() *v1alpha1.KubernetesExecution {
	return &v1alpha1.KubernetesExecution{
		ObjectMeta: metav1.ObjectMeta{
			Name: "scale-web", Namespace: "kubernaut-executor", UID: "uid-1", CreationTimestamp: metav1.NewTime(begin),
			OwnerReferences: []metav1.OwnerReference{{Kind: "RemediationRequest", Name: "cpu", Controller: new(true)}},
		},
		Spec: v1alpha1.KubernetesExecutionSpec{
			Action: "scale_deployment", Parameters: &runtime.RawExtension{Raw: []byte(`{"deployment":"web","namespace":"shop","replicas":5}`)},
			RequestedBy: "alice@example.com", Reason: "CPU is high", CorrelationID: "incident-7",
		},
	}
}

// enter has an execution be in a phase, so many seconds after the beginning.
func enter(ke *v1alpha1.KubernetesExecution, p v1alpha1.Phase, second int) {
	ke.Status.Phase = p
	ke.Status.PhaseTransitions = append(ke.Status.PhaseTransitions, v1alpha1.PhaseTransition{Phase: p, At: metav1.NewMicroTime(begin.Add(time.Duration(second) * time.Second))})
}

func check(ke *v1alpha1.KubernetesExecution, allowed bool) {
	ke.Status.Target = "Deployment/shop/web"
	ke.Status.ValidationResults = &v1alpha1.ValidationResults{PolicyValidation: &v1alpha1.PolicyValidation{PolicyName: "shop", Allowed: allowed, PolicyHash: "policy-1"}}
	if allowed {
		ke.Status.Plan = &v1alpha1.Plan{
			Hash: "plan-1", PolicyHash: "policy-1", Action: ke.Spec.Action, Impact: v1alpha1.EstimatedImpact{ResourcesAffected: 1, ReplicasChanged: "3 -> 5"},
			Target: v1alpha1.PlanTarget{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "shop", Name: "web", UID: "target-1"},
		}
	}
}

func finish(ke *v1alpha1.KubernetesExecution, success bool, retries int32, second int) {
	start, end := metav1.NewTime(begin.Add(10*time.Second)), metav1.NewTime(begin.Add(time.Duration(second)*time.Second))
	ke.Status.ExecutionResults = &v1alpha1.ExecutionResults{
		Success: success, RetriesAttempted: retries, JobName: "kx-1", PlanHash: "plan-1", StartTime: &start, EndTime: &end, PodLogs: "deployment.apps/web scaled",
		ResourcesAffected: []v1alpha1.AffectedResource{{Kind: "Deployment", Namespace: "shop", Name: "web", Action: "scaled", Before: "replicas: 3", After: "replicas: 5"}},
	}
}

// approve decides about a plan.
func approve(ke *v1alpha1.KubernetesExecution, state string, second int, decisions ...v1alpha1.Approval) {
	at := metav1.NewTime(begin.Add(time.Duration(second) * time.Second))
	ke.Spec.Approvals = decisions
	ke.Status.Approval.State, ke.Status.Approval.DecidedAt, ke.Status.Approval.CountedDecisions = state, &at, decisions
}

func decision(who string, what v1alpha1.ApprovalDecision) v1alpha1.Approval {
	return v1alpha1.Approval{Approver: who, Decision: what, Reason: "looks right", PlanHash: "plan-1"}
}

// lines formats records in short.
func lines(records []audit.Record) []string {
	var list []string
	for _, r := range records {
		list = append(list, fmt.Sprintf("%d %s +%s %s:%s %s/%s/%s", r.Seq, r.Type, r.Time.Sub(begin), r.ActorType, r.ActorID, r.Outcome, r.Reason, r.PlanHash))
	}
	return list
}

const controller = "controller:execution-controller"

func TestTheRecordsOfAnExecution(t *testing.T) {
	const asked = "1 requested +0s user:alice@example.com //"
	checked := []string{asked, "2 policy_decided +2s " + controller + " Allowed//plan-1", "3 validated +2s " + controller + " Passed//plan-1"}
	waiting := slices.Concat(checked, []string{"4 approval_requested +2s " + controller + " //plan-1"})
	toWaiting := func(ke *v1alpha1.KubernetesExecution) {
		enter(ke, v1alpha1.PhaseValidating, 1)
		check(ke, true)
		enter(ke, v1alpha1.PhaseValidated, 2)
		enter(ke, v1alpha1.PhaseWaitingApproval, 2)
		ke.Status.Approval = &v1alpha1.ApprovalStatus{State: v1alpha1.ApprovalPending, Required: true, RequiredCount: 2}
	}
	fail := func(ke *v1alpha1.KubernetesExecution, reason v1alpha1.Reason, second int) {
		ke.Status.Reason, ke.Status.Outcome = reason, v1alpha1.OutcomeFailed
		enter(ke, v1alpha1.PhaseFailed, second)
	}
	cases := map[string]struct {
		reason string
		ke     func(ke *v1alpha1.KubernetesExecution)
		want   []string
	}{
		"New":        {"it was asked for", func(*v1alpha1.KubernetesExecution) {}, []string{asked}},
		"Validating": {"the policy may yet be asked again", func(ke *v1alpha1.KubernetesExecution) { enter(ke, v1alpha1.PhaseValidating, 1); check(ke, true) }, []string{asked}},
		"Denied": {"the denial and the failure", func(ke *v1alpha1.KubernetesExecution) {
			enter(ke, v1alpha1.PhaseValidating, 1)
			check(ke, false)
			fail(ke, v1alpha1.ReasonValidationError, 2)
		}, []string{asked, "2 policy_decided +2s " + controller + " Denied//", "72 failed +2s " + controller + " Failed/validation_error/"}},
		"DeniedLater": {"the policies allowed the first plan, and denied the one before the start", func(ke *v1alpha1.KubernetesExecution) {
			enter(ke, v1alpha1.PhaseValidating, 1)
			check(ke, true)
			enter(ke, v1alpha1.PhaseValidated, 2)
			check(ke, false)
			fail(ke, v1alpha1.ReasonValidationError, 5)
		}, []string{
			asked, "2 policy_decided +2s " + controller + " Allowed//plan-1", "3 validated +2s " + controller + " Passed//plan-1",
			"49 policy_decided +5s " + controller + " Denied//plan-1", "72 failed +5s " + controller + " Failed/validation_error/plan-1",
		}},
		"Invalid": {"the policy was not asked", func(ke *v1alpha1.KubernetesExecution) {
			enter(ke, v1alpha1.PhaseValidating, 1)
			fail(ke, v1alpha1.ReasonValidationError, 2)
		}, []string{asked, "72 failed +2s " + controller + " Failed/validation_error/"}},
		"OnlyTried": {"a dry run ends without a start", func(ke *v1alpha1.KubernetesExecution) {
			enter(ke, v1alpha1.PhaseValidating, 1)
			check(ke, true)
			enter(ke, v1alpha1.PhaseValidated, 2)
			enter(ke, v1alpha1.PhaseCompleted, 3)
		}, slices.Concat(checked, []string{"72 finalized +3s " + controller + " Succeeded//plan-1"})},
		"OneOfTwoApproved": {"another may yet come before it", func(ke *v1alpha1.KubernetesExecution) {
			toWaiting(ke)
			ke.Status.Approval.CountedDecisions = []v1alpha1.Approval{decision("bob", v1alpha1.Approve)}
		}, waiting},
		"Approved": {"by both, by name, when it was decided", func(ke *v1alpha1.KubernetesExecution) {
			toWaiting(ke)
			approve(ke, v1alpha1.ApprovalApproved, 8, decision("bob", v1alpha1.Approve), decision("system:serviceaccount:ops:bot", v1alpha1.Approve))
			fail(ke, v1alpha1.ReasonCancelled, 9)
		}, slices.Concat(waiting, []string{"10 approved +8s user:bob //plan-1", "11 approved +8s serviceaccount:system:serviceaccount:ops:bot //plan-1", "72 failed +9s " + controller + " Failed/cancelled/plan-1"})},
		"ApprovedAndWaits": {"it may be asked for again, and then others approve", func(ke *v1alpha1.KubernetesExecution) {
			toWaiting(ke)
			approve(ke, v1alpha1.ApprovalApproved, 8, decision("bob", v1alpha1.Approve))
		}, waiting},
		"ApprovedByNobody": {"the bare approval has no name", func(ke *v1alpha1.KubernetesExecution) {
			toWaiting(ke)
			approve(ke, v1alpha1.ApprovalApproved, 8)
			fail(ke, v1alpha1.ReasonCancelled, 9)
		}, slices.Concat(waiting, []string{"10 approved +8s unknown: //plan-1", "72 failed +9s " + controller + " Failed/cancelled/plan-1"})},
		"RejectedAfterAGap": {"of the approvals before nobody knows who wrote them", func(ke *v1alpha1.KubernetesExecution) {
			toWaiting(ke)
			forged := decision("bob", v1alpha1.Approve)
			forged.PlanHash = "plan-0"
			approve(ke, v1alpha1.ApprovalRejected, 8, forged, decision("carol", v1alpha1.Reject))
			ke.Status.Approval.CountedDecisions = ke.Status.Approval.CountedDecisions[1:]
			fail(ke, v1alpha1.ReasonApprovalRejected, 8)
		}, slices.Concat(waiting, []string{"10 rejected +8s user:carol //plan-1", "72 failed +8s " + controller + " Failed/approval_rejected/plan-1"})},
		"Rejected": {"who approved before is there as well", func(ke *v1alpha1.KubernetesExecution) {
			toWaiting(ke)
			approve(ke, v1alpha1.ApprovalRejected, 8, decision("bob", v1alpha1.Approve), decision("carol", v1alpha1.Reject))
			ke.Status.Approval.CountedDecisions = ke.Status.Approval.CountedDecisions[1:]
			fail(ke, v1alpha1.ReasonApprovalRejected, 8)
		}, slices.Concat(waiting, []string{"10 approved +8s user:bob //plan-1", "11 rejected +8s user:carol //plan-1", "72 failed +8s " + controller + " Failed/approval_rejected/plan-1"})},
		"Cancelled": {"one approval was there, and nothing was decided", func(ke *v1alpha1.KubernetesExecution) {
			toWaiting(ke)
			ke.Status.Approval.CountedDecisions = []v1alpha1.Approval{decision("bob", v1alpha1.Approve)}
			fail(ke, v1alpha1.ReasonCancelled, 9)
		}, slices.Concat(waiting, []string{"10 approved +9s user:bob //plan-1", "72 failed +9s " + controller + " Failed/cancelled/plan-1"})},
		"Retried": {"the attempts, and the way back", func(ke *v1alpha1.KubernetesExecution) {
			enter(ke, v1alpha1.PhaseValidating, 1)
			check(ke, true)
			enter(ke, v1alpha1.PhaseValidated, 2)
			enter(ke, v1alpha1.PhaseExecuting, 3)
			finish(ke, true, 1, 20)
			ke.Status.RollbackInformation = &v1alpha1.RollbackInformation{Available: true, RollbackAction: "scale_deployment"}
			enter(ke, v1alpha1.PhaseRollbackReady, 21)
		}, slices.Concat(checked, []string{
			"50 started +3s " + controller + " //plan-1", "51 attempt_finished +3s " + controller + " Failed//plan-1", "52 attempt_finished +20s " + controller + " Succeeded//plan-1",
			"70 result +20s " + controller + " Succeeded//plan-1", "71 rollback_available +21s " + controller + " //plan-1",
		})},
		"NeverStarted": {"no attempt was made", func(ke *v1alpha1.KubernetesExecution) {
			enter(ke, v1alpha1.PhaseValidating, 1)
			check(ke, true)
			enter(ke, v1alpha1.PhaseValidated, 2)
			enter(ke, v1alpha1.PhaseExecuting, 3)
			ke.Status.ExecutionResults = &v1alpha1.ExecutionResults{JobName: "kx-1"}
			fail(ke, v1alpha1.ReasonExecutionFailed, 30)
		}, slices.Concat(checked, []string{
			"50 started +3s " + controller + " //plan-1", "70 result +30s " + controller + " Failed/execution_failed/plan-1", "72 failed +30s " + controller + " Failed/execution_failed/plan-1",
		})},
		"Deleted": {"nobody knows by whom", func(ke *v1alpha1.KubernetesExecution) {
			at := metav1.NewTime(begin.Add(time.Hour))
			ke.DeletionTimestamp = &at
		}, []string{asked, "73 deleted +1h0m0s unknown: //"}},
		"WithoutTransitions": {"times that are missing are that of the request", func(ke *v1alpha1.KubernetesExecution) {
			ke.Spec.RequestedBy = ""
			ke.Status.Phase = v1alpha1.PhaseCompleted
		}, []string{"1 requested +0s unknown: //", "3 validated +0s " + controller + " Passed//", "72 finalized +0s " + controller + " Succeeded//"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ke := newExecution()
			tc.ke(ke)
			if diff := cmp.Diff(tc.want, lines(audit.Records(ke, "local"))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestWhatARecordSays(t *testing.T) {
	ke := newExecution()
	ke.Spec.RequestedByAgent = "claude-code 2.1"
	enter(ke, v1alpha1.PhaseValidating, 1)
	check(ke, true)
	enter(ke, v1alpha1.PhaseValidated, 2)
	enter(ke, v1alpha1.PhaseExecuting, 3)
	finish(ke, true, 0, 20)
	enter(ke, v1alpha1.PhaseCompleted, 21)
	got := audit.Records(ke, "local")
	payloads := map[audit.Type]string{}
	for _, r := range got {
		payloads[r.Type] = string(r.Payload)
		r.Seq, r.Time, r.Type, r.ActorID, r.ActorType, r.Outcome, r.PlanHash, r.PolicyHash, r.Payload = 0, time.Time{}, "", "", "", "", "", "", nil
		want := audit.Record{
			ExecutionUID: "uid-1", Action: "scale_deployment", Cluster: "local", Namespace: "kubernaut-executor", Name: "scale-web",
			Target:      audit.Target{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "shop", Name: "web", UID: "target-1"},
			Correlation: "incident-7", Parent: "RemediationRequest/kubernaut-executor/cpu",
		}
		if diff := cmp.Diff(want, r); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	want := map[audit.Type]string{
		audit.Requested:       `{"parameters":{"deployment":"web","namespace":"shop","replicas":5},"reason":"CPU is high","requestedByAgent":"claude-code 2.1"}`,
		audit.PolicyDecided:   `{"policy":"shop","requiredApproval":false,"requiredDryRun":false}`,
		audit.Validated:       `{"impact":{"replicas":"3 -\u003e 5","resources":1}}`,
		audit.Started:         `{"impact":{"replicas":"3 -\u003e 5","resources":1}}`,
		audit.AttemptFinished: `{"attempt":1}`,
		audit.Result: `{"count":0,"ended":"2026-03-01T12:00:20Z","jobName":"kx-1","resources":[{"action":"scaled","after":"replicas: 5","before":"replicas: 3","kind":"Deployment","name":"web","namespace":"shop"}],` +
			`"retries":0,"started":"2026-03-01T12:00:10Z"}`,
		audit.Finalized: `{"target":"Deployment/shop/web"}`,
	}
	if diff := cmp.Diff(want, payloads); diff != "" {
		t.Errorf("payloads (-want +got):\n%s", diff)
	}
}

// A walk is an execution on its way through its phases, by the table of
// transitions and with all that is written on the way.
type walk struct {
	*rapid.T
	ke     *v1alpha1.KubernetesExecution
	second int
}

func (w *walk) yes(what string) bool { return rapid.Bool().Draw(w.T, what) }

// step changes the status as a controller does.
func (w *walk) step() {
	w.second++
	st := &w.ke.Status
	var ways []v1alpha1.Phase
	for _, t := range execution.Transitions() {
		if t.From == st.Phase {
			ways = append(ways, t.To)
		}
	}
	if st.Phase == v1alpha1.PhaseWaitingApproval && st.Approval.State == v1alpha1.ApprovalPending && w.yes("approves") {
		st.Approval.CountedDecisions = append(st.Approval.CountedDecisions, decision(fmt.Sprintf("user-%d", w.second), v1alpha1.Approve))
		return
	}
	if st.Phase == v1alpha1.PhaseExecuting && st.ExecutionResults != nil && st.ExecutionResults.EndTime == nil && w.yes("retries") && st.ExecutionResults.RetriesAttempted < 5 {
		st.ExecutionResults.RetriesAttempted++
		return
	}
	if w.ke.DeletionTimestamp == nil && w.yes("deletes") && w.yes("really") {
		at := metav1.NewTime(begin.Add(time.Duration(w.second) * time.Second))
		w.ke.DeletionTimestamp = &at
	}
	if len(ways) == 0 {
		return
	}
	to := rapid.SampledFrom(ways).Draw(w.T, "to")
	from := st.Phase
	if from == v1alpha1.PhaseValidating {
		check(w.ke, to != v1alpha1.PhaseFailed)
	}
	if from == v1alpha1.PhaseWaitingApproval {
		state := v1alpha1.ApprovalApproved
		if to == v1alpha1.PhaseFailed {
			state = v1alpha1.ApprovalExpired
		}
		approve(w.ke, state, w.second, st.Approval.CountedDecisions...)
	}
	if from == v1alpha1.PhaseExecuting {
		retries := int32(0)
		if st.ExecutionResults != nil {
			retries = st.ExecutionResults.RetriesAttempted
		}
		finish(w.ke, to != v1alpha1.PhaseFailed, retries, w.second)
		st.RollbackInformation = &v1alpha1.RollbackInformation{Available: to == v1alpha1.PhaseRollbackReady}
	}
	if to == v1alpha1.PhaseWaitingApproval {
		st.Approval = &v1alpha1.ApprovalStatus{State: v1alpha1.ApprovalPending, Required: true, RequiredCount: 1}
	}
	if to == v1alpha1.PhaseExecuting {
		start := metav1.NewTime(begin.Add(time.Duration(w.second) * time.Second))
		st.ExecutionResults = &v1alpha1.ExecutionResults{StartTime: &start, PlanHash: "plan-1"}
	}
	if to == v1alpha1.PhaseFailed {
		st.Reason, st.Outcome = v1alpha1.ReasonExecutionFailed, v1alpha1.OutcomeFailed
	}
	if to == v1alpha1.PhaseCompleted {
		st.Outcome = v1alpha1.OutcomeSucceeded
	}
	enter(w.ke, to, w.second)
}

// TestALaterStatusOnlyAppends verifies for any course of an execution that equal status yields
// equal records, and that a later status yields the same records once each, and possibly more.
func TestALaterStatusOnlyAppends(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := &walk{T: rt, ke: newExecution()}
		known := map[int32]audit.Record{}
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			w.step()
			now := audit.Records(w.ke, "local")
			if diff := cmp.Diff(now, audit.Records(w.ke.DeepCopy(), "local")); diff != "" {
				rt.Fatalf("the same status gives other records: %s", diff)
			}
			seen := map[int32]audit.Record{}
			for i, r := range now {
				if i > 0 && now[i-1].Seq >= r.Seq {
					rt.Fatalf("%d follows %d", r.Seq, now[i-1].Seq)
				}
				if !json.Valid(r.Payload) {
					rt.Fatalf("payload %s", r.Payload)
				}
				// What the target is is known when there is a plan, and the times of
				// attempts when the last is over.
				r.Target, r.Payload = audit.Target{}, nil
				seen[r.Seq] = r
			}
			for seq, before := range known {
				after, ok := seen[seq]
				if before.Type == audit.Deleted {
					continue
				}
				if !ok || cmp.Diff(before, after) != "" {
					rt.Fatalf("in phase %s: %s", w.ke.Status.Phase, cmp.Diff(before, after))
				}
			}
			known = seen
		}
		ended := 0
		for _, r := range known {
			if r.Type == audit.Finalized || r.Type == audit.Failed {
				ended++
			}
		}
		if over := execution.IsFinal(w.ke.Status.Phase); over && ended != 1 || !over && ended != 0 {
			rt.Fatalf("%d ends in phase %s", ended, w.ke.Status.Phase)
		}
	})
}

func TestWhatAnExecutionBelongsTo(t *testing.T) {
	ref := func(name, namespace string) *v1alpha1.ObjectReference {
		return &v1alpha1.ObjectReference{Name: name, Namespace: namespace, UID: types.UID("u")}
	}
	for name, tc := range map[string]struct {
		reason string
		spec   v1alpha1.KubernetesExecutionSpec
		owner  bool
		want   string
	}{
		"Nothing":  {"it is on its own", v1alpha1.KubernetesExecutionSpec{}, false, ""},
		"Owner":    {"the owner is in its namespace", v1alpha1.KubernetesExecutionSpec{RemediationRequestRef: ref("x", "y")}, true, "RemediationRequest/kubernaut-executor/cpu"},
		"Workflow": {"nearest first", v1alpha1.KubernetesExecutionSpec{WorkflowExecutionRef: ref("wf", ""), RemediationRequestRef: ref("x", "y")}, false, "WorkflowExecution/kubernaut-executor/wf"},
		"Request":  {"as it is named", v1alpha1.KubernetesExecutionSpec{RemediationRequestRef: ref("x", "y")}, false, "RemediationRequest/y/x"},
	} {
		t.Run(name, func(t *testing.T) {
			ke := newExecution()
			ke.Spec = tc.spec
			if !tc.owner {
				ke.OwnerReferences = nil
			}
			if got := audit.Records(ke, "local")[0].Parent; got != tc.want {
				t.Errorf("%q, want %q: %s", got, tc.want, tc.reason)
			}
		})
	}
}

func TestWhatTheTargetIs(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		change func(ke *v1alpha1.KubernetesExecution)
		want   audit.Target
	}{
		"Unknown": {"nothing tells", func(*v1alpha1.KubernetesExecution) {}, audit.Target{}},
		"Names":   {"by the request's own fields", func(ke *v1alpha1.KubernetesExecution) { ke.Spec.TargetNamespace, ke.Spec.ResourceName = "shop", "web" }, audit.Target{Namespace: "shop", Name: "web"}},
		"Given": {"in full", func(ke *v1alpha1.KubernetesExecution) {
			ke.Spec.Target = &v1alpha1.Target{Kind: "Deployment", Namespace: "shop", Name: "web", UID: "u"}
		}, audit.Target{Kind: "Deployment", Namespace: "shop", Name: "web", UID: "u"}},
		"Status":    {"as it was resolved", func(ke *v1alpha1.KubernetesExecution) { ke.Status.Target = "Deployment/shop/web" }, audit.Target{Kind: "Deployment", Namespace: "shop", Name: "web"}},
		"Node":      {"outside of namespaces", func(ke *v1alpha1.KubernetesExecution) { ke.Status.Target = "Node/worker-1" }, audit.Target{Kind: "Node", Name: "worker-1"}},
		"NodeEmpty": {"outside of namespaces", func(ke *v1alpha1.KubernetesExecution) { ke.Status.Target = "Node//worker-1" }, audit.Target{Kind: "Node", Name: "worker-1"}},
		"Plan":      {"the plan knows best", func(ke *v1alpha1.KubernetesExecution) { ke.Spec.ResourceName = "other"; check(ke, true) }, audit.Target{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "shop", Name: "web", UID: "target-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			ke := newExecution()
			tc.change(ke)
			if diff := cmp.Diff(tc.want, audit.Records(ke, "local")[0].Target); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
