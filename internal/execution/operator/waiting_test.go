package operator

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/check"
)

// TestApprovalTimeout verifies the deadline of an approval, also for an operator that did not
// request it.
func TestApprovalTimeout(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		cfg    time.Duration
		own    *metav1.Duration
		want   time.Duration
	}{
		"Default":    {"an hour", 0, nil, time.Hour},
		"Configured": {"the controller was told", 2 * time.Hour, nil, 2 * time.Hour},
		"Own":        {"it says so itself", 2 * time.Hour, &metav1.Duration{Duration: time.Minute}, time.Minute},
		"Zero":       {"is what the controller was told", 2 * time.Hour, &metav1.Duration{}, 2 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture()
			w.approval = true
			cfg := Config{ApprovalTimeout: tc.cfg}
			w.create("a", "web", func(ke *v1alpha1.KubernetesExecution) { ke.Spec.ApprovalTimeout = tc.own })
			asked := w.now
			w.must(t, w.newReconciler(cfg), "a")
			r := w.newReconciler(cfg)
			w.must(t, r, "a")
			w.now = asked.Add(tc.want - time.Second)
			res, err := w.reconcile(r, "a")
			if err != nil || res.RequeueAfter != time.Second {
				t.Errorf("%s: a second before the deadline it is looked at again after %s: %v", tc.reason, res.RequeueAfter, err)
			}
			wantPhase(t, w, "a", v1alpha1.PhaseWaitingApproval, "")
			w.now = asked.Add(tc.want)
			w.edit("a", approve("bob"))
			w.must(t, r, "a")
			wantPhase(t, w, "a", v1alpha1.PhaseFailed, v1alpha1.Detail(v1alpha1.ReasonApprovalTimeout))
		})
	}
}

// TestAskedWhileItWaits verifies that approval of the current plan is requested if the policies
// start to require it while the execution queues. Other executions are not blocked in the meantime.
func TestAskedWhileItWaits(t *testing.T) {
	w := newFixture()
	r := w.newReconciler(Config{})
	w.create("other", "web", nil)
	w.must(t, r, "other")
	w.create("a", "web", nil)
	w.must(t, r, "a")
	wantPhase(t, w, "a", v1alpha1.PhaseValidated, v1alpha1.DetailTargetBusy)
	w.approval, w.policy = true, "p2"
	w.end("other", action.CodeOK)
	w.must(t, r, "other")
	w.must(t, r, "a")
	wantPhase(t, w, "a", v1alpha1.PhaseWaitingApproval, "")
	wantEmpty(t, r)
	s := w.get("a").Status
	now := w.plan(t.Context(), w.get("a"))
	now.AdmissionPolicyPeriod = w.period.ID
	now.Hash = action.HashPlanEffect(now)
	if s.Plan.Hash != now.Hash || s.Approval == nil || !s.Approval.Required || s.Approval.Deadline == nil {
		t.Errorf("asked for is %+v of plan %s, and it is %s now", s.Approval, s.Plan.Hash, now.Hash)
	}
	if len(w.effects) != 1 {
		t.Fatal("it began")
	}
	w.edit("a", approve("bob"))
	w.must(t, r, "a")
	wantPhase(t, w, "a", v1alpha1.PhaseExecuting, "")
}

// TestNoLongerInline verifies that an inline action does not run if the controller no longer allows
// it.
func TestNoLongerInline(t *testing.T) {
	w := newFixture()
	w.approval = true
	w.create("a", "web", asksInline)
	w.must(t, w.newReconciler(inline()), "a")
	w.edit("a", approve("bob"))
	r := w.newReconciler(Config{Audited: true})
	r.running.identities = nobodyActs{t}
	w.must(t, r, "a")
	wantPhase(t, w, "a", v1alpha1.PhaseFailed, v1alpha1.DetailInvalidParameters)
	wantEmpty(t, r)
	if len(w.effects) > 0 {
		t.Error("it began")
	}
}

// TestInlineRetries verifies the number and the delays of inline retries.
func TestInlineRetries(t *testing.T) {
	for name, tc := range map[string]struct {
		most    *int32
		fails   int // attempts that do
		waits   string
		want    v1alpha1.Outcome
		retries int32
	}{
		"Once":   {new(int32(2)), 1, "[1s]", v1alpha1.OutcomeSucceeded, 1},
		"Twice":  {new(int32(2)), 2, "[1s 2s]", v1alpha1.OutcomeSucceeded, 2},
		"Always": {new(int32(2)), 9, "[1s 2s]", v1alpha1.OutcomeFailed, 2},
		"Never":  {new(int32(0)), 1, "[]", v1alpha1.OutcomeFailed, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFixture()
				r := w.newReconciler(inline())
				looks := 0 // each of which is an attempt, of as many requests as it likes
				w.fault = func(what string, before bool) error {
					if what == "act" && before && looks <= tc.fails {
						return apierrors.NewServiceUnavailable("it is too busy")
					}
					return nil
				}
				w.create("a", "web", func(ke *v1alpha1.KubernetesExecution) { asksInline(ke); ke.Spec.MaxRetries = tc.most })
				waits := []time.Duration{}
				for looks = 1; looks < 9; looks++ {
					res, err := w.reconcile(r, "a")
					if err != nil {
						t.Fatal(err)
					}
					if w.get("a").Status.Phase != v1alpha1.PhaseExecuting {
						break
					}
					waits = append(waits, res.RequeueAfter)
					w.now = w.now.Add(res.RequeueAfter)
				}
				if fmt.Sprint(waits) != tc.waits {
					t.Errorf("it waited %s between attempts", waits)
				}
				wantOutcome(t, w, tc.want, tc.retries)
				if did := len(w.acts) == 1; did != (tc.want == v1alpha1.OutcomeSucceeded) {
					t.Errorf("there were %d changes of targets", len(w.acts))
				}
			})
		})
	}
}

