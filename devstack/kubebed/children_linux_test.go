package kubebed_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
)

// childVariable is the role of this test binary when a test starts it again.
const childVariable = "KUBEBED_TEST_CHILD"

// again starts this test binary again, for the tests that match the pattern.
func again(t *testing.T, part, pattern string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run="+pattern, "-test.v", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), childVariable+"="+part, "TMPDIR="+t.TempDir())
	return cmd
}

// isChild reports whether this process was started for that role. Its tests do nothing
// otherwise.
func isChild(part string) bool {
	return os.Getenv(childVariable) == part
}

// A program is a child of some process.
type program struct {
	pid  int
	name string
}

// children returns the programs that a process has started.
func children(t *testing.T, parent int) []program {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	var list []program
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		_, after, _ := strings.Cut(string(stat), ") ")
		if f := strings.Fields(after); len(f) < 2 || f[1] != strconv.Itoa(parent) {
			continue
		}
		dir := filepath.Dir(path)
		command, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			t.Fatal(err)
		}
		first, _, _ := strings.Cut(string(command), "\x00")
		list = append(list, program{pid: pid, name: filepath.Base(first)})
	}
	return list
}

const started = "the control plane runs"

// TestChildHangs is the process that TestKilled kills.
func TestChildHangs(t *testing.T) {
	if !isChild("hangs") {
		return
	}
	path, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	if err := kubebedtest.Bed(t).StartProgram(t.Context(), kubebed.Program{Path: path, Args: []string{"1000"}}); err != nil {
		t.Fatal(err)
	}
	fmt.Println(started) //nolint:forbidigo // to the test that started it
	<-t.Context().Done()
}

// TestKilled covers that the programs of a test process die with it, even if it is
// killed.
func TestKilled(t *testing.T) {
	t.Parallel()
	cmd := again(t, "hangs", "^TestChildHangs$")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.Contains(lines.Text(), started) {
		t.Log(lines.Text())
	}
	programs := children(t, cmd.Process.Pid)
	names := make(map[string]bool)
	for _, p := range programs {
		names[p.name] = true
	}
	for _, want := range []string{kubebed.Etcd, kubebed.APIServer, kubebed.ControllerManager, kubebed.Scheduler, "sleep"} {
		if !names[want] {
			t.Errorf("%s does not run: %v", want, programs)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the error of a killed process
	kubebedtest.Eventually(t, func(context.Context) error {
		for _, p := range programs {
			if command, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid)); err == nil && strings.Contains(string(command), p.name) {
				return fmt.Errorf("%s (pid %d) outlives its process", p.name, p.pid)
			}
		}
		return nil
	})
}

// TestChildPasses and TestChildFails are the children of TestLogs.
func TestChildPasses(t *testing.T) {
	if !isChild("logs") {
		return
	}
	kubebedtest.Namespace(t)
}

func TestChildFails(t *testing.T) {
	if !isChild("logs") {
		return
	}
	if _, err := kubebedtest.Bed(t).Kubectl(t.Context(), "get", "--raw", "/healthz"); err != nil {
		t.Log(err)
	}
	t.Error("as it should")
}

// TestLogs covers that the output of the programs is shown when a test fails, and only
// then.
func TestLogs(t *testing.T) {
	t.Parallel()
	cmd := again(t, "logs", "^TestChild(Passes|Fails)$")
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Fatalf("a failed test is no error:\n%s", out)
	}
	passed, failed, _ := strings.Cut(string(out), "=== RUN   TestChildFails")
	if !strings.Contains(passed, "--- PASS: TestChildPasses") || strings.Contains(passed, "---- ") {
		t.Errorf("the test that passes says:\n%s", passed)
	}
	for _, want := range []string{"as it should", "---- etcd.log", "---- kube-apiserver.log", "---- kube-controller-manager.log", "---- kube-scheduler.log"} {
		if !strings.Contains(failed, want) {
			t.Errorf("the test that fails lacks %q:\n%s", want, failed)
		}
	}
}

// TestDeath covers that the death of a program is reported, and ends Run.
func TestDeath(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "bed")
	bed := start(t, kubebed.Options{Dir: dir, Controllers: kubebed.JobControllers()})
	ran := make(chan error, 1)
	go func() { ran <- bed.Run(t.Context()) }()
	for _, p := range children(t, os.Getpid()) {
		if in, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", p.pid)); err == nil && in == dir && p.name == kubebed.ControllerManager {
			if err := syscall.Kill(p.pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	kubebedtest.Eventually(t, func(ctx context.Context) error {
		select {
		case err := <-ran:
			if err == nil || !strings.Contains(err.Error(), "kube-controller-manager exited: signal: killed") {
				t.Errorf("Run() = %v, want who ended and how", err)
			}
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}
