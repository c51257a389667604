package policy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"
)

// childName is the name under which the program evaluates one condition.
const childName = "fleetloop-condition-evaluator"

const maxAnswerText = 4 << 10 // bytes of an error

// A processQuestion is the request to the process, one document on its standard input. Without an input
// the module is only compiled.
type processQuestion struct {
	Module string          `json:"module"`
	Input  json.RawMessage `json:"input,omitempty"`
	Now    time.Time       `json:"now"`
}

// A processAnswer is the response of the process, as two documents on its standard output: that it has
// begun, and then the result. A process without the first did not fail because of the question.
type processAnswer struct {
	Begun   bool   `json:"begun,omitempty"`
	Passed  bool   `json:"passed,omitempty"`
	Message string `json:"message,omitempty"`
	Error   string `json:"error,omitempty"`
	Never   bool   `json:"never,omitempty"` // the module does not compile
}

// The program that imports this package also evaluates conditions. The check is here and not in
// main, so that no program or test can omit it and start itself again and again.
func init() { //nolint:gochecknoinits // before main, which knows nothing of it
	if os.Args[0] != childName || len(os.Args) != 2 {
		return
	}
	if err := limitSelfAndAnswerOnce(context.Background(), os.Args[1], os.Stdin, os.Stdout); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		syscall.Exit(1) // main must not run
	}
	syscall.Exit(0)
}

// limitSelfAndAnswerOnce answers one question within the limits of a process; one of them is the CPU time.
func limitSelfAndAnswerOnce(ctx context.Context, cpuLimit string, in io.Reader, out io.Writer) error {
	most, err := time.ParseDuration(cpuLimit)
	if err != nil {
		return fmt.Errorf("read the limit of CPU time: %w", err)
	}
	if err := limitOwnCPUAndMemory(most); err != nil {
		return fmt.Errorf("limit the process: %w", err)
	}
	says := json.NewEncoder(out)
	if err := says.Encode(processAnswer{Begun: true}); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	var q processQuestion
	if err := json.NewDecoder(in).Decode(&q); err != nil {
		return fmt.Errorf("read request: %w", err)
	}
	return says.Encode(compileAndEvaluate(ctx, q))
}

func compileAndEvaluate(ctx context.Context, question processQuestion) processAnswer {
	c, err := CompileCondition(ctx, question.Module)
	never := (*CompileError)(nil)
	if errors.As(err, &never) {
		return processAnswer{Never: true, Error: truncateErrorText(never.Err.Error())}
	}
	var a processAnswer
	if err == nil && question.Input != nil {
		a.Passed, a.Message, err = c.EvaluateInput(ctx, question.Input, question.Now)
	}
	if err != nil {
		return processAnswer{Error: truncateErrorText(err.Error())}
	}
	return a
}

func truncateErrorText(s string) string { return s[:min(len(s), maxAnswerText)] }
