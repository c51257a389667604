// Package sandbox starts processes that see files of our choice at paths of
// their own, without root.
//
// Where the kernel allows it (Linux with user namespaces, by an ordinary user
// or by root), a process gets a user, mount, PID and UTS namespace: mounts
// stand at their real paths, whether or not those exist on the machine; its
// host name is its own; it is process 1, so whatever it started dies with it.
// It is no protection: the process keeps our user's rights, sees the
// machine's other files and shares its network.
//
// The kernel drops signals that a process 1 does not handle, as containers know
// to their cost. Here they do what they do to any other process: Signal sees to it.
//
// Elsewhere it runs as a plain child in a process group of its own, without
// the mounts. Either way it dies with the thread that waits for it, and so with
// this process, on Linux; what it started then dies with it only in namespaces.
//
// The first steps inside are taken by this same program: importing the package
// makes it look at its own name before main runs.
package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
)

// A Mount puts a file or folder of the machine at a path that the process sees.
type Mount struct {
	Source   string // exists on the machine
	Target   string // absolute; made where it is missing, seen by the process alone
	ReadOnly bool
}

// A Command says what to run. Argv is required.
type Command struct {
	Argv     []string // the program, found in PATH of Env where it has no slash, and its arguments
	Env      []string // all of it
	Dir      string   // working folder, as the process sees it; empty is /
	Hostname string   // empty leaves the machine's; without namespaces it is always that
	Mounts   []Mount  // in order; without namespaces there are none
	Scratch  string   // a folder of the process's own, for what the start needs
	Output   *os.File // both its outputs; nil discards them
}

// A Sandbox knows what the kernel allows.
type Sandbox struct {
	refused error
}

// Detect tries namespaces once, with a folder of the caller's to work in.
func Detect(dir string) (*Sandbox, error) {
	scratch, err := os.MkdirTemp(dir, "detect-")
	if err != nil {
		return nil, fmt.Errorf("try namespaces: %w", err)
	}
	s := &Sandbox{refused: tryNamespaces(scratch)}
	if err := os.RemoveAll(scratch); err != nil {
		return nil, fmt.Errorf("try namespaces: %w", err)
	}
	return s, nil
}

// Plain is a sandbox that does not try namespaces.
func Plain() *Sandbox { return &Sandbox{refused: errors.New("disabled")} }

// Namespaces reports why processes get no namespaces, or nil where they do.
func (s *Sandbox) Namespaces() error { return s.refused }

// A Process was started and is waited for.
type Process struct {
	cmd   *exec.Cmd
	alone bool // process 1 of its own namespace
	done  chan struct{}
	code  int

	ended atomic.Int32 // the signal that Signal ended it for
}

// Start starts c. A mistake in it (no such program, no such working folder, a
// mount that cannot be made) is an error without namespaces, and with
// them an exit code of ExitUnstartable and a line of output.
func (s *Sandbox) Start(c Command) (*Process, error) {
	if len(c.Argv) == 0 {
		return nil, errors.New("start process: no command")
	}
	cmd, err := s.newCommand(c)
	if err != nil {
		return nil, fmt.Errorf("start %q: %w", c.Argv[0], err)
	}
	if c.Output != nil {
		cmd.Stdout, cmd.Stderr = c.Output, c.Output
	}
	p := &Process{cmd: cmd, alone: s.refused == nil, done: make(chan struct{})}
	started := make(chan error, 1)
	go p.runAndWait(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %q: %w", c.Argv[0], err)
	}
	return p, nil
}

// ExitUnstartable is the exit code of a process whose command could not be
// started in its namespaces.
const ExitUnstartable = 127

func (s *Sandbox) newCommand(c Command) (*exec.Cmd, error) {
	if s.refused == nil {
		return namespaced(c)
	}
	path, err := lookPath(c.Argv[0], c.Env)
	if err != nil {
		return nil, err
	}
	cmd := &exec.Cmd{Path: path, Args: c.Argv, Env: c.Env, Dir: c.Dir}
	if cmd.Dir == "" {
		cmd.Dir = "/"
	}
	if cmd.Env == nil {
		cmd.Env = []string{}
	}
	cmd.SysProcAttr = plainAttributes()
	return cmd, nil
}

// runAndWait starts the process and waits for it on one thread: the kernel sends the
// parent-death signal when that thread ends.
func (p *Process) runAndWait(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	p.code = exitCode(p.cmd.Wait(), p.cmd.ProcessState)
	if sig := p.ended.Load(); sig != 0 && p.code == signalled+int(syscall.SIGKILL) {
		p.code = signalled + int(sig)
	}
	if !p.alone {
		_ = p.signalGroup(syscall.SIGKILL) // what it left behind; nobody is there as a rule
	}
	close(p.done)
}

// signalled is added to the signal that ended a process.
const signalled = 128

func exitCode(err error, state *os.ProcessState) int {
	if state == nil {
		return ExitUnstartable // it could not even be waited for
	}
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return signalled + int(ws.Signal())
	}
	if err != nil && state.ExitCode() <= 0 {
		return ExitUnstartable
	}
	return state.ExitCode()
}

// PID is the process's number on the machine.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process and, in namespaces, all that it started
// have ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// ExitCode is what the process ended with: 128 and the signal where one ended
// it. Call it only after Done.
func (p *Process) ExitCode() int { return p.code }

// firstSteps is how long a process may take until it runs its command.
const firstSteps = 5 * time.Second

// repeatSignal ends a process that was sent sig while it took its first steps, and
// runs its command nevertheless: the kernel drops a signal that comes while the one
// becomes the other.
func (p *Process) repeatSignal(sig syscall.Signal) {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	limit := time.NewTimer(firstSteps)
	defer limit.Stop()
	for {
		select {
		case <-ticker.C:
		case <-p.done:
			return
		case <-limit.C:
			return
		}
		if !beginning(p.PID()) && undecided(p.PID(), sig) {
			p.ended.Store(int32(sig))                 //nolint:gosec // below 65
			_ = p.cmd.Process.Signal(syscall.SIGKILL) // it may have ended
			return
		}
	}
}

// Signal sends a signal to the process alone; one that has ended gets none. A
// process that has not said what SIGTERM, SIGINT or SIGHUP does to it is ended by it.
func (p *Process) Signal(sig syscall.Signal) error {
	deadly := sig == syscall.SIGTERM || sig == syscall.SIGINT || sig == syscall.SIGHUP
	if p.alone && deadly {
		if beginning(p.PID()) {
			go p.repeatSignal(sig)
		} else if undecided(p.PID(), sig) {
			p.ended.Store(int32(sig)) //nolint:gosec // below 65
			sig = syscall.SIGKILL
		}
	}
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %s to process %d: %w", sig, p.PID(), err)
	}
	return nil
}

// Kill ends the process and what it started at once: all of it in namespaces,
// its process group elsewhere.
func (p *Process) Kill() error {
	if p.alone {
		return p.Signal(syscall.SIGKILL)
	}
	return p.signalGroup(syscall.SIGKILL)
}

func (p *Process) signalGroup(sig syscall.Signal) error {
	if err := syscall.Kill(-p.PID(), sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("send %s to process group %d: %w", sig, p.PID(), err)
	}
	return nil
}
