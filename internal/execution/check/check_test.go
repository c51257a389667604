package check_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

func TestAScaleThatMayBe(t *testing.T) {
	r := newFixture(t, scale)
	d := r.deploy(t, nil)
	ke := r.execution(scale, func(ke *v1alpha1.KubernetesExecution) { ke.Spec.DryRunMode = v1alpha1.DryRunAlways })
	out := r.check(t, ke, begun.Add(time.Second))
	wantPassed(t, out)
	if diff := cmp.Diff(&v1alpha1.DryRunResults{
		Performed: true, Success: true, Warnings: []string{},
		EstimatedImpact: &out.Plan.Impact,
	}, out.Results.DryRunResults); diff != "" {
		t.Error(diff)
	}
	if out.Plan.Target.UID != d.UID || out.Plan.PolicyHash != "p1" || out.Plan.Impact.ReplicasChanged != "3 -> 5" {
		t.Errorf("plan %+v", out.Plan)
	}
	if !out.Results.ParameterValidation || !out.Results.RBACValidation || !out.Results.ResourceExists || !out.Results.PolicyValidation.Allowed {
		t.Errorf("results %+v", out.Results)
	}
	if want := "Deployment/" + r.shop + "/web"; out.Target != want {
		t.Errorf("target %q, want %q", out.Target, want)
	}
}

// A check on a warm cache reads the target and tries the change out, and asks
// nothing else.
func TestACheckCostsTwoRequests(t *testing.T) {
	r := newFixture(t, scale)
	r.deploy(t, nil)
	ke := r.execution(scale, func(ke *v1alpha1.KubernetesExecution) { ke.Spec.DryRunMode = v1alpha1.DryRunAlways })
	wantPassed(t, r.check(t, ke, begun))
	r.requests.take()
	wantPassed(t, r.check(t, ke, begun))
	object := "/apis/apps/v1/namespaces/" + r.shop + "/deployments/web"
	want := []string{"GET " + object, "PATCH " + object + "/scale?dryRun=All&fieldManager=fleetloop-executor"}
	if diff := cmp.Diff(want, r.requests.take()); diff != "" {
		t.Error(diff)
	}
}
