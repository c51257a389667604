package operator

import (
	"testing"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/nodefault/quarantine"
)

// TestMessageWithoutRepair verifies that a quarantined node says that nothing will repair it.
func TestMessageWithoutRepair(t *testing.T) {
	w := newFixture(t)
	r := w.newReconciler(wide(), false)
	for name, tc := range map[string]struct {
		actions *v1alpha1.DesiredActions
		attempt *v1alpha1.RemediationStatus
		step    string
		want    string
	}{
		"NoAction":     {nil, nil, "rule a", "rule a; no rule repairs this fault"},
		"DrainOnly":    {&v1alpha1.DesiredActions{Drain: true}, nil, "rule a", "rule a; no rule repairs this fault"},
		"NoMessage":    {nil, nil, "", "cordoned; no rule repairs this fault"},
		"BeforeReboot": {&v1alpha1.DesiredActions{Remedies: []v1alpha1.Remedy{v1alpha1.RemedyReboot}}, nil, "rule a", "rule a"},
		"AfterReboot":  {nil, &v1alpha1.RemediationStatus{Message: "rebooted"}, "rule a", "rebooted"},
	} {
		st := &v1alpha1.NodeFaultStatus{Phase: v1alpha1.PhaseQuarantined, DesiredActions: tc.actions, Remediation: tc.attempt}
		if got := r.statusMessage(st, quarantine.Step{Message: tc.step}); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
