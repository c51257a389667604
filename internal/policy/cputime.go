package policy

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"
)

// ErrUnfinished is that a set of policies was not tried to its end, for lack of
// time. It says nothing of the set, which can be tried again.
var ErrUnfinished = errors.New("not finished")

// cpuLook is how often the CPU time of the process is looked at.
const cpuLook = 50 * time.Millisecond

// withCPUTime gives a context that ends when the process has used so much CPU
// time since. Unlike a deadline it does not pass while the process, or the
// machine, stands still. The context is given back by the function.
func withCPUTime(ctx context.Context, most time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	begin, done := cpuTime(), make(chan struct{})
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
			if cpuTime()-begin > most {
				cancel(fmt.Errorf("%w within %s of CPU time", ErrUnfinished, most))
			}
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-done
	}
}

// cpuTime is how much CPU time the process has used.
func cpuTime() time.Duration {
	var used syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used) // it fails for other arguments alone
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
