package operator

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution/action"
)

// TestHeldUnseen verifies that a deleted execution with a finalizer is removed if its operator
// ended before it started the action.
func TestHeldUnseen(t *testing.T) {
	held := func(t *testing.T) (*fixture, *reconciler, func()) {
		t.Helper()
		w := newFixture()
		w.once("status executing", true, func() error { panic(errCrash) })
		w.create("a", "web", asksInline)
		func() {
			defer func() { _ = recover() }()
			w.must(t, w.newReconciler(inline()), "a")
		}()
		if ke := w.get("a"); ke.Status.Phase != v1alpha1.PhaseNew || len(ke.Finalizers) != 1 {
			t.Fatalf("it is %q with the finalizers %q", ke.Status.Phase, ke.Finalizers)
		}
		r := w.newReconciler(inline())
		r.running.identities = nobodyActs{t}
		a := &auditReconciler{executions: storedExecutions{w}, auditor: recorder{}, log: r.log, now: r.now}
		return w, r, func() {
			for range 3 {
				w.must(t, r, "a")
				if _, err := a.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: "a"}}); err != nil {
					t.Fatal(err)
				}
			}
			if ke := w.get("a"); ke != nil && (len(ke.Finalizers) > 0 || !ke.DeletionTimestamp.IsZero()) {
				t.Errorf("it is held by %q", ke.Finalizers)
			}
			wantEmpty(t, r)
		}
	}
	t.Run("Deleted", func(t *testing.T) {
		w, _, look := held(t)
		w.edit("a", func(ke *v1alpha1.KubernetesExecution) {
			now := metav1.NewTime(w.now)
			ke.DeletionTimestamp = &now
		})
		look()
	})
	t.Run("Cancelled", func(t *testing.T) {
		w, _, look := held(t)
		w.edit("a", func(ke *v1alpha1.KubernetesExecution) { ke.Spec.Cancel, ke.Spec.CancelledBy = true, "jane" })
		look()
		wantPhase(t, w, "a", v1alpha1.PhaseFailed, v1alpha1.Detail(v1alpha1.ReasonCancelled))
		if m := w.get("a").Status.Message; m != "the execution was cancelled by jane before anything was changed" {
			t.Errorf("it says %q", m)
		}
	})
	t.Run("NoLongerInline", func(t *testing.T) {
		w, r, look := held(t)
		r.cfg.Inline = nil
		look()
		wantPhase(t, w, "a", v1alpha1.PhaseFailed, v1alpha1.DetailInvalidParameters)
	})
}

// TestChangedWhileItBegins verifies that an execution that is changed just before phase executing
// is stored executes nothing. It releases its gate slot while it waits for something else.
func TestChangedWhileItBegins(t *testing.T) {
	annotate := func(ke *v1alpha1.KubernetesExecution) { ke.Annotations = map[string]string{"a": "b"} }
	for name, tc := range map[string]struct {
		reason string
		change func(*v1alpha1.KubernetesExecution)
		then   func(w *fixture, r *reconciler)
		busy   bool // the target, at that moment
		want   v1alpha1.Phase
	}{
		"Cancelled": {
			reason: "the check was made before", change: func(ke *v1alpha1.KubernetesExecution) { ke.Spec.Cancel = true },
			want: v1alpha1.PhaseFailed,
		},
		"NeedsApproval": {
			reason: "the policies have changed, too", change: annotate, then: func(w *fixture, _ *reconciler) { w.approval = true },
			want: v1alpha1.PhaseWaitingApproval,
		},
		"Precondition": {
			reason: "it no longer holds", change: annotate, then: func(w *fixture, r *reconciler) { r.validation.check.checker = hesitant{checks{w}} },
			want: v1alpha1.PhaseValidating,
		},
		"Unchecked": {
			reason: "the API is away", change: annotate, then: func(_ *fixture, r *reconciler) { r.validation.check.checker = troubled{} },
			want: v1alpha1.PhaseValidating,
		},
		"QueuedNeedsApproval": {
			reason: "it stood in a queue", change: annotate, then: func(w *fixture, _ *reconciler) { w.approval = true }, busy: true,
			want: v1alpha1.PhaseWaitingApproval,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture()
			r := w.newReconciler(inline())
			r.running.identities = nobodyActs{t}
			write := "status executing"
			if tc.busy {
				w.create("other", "web", nil)
				w.must(t, r, "other")
				write = "status validated"
			}
			w.once(write, true, w.edited(tc.change))
			w.create("a", "web", asksInline)
			w.must(t, r, "a") // whose write is refused
			if got := w.get("a").Status.Phase; got != v1alpha1.PhaseNew {
				t.Fatalf("it is %s", got)
			}
			if tc.then != nil {
				tc.then(w, r)
			}
			w.must(t, r, "a")
			if got := w.get("a").Status.Phase; got != tc.want {
				t.Fatalf("%s: it is %s", tc.reason, got)
			}
			if tc.busy {
				w.end("other", action.CodeOK)
				w.edit("other", func(ke *v1alpha1.KubernetesExecution) { ke.Spec.Finalize = true })
				w.must(t, r, "other")
			}
			wantEmpty(t, r)
		})
	}
}

