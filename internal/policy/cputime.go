package policy

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"
)

// ErrUnfinished means that a policy set was not fully tried within the limits. The set may be
// correct and can be tried again.
var ErrUnfinished = errors.New("not finished")

// cpuLook is the interval at which the CPU time of the process is checked.
const cpuLook = 50 * time.Millisecond

// withProcessCPUTimeLimit returns a context that ends when the process has used an amount of CPU time. Unlike a
// deadline, it does not advance while the process or the machine is paused. The returned function
// releases the context.
func withProcessCPUTimeLimit(ctx context.Context, limit time.Duration) (limited context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	begin, done := processCPUTime(), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(cpuLook)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if processCPUTime()-begin > limit {
				cancel(fmt.Errorf("%w within %s of CPU time", ErrUnfinished, limit))
			}
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-done
	}
}

// processCPUTime returns the CPU time that the process has used.
func processCPUTime() time.Duration {
	var used syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used) // it fails only for other arguments
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
