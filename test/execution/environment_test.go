package execution

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/test/execution/fleettest"
)

// The shipped policies, as they are, take the environment of a target from the
// label that --environment-label names, and from no other.
func TestEnvironmentLabel(t *testing.T) {
	t.Parallel()
	f := fleettest.Start(t, fleettest.Options{NoController: true})
	label := func(namespace, labels string) {
		t.Helper()
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
		if err := f.Client.Patch(t.Context(), ns, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":`+labels+`}}`))); err != nil {
			t.Fatal(err)
		}
	}
	label(f.Cheap, `{"environment": "production", "example.com/stage": "development"}`)
	label(f.Dear, `{"environment": "development", "example.com/stage": null}`)
	f.CreateDeploymentAndAwaitObserved(f.Cheap, "web", 3)
	f.CreateDeploymentAndAwaitObserved(f.Dear, "web", 3)
	f.StartController("--environment-label=example.com/stage")

	f.WantCommand(alice, cli.CodeOK, fleettest.Scale(f.Cheap, "web", 5, "--name=development", "--wait"), "rollback_ready")
	if p := f.GetExecution("development").Status.ValidationResults.PolicyValidation; p.RequiredApproval || p.PolicyName == "" {
		t.Errorf("the label says development, and the policy says %+v", p)
	}
	f.WantCommand(alice, cli.CodePrecondition, fleettest.Scale(f.Dear, "web", 5, "--name=unlabelled", "--wait"), "is waiting for approval")
	// The word of whoever asks makes nothing cheaper.
	f.WantCommand(alice, cli.CodePrecondition, fleettest.Scale(f.Dear, "web", 6, "--name=asked", "--environment=development", "--wait"), "is waiting for approval")
	if ke := f.AwaitPhase("asked", v1alpha1.PhaseWaitingApproval); len(ke.Status.ValidationResults.PolicyValidation.Warnings) == 0 {
		t.Error("nobody is told that the request alone says development")
	}
	f.WantCommand(alice, cli.CodePrecondition, fleettest.Scale(f.Cheap, "web", 6, "--name=dearer", "--environment=production", "--wait"), "is waiting for approval")
}
