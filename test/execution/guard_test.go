package execution

import (
	"fmt"
	"testing"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/test/execution/fleettest"
)

// Where nothing checks who approves, no approval counts.
func TestGuardIsMissing(t *testing.T) {
	t.Parallel()
	f := fleettest.Start(t, fleettest.Options{NoGuard: true})
	f.Deployment(f.Dear, "web", 3)
	f.Does(alice, cli.CodeOK, fleettest.Scale(f.Dear, "web", 5, "--name=web"))
	f.Reaches("web", v1alpha1.PhaseWaitingApproval)
	f.Does(fleettest.Approver, cli.CodeOK, []string{"approve", "web", "--yes"})
	f.Becomes("web", func(ke *v1alpha1.KubernetesExecution) error {
		if ke.Status.ReasonDetail != v1alpha1.DetailGuardMissing || ke.Status.ObservedGeneration < ke.Generation {
			return fmt.Errorf("it is %s because of %q, seen up to %d of %d", ke.Status.Phase, ke.Status.ReasonDetail, ke.Status.ObservedGeneration, ke.Generation)
		}
		return nil
	})
	f.Does(alice, cli.CodeOK, []string{"exec", "describe", "web"}, "An administrator applies them")
	if ke := f.Get("web"); ke.Status.Phase != v1alpha1.PhaseWaitingApproval || len(f.Jobs("web")) > 0 {
		t.Errorf("it is %s", ke.Status.Phase)
	}
	f.WantReplicas(f.Dear, "web", 3)
}

// Policies that are broken are not taken; those before them stay.
func TestBrokenPoliciesAreNotTaken(t *testing.T) {
	t.Parallel()
	f := fleettest.Start(t, fleettest.Options{})
	f.SetPolicies(map[string]string{"decision.rego": "package fleetloop.safety\n\nthis is no policy\n"})
	f.Until(func() error { return f.Controller().Says("the policies are refused") })
	f.Deployment(f.Cheap, "web", 3)
	f.Does(alice, cli.CodeFailed, fleettest.Scale(f.Cheap, "web", 21, "--name=many", "--wait"), "21 replicas")
	f.Does(alice, cli.CodeOK, fleettest.Scale(f.Cheap, "web", 5, "--name=some", "--wait"))

	// Others that are good are, without a restart.
	f.SetPolicies(map[string]string{"more.rego": "package fleetloop.safety\n\nviolations contains \"nothing today\" if input.action.name\n", "decision_test.rego": "", "nodes_test.rego": "", "targets_test.rego": "", "workloads_test.rego": ""})
	f.Until(func() error {
		if f.Controller().Count("policies loaded") < 2 {
			return fmt.Errorf("the new policies are not loaded")
		}
		return nil
	})
	f.Does(alice, cli.CodeFailed, fleettest.Scale(f.Cheap, "web", 6, "--name=none", "--wait"), "nothing today")
}
