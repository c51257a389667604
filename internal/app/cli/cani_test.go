package cli

import (
	"strings"
	"testing"
)

func TestCanI(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reason, args, stdout, says string
		code                       int
	}{
		"Yes":     {"as kubectl does", "can-i get nodepool eu-1", "yes\n", "", CodeOK},
		"No":      {"with the reason", "can-i delete clusters", "no: \"vera\" has the role viewer�[31m\n", "", CodeFailed},
		"Quiet":   {"for scripts", "can-i delete clusters -q", "", "", CodeFailed},
		"Verb":    {"the nearest is offered", "can-i delet clusters", "", "did you mean delete", CodeUsage},
		"Kind":    {"the nearest is offered", "can-i get clusterz", "", "clusters", CodeUsage},
		"Missing": {"both are needed", "can-i get", "", "accepts between 2 and 3 arg", CodeUsage},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := run{args: strings.Fields(c.args)}.runCLI(t, newSyncs())
			if got.stdout != c.stdout || got.code != c.code || !strings.Contains(got.stderr, c.says) || c.says == "" && got.stderr != "" {
				t.Errorf("%s: exit code %d, stdout %q, stderr %q", c.reason, got.code, got.stdout, got.stderr)
			}
		})
	}
}
