// Package evaluator evaluates conditions, each in a separate process. Anyone who may request an
// action may supply a condition.
//
// Open Policy Agent cannot be interrupted within one step, and its memory is not limited. So the
// program starts itself again for each evaluation; that process limits its own CPU time and memory
// before it reads the module, and the kernel ends it if it exceeds them. At most MaxProcesses run
// at a time, which limits their total memory to MaxProcesses times MaxMemory.
//
// A process runs in a place; there are MaxProcesses places. A requester has at most half of them,
// and a free one goes first to a requester without one. A caller keeps its place for all conditions
// of one evaluation round, so that results are not lost to others who enter between two conditions.
// Enter never waits: it returns a *RetryError instead.
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
	// MaxProcesses is the maximum number of concurrent evaluations, and the number of places.
	MaxProcesses = 4

	// MaxMemory is the maximum memory of one evaluation, in bytes. The container's limit must have
	// room for MaxProcesses of them: the chart reserves that much.
	MaxMemory = 64 << 20

	// MaxCPU is the maximum CPU time of one evaluation, after the start of its process. The kernel
	// counts whole seconds, so it can be up to a second more. An ordinary condition takes about 50
	// ms.
	MaxCPU = time.Second

	maxPerRequester = MaxProcesses / 2

	// endedWithin is the timeout of one evaluation. It passes only if the machine gives the process
	// hardly any CPU time, which has nothing to do with the module.
	endedWithin = 30 * time.Second
	retryAfter  = 2 * time.Second // for conditions without a free process

	maxAnswer = 16 << 10 // bytes
	maxReport = 4 << 10  // bytes of a process's error output

	settledWithin = 5 * time.Second // how long a killed process may hold its pipes
)

var errOvertime = errors.New("the evaluation got too little CPU time")

// A KilledError means that an evaluation was killed. The same module would be killed again.
type KilledError struct{ Why string }

// Error returns the reason.
func (e *KilledError) Error() string { return "the evaluation was killed: " + e.Why }

// A RetryError means that there was no evaluation. It does not concern the module.
type RetryError struct {
	After time.Duration // when to try again
	Err   error
}

// Error returns the cause.
func (e *RetryError) Error() string { return "not evaluated yet: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *RetryError) Unwrap() error { return e.Err }

// An Evaluator evaluates conditions. It is safe for concurrent use.
type Evaluator struct {
	shares  *shares
	overall time.Duration // timeout of one evaluation
	cpu     time.Duration // its maximum CPU time
}

// New returns an Evaluator. It starts nothing.
func New() *Evaluator { return &Evaluator{shares: newShares(), overall: endedWithin, cpu: MaxCPU} }

// A Place is a slot in which the conditions of one requester are evaluated, one after another. It
// is for use by one goroutine.
type Place struct {
	of        *Evaluator
	requester string
}

// Enter reserves a place for a requester, who must leave it. The empty name has one place in total,
// so that an anonymous requester gains no additional share. Without a free place it returns a
// *RetryError. A requester who retries at its time keeps its position.
func (e *Evaluator) Enter(requester string) (*Place, error) {
	after, ok := e.shares.acquireSlot(requester, time.Now())
	if !ok {
		return nil, &RetryError{after, errors.New("all evaluator processes are busy")}
	}
	return &Place{e, requester}, nil
}

// Leave releases the place. It is called once.
func (p *Place) Leave() { p.of.shares.releaseSlot(p.requester) }

// Compile returns why a module can never be evaluated, as a *policy.CompileError or a *KilledError.
// A *RetryError means that this is unknown.
func (p *Place) Compile(ctx context.Context, module string) error {
	_, _, err := p.of.askProcess(ctx, question{Module: module})
	return err
}

// Evaluate reports whether a module holds for an input, like policy.Condition. An error never
// counts as passed. It can be a *policy.CompileError, a *KilledError, or the error of evaluating
// this input. A *RetryError means that no process started or got CPU time.
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

// runProcess answers a question in a new process.
func (e *Evaluator) runProcess(ctx context.Context, question []byte) (answer, error) {
	// The process ends with the thread that started it, see attributes.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	bound, cancel := context.WithTimeoutCause(ctx, e.overall, errOvertime)
	defer cancel()
	said, report := &head{most: maxAnswer}, &head{most: maxReport}
	cmd := exec.CommandContext(bound, thisProgram) // no part of it comes from the caller
	cmd.Args = []string{childName, e.cpu.String()}
	// The environment contains only settings of the Go runtime: one thread, so that CPU time is
	// elapsed time, and a collector that runs before memory is exhausted.
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
	case used >= e.cpu || strings.Contains(report.kept.String(), "SIGXCPU"): // the Go runtime can report it before the kernel's count is visible here
		return answer{}, &KilledError{fmt.Sprintf("it used more than %s of CPU time", e.cpu)}
	case bound.Err() != nil:
		return answer{}, &RetryError{retryAfter, fmt.Errorf("%w: %s within %s", errOvertime, used, e.overall)}
	case status.Signaled():
		return answer{}, &KilledError{fmt.Sprintf("it was ended by signal %q, for example because of a memory or CPU time limit", status.Signal())}
	}
	return answer{}, &KilledError{fmt.Sprintf("it ended with %v: %s", err, report.firstLine())}
}

// outOfMemory reports whether a process ended for lack of memory. With cgo, the allocation of a new
// thread's stack can fail, and with the race detector, that of its shadow memory.
func outOfMemory(report string) bool {
	return strings.Contains(report, "ThreadSanitizer failed to allocate") || strings.Contains(report, "out of memory") || strings.Contains(report, "cannot allocate memory") || strings.Contains(report, "pthread_create failed")
}

// A head keeps the first bytes written, and accepts all.
type head struct {
	kept bytes.Buffer
	most int
}

// Write never fails: a verbose process must not wait for a reader.
func (h *head) Write(p []byte) (int, error) {
	h.kept.Write(p[:min(len(p), h.most-h.kept.Len())])
	return len(p), nil
}

// firstLine returns the first line.
func (h *head) firstLine() string {
	first, _, _ := strings.Cut(h.kept.String(), "\n")
	return strings.ToValidUTF8(first, "")
}
