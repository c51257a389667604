package processnode

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

// A SandboxMount places a file or folder of the machine at a path in the process's view.
type SandboxMount struct {
	Source   string // exists on the machine
	Target   string // absolute; created where missing, only in the view of the process
	ReadOnly bool
}

// A SandboxCommand is a command to run. Argv is required.
type SandboxCommand struct {
	Argv     []string       // the program, looked up in PATH of Env unless it has a slash, and its arguments
	Env      []string       // the complete environment
	Dir      string         // working folder in the process's view; empty means /
	Hostname string         // empty means the machine's, as always without namespaces
	Mounts   []SandboxMount // in order; ignored without namespaces
	Scratch  string         // a dedicated folder for files of the start
	Output   *os.File       // both outputs; nil discards them
}

// A Sandbox records whether the kernel allows namespaces.
type Sandbox struct {
	refused error
}

// DetectSandboxOrPlain tries namespaces once, in a folder of the caller.
func DetectSandboxOrPlain(dir string) (*Sandbox, error) {
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

// PlainSandbox returns a sandbox that does not try namespaces.
func PlainSandbox() *Sandbox { return &Sandbox{refused: errors.New("disabled")} }

// Namespaces returns why processes get no namespaces, or nil if they do.
func (s *Sandbox) Namespaces() error { return s.refused }

// A SandboxProcess is a started process that is being waited for.
type SandboxProcess struct {
	cmd   *exec.Cmd
	alone bool // process 1 of a PID namespace
	done  chan struct{}
	code  int

	ended atomic.Int32 // the signal for which Signal killed it
}

// Start starts c. A mistake in it (no such program, no such working folder, an
// impossible mount) is an error without namespaces, and with them an exit code of
// ExitUnstartable and a line of output.
func (s *Sandbox) Start(c SandboxCommand) (*SandboxProcess, error) {
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
	p := &SandboxProcess{cmd: cmd, alone: s.refused == nil, done: make(chan struct{})}
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

func (s *Sandbox) newCommand(c SandboxCommand) (*exec.Cmd, error) {
	if s.refused == nil {
		return newNamespacedCommand(c)
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

// runAndWait starts the process and waits for it on one thread, as the kernel sends the
// parent-death signal when that thread ends.
func (p *SandboxProcess) runAndWait(started chan<- error) {
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
		_ = p.signalGroup(syscall.SIGKILL) // kills leftover children; usually there are none
	}
	close(p.done)
}

// signalled is added to the number of the signal that ended a process.
const signalled = 128

func exitCode(err error, state *os.ProcessState) int {
	if state == nil {
		return ExitUnstartable // waiting for it failed
	}
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return signalled + int(ws.Signal())
	}
	if err != nil && state.ExitCode() <= 0 {
		return ExitUnstartable
	}
	return state.ExitCode()
}

// PID returns the process id on the machine.
func (p *SandboxProcess) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended and, in namespaces, all its children.
func (p *SandboxProcess) Done() <-chan struct{} { return p.done }

// ExitCode returns the exit code of the process: 128 plus the signal if a signal ended
// it. Call it only after Done.
func (p *SandboxProcess) ExitCode() int { return p.code }

// firstSteps is how long a process may take until it runs its command.
const firstSteps = 5 * time.Second

// killOnceStarted kills a process that was sent sig during its first steps and runs its
// command nevertheless. The kernel drops a signal that arrives during the transition.
func (p *SandboxProcess) killOnceStarted(sig syscall.Signal) {
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
		if !isStartingUp(p.PID()) && hasDefaultAction(p.PID(), sig) {
			p.ended.Store(int32(sig))                 //nolint:gosec // below 65
			_ = p.cmd.Process.Signal(syscall.SIGKILL) // it may have ended
			return
		}
	}
}

// Signal sends a signal to the process only, unless it has ended. SIGTERM, SIGINT and
// SIGHUP end a process that neither handles nor ignores them.
func (p *SandboxProcess) Signal(sig syscall.Signal) error {
	deadly := sig == syscall.SIGTERM || sig == syscall.SIGINT || sig == syscall.SIGHUP
	if p.alone && deadly {
		if isStartingUp(p.PID()) {
			go p.killOnceStarted(sig)
		} else if hasDefaultAction(p.PID(), sig) {
			p.ended.Store(int32(sig)) //nolint:gosec // below 65
			sig = syscall.SIGKILL
		}
	}
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %s to process %d: %w", sig, p.PID(), err)
	}
	return nil
}

// Kill kills the process and its children: all of them in namespaces, its process group
// elsewhere.
func (p *SandboxProcess) Kill() error {
	if p.alone {
		return p.Signal(syscall.SIGKILL)
	}
	return p.signalGroup(syscall.SIGKILL)
}

func (p *SandboxProcess) signalGroup(sig syscall.Signal) error {
	if err := syscall.Kill(-p.PID(), sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("send %s to process group %d: %w", sig, p.PID(), err)
	}
	return nil
}
