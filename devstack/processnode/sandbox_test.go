package processnode_test

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fleetloop/fleetloop/devstack/processnode"
	"github.com/fleetloop/fleetloop/devstack/realnode"
)

const limit = 60 * time.Second

func detect(t *testing.T) *processnode.Sandbox {
	t.Helper()
	s, err := processnode.DetectSandboxOrPlain(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// namespaced is for tests that require namespaces. Where the kernel refuses them to
// this user, NODE=off skips these tests, as for the real node.
func namespaced(t *testing.T) *processnode.Sandbox {
	t.Helper()
	s := detect(t)
	if err := s.Namespaces(); err != nil {
		if !realnode.Off() {
			t.Fatalf("%v; NODE=off leaves these tests out", err)
		}
		t.Skipf("NODE=off: %v", err)
	}
	return s
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// run runs a script to its end and returns its output and exit code.
func run(t *testing.T, s *processnode.Sandbox, c processnode.SandboxCommand) (string, int) {
	t.Helper()
	out, err := os.CreateTemp(t.TempDir(), "out")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = out.Close() }()
	c.Output, c.Scratch = out, t.TempDir()
	p, err := s.Start(c)
	if err != nil {
		t.Fatal(err)
	}
	wantEnd(t, p)
	said, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(said), p.ExitCode()
}

func wantEnd(t *testing.T, p *processnode.SandboxProcess) {
	t.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.Done():
	case <-timer.C:
		_ = p.Kill()
		t.Fatal("the process did not end")
	}
}

func sandboxScript(text string) []string { return []string{"sh", "-c", text} }

var path = []string{"PATH=/usr/bin:/bin"}

func TestMountsStandWhereTheMachineHasNothing(t *testing.T) {
	t.Parallel()
	s := namespaced(t)
	folder := t.TempDir()
	said, code := run(t, s, processnode.SandboxCommand{
		Argv: sandboxScript(`cat /var/run/secrets/kubernetes.io/serviceaccount/token /dev/termination-log /nowhere/deep/file
			echo more >> /dev/termination-log; (echo no > /nowhere/deep/file) 2>/dev/null || echo refused
			echo kept > /data/sub/new; hostname; echo $$; ls -d /usr /dev/null; pwd`),
		Env: path, Dir: "/data", Hostname: "pod-0",
		Mounts: []processnode.SandboxMount{
			{Source: file(t, "token\n"), Target: "/var/run/secrets/kubernetes.io/serviceaccount/token", ReadOnly: true},
			{Source: file(t, "log\n"), Target: "/dev/termination-log"},
			{Source: file(t, "deep\n"), Target: "/nowhere/deep/file", ReadOnly: true},
			{Source: t.TempDir(), Target: "/data"},
			{Source: folder, Target: "/data/sub"},
		},
	})
	want := "token\nlog\ndeep\nrefused\npod-0\n1\n/dev/null\n/usr\n/data\n"
	if said != want || code != 0 {
		t.Errorf("the process said (exit %d)\n%s\nwant\n%s", code, said, want)
	}
	if kept, err := os.ReadFile(filepath.Join(folder, "new")); string(kept) != "kept\n" {
		t.Errorf("what it wrote to its volume: %q, %v", kept, err)
	}
	for _, missing := range []string{"/nowhere", "/dev/termination-log", "/run/secrets/kubernetes.io"} {
		if _, err := os.Lstat(missing); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s appeared on the machine (%v)", missing, err)
		}
	}
}

func TestAProgramHiddenByAMountStillRuns(t *testing.T) {
	t.Parallel()
	s := namespaced(t)
	folder := t.TempDir()
	program := filepath.Join(folder, "program")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho ran $1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	said, code := run(t, s, processnode.SandboxCommand{Argv: []string{program, "well"}, Env: path, Mounts: []processnode.SandboxMount{{Source: t.TempDir(), Target: folder}}})
	if said != "ran well\n" || code != 0 {
		t.Errorf("said %q, exit %d", said, code)
	}
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]*processnode.Sandbox{"Detected": detect(t), "Plain": processnode.PlainSandbox()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for code, text := range map[int]string{0: "exit 0", 7: "exit 7", 127: "no-such-program"} {
				if _, got := run(t, s, processnode.SandboxCommand{Argv: sandboxScript(text), Env: path}); got != code {
					t.Errorf("%q ended with %d, want %d", text, got, code)
				}
			}
			p := start(t, s, "exec sleep 1000")
			if err := p.Signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if wantEnd(t, p); p.ExitCode() != 128+int(syscall.SIGKILL) {
				t.Errorf("a killed process ended with %d", p.ExitCode())
			}
		})
	}
}