// TestPastIsKnown verifies that a restarted operator still respects recent changes of a target and
// failures of an action.
func TestPastIsKnown(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		cfg    execution.GateConfig
		code   action.Code
		phase  v1alpha1.Phase
		detail v1alpha1.Detail
		cancel bool
	}{
		"Cooldown":  {"it was acted on lately", execution.GateConfig{Cooldown: time.Hour}, action.CodeOK, v1alpha1.PhaseValidated, v1alpha1.DetailCooldown, false},
		"Circuit":   {"it failed twice", execution.GateConfig{MaxFailures: 2}, action.CodeForbidden, v1alpha1.PhaseFailed, v1alpha1.DetailCircuitOpen, false},
		"Fewer":     {"it failed less often", execution.GateConfig{MaxFailures: 3}, action.CodeForbidden, v1alpha1.PhaseExecuting, "", false},
		"Cancelled": {"it was cancelled twice, which says nothing of it", execution.GateConfig{MaxFailures: 2}, action.CodeCancelled, v1alpha1.PhaseExecuting, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture()
			r := w.newReconciler(Config{})
			for _, name := range []string{"a", "b"} {
				w.create(name, "web", nil)
				w.must(t, r, name)
				if tc.cancel {
					w.edit(name, func(ke *v1alpha1.KubernetesExecution) { ke.Spec.Cancel = true })
				}
				w.end(name, tc.code)
				w.must(t, r, name)
			}
			w.now = w.now.Add(time.Minute)
			next := func() *reconciler {
				g, err := execution.NewGate(tc.cfg)
				if err != nil {
					t.Fatal(err)
				}
				r := w.newReconciler(Config{})
				r.slots.gate = g
				return r
			}
			w.create("c", "web", nil)
			w.must(t, next(), "c")
			wantPhase(t, w, "c", tc.phase, tc.detail)
			w.create("d", "api", nil) // of which nothing is to be said
			w.must(t, next(), "d")
			wantPhase(t, w, "d", v1alpha1.PhaseExecuting, "")
			if tc.phase == v1alpha1.PhaseValidated { // and no longer than it would have
				w.now = w.now.Add(59 * time.Minute)
				w.must(t, next(), "c")
				wantPhase(t, w, "c", v1alpha1.PhaseExecuting, "")
			}
		})
	}
}

// TestLookingHoldsUpNobody verifies that many checks of one requester do not delay others.
func TestLookingHoldsUpNobody(t *testing.T) {
	w := newFixture()
	r := w.newReconciler(Config{})
	look := func(ke *v1alpha1.KubernetesExecution) {
		ke.Spec.Action = "rollout_status"
		ke.Spec.Parameters = &runtime.RawExtension{Raw: []byte(`{"kind":"Deployment","name":"web","namespace":"shop"}`)}
	}
	for _, name := range []string{"look-1", "look-2"} { // as many as there are places
		w.create(name, "web", look)
		w.must(t, r, name)
		wantPhase(t, w, name, v1alpha1.PhaseExecuting, "")
	}
	w.create("look-3", "web", look)
	w.must(t, r, "look-3")
	wantPhase(t, w, "look-3", v1alpha1.PhaseValidated, v1alpha1.DetailBudgetExceeded)
	w.create("change", "web", func(ke *v1alpha1.KubernetesExecution) { ke.Spec.RequestedBy = "bob" })
	w.must(t, r, "change")
	wantPhase(t, w, "change", v1alpha1.PhaseExecuting, "")
}

// TestReplanComesBackInTime verifies that an execution whose preconditions cannot be evaluated yet
// retries after the given delay, because it would lose its place.
func TestReplanComesBackInTime(t *testing.T) {
	w := newFixture()
	w.approval = true
	r := w.newReconciler(Config{})
	w.create("a", "web", nil)
	w.must(t, r, "a")
	w.edit("a", approve("bob"))
	r.validation.check.checker = crowded{checks{w}}
	res, err := w.reconcile(r, "a")
	if err != nil || res.RequeueAfter != 300*time.Millisecond {
		t.Errorf("it is looked at again after %s: %v", res.RequeueAfter, err)
	}
	wantPhase(t, w, "a", v1alpha1.PhaseWaitingApproval, v1alpha1.DetailExecutorUnavailable)
	r.validation.check.checker = checks{w}
	w.must(t, r, "a")
	wantPhase(t, w, "a", v1alpha1.PhaseExecuting, "")
}

// crowded are checks of conditions for which there is no place before the action.
type crowded struct{ checks }

func (crowded) Replan(context.Context, *v1alpha1.KubernetesExecution, time.Time) (check.Outcome, error) {
	return check.Outcome{}, &execution.RetryError{After: 300 * time.Millisecond, Err: errNoAnswer}
}
