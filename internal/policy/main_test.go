package policy_test

import (
	"encoding/json"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fleetloop/fleetloop/deploy"
	"github.com/fleetloop/fleetloop/internal/policy"
)

func TestMain(m *testing.M) {
	if os.Args[0] == compiler {
		compileForTest()
		return
	}
	goleak.VerifyTestMain(m)
}

// now is the time of the example: ten o'clock on a Saturday, UTC.
var now = time.Unix(1763805600, 0)

// shipped returns the policies of deploy/policies.
func shipped(tb testing.TB) map[string]string {
	tb.Helper()
	files, err := deploy.PolicyFiles()
	if err != nil {
		tb.Fatal(err)
	}
	return files
}

// smallest is an accepted set that allows everything except the canaries.
const smallest = `package fleetloop.safety

decision := {
	"allow": allow,
	"violations": violations,
	"requireDryRun": false,
	"requireApproval": false,
	"policyName": "smallest",
}

default allow := false

allow if {
	input.action.risk in {"low", "medium", "high", "critical"}
	input.target.name != ""
	input.serviceAccount.permissionsOk
	count(violations) == 0
}

violations contains "the target is protected" if input.target.protected
`

func with(extra map[string]string) map[string]string {
	files := map[string]string{"smallest.rego": smallest}
	maps.Copy(files, extra)
	return files
}

func newSet(tb testing.TB, files map[string]string, o policy.Options) *policy.Set {
	tb.Helper()
	s, err := policy.CompileAndTest(tb.Context(), files, o)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// example returns policy.ExamplePolicyInput with some fields changed, by path.
func example(tb testing.TB, set map[string]any) json.RawMessage {
	tb.Helper()
	return changed(tb, policy.ExamplePolicyInput(), set)
}

func changed(tb testing.TB, input json.RawMessage, set map[string]any) json.RawMessage {
	tb.Helper()
	var doc map[string]any
	if err := json.Unmarshal(input, &doc); err != nil {
		tb.Fatal(err)
	}
	for path, value := range set {
		at := doc
		keys := strings.Split(path, ".")
		for _, key := range keys[:len(keys)-1] {
			sub, ok := at[key].(map[string]any)
			if !ok {
				tb.Fatalf("the input has no %s", path)
			}
			at = sub
		}
		if last := keys[len(keys)-1]; value == removed {
			delete(at, last)
		} else {
			at[last] = value
		}
	}
	out, err := json.Marshal(doc)
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

// removed is a value for example: the field is absent.
const removed = "\x00removed"

func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("got %q, want it to contain %q", err, part)
		}
	}
}
