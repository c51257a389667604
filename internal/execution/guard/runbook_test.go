package guard_test

import (
	"os"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/fleetloop/fleetloop/internal/execution/guard"
)

// TestRunbook holds that the runbook says how many objects there are to be listed:
// whoever counts one too many takes it for one that somebody has added.
func TestRunbook(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/runbooks/ExecutionAdmissionPoliciesMissing.md")
	must(t, err)
	policies := 0
	for _, o := range all(guard.Options{}) {
		if _, ok := o.(*admissionv1.ValidatingAdmissionPolicy); ok {
			policies++
		}
	}
	words := []string{5: "five", 6: "six", 7: "seven", 8: "eight", 9: "nine"}
	if want := " lists " + words[policies] + " of each."; !strings.Contains(string(page), want) {
		t.Errorf("it does not say %q", want)
	}
}
