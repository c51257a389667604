package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fleetloop/fleetloop/internal/processtest"
)

const patience = 2 * time.Minute

func TestCommandOnIt(t *testing.T) {
	t.Parallel()
	var stdout, stderr processtest.Buffer
	cmd := newCommand(&stdout, &stderr)
	cmd.SetArgs([]string{
		"--node", "process", "--image", "demo=/bin/echo it is",
		"--", "sh", "-c", `kubectl create job done --image=demo -- echo ran && kubectl wait --for=condition=complete job/done --timeout=60s && kubectl logs job/done && exit 7`,
	})
	err := cmd.ExecuteContext(t.Context())
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("got %v, want the exit code of what ran on it: %s", err, stderr.String())
	}
	if !strings.HasSuffix(stdout.String(), "\nran\n") {
		t.Errorf("it printed %q", stdout.String())
	}
}

// TestRelativeImage checks that a program is found from the user's folder, and not from the
// container's working directory.
func TestRelativeImage(t *testing.T) {
	t.Parallel()
	program := filepath.Join("testdata", "hello.sh")
	var stdout, stderr processtest.Buffer
	cmd := newCommand(&stdout, &stderr)
	cmd.SetArgs([]string{
		"--node", "process", "--image", "demo=" + program + " from",
		"--", "sh", "-c", `kubectl create -f testdata/job.yaml && kubectl wait --for=condition=complete job/hello --timeout=60s && kubectl logs job/hello`,
	})
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Errorf("got %v: %s", err, stderr.String())
	}
	if !strings.HasSuffix(stdout.String(), "\nhello from here\n") {
		t.Errorf("it printed %q", stdout.String())
	}
}

// TestGarden checks that a Shoot goes through its operations in a garden that a command finds by
// its environment.
func TestGarden(t *testing.T) {
	t.Parallel()
	manifest := filepath.Join(t.TempDir(), "shoot.yaml")
	text := `
apiVersion: core.gardener.cloud/v1beta1
kind: Shoot
metadata: {name: one}
spec:
  cloudProfile: {kind: CloudProfile, name: local}
  credentialsBindingName: local
  region: local
  kubernetes: {version: 1.34.1}
  networking: {type: calico, nodes: 10.0.0.0/16}
  provider: {type: local, workers: [{name: default, machine: {type: local}, minimum: 1, maximum: 1}]}
`
	if err := os.WriteFile(manifest, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr processtest.Buffer
	cmd := newCommand(&stdout, &stderr)
	cmd.SetArgs([]string{"--garden", "--garden-step", "10ms", "--", "sh", "-c", `export KUBECONFIG=$GARDENER_KUBECONFIG; kubectl() { command kubectl -n $GARDENER_NAMESPACE "$@"; }
kubectl create -f ` + manifest + ` && kubectl wait --for=jsonpath='{.status.lastOperation.state}'=Succeeded shoot/one --timeout=60s`})
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Errorf("got %v: %s", err, stderr.String())
	}
	if !strings.HasSuffix(stdout.String(), "one condition met\n") {
		t.Errorf("it printed %q", stdout.String())
	}
}

// TestUntilToldToEnd checks that kubectl works with the printed variables until the control plane
// is stopped.
func TestUntilToldToEnd(t *testing.T) {
	t.Parallel()
	var stdout, stderr processtest.Buffer
	cmd := newCommand(&stdout, &stderr)
	cmd.SetArgs([]string{"--dir", filepath.Join(t.TempDir(), "bed")})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- cmd.ExecuteContext(ctx) }()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for !strings.Contains(stdout.String(), "export PATH=") {
		select {
		case <-ticker.C:
		case err := <-ended:
			t.Fatalf("it ended: %v\n%s", err, stderr.String())
		case <-deadline.C:
			t.Fatalf("it said nothing:\n%s", stderr.String())
		}
	}
	shell := exec.CommandContext(t.Context(), "sh", "-c", stdout.String()+"kubectl get namespace default -o name")
	if out, err := shell.CombinedOutput(); err != nil || string(out) != "namespace/default\n" {
		t.Errorf("a shell that takes over what it printed gives %q, %v", out, err)
	}
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("told to end it gives %v", err)
		}
	case <-deadline.C:
		t.Error("it does not end")
	}
}

func TestCommandRefuses(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		`unknown node "virtual"`:       {"--node", "virtual"},
		"nosuch.yaml":                  {"--crds", "nosuch.yaml"},
		"program of --image demo":      {"--node", "process", "--image", "demo=bin/nosuch"},
		"--image demo has no":          {"--node", "process", "--image", "demo="},
		`version "2.0" must look like`: {"pin", "2.0"},
	} {
		cmd := newCommand(&bytes.Buffer{}, &bytes.Buffer{})
		cmd.SetArgs(args)
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v: got %v, want %q in it", args, err, name)
		}
	}
}
