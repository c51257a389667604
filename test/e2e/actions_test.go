package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// grantedOnALaptop runs what the guide says can be tried of the actions that have
// no rights by themselves, word for word, and one that acts on nothing.
func grantedOnALaptop(t *testing.T, fleetloop, requester, approver string) {
	t.Helper()
	sh := func(script string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "bash", "-ec", script)
		cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(fleetloop)+":"+os.Getenv("PATH"), "ALICE="+requester, "BOB="+approver)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	text, err := os.ReadFile("../../docs/how-to/run-executions.md")
	if err != nil {
		t.Fatal(err)
	}
	_, guide, found := strings.Cut(string(text), "\nfleetloop exec update_secret ")
	script, _, _ := strings.Cut(guide, "\n```")
	script = "fleetloop exec update_secret " + script
	if !found || strings.Count(script, "fleetloop exec ") != 2 {
		t.Fatalf("the guide has %q", script)
	}
	ask, rest, _ := strings.Cut(script, "\nkubectl ") // the guide waits here
	_, approve, _ := strings.Cut(rest, "\n")
	if out, err := sh(ask); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for line := range strings.Lines(approve) {
		eventually(t, time.Minute, func() error { _, err := sh(line); return err }) // it waits for approval a moment later
	}
	for name, action := range map[string]string{"renew": "", "settings": "", "said": `fleetloop exec notify_only message="look here" --name said --kubeconfig $ALICE; `} {
		if out, err := sh(action + "fleetloop exec watch " + name + " --kubeconfig $ALICE"); err != nil {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
}
