package operator

import (
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
			w := newWorld()
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

// TestRefusalOfADryRunIsOne verifies that a failure under --dry-run is reported as a dry run.
func TestRefusalOfADryRunIsOne(t *testing.T) {
	w := newWorld()
	w.create("a", "web", nil)
	w.edit("a", func(ke *v1alpha1.KubernetesExecution) { ke.Spec.Cancel = true })
	w.look(w.newReconciler(Config{DryRun: true}))
	if len(w.changes) != 1 || w.changes[0].Action != execution.ChangeFailed || !w.changes[0].DryRun {
		t.Errorf("the change events are %+v, want one failure of a dry run", w.changes)
	}
}
