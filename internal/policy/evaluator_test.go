package policy_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fleetloop/fleetloop/internal/policy"
)

const (
	holds  = "package a\nallow if input.now > 0\nmessage := \"yes\""
	digits = "l := [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]\n"

	// endless takes practically endless steps.
	endless = "package a\n" + digits + "allow if count({1 | some a in l; some b in l; some c in l; some d in l; some e in l; some f in l; some g in l; some h in l; some i in l; some j in l; a + b + c + d + e + f + g + h + i + j == 0}) == 0"
	// gigabytes keeps the results in memory.
	gigabytes = "package a\n" + digits + "allow if count([[a, b, c, d, e, f] | some a in l; some b in l; some c in l; some d in l; some e in l; some f in l]) > 3"
)

// evaluateInProcess evaluates one condition in a new place.
func evaluateInProcess(ctx context.Context, e *policy.Evaluator, requester, module string) (passed bool, err error) {
	place, err := e.ReservePlace(requester)
	if err != nil {
		return false, err
	}
	defer place.ReleasePlace()
	passed, _, err = place.EvaluateModule(ctx, module, policy.ExamplePolicyInput(), now)
	return passed, err
}

func TestEvaluator(t *testing.T) {
	place, err := policy.NewEvaluator().ReservePlace("alice")
	if err != nil {
		t.Fatal(err)
	}
	defer place.ReleasePlace()
	passed, message, err := place.EvaluateModule(t.Context(), holds, policy.ExamplePolicyInput(), now)
	if !passed || message != "yes" || err != nil {
		t.Errorf("got %v, %q, %v", passed, message, err)
	}
	passed, _, err = place.EvaluateModule(t.Context(), "package a\nallow if input.now > 9999999999", policy.ExamplePolicyInput(), now)
	if passed || err == nil || err.Error() != "evaluate allow: undefined: no rule gives it a value for this input" {
		t.Errorf("got %v, %v", passed, err)
	}
	never := (*policy.CompileError)(nil)
	if err := place.CheckModule(t.Context(), "package a\nallow if {"); !errors.As(err, &never) || !strings.Contains(err.Error(), "condition:2") {
		t.Errorf("got %v", err)
	}
	if err := place.CheckModule(t.Context(), holds); err != nil {
		t.Error(err)
	}
}

// TestEvaluatorKilled checks that an evaluation that exceeds a limit is killed, without harm to the
// program.
func TestEvaluatorKilled(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		module string
		cpu    time.Duration // a slow machine needs some to fill the memory
		want   string
	}{
		"Time":        {endless, policy.MaxEvaluatorCPU, "it used more than 1s of CPU time"},
		"Memory":      {gigabytes, time.Minute, "it used more than 64 MiB of memory"},
		"Compilation": {"package a\nallow if { x := " + strings.Repeat("[y | y := ", 40) + "1" + strings.Repeat("]", 40) + "; x }", policy.MaxEvaluatorCPU, ""},
		"Doubling":    {doubling(), policy.MaxEvaluatorCPU, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			passed, err := evaluateInProcess(t.Context(), policy.NewEvaluator().WithCPU(tc.cpu), "mallory", tc.module)
			killed := (*policy.KilledError)(nil)
			if passed || !errors.As(err, &killed) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, %v, want that it was killed: %s", passed, err, tc.want)
			}
		})
	}
}

// doubling returns a module with a value that contains another twice, forty levels deep.
func doubling() string {
	var b strings.Builder
	b.WriteString("package a\nx0 := \"a\"\n")
	for i := range 40 {
		fmt.Fprintf(&b, "x%d := [x%d, x%d]\n", i+1, i, i)
	}
	return b.String() + "allow if sprintf(\"%v\", [x40]) != \"\"\n"
}

// TestEvaluatorStopped checks that an evaluation ends with its context.
func TestEvaluatorStopped(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("the process ends")
	cancel(stop)
	if _, err := evaluateInProcess(ctx, policy.NewEvaluator(), "alice", endless); !errors.Is(err, stop) {
		t.Errorf("got %v, want the cause", err)
	}
}

// TestRequestersDoNotDelayEachOther checks that one requester's evaluations do not block others.
func TestRequestersDoNotDelayEachOther(t *testing.T) {
	e := policy.NewEvaluator()
	ctx, cancel := context.WithCancel(t.Context())
	var hostile sync.WaitGroup
	for range 20 {
		hostile.Go(func() {
			for ctx.Err() == nil {
				_, err := evaluateInProcess(ctx, e, "mallory", endless)
				if retry := (*policy.RetryError)(nil); errors.As(err, &retry) && retry.After <= 0 {
					t.Errorf("%v, to be tried again at once", err)
				}
			}
		})
	}
	for range 5 {
		if passed, err := evaluateInProcess(t.Context(), e, "alice", holds); !passed || err != nil {
			t.Errorf("got %v, %v", passed, err)
		}
	}
	cancel()
	hostile.Wait()
}

func BenchmarkEvaluator(b *testing.B) {
	e := policy.NewEvaluator()
	for b.Loop() {
		if _, err := evaluateInProcess(b.Context(), e, "alice", holds); err != nil {
			b.Fatal(err)
		}
	}
}
