package operator

import (
	"context"
	"errors"
	"time"
)

// drainWriteTimeout limits the writes at the end of a process.
const drainWriteTimeout = 10 * time.Second

var errDrainWrites = errors.New("the acknowledgements of sinks could not be written in time")

// drainOutboxOnStop waits for the answers of sinks when the manager stops. It removes acknowledged events
// from the status, because another replica would send them again.
func (r *reconciler) drainOutboxOnStop(ctx context.Context) error {
	<-ctx.Done()
	names, err := r.outbox.Drain(ctx)
	write, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), drainWriteTimeout, errDrainWrites)
	defer cancel()
	for _, name := range names {
		ke, failed := r.executions.Get(write, name)
		if failed == nil && ke != nil {
			if settled, _ := r.outbox.RemoveAcknowledged(ke, r.now()); settled {
				failed = r.writeStatus(write, ke)
			}
		}
		err = errors.Join(err, failed)
	}
	if err != nil {
		r.log.WarnContext(ctx, "acknowledgements of sinks not stored, the events are sent again after a restart", "err", err)
	}
	return nil
}
