package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// A said is a line of the log of "fleetloop up".
type said struct {
	Msg     string `json:"msg"`
	Command string `json:"command"`
	URL     string `json:"url"`
}

// TestOnALaptop follows what "fleetloop up --kube=embedded" says that can be tried: an execution that
// needs approval is asked for by one, approved by another, done, verified, and taken back; a node with a
// fault is taken out of service and given back.
func TestOnALaptop(t *testing.T) {
	t.Parallel()
	fleetloop := binary(t, "fleetloop")
	log := &logFile{path: t.TempDir() + "/log"}
	file, err := os.Create(log.path)
	if err != nil {
		t.Fatal(err)
	}
	up := exec.CommandContext(t.Context(), fleetloop, "up", "--kube=embedded", "--data-dir", serverDir(t), "--log-format=json",
		"--listen-address=127.0.0.1:0", "--metrics-bind-address=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0", "--console-listen-address=127.0.0.1:0")
	up.Stdout, up.Stderr = file, file
	up.Cancel = func() error { return up.Process.Signal(os.Interrupt) }
	up.WaitDelay = time.Minute
	if err := up.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = up.Wait() // ended by the test's context
		_ = file.Close()
		if t.Failed() {
			text, _ := os.ReadFile(log.path)
			t.Logf("it said:\n%s", text)
		}
	})
	var commands [][]string
	eventually(t, 3*time.Minute, func() error {
		commands = nil
		for _, line := range log.lines() {
			if line.Msg == "try an execution" {
				commands = append(commands, strings.Fields(line.Command)[1:])
			}
		}
		if len(commands) != 4 {
			return fmt.Errorf("it names %d commands", len(commands))
		}
		return nil
	})
	run := func(args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), fleetloop, args...).CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("fleetloop %s: %w: %s", strings.Join(args, " "), err, out)
		}
		return string(out), nil
	}
	must := func(args ...string) string {
		t.Helper()
		out, err := run(args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	ask, approve, describe, rollback := commands[0], commands[1], commands[2], commands[3]
	shows := func(command []string, want ...string) {
		t.Helper()
		eventually(t, time.Minute, func() error {
			out, err := run(command...)
			for _, w := range want {
				if err == nil && !strings.Contains(out, w) {
					err = fmt.Errorf("%q is not in:\n%s", w, out)
				}
			}
			return err
		})
	}
	// Beside it SentinelConfigs, the API and the controller become ready.
	eventually(t, 2*time.Minute, func() error { _, err := run(ask...); return err })
	shows(describe, "waiting_approval", "0 of 1", "replicas 3 -> 5", "not from alice")
	self := append([]string{}, approve...)
	for i := range self {
		self[i] = strings.Replace(self[i], "bob", "alice", 1)
	}
	if _, err := run(append(self, "--yes")...); err == nil {
		t.Error("alice approved of what she had asked for")
	}
	shows(describe, "waiting_approval")
	must(append(approve, "--yes", "--reason", "seen")...)
	shows(describe, "rollback_ready", "Succeeded", "replicas: 3", "replicas: 5", "seen")
	name := strings.Fields(must(rollback...))[0] // execution/NAME
	name = name[strings.Index(name, "/")+1:]
	for _, command := range [][]string{approve, describe} {
		for i, arg := range command {
			if arg == "scale-web" {
				command[i] = name
			}
		}
	}
	shows(describe, "waiting_approval", "replicas 5 -> 3")
	must(append(approve, "--yes", "--reason", "back")...)
	shows(describe, "Succeeded", "replicas: 5", "replicas: 3")
	grantedOnALaptop(t, fleetloop, ask[len(ask)-1], approve[len(approve)-1])
	faultOnALaptop(t, log, shows)
}

// A logFile is a log in JSON that is being written.
type logFile struct{ path string }

func (l *logFile) lines() []said {
	text, err := os.ReadFile(l.path)
	if err != nil {
		return nil
	}
	var all []said
	for line := range bytes.Lines(text) {
		var s said
		if json.Unmarshal(line, &s) == nil {
			all = append(all, s)
		}
	}
	return all
}
