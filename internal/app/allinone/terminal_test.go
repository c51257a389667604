package allinone_test

import (
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// What a terminal takes as: show the second screen, show the first one again.
const (
	secondScreen = "\x1b[?1049h"
	firstScreen  = "\x1b[?1049l"
)

// TestTerminalKeepsWhatToTry holds that what there is to try is on the screen
// that comes back at the end, and while the view covers that, in the view and in
// a file that a shell reads.
func TestTerminalKeepsWhatToTry(t *testing.T) {
	t.Parallel()
	r := startProgram(t, nil, "--demo", "--view=live", "--demo-clusters", "1", "--kube=embedded")
	command := ""
	eventually(t, func() error {
		_, view, _ := strings.Cut(r.stdout.String(), secondScreen)
		found := regexp.MustCompile(`in another terminal:  .*(\. \S+/try\.sh)`).FindStringSubmatch(view)
		if found == nil {
			return fmt.Errorf("the view names no file: %q", view)
		}
		command = found[1]
		return nil
	})
	shell := exec.CommandContext(t.Context(), "sh", "-euc", command+"; kubectl get sentinelconfigs; kubectl get deployments -n shop; kubectl --kubeconfig $ALICE auth whoami; kubectl --kubeconfig $BOB auth whoami; echo $REPORTS $FLEETLOOP_SERVER")
	out, err := shell.CombinedOutput()
	if err != nil {
		t.Fatalf("a shell that reads it: %v: %s", err, out)
	}
	offered := []string{
		"fleetloop get clusters", "fleetloop approve scale-web --kubeconfig $BOB", "fleetloop rollback scale-web --kubeconfig $ALICE", "kubectl get sentinelconfigs",
	}
	for _, want := range append(slices.Clone(offered), "alice", "bob", "nodepools", "web", "/v1/health-events http://127.0.0.1:") {
		if !strings.Contains(string(out), want) {
			t.Errorf("a shell that reads it lacks %q:\n%s", want, out)
		}
	}
	r.stopProgram(t)
	_, rest, _ := strings.Cut(r.stdout.String(), secondScreen)
	_, after, ok := strings.Cut(rest, firstScreen)
	if !ok || !strings.Contains(after, "cloud events published") {
		t.Errorf("the first screen does not come back with a summary: %q", after)
	}
	for _, want := range append(slices.Clone(offered), command) {
		if !strings.Contains(r.stderr.String(), want) { // which is never on the second screen
			t.Errorf("the first screen lacks %q:\n%s", want, r.stderr.String())
		}
	}
}
