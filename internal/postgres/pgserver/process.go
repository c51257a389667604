package pgserver

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// A process is one run of the postmaster.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // the exit error, set before done is closed
}

// startPostmaster starts the postmaster with its output in the home's log file.
//
// The thread that forks must live as long as the child: the kernel sends the parent-death signal
// when that thread ends, not the process. So one goroutine, locked to its thread, starts the child
// and waits for it.
func startPostmaster(bins binaries, h *serverHome, args []string, env map[string]string) (*process, error) {
	logFile, err := h.rotateAndOpenLog()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(bins.postgresPath(), args...) //nolint:gosec,noctx // the path was found by us; the process outlives any one context
	cmd.Env = h.serverEnvironment()
	for key, value := range env {
		cmd.Env = append(cmd.Env, key+"="+value)
	}
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.SysProcAttr = h.newProcessAttributes(shutdownWithParent)

	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		// The child has its own copy; the parent's would only leak.
		err = errors.Join(err, logFile.Close())
		started <- err
		if cmd.Process == nil {
			return
		}
		p.err = cmd.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %q: %w", bins.postgresPath(), err)
	}
	return p, nil
}

func (p *process) processID() int { return p.cmd.Process.Pid }

// exitError returns how the process ended; call it only after done.
func (p *process) exitError() error {
	if p.err == nil {
		return errors.New("exit status 0")
	}
	return p.err
}

// stopEscalating stops the postmaster with sig, and escalates if it does not end.
func (p *process) stopEscalating(sig syscall.Signal, timeout time.Duration) error {
	for _, step := range []struct {
		sig   syscall.Signal
		bound time.Duration
	}{{sig, timeout}, {syscall.SIGQUIT, killTimeout}, {syscall.SIGKILL, killTimeout}} {
		if err := p.cmd.Process.Signal(step.sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("stop postgres (pid %d): %w", p.processID(), err)
		}
		t := time.NewTimer(step.bound)
		select {
		case <-p.done:
			t.Stop()
			return nil
		case <-t.C:
		}
	}
	return fmt.Errorf("stop postgres (pid %d): still running %s after SIGKILL", p.processID(), killTimeout)
}

// The postmaster's signals. SIGINT ends sessions, writes a checkpoint and exits. SIGQUIT exits at
// once, and the next start recovers.
const (
	fastShutdown       = syscall.SIGINT
	immediateShutdown  = syscall.SIGQUIT
	shutdownWithParent = fastShutdown
)

func (s *Server) chooseStopSignal() syscall.Signal {
	if s.cfg.Throwaway {
		return immediateShutdown
	}
	return fastShutdown
}

func (s *Server) buildServerArguments() []string {
	settings := map[string]string{
		"listen_addresses":        host,
		"port":                    strconv.Itoa(s.port),
		"unix_socket_directories": "",
		"logging_collector":       "off",
		"log_destination":         "stderr",
		"timezone":                "UTC",
		"log_timezone":            "UTC",
		"max_connections":         "200",
	}
	if s.cfg.Throwaway {
		maps.Copy(settings, map[string]string{
			"fsync":              "off",
			"full_page_writes":   "off",
			"synchronous_commit": "off",
			"max_wal_size":       "4GB",
			"autovacuum_naptime": "10s",
			"checkpoint_timeout": "30min",
			"wal_level":          "minimal",
			"max_wal_senders":    "0",
		})
	}
	maps.Copy(settings, s.cfg.Settings)
	args := []string{"-D", s.home.data}
	for _, k := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "-c", k+"="+settings[k])
	}
	return args
}