// TestUnheardThatItBegan verifies that an execution keeps its gate slot if phase executing may be
// stored: the response of the write was lost, and the object that was read is older.
func TestUnheardThatItBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture()
		w.approval = true // so that it is validated first
		r := w.newReconciler(inline())
		w.create("a", "web", asksInline)
		w.must(t, r, "a")
		w.edit("a", approve("bob"))
		w.lose("status executing")
		_, _ = w.reconcile(r, "a")
		wantPhase(t, w, "a", v1alpha1.PhaseExecuting, "")

		old := w.get("a").DeepCopy()
		old.ResourceVersion, old.Status.Phase, old.Status.ExecutionResults = "0", v1alpha1.PhaseWaitingApproval, nil
		old.Status.PhaseTransitions = old.Status.PhaseTransitions[:len(old.Status.PhaseTransitions)-1]
		r.writer.executions, r.validation.check.checker = behind{storedExecutions{w}, old}, troubled{}
		w.must(t, r, "a")

		w.approval = false
		r.writer.executions, r.validation.check.checker = storedExecutions{w}, checks{w}
		w.create("b", "web", asksInline)
		w.must(t, r, "b")
		wantPhase(t, w, "b", v1alpha1.PhaseValidated, v1alpha1.DetailTargetBusy)
		w.must(t, r, "a")
		wantOneAct(t, w)
		w.must(t, r, "b")
		wantPhase(t, w, "b", v1alpha1.PhaseCompleted, "")
		wantEmpty(t, r)
	})
}

// TestRestoredAndGone verifies that an execution that ran when its operator ended releases its gate
// slot if it is deleted before the first reconcile of the next operator.
func TestRestoredAndGone(t *testing.T) {
	w := newFixture()
	w.create("a", "web", nil)
	w.must(t, w.newReconciler(Config{}), "a")
	r := w.newReconciler(Config{})
	w.create("b", "web", nil)
	w.must(t, r, "b")
	wantPhase(t, w, "b", v1alpha1.PhaseValidated, v1alpha1.DetailTargetBusy)
	delete(w.store, nameOf(w.get("a")))
	w.must(t, r, "a")
	w.must(t, r, "b")
	wantPhase(t, w, "b", v1alpha1.PhaseExecuting, "")
}

// TestFollowsNoLonger verifies that the watch of a target ends with the wait of its execution, even
// if the first phase was never stored.
func TestFollowsNoLonger(t *testing.T) {
	w := newFixture()
	r := w.newReconciler(Config{})
	f := &following{}
	r.targets, r.validation.targets, r.validation.check.checker = f, f, hesitant{checks{w}}
	w.create("a", "web", nil)
	w.once("status validating", true, w.edited(func(ke *v1alpha1.KubernetesExecution) { ke.Labels = map[string]string{"a": "b"} }))
	w.must(t, r, "a")
	r.validation.check.checker = checks{w}
	w.must(t, r, "a")
	wantPhase(t, w, "a", v1alpha1.PhaseExecuting, "")
	if i := slices.Index(f.heard, "follow a"); i < 0 || !slices.Contains(f.heard[i:], "leave a") {
		t.Errorf("the targets heard %q", f.heard)
	}
}

// TestJobNotMadeAgain verifies that a deleted Job is not created again if the status that was read
// is stale and the stored one shows that it ran.
func TestJobNotMadeAgain(t *testing.T) {
	w := newFixture()
	r := w.newReconciler(Config{})
	w.create("a", "web", nil)
	w.lose("status executing")
	_, _ = w.reconcile(r, "a")
	clear(w.jobs)

	old := w.get("a").DeepCopy()
	old.ResourceVersion, old.Status.Phase, old.Status.ExecutionResults, old.Status.JobName = "0", v1alpha1.PhaseValidated, nil, ""
	old.Status.PhaseTransitions = old.Status.PhaseTransitions[:len(old.Status.PhaseTransitions)-1]
	r.writer.executions = behind{storedExecutions{w}, old}
	w.must(t, r, "a")
	r.writer.executions = storedExecutions{w}
	w.must(t, r, "a")
	wantPhase(t, w, "a", v1alpha1.PhaseFailed, v1alpha1.DetailResultUnknown)
	if len(w.effects) != 1 {
		t.Errorf("%d Jobs were made", len(w.effects))
	}
}

// TestRefusedOnce verifies that a queued execution is counted once per reason, independent of the
// number of reconciles.
func TestRefusedOnce(t *testing.T) {
	w := newFixture()
	r := w.newReconciler(inline())
	w.create("other", "web", nil)
	w.must(t, r, "other")
	w.create("a", "web", asksInline)
	w.once("status validated", true, w.edited(func(ke *v1alpha1.KubernetesExecution) { ke.Labels = map[string]string{"a": "b"} }))
	for range 4 {
		w.must(t, r, "a")
	}
	wantPhase(t, w, "a", v1alpha1.PhaseValidated, v1alpha1.DetailTargetBusy)
	if got := testutil.ToFloat64(r.metrics.startsBlocked.WithLabelValues(string(v1alpha1.DetailTargetBusy))); got != 1 {
		t.Errorf("it was counted %v times", got)
	}
}
