package operator

import (
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution/guard"
)

// TestRequesterUnverified verifies that an execution whose requester is not verified fails in every
// phase.
func TestRequesterUnverified(t *testing.T) {
	changed := func(ke *v1alpha1.KubernetesExecution) {
		ke.Spec.Parameters = &runtime.RawExtension{Raw: []byte(`{"deployment":"web","namespace":"shop","replicas":50}`)}
	}
	for name, tc := range map[string]struct {
		reason   string
		approval bool
		before   func(w *fixture, r *reconciler)
		says     string
	}{
		"WithoutAGuard": {"anybody can be who asks", false, func(w *fixture, _ *reconciler) {
			w.guard = errors.New("the binding is not there")
		}, "the binding is not there"},
		"BeforeTheGuard": {"likewise", false, func(w *fixture, _ *reconciler) {
			w.period.Since = w.now.Add(time.Second)
		}, "continuously in force only since 2026-05-01T03:00:01Z"},
		"OfAnEarlierVersion": {"which has not written down that it was checked", true, func(w *fixture, r *reconciler) {
			if _, err := w.reconcile(r, "a"); err != nil {
				panic(err)
			}
			w.edit("a", func(ke *v1alpha1.KubernetesExecution) { ke.Status.VerifiedRequest = nil })
			w.period.Since = w.now.Add(time.Second)
		}, "continuously in force"},
		"OtherParameters": {"the guard was away, and the schema does not know them", true, func(w *fixture, r *reconciler) {
			if _, err := w.reconcile(r, "a"); err != nil {
				panic(err)
			}
			w.edit("a", changed)
			w.edit("a", approve("bob"))
		}, "spec.parameters were changed"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture()
			w.approval = tc.approval
			r := w.newReconciler(Config{})
			w.create("a", "web", nil)
			tc.before(w, r)
			w.must(t, r, "a")
			wantPhase(t, w, "a", v1alpha1.PhaseFailed, v1alpha1.DetailRequesterUnverified)
			s := w.get("a").Status
			if !strings.Contains(s.Message, tc.says) || s.Reason != v1alpha1.ReasonValidationError || len(w.effects) > 0 {
				t.Errorf("%s: %s %q with %d Jobs, want %q", tc.reason, s.Reason, s.Message, len(w.effects), tc.says)
			}
			if c := findCondition(&s, v1alpha1.ConditionSucceeded); c == nil || c.Reason != "RequesterUnverified" {
				t.Errorf("%s: the condition is %+v", tc.reason, c)
			}
		})
	}
}

// TestRequestIsVerifiedOnce verifies that a verified execution stays verified, independent of later
// gaps of the guard.
func TestRequestIsVerifiedOnce(t *testing.T) {
	w := newFixture()
	w.targets["api"] = 3
	r := w.newReconciler(Config{})
	w.create("a", "web", nil)
	w.must(t, r, "a")
	verified := w.get("a").Status.VerifiedRequest
	if verified == nil || verified.AdmissionPolicyPeriod != "period-1" || len(verified.ParametersHash) != 64 {
		t.Fatalf("it is verified as %+v", verified)
	}
	w.guard = errors.New("gone")
	w.edit("a", func(*v1alpha1.KubernetesExecution) {})
	w.must(t, w.newReconciler(Config{}), "a")
	wantPhase(t, w, "a", v1alpha1.PhaseExecuting, "")

	w.guard = guard.ErrOff
	w.create("b", "api", nil)
	w.must(t, r, "b")
	wantPhase(t, w, "b", v1alpha1.PhaseExecuting, "")
	if w.get("b").Status.VerifiedRequest != nil {
		t.Error("without a guard it counts as verified")
	}
}

