package clusterworker

import (
	"context"
	"sync"
	"time"

	"github.com/fleetloop/fleetloop/internal/backoff"
)

// probeInterval is how often Gardener is asked whether it is back.
const probeInterval = time.Second

// A breaker knows whether Gardener is down. Whoever meets an error that may be
// an outage asks it; then it probes, once for all who ask at the same time. If
// the probe fails, too, the breaker is open until a later one succeeds.
type breaker struct {
	// probe is nil if Gardener answers.
	probe func(context.Context) error
	// changed is told when the breaker opens, with the reason, and when it
	// closes, with nil and for how long it was open.
	changed func(ctx context.Context, reason error, after time.Duration)

	mu     sync.Mutex
	open   bool
	since  time.Time
	asked  *inquiry      // the probe that runs, if one does
	opened chan struct{} // of capacity 1
}

// An inquiry is one probe that many wait for.
type inquiry struct {
	done chan struct{}
	err  error
	// void means that whoever asked was stopped before there was an answer.
	void bool
}

func newBreaker(probe func(context.Context) error, changed func(context.Context, error, time.Duration)) *breaker {
	return &breaker{probe: probe, changed: changed, opened: make(chan struct{}, 1)}
}

// down reports whether Gardener is down. Its error is that of ctx, if that
// ended before it was known.
func (b *breaker) down(ctx context.Context) (bool, error) {
	for {
		b.mu.Lock()
		if b.open {
			b.mu.Unlock()
			return true, nil
		}
		q := b.asked
		mine := q == nil
		if mine {
			q = &inquiry{done: make(chan struct{})}
			b.asked = q
		}
		b.mu.Unlock()
		if mine {
			b.inquire(ctx, q)
		}
		select {
		case <-q.done:
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
		if !q.void {
			return q.err != nil, nil
		}
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
	}
}

// inquire probes once, and opens the breaker if that fails.
func (b *breaker) inquire(ctx context.Context, q *inquiry) {
	q.err = b.probe(ctx)
	q.void = q.err != nil && ctx.Err() != nil // that says nothing of Gardener
	opens := q.err != nil && !q.void
	b.mu.Lock()
	b.asked = nil
	if opens {
		b.open, b.since = true, time.Now()
	}
	b.mu.Unlock()
	if opens {
		b.changed(ctx, q.err, 0)
		select {
		case b.opened <- struct{}{}:
		default:
		}
	}
	close(q.done)
}

// Run probes while the breaker is open, until ctx ends.
func (b *breaker) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.opened:
		}
		next := time.Now().Add(probeInterval)
		for b.isOpen() {
			if backoff.Sleep(ctx, time.Until(next)) != nil {
				return
			}
			next = time.Now().Add(probeInterval)
			b.retry(ctx)
		}
	}
}

// retry probes an open breaker, and closes it if Gardener answers.
func (b *breaker) retry(ctx context.Context) {
	if b.probe(ctx) != nil {
		return
	}
	b.mu.Lock()
	b.open = false
	after := time.Since(b.since)
	b.mu.Unlock()
	b.changed(ctx, nil, after)
}

func (b *breaker) isOpen() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open
}

// openSince is since when the breaker is open, zero if it is not.
func (b *breaker) openSince() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.open {
		return time.Time{}
	}
	return b.since
}
