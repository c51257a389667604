package operator

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/action"
)

// TestVerificationCutShort verifies that a postcondition cut short by a cancel is no failure of the
// action, neither in the status nor at the gate. A postcondition that timed out is one.
func TestVerificationCutShort(t *testing.T) {
	of := func(kind string, required bool, timeout time.Duration) v1alpha1.Condition {
		c := v1alpha1.Condition{Type: kind, Rego: kind, Required: required}
		if timeout > 0 {
			c.Timeout = &metav1.Duration{Duration: timeout}
		}
		return c
	}
	stop := func(w *fixture, _ *reconciler, name string) {
		w.edit(name, func(ke *v1alpha1.KubernetesExecution) { ke.Spec.Cancel = true })
	}
	for name, tc := range map[string]struct {
		reason     string
		conditions []v1alpha1.Condition
		waits      bool // for one of them, when it ends
		stop       func(w *fixture, r *reconciler, name string)
		after      time.Duration
		want       v1alpha1.Reason
		met        metav1.ConditionStatus
		next       v1alpha1.Phase // of one that is asked for after two of these
	}{
		"Cancelled": {
			reason: "it might have come to hold", conditions: []v1alpha1.Condition{of("slow", true, time.Minute)}, waits: true, stop: stop, after: 59 * time.Second,
			want: v1alpha1.ReasonCancelled, met: metav1.ConditionUnknown, next: v1alpha1.PhaseExecuting,
		},
		"UsualTime": {
			reason: "it names no time of its own", conditions: []v1alpha1.Condition{of("slow", true, 0)}, waits: true, stop: stop, after: 119 * time.Second,
			want: v1alpha1.ReasonCancelled, met: metav1.ConditionUnknown, next: v1alpha1.PhaseExecuting,
		},
		"Stopped": {
			reason: "the emergency stop ends what runs", conditions: []v1alpha1.Condition{of("slow", true, time.Minute)}, waits: true, after: time.Second,
			stop: func(_ *fixture, r *reconciler, _ string) { r.halted.Store(true) },
			want: v1alpha1.ReasonCancelled, met: metav1.ConditionUnknown, next: v1alpha1.PhaseExecuting,
		},
		"OneFailed": {
			reason: "the other one is waited for, but this one had its time", waits: true, stop: stop, after: 30 * time.Second,
			conditions: []v1alpha1.Condition{of("quick", true, 10*time.Second), of("slow", true, time.Minute)},
			want:       v1alpha1.ReasonPostConditionFailed, met: metav1.ConditionFalse, next: v1alpha1.PhaseFailed,
		},
		"Failed": {
			reason: "nothing was waited for any more", conditions: []v1alpha1.Condition{of("slow", true, time.Minute)}, stop: stop, after: time.Minute,
			want: v1alpha1.ReasonPostConditionFailed, met: metav1.ConditionFalse, next: v1alpha1.PhaseFailed,
		},
		"Optional": {
			reason: "it was not required", conditions: []v1alpha1.Condition{of("slow", false, time.Minute)}, waits: true, stop: stop, after: time.Second,
			met: metav1.ConditionFalse, next: v1alpha1.PhaseExecuting,
		},
	} {
		for _, restarts := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%t", name, restarts), func(t *testing.T) {
				w := newFixture()
				w.window = 0
				operate := func() *reconciler {
					g, err := execution.NewGate(execution.GateConfig{MaxFailures: 2})
					if err != nil {
						t.Fatal(err)
					}
					r := w.newReconciler(Config{})
					r.slots.gate = g
					return r
				}
				r := operate()
				for _, name := range []string{"a", "b"} {
					w.targets["web"] = 3
					w.create(name, "web", func(ke *v1alpha1.KubernetesExecution) { ke.Spec.PostConditions = tc.conditions })
					w.must(t, r, name)
					w.end(name, action.CodeOK)
					w.post, w.postWait = nil, time.Second
					for _, c := range tc.conditions {
						w.post = append(w.post, v1alpha1.ConditionResult{ConditionType: c.Type, Required: c.Required, Evaluated: true, ErrorMessage: "not yet"})
					}
					w.must(t, r, name)
					wantPhase(t, w, name, v1alpha1.PhaseExecuting, "")
					w.now = w.now.Add(tc.after)
					if !tc.waits {
						w.postWait = 0
					}
					tc.stop(w, r, name)
					w.must(t, r, name)
					r.halted.Store(false)
					s := w.get(name).Status
					if s.Reason != tc.want || s.RollbackInformation == nil || !s.RollbackInformation.Available {
						t.Errorf("%s: it ended as %s by %q: %s", tc.reason, s.Outcome, s.Reason, s.Message)
					}
					if c := findCondition(&s, v1alpha1.ConditionPostConditionsMet); c == nil || c.Status != tc.met {
						t.Errorf("%s: the postconditions are said to be %+v", tc.reason, c)
					}
				}
				if restarts {
					r = operate()
				}
				w.targets["web"] = 3
				w.create("c", "web", nil)
				w.must(t, r, "c")
				if got := w.get("c").Status; got.Phase != tc.next {
					t.Errorf("%s: the next one is %s: %s", tc.reason, got.Phase, got.Message)
				}
			})
		}
	}
}
