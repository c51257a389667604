package execcli_test

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/app/execcli"
)

// TestExecNamesTheAssistant verifies that a request records the assistant that makes it, and the target as it
// was given.
func TestExecNamesTheAssistant(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := f.asUser("alice", "exec", "scale_deployment", "--target=Deployment/shop/web", "--agent=claude-code 2.1", "--filename=-", "--name=s1")
	r.stdin = `{"replicas": 5}`
	f.wantRun(r, cli.CodeOK, "execution/s1 created")
	got := f.getExecution("s1").Spec
	if diff := cmp.Diff(&v1alpha1.Target{Kind: "Deployment", Namespace: "shop", Name: "web"}, got.Target); diff != "" || got.RequestedByAgent != "claude-code 2.1" || got.RequestedBy != "alice" {
		t.Errorf("requested by %q with %q, target (-want +got):\n%s", got.RequestedBy, got.RequestedByAgent, diff)
	}
	f.wantRun(f.asUser("alice", "exec", "drain_node", "--target=Node/n1", "--agent="+strings.Repeat("x", 129)), cli.CodePrecondition, "Too long")
}

// TestDescriptionNamesTheAssistant verifies that an approver sees that an assistant made the request.
func TestDescriptionNamesTheAssistant(t *testing.T) {
	t.Parallel()
	for agent, want := range map[string]bool{"": false, "claude-code 2.1": true} {
		ke := waitingExecution()
		ke.Spec.RequestedByAgent = agent
		for name, write := range map[string]func(io.Writer, *v1alpha1.KubernetesExecution, execcli.OutputOptions) error{
			"describe": execcli.WriteDescription, "approve": execcli.WriteDecisionBasis,
		} {
			var b bytes.Buffer
			if err := write(&b, ke, testOptions()); err != nil {
				t.Fatal(err)
			}
			if got := strings.Contains(b.String(), "Assistant:    claude-code 2.1, for alice\n"); got != want {
				t.Errorf("%s with agent %q names the assistant: %t, want %t:\n%s", name, agent, got, want, b.String())
			}
		}
	}
}
