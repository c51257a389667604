package sentinelapp

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/broker"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
)

// publishOutcome holds the result of the last attempts to publish. The zero value means no attempt
// yet.
type publishOutcome struct {
	mu        sync.Mutex
	confirmed uint64 // number of attempts
	failed    error  // failure of the last attempt that concerns the broker
}

// countConfirmed returns the number of confirmed attempts, for recordAttempt.
func (o *publishOutcome) countConfirmed() (attempts uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.confirmed
}

// recordAttempt records the result of an attempt. A failure is ignored if the broker has confirmed
// another attempt since confirmedBefore, because it then concerns that event alone.
func (o *publishOutcome) recordAttempt(confirmedBefore uint64, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case err == nil:
		o.confirmed++
		o.failed = nil
	case o.confirmed == confirmedBefore:
		o.failed = err
	}
}

func (o *publishOutcome) lastError() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failed == nil {
		return nil
	}
	return fmt.Errorf("the last event was not published: %w", o.failed)
}

// Publish publishes an event. It returns nil if and only if the broker has confirmed it.
func (b *Broker) Publish(ctx context.Context, e *cloudevent.Event) error {
	begin := b.last.countConfirmed()
	err := b.brokerClient.Publish(ctx, e)
	if err == nil || isBrokerFailure(ctx, err) {
		b.last.recordAttempt(begin, err)
	}
	return err
}

// isBrokerFailure reports whether a failure concerns the broker beyond its connection state. It
// returns false without a connection, for an invalid event, and when the caller stopped.
func isBrokerFailure(ctx context.Context, err error) bool {
	return !errors.Is(err, broker.ErrNotReady) && !backoff.IsPermanent(err) && !errors.Is(ctx.Err(), context.Canceled)
}

// Ready reports why events do not reach the broker. Without a connection the reason is that of the
// connection. With one it is the failure of the last attempt to publish, until the broker confirms
// an event. Before the first attempt only the connection counts.
func (b *Broker) Ready() error {
	if err := b.brokerClient.Ready(); err != nil {
		return err
	}
	return b.last.lastError()
}
