package docs_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fleetloop/fleetloop/devstack/kubebed"
)

const (
	upBound      = 5 * time.Minute // from the start of fleetloop up until its fleet is Ready
	installBound = 3 * time.Minute
	stopBound    = time.Minute
	poll         = 250 * time.Millisecond
)

// A running environment is what a page's script finds.
type running struct {
	path   []string // folders with programs, before those of the test
	env    []string
	source string // a file that the script reads first, empty for none
	home   string // home directory of the user that runs it, empty for none
}

// start starts an environment. It ends with the test.
func start(t *testing.T, env environment) running {
	t.Helper()
	switch env {
	case envUp:
		return startUp(t)
	case envKube:
		return startUp(t, "--kube=embedded")
	case envCluster:
		return startCluster(t)
	case envNone, envDrill, envSkip:
	}
	return running{}
}

// newServerDir returns a folder that the database's user can pass through, also as root. In a closed one, the
// database would be elsewhere and outlive the test.
func newServerDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fleetloop-docs-") //nolint:usetesting // t.TempDir is closed to that user
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return dir
}

// startUp runs fleetloop up with a demo, and waits until a cluster of its fleet
// is Ready.
func startUp(t *testing.T, args ...string) running {
	t.Helper()
	dir := newServerDir(t)
	log, err := os.Create(filepath.Join(dir, "up.log"))
	if err != nil {
		t.Fatal(err)
	}
	up := exec.CommandContext(t.Context(), filepath.Join(binaries(t), "fleetloop"), append([]string{
		"up", "--demo", "--view=log", "--data-dir", filepath.Join(dir, "data"), // at the default addresses, which the pages name
	}, args...)...)
	up.Env = append(scriptEnv(t, nil), "HOME="+dir)
	up.Stdout, up.Stderr = log, log
	up.Cancel = func() error { return up.Process.Signal(os.Interrupt) }
	up.WaitDelay = stopBound
	if err := up.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = up.Wait() // ended by the test's context
		_ = log.Close()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("the end of the log of fleetloop up:\n%s", tail(string(text), 40))
		}
	})
	r := running{source: filepath.Join(dir, "data", "try.sh"), home: dir}
	// It is ready once all parts are: an execution that is created before the
	// controller is ready fails.
	const ready = `. "$1" >/dev/null && fleetloop describe cluster us-east-01 && curl -sSf 127.0.0.1:8081/readyz`
	eventually(t, upBound, func(ctx context.Context) error {
		out, err := exec.CommandContext(ctx, "bash", "-c", ready, "bash", r.source).CombinedOutput()
		if err != nil || !regexp.MustCompile(`(?m)^Phase: +Ready$`).Match(out) {
			return fmt.Errorf("the demo fleet is not Ready: %w: %s", err, out)
		}
		return nil
	})
	return r
}

// startCluster starts a Kubernetes API server and installs the chart.
func startCluster(t *testing.T) running {
	t.Helper()
	bed, err := kubebed.Start(t.Context(), kubebed.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := bed.Stop(); err != nil {
			t.Error(err)
		}
	})
	r := running{path: []string{filepath.Dir(helm(t)), bed.Assets()}, env: []string{"KUBECONFIG=" + bed.AdminKubeconfig()}}
	ctx, cancel := context.WithTimeout(t.Context(), installBound)
	defer cancel()
	namespace := exec.CommandContext(ctx, filepath.Join(bed.Assets(), "kubectl"), "create", "namespace", "kubernaut-executor") // the chart installs into it
	namespace.Env = append(os.Environ(), r.env...)
	if out, err := namespace.CombinedOutput(); err != nil {
		t.Fatalf("create the namespace of executions: %v\n%s", err, out)
	}
	install := exec.CommandContext(ctx, helm(t), "install", "fleetloop", filepath.Join(root(t), "deploy/chart/fleetloop"),
		"--namespace=hyperfleet-system", "--create-namespace",
		"--set=clusterWorker.enabled=true,executionController.enabled=true,nodeFaultController.enabled=true,nodeFaultController.intake.auth.tokensSecret=node-monitors")
	install.Env = append(os.Environ(), r.env...)
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("helm install: %v\n%s", err, out)
	}
	return r
}

// eventually calls check until it returns no error.
func eventually(t *testing.T, bound time.Duration, check func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("not within %s: %v", bound, err)
		case <-ticker.C:
		}
	}
}

// killGroup ends a script and whatever it left running in the background.
func killGroup(cmd *exec.Cmd) error {
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

// tail returns the last lines of a text.
func tail(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
