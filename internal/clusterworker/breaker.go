package clusterworker

import (
	"context"
	"sync"
	"time"
)

const (
	// probeInterval is how often Gardener is asked whether it is back.
	probeInterval = time.Second
	// probeHangs is how long a probe goes without an answer until another one is
	// made beside it: a connection that is dead says nothing of a Gardener that is
	// back. The first answer counts, however long it took.
	probeHangs = 10 * time.Second
)

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
	reason error         // why it opened
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

// isDown reports whether Gardener is down. Its error is that of ctx, if that
// ended before it was known.
func (b *breaker) isDown(ctx context.Context) (bool, error) {
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
			b.probeOnce(ctx, q)
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

// probeOnce probes once, and opens the breaker if that fails.
func (b *breaker) probeOnce(ctx context.Context, q *inquiry) {
	q.err = b.probe(ctx)
	q.void = q.err != nil && ctx.Err() != nil // that says nothing of Gardener
	opens := q.err != nil && !q.void
	b.mu.Lock()
	b.asked = nil
	if opens {
		b.open, b.since, b.reason = true, time.Now(), q.err
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
		b.awaitAnswer(ctx)
	}
}

// awaitAnswer probes an open breaker until Gardener answers, and closes it then.
func (b *breaker) awaitAnswer(ctx context.Context) {
	var probes sync.WaitGroup
	defer probes.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan error)
	begun := time.Now()
	timer := time.NewTimer(probeInterval)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			begun = time.Now()
			timer.Reset(probeHangs)
			probes.Go(func() {
				err := b.probe(ctx)
				select {
				case results <- err:
				case <-ctx.Done():
				}
			})
		case err := <-results:
			if err == nil {
				b.endOutage(ctx)
				return
			}
			timer.Reset(time.Until(begun.Add(probeInterval)))
		}
	}
}

// endOutage closes the breaker, so that calls go on.
func (b *breaker) endOutage(ctx context.Context) {
	b.mu.Lock()
	b.open, b.reason = false, nil
	after := time.Since(b.since)
	b.mu.Unlock()
	b.changed(ctx, nil, after)
}

func (b *breaker) isOpen() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open
}

// currentOutage is since when and why the breaker is open, zero if it is not.
func (b *breaker) currentOutage() Outage {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.open {
		return Outage{}
	}
	return Outage{Since: b.since, Reason: sanitizeText(b.reason.Error())}
}
