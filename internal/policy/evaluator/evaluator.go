// Package evaluator evaluates conditions, which anybody may bring along who may
// ask for an action, each in a process of its own.
//
// Open Policy Agent cannot be interrupted within one step, and its memory has no
// bound. So the program starts itself once more for each evaluation; that process
// limits its own CPU time and memory before it reads the module, and the kernel
// ends it when it exceeds them. No more than MaxProcesses run at a time, which
// bounds the memory of all of them to MaxProcesses times MaxMemory.
//
// A process is run in a place, of which there are as many. A requester has at most
// half of them, and a free one goes first to who has none. Whoever enters keeps the
// place for all the conditions of one look, so that what was evaluated is not lost
// to others who come between two conditions. Enter never waits for its turn: it
// returns a *RetryError instead.
package evaluator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/fleetloop/fleetloop/internal/policy"
)

const (
	// MaxProcesses is how many evaluations run at a time, and how many places there
	// are.
	MaxProcesses = 4

	// MaxMemory bounds the memory that one evaluation takes, in bytes. The limit of
	// the container has to have room for MaxProcesses of them: the chart sets
	// that much aside.
	MaxMemory = 64 << 20

	// MaxCPU bounds the CPU time of one evaluation, after the start of its process.
	// The kernel counts whole seconds, so it is up to a second more. An ordinary
	// condition takes some 50 ms.
	MaxCPU = time.Second

	maxPerRequester = MaxProcesses / 2

	// endedWithin bounds the time of one evaluation. It is over only where the
	// machine gives the process hardly any CPU time, which says nothing of the
	// module.
	endedWithin = 30 * time.Second
	retryAfter  = 2 * time.Second // what could not be evaluated for lack of a process

	maxAnswer = 16 << 10 // bytes
	maxReport = 4 << 10  // bytes that a process may say of its end

	settledWithin = 5 * time.Second // how long a killed process may hold its pipes
)

var errOvertime = errors.New("the evaluation got too little CPU time")

// A KilledError is why an evaluation was ended from outside. The same module
// would be ended again.
type KilledError struct{ Why string }

// Error says why.
func (e *KilledError) Error() string { return "the evaluation was killed: " + e.Why }

// A RetryError is why there was no evaluation. It says nothing of the module.
type RetryError struct {
	After time.Duration // when to try again
	Err   error
}

// Error says why.
func (e *RetryError) Error() string { return "not evaluated yet: " + e.Err.Error() }

// Unwrap gives the cause.
func (e *RetryError) Unwrap() error { return e.Err }

// An Evaluator evaluates conditions. It is safe for concurrent use.
type Evaluator struct {
	shares  *shares
	overall time.Duration // bounds the time of one evaluation
	cpu     time.Duration // bounds its CPU time
}

// New makes an Evaluator. It starts nothing.
func New() *Evaluator { return &Evaluator{shares: newShares(), overall: endedWithin, cpu: MaxCPU} }

// A Place is where the conditions of one requester are evaluated, one after
// another. It is for one goroutine.
type Place struct {
	of        *Evaluator
	requester string
}

// Enter takes a place for a requester, who is to leave it. An empty name has one
// place in all, so that nobody has more by not saying who asks. Without a free one there
// is a *RetryError. Whoever then enters at its time keeps the turn.
func (e *Evaluator) Enter(requester string) (*Place, error) {
	after, ok := e.shares.acquireSlot(requester, time.Now())
	if !ok {
		return nil, &RetryError{after, errors.New("all evaluator processes are busy")}
	}
	return &Place{e, requester}, nil
}

// Leave gives the place to the next one. It is called once.
func (p *Place) Leave() { p.of.shares.releaseSlot(p.requester) }

// Compile says why a module can never be evaluated, as a *policy.CompileError or a
// *KilledError. A *RetryError is that this is not known.
func (p *Place) Compile(ctx context.Context, module string) error {
	_, _, err := p.of.askProcess(ctx, question{Module: module})
	return err
}

