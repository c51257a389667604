package operator

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
)

// inline is how a controller is configured whose actions may run in it.
func inline() Config { return Config{Audited: true, Inline: []string{"scale_deployment"}} }

func asksInline(ke *v1alpha1.KubernetesExecution) { ke.Spec.ExecutionMode = v1alpha1.ExecuteInline }

// once has something happen once, before or after a write.
func (w *fixture) once(what string, before bool, do func() error) {
	done := false
	w.fault = func(is string, b bool) error {
		if done || is != what || b != before {
			return nil
		}
		done = true
		return do()
	}
}

// edited is something that somebody does to execution a at that moment.
func (w *fixture) edited(change func(*v1alpha1.KubernetesExecution)) func() error {
	return func() error {
		w.edit("a", change)
		return nil
	}
}

func wantOneAct(t *testing.T, w *fixture) {
	t.Helper()
	if len(w.acts) != 1 {
		t.Errorf("there were %d changes of targets, want 1", len(w.acts))
	}
}

// wantEmpty checks that nobody is at the gate.
func wantEmpty(t *testing.T, r *reconciler) {
	t.Helper()
	if s := r.slots.gate.Stats(); s.Inside+s.Waiting != 0 {
		t.Errorf("%d are inside and %d wait", s.Inside, s.Waiting)
	}
}

func wantOutcome(t *testing.T, w *fixture, want v1alpha1.Outcome, retries int32) {
	t.Helper()
	s := w.get("a").Status
	if s.Outcome != want || s.ExecutionResults == nil || s.ExecutionResults.RetriesAttempted != retries {
		t.Errorf("it ended as %s with %+v: %s", s.Outcome, s.ExecutionResults, s.Message)
	}
}

// TestInlineCrashes verifies that an inline execution has the same end and changes its target once
// if the operator crashes before or after any write.
func TestInlineCrashes(t *testing.T) {
	for name, tc := range map[string]struct {
		approval bool
		window   time.Duration
		want     string
	}{
		"WithoutApproval": {false, time.Hour, "validating validated executing rollback_ready completed"},
		"AtOnce":          {false, 0, "validating validated executing rollback_ready completed"},
		"WithApproval":    {true, time.Hour, "validating validated waiting_approval executing rollback_ready completed"},
	} {
		t.Run(name, func(t *testing.T) {
			writes := 1
			for at := 0; at <= writes; at++ {
				for _, before := range []bool{true, false} {
					t.Run(fmt.Sprintf("%d-%t", at, before), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) {
							w := newFixture()
							w.approval, w.window = tc.approval, tc.window
							count := w.live(t, at, before)
							if at == 0 {
								writes = count
							}
							if got := fmt.Sprint(phases(w.get("a"))); got != "["+tc.want+"]" {
								t.Errorf("it went through %s", got)
							}
							wantOneAct(t, w)
							if s := w.get("a").Status; s.Outcome != v1alpha1.OutcomeSucceeded || !isAuditRecorded(w.get("a")) || len(w.get("a").Finalizers) > 0 || len(w.effects) != 1 {
								t.Errorf("it ended as %s with the finalizers %q, and began %d times", s.Outcome, w.get("a").Finalizers, len(w.effects))
							}
						})
					})
				}
			}
		})
	}
}

// live has an inline execution live, and its operator die at a write. It gives the
// number of writes.
func (w *fixture) live(t *testing.T, at int, before bool) (count int) {
	t.Helper()
	w.fault = func(_ string, b bool) error {
		if b == before {
			if count++; count == at {
				panic(errCrash)
			}
		}
		return nil
	}
	var r *reconciler
	var a *auditReconciler
	start := func() {
		r = w.newReconciler(inline())
		a = &auditReconciler{executions: storedExecutions{w}, auditor: recorder{}, log: r.log, now: r.now}
	}
	look := func() {
		defer func() {
			if died := recover(); died != nil {
				start()
			}
		}()
		w.must(t, r, "a")
		if _, err := a.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: "a"}}); err != nil {
			t.Fatal(err)
		}
	}
	start()
	w.create("a", "web", asksInline)
	for range 4 {
		look()
	}
	if w.approval {
		w.edit("a", approve("bob"))
	}
	for range 4 {
		look()
	}
	w.edit("a", func(ke *v1alpha1.KubernetesExecution) { ke.Spec.Finalize = true })
	for range 4 {
		look()
	}
	return count
}

