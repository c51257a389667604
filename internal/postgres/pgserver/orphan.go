package pgserver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fleetloop/fleetloop/internal/backoff"
)

// readPIDFile returns the pid and the state ("starting", "ready", "stopping", …) in the
// postmaster's pid file; the pid is 0 without such a file.
func readPIDFile(dataDir string) (pid int, state string) {
	b, err := os.ReadFile(filepath.Join(dataDir, "postmaster.pid")) //nolint:gosec // a folder of ours
	if err != nil {
		return 0, ""
	}
	const pidLine, stateLine = 0, 7
	lines := strings.Split(string(b), "\n")
	pid, err = strconv.Atoi(strings.TrimSpace(lines[pidLine]))
	if err != nil || pid <= 1 {
		return 0, ""
	}
	if len(lines) > stateLine {
		state = strings.TrimSpace(lines[stateLine])
	}
	return pid, state
}

// stopOrphanOrRemoveStalePID stops a server that an earlier process left behind in this folder, and removes a stale
// pid file. The caller holds the folder's lock, so a server that runs here is an orphan.
func (h *serverHome) stopOrphanOrRemoveStalePID(ctx context.Context, log *slog.Logger) error {
	pid, _ := readPIDFile(h.data)
	if pid == 0 || !isPostmasterOf(pid, h.data) {
		// If another program now has the pid, postgres would refuse to start.
		err := os.Remove(filepath.Join(h.data, "postmaster.pid"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the stale pid file: %w", err)
		}
		return nil
	}
	log.WarnContext(ctx, "stopping an orphaned postgres", "pid", pid, "dir", h.dir)
	for _, step := range []struct {
		sig   syscall.Signal
		bound time.Duration
	}{{fastShutdown, stopTimeout}, {immediateShutdown, killTimeout}, {syscall.SIGKILL, killTimeout}} {
		if err := syscall.Kill(pid, step.sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("stop the orphaned postgres (pid %d): %w", pid, err)
		}
		gone, err := waitUntilProcessGone(ctx, pid, step.bound)
		if gone || err != nil {
			return err
		}
	}
	return fmt.Errorf("stop the orphaned postgres (pid %d): it is still running", pid)
}

// waitUntilProcessGone polls a process until it is gone, because only a parent can wait for a process.
func waitUntilProcessGone(ctx context.Context, pid int, timeout time.Duration) (gone bool, err error) {
	for until := time.Now().Add(timeout); time.Now().Before(until); {
		if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			return true, nil
		}
		if err := backoff.Sleep(ctx, readyPoll); err != nil {
			return false, err
		}
	}
	return false, nil
}
