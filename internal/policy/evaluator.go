package policy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	// MaxEvaluatorProcesses is the maximum number of concurrent evaluations, and the number of
	// places.
	MaxEvaluatorProcesses = 4

	// MaxEvaluatorMemory is the maximum memory of one evaluation, in bytes. The container's limit
	// must have room for MaxEvaluatorProcesses of them: the chart reserves that much.
	MaxEvaluatorMemory = 64 << 20

	// MaxEvaluatorCPU is the maximum CPU time of one evaluation, after the start of its process. The
	// kernel counts whole seconds, so it can be up to a second more. An ordinary condition takes
	// about 50 ms.
	MaxEvaluatorCPU = time.Second

	maxPerRequester = MaxEvaluatorProcesses / 2

	// evaluationTimeout is the timeout of one evaluation. It passes only if the machine gives the process
	// hardly any CPU time, which has nothing to do with the module.
	evaluationTimeout = 30 * time.Second
	retryDelay        = 2 * time.Second // for conditions without a free process

	maxProcessAnswer = 16 << 10 // bytes
	maxProcessReport = 4 << 10  // bytes of a process's error output

	pipeTimeout = 5 * time.Second // how long a killed process may hold its pipes
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

// An Evaluator evaluates conditions, each in a separate process. Anyone who may request an action
// may supply a condition. It is safe for concurrent use.
//
// Open Policy Agent cannot be interrupted within one step, and its memory is not limited. So the
// program starts itself again for each evaluation; that process limits its own CPU time and memory
// before it reads the module, and the kernel ends it if it exceeds them. At most
// MaxEvaluatorProcesses run at a time, which limits their total memory to MaxEvaluatorProcesses
// times MaxEvaluatorMemory.
//
// A process runs in a place; there are MaxEvaluatorProcesses places. A requester has at most half of
// them, and a free one goes first to a requester without one. A caller keeps its place for all
// conditions of one evaluation round, so that results are not lost to others who enter between two
// conditions. Enter never waits: it returns a *RetryError instead.
type Evaluator struct {
	shares  *placeAllocator
	overall time.Duration // timeout of one evaluation
	cpu     time.Duration // its maximum CPU time
}

// NewEvaluator returns an Evaluator. It starts nothing.
func NewEvaluator() *Evaluator {
	return &Evaluator{shares: newPlaceAllocator(), overall: evaluationTimeout, cpu: MaxEvaluatorCPU}
}

// An EvaluationPlace is a slot in which the conditions of one requester are evaluated, one after
// another. It is for use by one goroutine.
type EvaluationPlace struct {
	of        *Evaluator
	requester string
}

// ReservePlace reserves a place for a requester, who must leave it. The empty name has one place in total,
// so that an anonymous requester gains no additional share. Without a free place it returns a
// *RetryError. A requester who retries at its time keeps its position.
func (e *Evaluator) ReservePlace(requester string) (*EvaluationPlace, error) {
	after, ok := e.shares.tryReservePlace(requester, time.Now())
	if !ok {
		return nil, &RetryError{after, errors.New("all evaluator processes are busy")}
	}
	return &EvaluationPlace{e, requester}, nil
}

// ReleasePlace releases the place. It is called once.
func (p *EvaluationPlace) ReleasePlace() { p.of.shares.releasePlace(p.requester) }

// CheckModule returns why a module can never be evaluated, as a *CompileError or a *KilledError. A
// *RetryError means that this is unknown.
func (p *EvaluationPlace) CheckModule(ctx context.Context, module string) error {
	_, _, err := p.of.evaluateInChildProcess(ctx, processQuestion{Module: module})
	return err
}

// EvaluateModule reports whether a module holds for an input, like Condition. An error never counts as
// passed. It can be a *CompileError, a *KilledError, or the error of evaluating this input. A
// *RetryError means that no process started or got CPU time.
func (p *EvaluationPlace) EvaluateModule(
	ctx context.Context, module string, input json.RawMessage, now time.Time,
) (passed bool, message string, err error) {
	return p.of.evaluateInChildProcess(ctx, processQuestion{Module: module, Input: input, Now: now})
}

