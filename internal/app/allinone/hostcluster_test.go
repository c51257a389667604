package allinone_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// TestHostCluster verifies that SentinelConfigs control the sentinels. A cluster becomes Ready
// through them, kubectl shows and changes them, and a restart keeps changes and restores deleted
// ones.
func TestHostCluster(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	args := []string{"--data-dir", dir, "--kube=embedded", "--poll-interval", "100ms", "--max-age-not-ready", "1s", "--adapter-latency", "1ms", "--adapter-failure-rate", "0"}
	first := startProgram(t, nil, args...)
	k := first.newKubectl(t)
	api := first.newClient(t)
	c, err := api.Clusters().Create(t.Context(), v1.CreateRequest{Name: "cluster-1", Spec: json.RawMessage(`{"n":1}`)})
	if err != nil {
		t.Fatal(err)
	}
	(&life{run: first, api: api, id: c.ID}).wantReady(t, 1)
	eventually(t, func() error {
		out, err := k.runCommand(t.Context(), "get", "sentinelconfigs", "--no-headers")
		for _, want := range []string{"clusters", "nodepools", "True"} {
			if err == nil && !strings.Contains(out, want) {
				err = fmt.Errorf("kubectl shows %q, want %q in it", out, want)
			}
		}
		return err
	})

	first.wantHostInConsole(t, c.ID)

	k.mustRun(t, "delete", "sentinelconfig", "clusters")
	k.mustRun(t, "patch", "sentinelconfig", "nodepools", "--type=merge", "-p", `{"spec":{"pollInterval":"7s"}}`)
	first.stopProgram(t)

	second := startProgram(t, nil, args...)
	k = second.newKubectl(t)
	if got := k.mustRun(t, "get", "sentinelconfigs", "-o", "jsonpath={range .items[*]}{.metadata.name} {.spec.pollInterval} {.spec.hyperfleetAPI.url}{\"\\n\"}{end}"); got != fmt.Sprintf("clusters 100ms %[1]s\nnodepools 7s %[1]s\n", second.newClient(t).Endpoint()) {
		t.Errorf("after a restart there are:\n%s", got)
	}
	second.stopProgram(t)
}

// TestHostClusterRefuses holds what does not go with it.
func TestHostClusterRefuses(t *testing.T) {
	t.Parallel()
	r := startProgram(t, nil, "--data-dir", t.TempDir(), "--kube=remote")
	if err := r.waitForExit(t); err == nil || !strings.Contains(err.Error(), "embedded") {
		t.Errorf("another kind of host cluster gives %v", err)
	}
	r = startProgram(t, map[string]string{"BROKER_TYPE": "rabbitmq", "BROKER_URL": "amqp://127.0.0.1:1"}, "--data-dir", t.TempDir(), "--kube=embedded")
	if err := r.waitForExit(t); err == nil || !strings.Contains(err.Error(), "unset BROKER_TYPE") {
		t.Errorf("another broker gives %v", err)
	}
}

// A kubectl reaches the host cluster of a run.
type kubectl struct{ path, kubeconfig string }

// newKubectl is what the log says of it.
func (r *run) newKubectl(t *testing.T) kubectl {
	t.Helper()
	line := r.waitForLine(t, "host cluster ready", nil)
	return kubectl{path: textOf(line, "kubectl"), kubeconfig: textOf(line, "kubeconfig")}
}

func (k kubectl) runCommand(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, k.path, append([]string{"--kubeconfig", k.kubeconfig}, args...)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

func (k kubectl) mustRun(t *testing.T, args ...string) string {
	t.Helper()
	out, err := k.runCommand(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