// Evaluate says whether a module holds for an input, as policy.Condition does. An
// error never counts as holding: it can be a *policy.CompileError, a *KilledError,
// a *RetryError, which is that no process started or got CPU time, or why there is
// no answer for this input.
func (p *Place) Evaluate(ctx context.Context, module string, input json.RawMessage, now time.Time) (passed bool, message string, err error) {
	return p.of.askProcess(ctx, question{Module: module, Input: input, Now: now})
}

func (e *Evaluator) askProcess(ctx context.Context, q question) (passed bool, message string, err error) {
	text, err := json.Marshal(q)
	if err != nil {
		return false, "", fmt.Errorf("encode condition input: %w", err)
	}
	a, err := e.runProcess(ctx, text)
	switch {
	case err != nil:
		return false, "", err
	case a.Never:
		return false, "", &policy.CompileError{Err: errors.New(a.Error)}
	case a.Error != "":
		return false, "", errors.New(a.Error)
	}
	return a.Passed, a.Message, nil
}

// runProcess has a process of its own answer a question.
func (e *Evaluator) runProcess(ctx context.Context, question []byte) (answer, error) {
	// The process ends with the thread that started it, see process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	bound, cancel := context.WithTimeoutCause(ctx, e.overall, errOvertime)
	defer cancel()
	said, report := &head{most: maxAnswer}, &head{most: maxReport}
	cmd := exec.CommandContext(bound, thisProgram) // nothing of it is the caller's
	cmd.Args = []string{childName, e.cpu.String()}
	// The environment is the settings of the Go runtime: one thread of it, so that
	// CPU time is time, and a collector that works before memory is out.
	cmd.Env = []string{"GOMAXPROCS=1", "GOTRACEBACK=none", fmt.Sprintf("GOMEMLIMIT=%d", MaxMemory/4*3)}
	cmd.Dir = "/"
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(question), said, report
	cmd.SysProcAttr = attributes()
	cmd.WaitDelay = settledWithin
	err := cmd.Run()
	var begun, a answer
	lines := json.NewDecoder(&said.kept)
	started := lines.Decode(&begun) == nil && begun.Begun
	switch {
	case err == nil && started && lines.Decode(&a) == nil:
		return a, nil
	case ctx.Err() != nil:
		return answer{}, fmt.Errorf("evaluate a condition: %w", context.Cause(ctx))
	case cmd.ProcessState == nil || !started:
		return answer{}, &RetryError{retryAfter, fmt.Errorf("start a process for a condition: %w: %s", errors.Join(err, bound.Err()), report.firstLine())}
	}
	used := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
	switch {
	case outOfMemory(report.kept.String()):
		return answer{}, &KilledError{fmt.Sprintf("it used more than %d MiB of memory", MaxMemory>>20)}
	case used >= e.cpu || strings.Contains(report.kept.String(), "SIGXCPU"): // of the Go runtime, before the kernel's count is seen here
		return answer{}, &KilledError{fmt.Sprintf("it used more than %s of CPU time", e.cpu)}
	case bound.Err() != nil:
		return answer{}, &RetryError{retryAfter, fmt.Errorf("%w: %s within %s", errOvertime, used, e.overall)}
	case status.Signaled():
		return answer{}, &KilledError{fmt.Sprintf("it was ended by signal %q, for example because of a memory or CPU time limit", status.Signal())}
	}
	return answer{}, &KilledError{fmt.Sprintf("it ended with %v: %s", err, report.firstLine())}
}

// outOfMemory says whether a process ended for lack of memory. With cgo the stack
// of a new thread can be what there is no room for, and in a test that looks for
// races what is known of memory.
func outOfMemory(report string) bool {
	return strings.Contains(report, "ThreadSanitizer failed to allocate") || strings.Contains(report, "out of memory") || strings.Contains(report, "cannot allocate memory") || strings.Contains(report, "pthread_create failed")
}

// A head keeps the first bytes that are written, and takes all.
type head struct {
	kept bytes.Buffer
	most int
}

// Write never fails: a process that says much is not to wait for a reader.
func (h *head) Write(p []byte) (int, error) {
	h.kept.Write(p[:min(len(p), h.most-h.kept.Len())])
	return len(p), nil
}

// firstLine is the first line.
func (h *head) firstLine() string {
	first, _, _ := strings.Cut(h.kept.String(), "\n")
	return strings.ToValidUTF8(first, "")
}