func (e *Evaluator) evaluateInChildProcess(ctx context.Context, question processQuestion) (passed bool, message string, err error) {
	text, err := json.Marshal(question)
	if err != nil {
		return false, "", fmt.Errorf("encode condition input: %w", err)
	}
	a, err := e.runEvaluatorProcess(ctx, text)
	switch {
	case err != nil:
		return false, "", err
	case a.Never:
		return false, "", &CompileError{Err: errors.New(a.Error)}
	case a.Error != "":
		return false, "", errors.New(a.Error)
	}
	return a.Passed, a.Message, nil
}

// runEvaluatorProcess answers a question in a new process.
func (e *Evaluator) runEvaluatorProcess(ctx context.Context, question []byte) (processAnswer, error) {
	// The process ends with the thread that started it, see newKilledWithParentAttributes.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	bound, cancel := context.WithTimeoutCause(ctx, e.overall, errOvertime)
	defer cancel()
	said, report := &cappedBuffer{most: maxProcessAnswer}, &cappedBuffer{most: maxProcessReport}
	cmd := exec.CommandContext(bound, thisProgram) // no part of it comes from the caller
	cmd.Args = []string{childName, e.cpu.String()}
	// The environment contains only settings of the Go runtime: one thread, so that CPU time is
	// elapsed time, and a collector that runs before memory is exhausted.
	cmd.Env = []string{"GOMAXPROCS=1", "GOTRACEBACK=none", fmt.Sprintf("GOMEMLIMIT=%d", MaxEvaluatorMemory/4*3)}
	cmd.Dir = "/"
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(question), said, report
	cmd.SysProcAttr = newKilledWithParentAttributes()
	cmd.WaitDelay = pipeTimeout
	err := cmd.Run()
	var begun, a processAnswer
	lines := json.NewDecoder(&said.kept)
	started := lines.Decode(&begun) == nil && begun.Begun
	switch {
	case err == nil && started && lines.Decode(&a) == nil:
		return a, nil
	case ctx.Err() != nil:
		return processAnswer{}, fmt.Errorf("evaluate a condition: %w", context.Cause(ctx))
	case cmd.ProcessState == nil || !started:
		return processAnswer{}, &RetryError{
			retryDelay,
			fmt.Errorf("start a process for a condition: %w: %s", errors.Join(err, bound.Err()), report.firstKeptLine()),
		}
	}
	used := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
	switch {
	case isOutOfMemory(report.kept.String()):
		return processAnswer{}, &KilledError{fmt.Sprintf("it used more than %d MiB of memory", MaxEvaluatorMemory>>20)}
	case used >= e.cpu || strings.Contains(report.kept.String(), "SIGXCPU"): // the Go runtime can report it before the kernel's count is visible here
		return processAnswer{}, &KilledError{fmt.Sprintf("it used more than %s of CPU time", e.cpu)}
	case bound.Err() != nil:
		return processAnswer{}, &RetryError{retryDelay, fmt.Errorf("%w: %s within %s", errOvertime, used, e.overall)}
	case status.Signaled():
		return processAnswer{}, &KilledError{
			fmt.Sprintf("it was ended by signal %q, for example because of a memory or CPU time limit", status.Signal()),
		}
	}
	return processAnswer{}, &KilledError{fmt.Sprintf("it ended with %v: %s", err, report.firstKeptLine())}
}

// isOutOfMemory reports whether a process ended for lack of memory. With cgo, the allocation of a new
// thread's stack can fail, and with the race detector, that of its shadow memory, which can show as a
// segmentation violation. Rego itself has no way to cause one.
func isOutOfMemory(stderr string) bool {
	return slices.ContainsFunc([]string{
		"out of memory", "cannot allocate memory", "pthread_create failed", "ThreadSanitizer failed to allocate", "SIGSEGV: segmentation violation",
	}, func(sign string) bool { return strings.Contains(stderr, sign) })
}

// A cappedBuffer keeps the first bytes written, and accepts all.
type cappedBuffer struct {
	kept bytes.Buffer
	most int
}

// Write never fails: a verbose process must not wait for a reader.
func (h *cappedBuffer) Write(p []byte) (int, error) {
	h.kept.Write(p[:min(len(p), h.most-h.kept.Len())])
	return len(p), nil
}

// firstKeptLine returns the first line.
func (h *cappedBuffer) firstKeptLine() string {
	first, _, _ := strings.Cut(h.kept.String(), "\n")
	return strings.ToValidUTF8(first, "")
}