func TestSignals(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]*processnode.Sandbox{"Detected": detect(t), "Plain": processnode.PlainSandbox()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, s, "exec sleep 1000") // does not handle SIGTERM
			if err := p.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if wantEnd(t, p); p.ExitCode() != 128+int(syscall.SIGTERM) && p.ExitCode() != 2 { // the latter before it began
				t.Errorf("ended with %d", p.ExitCode())
			}
			out := filepath.Join(t.TempDir(), "up")
			p = start(t, s, "trap 'exit 9' TERM; echo > "+out+"; while true; do sleep 0.01; done")
			wantFile(t, out)
			if err := p.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if wantEnd(t, p); p.ExitCode() != 9 {
				t.Errorf("a process that handles the signal ended with %d", p.ExitCode())
			}
		})
	}
}

func wantFile(t *testing.T, name string) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	for {
		if _, err := os.Stat(name); err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("no file %s", name)
		}
	}
}

func start(t *testing.T, s *processnode.Sandbox, text string) *processnode.SandboxProcess {
	t.Helper()
	p, err := s.Start(processnode.SandboxCommand{Argv: sandboxScript(text), Env: path, Scratch: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Kill(); wantEnd(t, p) })
	return p
}

func TestWhatCannotStartSaysSo(t *testing.T) {
	t.Parallel()
	nothing := []string{"/no/such/program"}
	if _, err := processnode.PlainSandbox().Start(processnode.SandboxCommand{Argv: nothing}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("plain: %v", err)
	}
	if _, err := processnode.PlainSandbox().Start(processnode.SandboxCommand{}); err == nil {
		t.Error("a command without a program started")
	}
	said, code := run(t, namespaced(t), processnode.SandboxCommand{Argv: nothing, Env: path})
	if code != processnode.ExitUnstartable || !strings.Contains(said, nothing[0]) {
		t.Errorf("in namespaces: said %q, exit %d", said, code)
	}
}

// TestKillEndsWhatTheProcessStarted runs a script that prints the pid of a child in a
// separate session, which no signal to the group reaches, and continues.
func TestKillEndsWhatTheProcessStarted(t *testing.T) {
	t.Parallel()
	s := namespaced(t)
	marker := fmt.Sprintf("%d.%d", 4000+os.Getpid(), time.Now().UnixNano()%1e9)
	p := start(t, s, "setsid sleep "+marker+" & sleep 1000")
	wantProcesses(t, marker, 1)
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	wantEnd(t, p)
	wantProcesses(t, marker, 0)
}

// wantProcesses waits until the given number of processes have the argument.
func wantProcesses(t *testing.T, argument string, want int) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	for {
		if got := processes(argument); got == want {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("%d processes with argument %s, want %d", processes(argument), argument, want)
		}
	}
}

func processes(argument string) int {
	count := 0
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		if text, err := os.ReadFile(f); err == nil && strings.HasSuffix(string(text), "sleep\x00"+argument+"\x00") {
			count++
		}
	}
	return count
}

// TestNothingOutlivesTheParent kills the parent, a child of the test, as a crash would.
func TestNothingOutlivesTheParent(t *testing.T) {
	if argument := flag.Arg(0); argument != "" {
		s := detect(t)
		if _, err := s.Start(processnode.SandboxCommand{Argv: sandboxScript("setsid sleep " + argument + " & sleep " + argument), Env: path, Scratch: t.TempDir()}); err != nil {
			t.Fatal(err)
		}
		_, _ = fmt.Fprintln(os.Stdout, "started")
		select {}
	}
	t.Parallel()
	namespaced(t)
	marker := fmt.Sprintf("%d.%d", 5000+os.Getpid(), time.Now().UnixNano()%1e9)
	parent := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestNothingOutlivesTheParent$", "--", marker)
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "started\n" {
		t.Fatalf("the parent said %q, %v", line, err)
	}
	wantProcesses(t, marker, 2)
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	wantProcesses(t, marker, 0)
}

// TestAsAnOrdinaryUser repeats tests of the sandbox for another user, as root has more rights.
func TestAsAnOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Log("all tests run as one")
		return
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.ParseUint(nobody.Uid, 10, 32)
	gid, _ := strconv.ParseUint(nobody.Gid, 10, 32)
	tmp, err := os.MkdirTemp("", "sandbox-") //nolint:usetesting // that one is closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(tmp) })
	if err := os.Chown(tmp, int(uid), int(gid)); err != nil {
		t.Fatal(err)
	}
	again := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.v", "-test.run=^Test(Mounts|ExitCodes|Signals|WhatCannotStart|Kill|NothingOutlives)", "-test.count=1")
	again.Env = append(os.Environ(), "TMPDIR="+tmp)
	again.Dir = "/"
	again.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	if out, err := again.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestMountsStand") {
		t.Errorf("%v\n%s", err, out)
	}
}
