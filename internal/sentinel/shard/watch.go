package shard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fleetloop/fleetloop/internal/backoff"
)

// Causes of contexts that this package cancels.
var (
	errSlow    = errors.New("no response in time")
	errRewatch = errors.New("the watch delivered no events for too long")
)

// watchLeasesWithRetry sends changes to the loop until ctx ends, with one watch at a time, so that they
// arrive in order.
func (l *loop) watchLeasesWithRetry(ctx context.Context) {
	policy := backoff.Policy{Initial: 100 * time.Millisecond, Max: l.cfg.RenewEvery}
	for attempt := 0; ctx.Err() == nil; attempt++ {
		heard := false
		err := l.watchUntilRestart(ctx, func(c LeaseChange) {
			heard = true
			l.watching.Store(nil)
			select {
			case l.changes <- c:
			case <-ctx.Done():
			}
		})
		if ctx.Err() != nil {
			return
		}
		if heard {
			attempt = 0
		}
		err = fmt.Errorf("watch leases: %w", err)
		l.watching.Store(&err)
		l.log.DebugContext(ctx, "lease watch ended, restarting", "err", err)
		if backoff.Sleep(ctx, policy.Delay(attempt)) != nil {
			return
		}
	}
}

// watchUntilRestart watches until the watch ends or must be restarted.
func (l *loop) watchUntilRestart(ctx context.Context, handle func(LeaseChange)) error {
	wctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := make(chan error, 1)
	l.tasks.Go(func() { ended <- l.deps.Leases.Watch(wctx, handle) })
	select {
	case err := <-ended:
		return err
	case <-l.rewatch:
		cancel(errRewatch)
		<-ended
		return errRewatch
	}
}
