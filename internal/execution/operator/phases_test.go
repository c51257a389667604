package operator

import (
	"testing"

	"github.com/fleetloop/fleetloop/internal/execution"
)

// TestPhaseTable verifies that each phase of the transition table has steps.
func TestPhaseTable(t *testing.T) {
	r := newFixture().newReconciler(Config{})
	for _, tr := range execution.Transitions() {
		if len(r.phases[tr.From]) == 0 || len(r.phases[tr.To]) == 0 {
			t.Errorf("%q → %q: a phase has no steps", tr.From, tr.To)
		}
	}
}
