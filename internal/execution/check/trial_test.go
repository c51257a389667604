package check_test

import (
	"testing"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// TestHowLongATrialTook holds that an outcome says how long the dry run took, if
// there was one.
func TestHowLongATrialTook(t *testing.T) {
	r := newFixture(t, scale)
	r.deploy(t, nil)
	for mode, want := range map[v1alpha1.DryRunMode]bool{v1alpha1.DryRunAlways: true, v1alpha1.DryRunOnly: true, "": false} {
		out := r.check(t, r.execution(scale, func(ke *v1alpha1.KubernetesExecution) { ke.Spec.DryRunMode = mode }), begun)
		if out.Failed != nil {
			t.Fatalf("%q failed: %s", mode, out.Failed.Message)
		}
		if took := out.TrialTook > 0; took != want {
			t.Errorf("%q took %s", mode, out.TrialTook)
		}
	}
}
