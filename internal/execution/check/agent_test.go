package check_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
)

// TestTheUserOfAnAssistantCannotApprove verifies that neither evaluation lets the requester approve what an
// assistant requested, and that the policy sees the assistant.
func TestTheUserOfAnAssistantCannotApprove(t *testing.T) {
	r := newFixture(t, scale)
	r.deploy(t, nil)
	for agent, excluded := range map[string]bool{"": false, "claude-code 2.1": true} {
		var saw []string
		r.policy = &fakePolicy{decide: func(in *execution.Input) (execution.Decision, error) {
			saw = append(saw, in.Request.RequestedByAgent)
			return execution.Decision{Allow: true, RequireApproval: true}, nil
		}}
		out := r.check(t, r.execution(scale, func(ke *v1alpha1.KubernetesExecution) { ke.Spec.RequestedByAgent = agent }), begun)
		wantPassed(t, out)
		if got := out.Decision.Approvals.RequesterCannotApprove; got != excluded {
			t.Errorf("agent %q: the requester is excluded: %t, want %t", agent, got, excluded)
		}
		if diff := cmp.Diff([]string{agent, agent}, saw); diff != "" {
			t.Errorf("agent %q: the policy saw (-want +got):\n%s", agent, diff)
		}
	}
}