// TestChangedWhileItActs verifies that the result of an inline action is stored, and the action not
// repeated, if the execution changes meanwhile.
func TestChangedWhileItActs(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*v1alpha1.KubernetesExecution)
		want   v1alpha1.Phase
	}{
		"Finalized": {func(ke *v1alpha1.KubernetesExecution) { ke.Spec.Finalize = true }, v1alpha1.PhaseCompleted},
		"Cancelled": {func(ke *v1alpha1.KubernetesExecution) { ke.Spec.Cancel = true }, v1alpha1.PhaseRollbackReady},
		"Deleted": {func(ke *v1alpha1.KubernetesExecution) {
			now := metav1.Date(2026, 5, 1, 3, 0, 0, 0, time.UTC)
			ke.DeletionTimestamp = &now
		}, v1alpha1.PhaseRollbackReady},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFixture()
				r := w.newReconciler(inline())
				w.create("a", "web", asksInline)
				w.once("act", false, func() error {
					w.away = errors.New("nobody acts again") // nor would it help to see what there is
					return w.edited(tc.change)()
				})
				w.must(t, r, "a")
				wantPhase(t, w, "a", v1alpha1.PhaseExecuting, "")
				w.must(t, r, "a")
				if got := w.get("a").Status.Phase; got != tc.want {
					t.Fatalf("it is %s: %s", got, w.get("a").Status.Message)
				}
				wantOutcome(t, w, v1alpha1.OutcomeSucceeded, 0)
				wantOneAct(t, w)
				wantEmpty(t, r)
			})
		})
	}
}

// TestInlineUnknown verifies that exactly the unknown results are reported as unknown.
func TestInlineUnknown(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		died   string // where the operator before died, after the write
		then   func(w *fixture)
		wait   time.Duration
		why    v1alpha1.Reason
		want   v1alpha1.Detail
	}{
		"ChangedSince": {
			"another client changed the target after the earlier attempt", "act", func(w *fixture) { w.targets["web"] = 9 }, 0,
			v1alpha1.ReasonExecutionFailed, v1alpha1.DetailResultUnknown,
		},
		"Away": {
			"the target cannot be read", "act", func(w *fixture) { w.away = errors.New("no token") }, 6 * time.Minute,
			v1alpha1.ReasonExecutionFailed, v1alpha1.DetailResultUnknown,
		},
		"Late": {
			"its time is over", "act", func(w *fixture) { w.away = errors.New("no token") }, 3 * time.Minute,
			v1alpha1.ReasonExecutionTimeout, v1alpha1.DetailResultUnknown,
		},
		"AwayFromTheFirst": {
			"nobody has begun", "", func(w *fixture) { w.away = errors.New("no token") }, 6 * time.Minute,
			v1alpha1.ReasonExecutionFailed, v1alpha1.DetailExecutorUnavailable,
		},
		"LateFromTheFirst": {
			"nobody has begun", "", func(w *fixture) { w.away = errors.New("no token") }, 3 * time.Minute,
			v1alpha1.ReasonExecutionTimeout, v1alpha1.DetailExecutorUnavailable,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFixture()
				w.create("a", "web", func(ke *v1alpha1.KubernetesExecution) {
					asksInline(ke)
					if tc.wait > 5*time.Minute { // and so not late
						ke.Spec.Timeout = &metav1.Duration{Duration: 15 * time.Minute}
					}
				})
				if tc.died != "" {
					w.once(tc.died, false, func() error { panic(errCrash) })
					func() {
						defer func() { _ = recover() }()
						w.must(t, w.newReconciler(inline()), "a")
					}()
				}
				tc.then(w)
				r := w.newReconciler(inline())
				w.must(t, r, "a")
				w.now = w.now.Add(tc.wait)
				w.must(t, r, "a")
				wantPhase(t, w, "a", v1alpha1.PhaseFailed, tc.want)
				s := w.get("a").Status
				if s.Reason != tc.why || s.ExecutionResults.EndTime == nil || (s.RollbackInformation != nil) != (tc.want == v1alpha1.DetailResultUnknown) {
					t.Errorf("%s: it failed by %s, %q, with %+v and %+v", tc.reason, s.Reason, s.Message, s.ExecutionResults, s.RollbackInformation)
				}
				wantEmpty(t, r)
			})
		})
	}
}

