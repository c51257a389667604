package policy_test

import (
	"testing"
	"time"

	"github.com/fleetloop/fleetloop/deploy/policies"
	"github.com/fleetloop/fleetloop/internal/policy"
)

// now is the time of the example: ten o'clock on a Saturday, UTC.
var now = time.Unix(1763805600, 0)

func shipped(tb testing.TB) map[string]string {
	tb.Helper()
	files, err := policies.Files()
	if err != nil {
		tb.Fatal(err)
	}
	return files
}

func TestShippedPoliciesDecide(t *testing.T) {
	s, err := policy.Compile(t.Context(), shipped(t), policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d, err := s.Decide(t.Context(), policy.ExampleInput(), now)
	if err != nil || !d.Allow || !d.RequireApproval || !d.RequireDryRun {
		t.Errorf("got %+v, %v, want leave with an approval and a dry run", d, err)
	}
}
