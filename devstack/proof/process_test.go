package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fleetloop/fleetloop/devstack/proof/faults"
	"github.com/fleetloop/fleetloop/devstack/proof/history"
)

// newSleeper starts a process that does nothing.
func newSleeper(t *testing.T) *process {
	t.Helper()
	path, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	file, err := history.NewFile(filepath.Join(t.TempDir(), "history.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	p := (&topology{dir: t.TempDir(), file: file}).newProcess("sleeper-0", path, "3600")
	if err := p.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.close()
		p.watching.Wait()
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// pidOf returns the id of the running process, and an error if it does not run.
func (p *process) pidOf() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.done:
		return 0, errors.New("the process has ended")
	default:
	}
	pid := p.cmd.Process.Pid
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err == nil && strings.Contains(string(text), "State:\tT") {
		return 0, errors.New("the process is frozen")
	}
	return pid, nil
}

// TestProcessFaults holds that a process runs again after each fault.
func TestProcessFaults(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{faults.Kill, faults.Restart, faults.Freeze} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			p := newSleeper(t)
			before, err := p.pidOf()
			if err != nil {
				t.Fatal(err)
			}
			if err := p.disturb(t.Context(), faults.Fault{Kind: kind, Lasts: time.Millisecond}); err != nil {
				t.Fatal(err)
			}
			err = poll(t.Context(), startBound, func(context.Context) error {
				after, err := p.pidOf()
				if err == nil && (after == before) != (kind == faults.Freeze) {
					err = fmt.Errorf("process %d before, %d after", before, after)
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// TestHeldProcess holds that a process stays down while a fault holds it, and that it then outlives the
// context of the fault.
func TestHeldProcess(t *testing.T) {
	t.Parallel()
	const some = 200 * time.Millisecond
	p := newSleeper(t)
	if err := p.kill(true); err != nil {
		t.Fatal(err)
	}
	pauseFor(t.Context(), some)
	if pid, err := p.pidOf(); err == nil {
		t.Fatalf("process %d runs while it is held", pid)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := p.unhold(ctx); err != nil {
		t.Fatal(err)
	}
	cancel()
	pauseFor(t.Context(), some)
	if _, err := p.pidOf(); err != nil {
		t.Errorf("after the end of the fault: %v", err)
	}
}
