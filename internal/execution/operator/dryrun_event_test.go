package operator

import (
	"slices"
	"testing"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/action"
)

// TestActionThatRanIsNoDryRun verifies that change events of an execution that ran are not marked
// as a dry run after a restart with --dry-run.
func TestActionThatRanIsNoDryRun(t *testing.T) {
	for name, code := range map[string]action.Code{"Succeeded": action.CodeOK, "Failed": action.CodeForbidden} {
		t.Run(name, func(t *testing.T) {
			w := newFixture()
			w.create("a", "web", nil)
			w.look(w.newReconciler(Config{}))
			w.end("a", code)
			w.look(w.newReconciler(Config{DryRun: true}))
			if got := len(w.changes); got != 2 {
				t.Fatalf("there are %d change events, want 2: %+v", got, w.changes)
			}
			for _, c := range w.changes {
				if c.DryRun {
					t.Errorf("%s is reported as a dry run", c.Action)
				}
			}
		})
	}
}

// TestActionBegunBeforeACrashIsNoDryRun verifies that change events of an action that began are not
// marked as a dry run if the controller was killed before it stored that, and restarts with
// --dry-run.
func TestActionBegunBeforeACrashIsNoDryRun(t *testing.T) {
	for name, approval := range map[string]bool{"WithoutApproval": false, "WithApproval": true} {
		t.Run(name, func(t *testing.T) {
			w := newFixture()
			w.approval = approval
			w.create("a", "web", nil)
			r := w.newReconciler(Config{})
			w.once("job", false, func() error { return errCrash })
			if approval {
				w.look(r)
				w.edit("a", approve("bob"))
			}
			for i := 0; len(w.jobs) == 0 && i < 10; i++ {
				_, _ = w.reconcile(r, "a")
			}
			if p := w.get("a").Status.Phase; p == v1alpha1.PhaseExecuting {
				t.Fatal("the status already has the start")
			}
			w.look(w.newReconciler(Config{DryRun: true}))
			w.end("a", action.CodeOK)
			w.look(w.newReconciler(Config{DryRun: true}))
			var told []execution.ChangeAction
			for _, c := range w.changes {
				if told = append(told, c.Action); c.DryRun {
					t.Errorf("%s is reported as a dry run", c.Action)
				}
			}
			if !slices.Contains(told, execution.ChangeStarted) || !slices.Contains(told, execution.ChangeSucceeded) {
				t.Errorf("the change events are %q, want the start and the success", told)
			}
		})
	}
}

// TestLostResultIsNoDryRun verifies that the failure of an execution whose results another client
// removed is not marked as a dry run under --dry-run, because its action began.
func TestLostResultIsNoDryRun(t *testing.T) {
	w := newFixture()
	w.create("a", "web", nil)
	w.look(w.newReconciler(Config{}))
	w.edit("a", func(ke *v1alpha1.KubernetesExecution) { ke.Status.ExecutionResults = nil })
	w.look(w.newReconciler(Config{DryRun: true}))
	if c := w.changes[len(w.changes)-1]; c.Action != execution.ChangeFailed || c.DryRun {
		t.Errorf("the last change event is %+v, want a failure that is no dry run", c)
	}
}

// TestRefusalOfADryRunIsOne verifies that a failure under --dry-run is reported as a dry run.
func TestRefusalOfADryRunIsOne(t *testing.T) {
	w := newFixture()
	w.create("a", "web", nil)
	w.edit("a", func(ke *v1alpha1.KubernetesExecution) { ke.Spec.Cancel = true })
	w.look(w.newReconciler(Config{DryRun: true}))
	if len(w.changes) != 1 || w.changes[0].Action != execution.ChangeFailed || !w.changes[0].DryRun {
		t.Errorf("the change events are %+v, want one failure of a dry run", w.changes)
	}
}