// TestGapOfTheGuard verifies that approvals from before a gap do not count, that approval is
// requested again, and that the same user can approve again.
func TestGapOfTheGuard(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		before func(w *fixture, r *reconciler)
	}{
		"Forged": {"somebody writes bob's name in the gap", func(w *fixture, r *reconciler) {
			w.guard = errors.New("changed")
			w.edit("a", approve("bob"))
			if _, err := w.reconcile(r, "a"); err != nil {
				panic(err)
			}
			w.guard = nil
		}},
		"Unseen": {"the controller was away in the gap", func(w *fixture, _ *reconciler) { w.edit("a", approve("bob")) }},
		"Ticked": {"without a name", func(w *fixture, _ *reconciler) {
			w.edit("a", func(ke *v1alpha1.KubernetesExecution) { ke.Spec.ApprovalReceived = true })
		}},
		"Rejected": {"a no can be forged, too", func(w *fixture, _ *reconciler) {
			w.edit("a", func(ke *v1alpha1.KubernetesExecution) {
				ke.Spec.Approvals = []v1alpha1.Approval{{Approver: "bob", Decision: v1alpha1.Reject, PlanHash: ke.Status.Plan.Hash}}
			})
		}},
		"NotUsedYet": {"it was approved, and waits for its turn", func(w *fixture, r *reconciler) {
			r.slots.gate.Stop("a pause")
			w.edit("a", approve("bob"))
			if _, err := w.reconcile(r, "a"); err != nil {
				panic(err)
			}
			r.slots.gate.Resume()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture()
			w.approval = true
			r := w.newReconciler(Config{})
			w.create("a", "web", nil)
			w.must(t, r, "a")
			old := w.get("a").Status
			tc.before(w, r)
			w.now = w.now.Add(time.Minute)
			w.period = guard.Period{ID: "period-2", Since: w.now}
			w.must(t, r, "a")
			w.must(t, r, "a")
			wantPhase(t, w, "a", v1alpha1.PhaseWaitingApproval, "")
			s := w.get("a").Status
			if len(w.effects) > 0 || s.Approval.State != v1alpha1.ApprovalPending || len(s.Approval.CountedDecisions) > 0 {
				t.Fatalf("%s: %d Jobs, %+v", tc.reason, len(w.effects), s.Approval)
			}
			if s.Plan.Hash == old.Plan.Hash || s.Plan.AdmissionPolicyPeriod != "period-2" || !s.Approval.Deadline.After(old.Approval.Deadline.Time) {
				t.Errorf("%s: it was not asked for again: %s until %s", tc.reason, s.Plan.AdmissionPolicyPeriod, s.Approval.Deadline)
			}
			w.edit("a", func(ke *v1alpha1.KubernetesExecution) { ke.Spec.Approvals = nil })
			w.edit("a", approve("bob"))
			w.must(t, r, "a")
			wantPhase(t, w, "a", v1alpha1.PhaseExecuting, "")
		})
	}
}

// TestAskedAgainByItself verifies that a waiting execution requests approval again after a gap
// without another wake-up, so that the next approval names the current plan.
func TestAskedAgainByItself(t *testing.T) {
	for name, missing := range map[string]error{"NobodySawTheGap": nil, "Missing": errors.New("changed")} {
		t.Run(name, func(t *testing.T) {
			w := newFixture()
			w.approval = true
			r := w.newReconciler(Config{})
			w.create("a", "web", nil)
			w.must(t, r, "a")
			w.guard = missing
			wait := func() time.Duration {
				t.Helper()
				res, err := w.reconcile(r, "a")
				if err != nil {
					t.Fatal(err)
				}
				return res.RequeueAfter
			}
			again := wait()
			for _, id := range []string{"period-2", "period-3"} {
				end := w.now.Add(time.Minute)
				w.guard, w.period = nil, guard.Period{ID: id, Since: w.now}
				for w.get("a").Status.Plan.AdmissionPolicyPeriod != id {
					w.now = w.now.Add(again)
					if w.now.After(end) {
						t.Fatalf("it is not looked at before %s, and has still %s", w.now, w.get("a").Status.Plan.AdmissionPolicyPeriod)
					}
					again = wait()
				}
			}
			w.edit("a", approve("bob"))
			w.must(t, r, "a")
			wantPhase(t, w, "a", v1alpha1.PhaseExecuting, "")
		})
	}
}
