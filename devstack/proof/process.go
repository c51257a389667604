package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fleetloop/fleetloop/devstack/proof/history"
)

const (
	// crashDelay is the delay before a restart after an exit without a fault, as the kubelet's first
	// back-off.
	crashDelay = 10 * time.Second
	// stopBound is the default termination grace period of Kubernetes.
	stopBound = 30 * time.Second
	logTail   = 4000
)

// A process is one replica of a program. It is restarted whenever it ends, as the kubelet does.
type process struct {
	name   string
	path   string // in the folder of the release, or absolute
	args   []string
	env    map[string]string
	health string // host:port of /readyz; empty without a probe
	metric string // host:port of /metrics; empty without metrics
	dir    string // of the log
	file   *history.File
	clock  clock // of a program of the product, if that can be set

	mu       sync.Mutex
	release  release
	cmd      *exec.Cmd
	done     chan struct{} // closed when cmd has ended
	held     bool          // a fault keeps it down
	expected bool          // a fault ends this life
	paused   bool
	closed   bool
	watching sync.WaitGroup
}

// start starts the process and supervises it until close or the end of ctx.
func (p *process) start(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.launchLocked(ctx)
}

func (p *process) launchLocked(ctx context.Context) error {
	if p.closed {
		return nil
	}
	out, err := os.OpenFile(p.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644) //nolint:gosec // a log that anyone may read
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }() // the child has its own copy
	path, args := p.release.expandPathAndArgs(p.path, p.args)
	cmd := exec.CommandContext(ctx, path, args...) //nolint:gosec // our own programs
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.dir}
	for key, value := range p.env {
		cmd.Env = append(cmd.Env, key+"="+value)
	}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = newProcAttr()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	p.cmd, p.done, p.expected, p.paused = cmd, make(chan struct{}), false, false
	p.watching.Go(func() { p.awaitExitAndRestart(ctx, cmd, p.done) })
	return nil
}

// awaitExitAndRestart waits for the end of one life and begins the next one.
func (p *process) awaitExitAndRestart(ctx context.Context, cmd *exec.Cmd, exited chan struct{}) {
	_ = cmd.Wait() // the state is in ProcessState
	close(exited)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.held || ctx.Err() != nil {
		return
	}
	if !p.expected {
		p.file.Add(history.Record{Exit: &history.Exit{Process: p.name, State: cmd.ProcessState.String(), Log: p.readLogTail()}})
		p.mu.Unlock()
		pauseFor(ctx, crashDelay)
		p.mu.Lock()
		if p.closed || p.held || p.cmd != cmd { // a fault came meanwhile
			return
		}
	}
	if err := p.launchLocked(ctx); err != nil && ctx.Err() == nil {
		p.file.Add(history.Record{Exit: &history.Exit{Process: p.name, State: err.Error()}})
	}
}

// kill ends the process as a power failure would. With hold it stays down until release.
func (p *process) kill(hold bool) error { return p.end(syscall.SIGKILL, hold) }

// terminate ends the process as the kubelet does when it deletes a Pod.
func (p *process) terminate() error { return p.end(syscall.SIGTERM, false) }

func (p *process) end(sig syscall.Signal, hold bool) error {
	p.mu.Lock()
	if p.cmd == nil || p.closed {
		p.mu.Unlock()
		return nil
	}
	cmd, done := p.cmd, p.done
	err := cmd.Process.Signal(sig)
	p.held = hold
	if err == nil {
		p.expected = true
	}
	p.mu.Unlock()
	if errors.Is(err, os.ErrProcessDone) { // it ended before the signal, which is recorded as an exit
		return nil
	}
	if err != nil {
		return fmt.Errorf("signal %s: %w", p.name, err)
	}
	began := time.Now()
	if sig == syscall.SIGTERM {
		defer func() {
			p.file.Add(history.Record{Stop: &history.Stop{Process: p.name, State: cmd.ProcessState.String(), Took: time.Since(began)}})
		}()
	}
	timer := time.NewTimer(stopBound)
	defer timer.Stop()
	select {
	case <-done:
		return nil
	case <-timer.C:
		_ = cmd.Process.Kill() // it may have ended meanwhile
		<-done
		return fmt.Errorf("%s did not end within %s of %s", p.name, stopBound, sig)
	}
}

// holdAfterExit keeps the process down if it ends, until unhold.
func (p *process) holdAfterExit() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expected, p.held = true, true
}

// unhold starts a process that kill holds. The process outlives ctx, which may be that of the fault.
func (p *process) unhold(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = false
	return p.launchLocked(context.WithoutCancel(ctx))
}

// pause stops the process without ending it, and resume continues it.
func (p *process) pause() error  { return p.freeze(syscall.SIGSTOP, true) }
func (p *process) resume() error { return p.freeze(syscall.SIGCONT, false) }

func (p *process) freeze(sig syscall.Signal, paused bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused = paused
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s: %w", p.name, err)
	}
	return nil
}

// pid returns the id of the running process, 0 before the first start.
func (p *process) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// close ends the process for good.
func (p *process) close() {
	p.mu.Lock()
	p.closed = true
	if p.cmd != nil {
		_ = p.cmd.Process.Kill() // it may have ended
	}
	p.mu.Unlock()
}

// checkReady returns why the process is not ready.
func (p *process) checkReady(ctx context.Context) error {
	if p.health == "" {
		return nil
	}
	// The default timeout of a probe in Kubernetes.
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.health+"/readyz", http.NoBody)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		var text bytes.Buffer
		_, _ = text.ReadFrom(resp.Body) // the status says enough
		return fmt.Errorf("%s is not ready: %s %s", p.name, resp.Status, text.String())
	}
	return nil
}

func (p *process) logPath() string { return filepath.Join(p.dir, p.name+".log") }

func (p *process) readLogTail() string {
	text, err := os.ReadFile(p.logPath())
	if err != nil {
		return err.Error()
	}
	return strings.ToValidUTF8(string(text[max(0, len(text)-logTail):]), "?")
}

// poll calls check every tenth of a second until it returns no error.
func poll(ctx context.Context, within time.Duration, check func(context.Context) error) error {
	const every = 100 * time.Millisecond
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("not within %s", within))
	defer cancel()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	var last error
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil { // the end of ctx is no reason
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), last)
		case <-ticker.C:
		}
	}
}

// pauseFor waits, and reports whether ctx is still valid.
func pauseFor(ctx context.Context, d time.Duration) (completed bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