// TestInlineTroubleIsOver verifies that the status shows no error that has passed.
func TestInlineTroubleIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture()
		w.away = errors.New("no token")
		r := w.newReconciler(inline())
		w.create("a", "web", asksInline)
		w.must(t, r, "a")
		wantPhase(t, w, "a", v1alpha1.PhaseExecuting, v1alpha1.DetailExecutorUnavailable)
		w.away = nil
		w.must(t, r, "a")
		wantPhase(t, w, "a", v1alpha1.PhaseRollbackReady, "")
		if c := findCondition(&w.get("a").Status, v1alpha1.ConditionQueued); c != nil {
			t.Errorf("it still waits for %s", c.Reason)
		}
		wantOutcome(t, w, v1alpha1.OutcomeSucceeded, 0)
	})
}

// TestToldOnce verifies that phases in one write are counted once each and events are emitted once
// if the first write is refused.
func TestToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture()
		w.window = 0
		r := w.newReconciler(inline())
		events := events.NewFakeRecorder(16)
		r.events.recorder = events
		w.once("status executing", true, w.edited(func(ke *v1alpha1.KubernetesExecution) { ke.Labels = map[string]string{"a": "b"} }))
		w.create("a", "web", asksInline)
		w.must(t, r, "a")
		w.once("status completed", true, w.edited(func(ke *v1alpha1.KubernetesExecution) { ke.Labels = nil }))
		for range 3 {
			w.must(t, r, "a")
		}
		wantPhase(t, w, "a", v1alpha1.PhaseCompleted, "")
		wantOneAct(t, w)
		var said []string
		close(events.Events)
		for e := range events.Events {
			said = append(said, strings.Fields(e)[1])
		}
		if diff := cmp.Diff([]string{"ExecutionCompletedPermanent"}, said); diff != "" {
			t.Error(diff)
		}
		var told []execution.ChangeAction
		for _, c := range w.changes {
			told = append(told, c.Action)
		}
		if diff := cmp.Diff([]execution.ChangeAction{execution.ChangeStarted, execution.ChangeSucceeded}, told); diff != "" {
			t.Error(diff)
		}
		want := map[string]float64{"created": 1, "ended": 1, "ran": 1, "rollbacks": 1, "validating": 1, "validated": 1, "executing": 1, "rollback_ready": 1, "lifecycle": 1}
		if diff := cmp.Diff(want, counted(t, r)); diff != "" {
			t.Error(diff)
		}
	})
}

// TestInlineStopped verifies that an inline action does not start during an emergency stop, even if
// the gate has admitted it.
func TestInlineStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture()
		w.create("a", "web", asksInline)
		w.once("status executing", false, func() error { return errCrash })
		_, _ = w.reconcile(w.newReconciler(inline()), "a")
		wantPhase(t, w, "a", v1alpha1.PhaseExecuting, "")
		r := w.newReconciler(inline())
		r.slots.gate.Stop("it goes wrong everywhere")
		w.must(t, r, "a")
		wantPhase(t, w, "a", v1alpha1.PhaseExecuting, v1alpha1.DetailEmergencyStop)
		if len(w.acts) > 0 {
			t.Error("it acts")
		}
		r.slots.gate.Resume()
		w.must(t, r, "a")
		wantPhase(t, w, "a", v1alpha1.PhaseRollbackReady, "")
		wantOneAct(t, w)
	})
}

// TestInlineStoppedForLong verifies that the failure of an inline action that could not start in
// time names the reason.
func TestInlineStoppedForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture()
		r := w.newReconciler(inline())
		w.create("a", "web", asksInline)
		w.once("status executing", false, func() error {
			r.slots.gate.Stop("it goes wrong everywhere")
			return nil
		})
		w.must(t, r, "a")
		wantPhase(t, w, "a", v1alpha1.PhaseExecuting, v1alpha1.DetailEmergencyStop)
		w.now = w.now.Add(time.Hour)
		w.must(t, r, "a")
		wantPhase(t, w, "a", v1alpha1.PhaseFailed, v1alpha1.DetailEmergencyStop)
		if len(w.acts) > 0 {
			t.Error("it acts")
		}
	})
}
