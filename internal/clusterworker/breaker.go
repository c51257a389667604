package clusterworker

import (
	"context"
	"sync"
	"time"
)

const (
	// probeInterval is the delay between two probes of an unavailable Gardener.
	probeInterval = time.Second
	// probeHangs is how long a probe may hang before another one starts beside it. A
	// dead connection says nothing about a Gardener that is back. The first answer
	// counts, however long it took.
	probeHangs = 10 * time.Second
)

// A circuitBreaker records whether Gardener is down. A caller that meets an error which may be
// an outage calls probeUnlessOpen. The breaker then probes once for all concurrent callers. If
// the probe fails as well, the breaker opens and stays open until a later probe
// succeeds.
type circuitBreaker struct {
	// probe returns nil if Gardener answers.
	probe func(context.Context) error
	// changed is called when the breaker opens, with the reason, and when it closes,
	// with nil and the time that it was open.
	changed func(ctx context.Context, reason error, after time.Duration)

	mu     sync.Mutex
	open   bool
	since  time.Time
	reason error         // why it opened
	asked  *sharedProbe  // the running probe, nil if none runs
	opened chan struct{} // capacity 1
}

// A sharedProbe is one probe that several callers wait for.
type sharedProbe struct {
	done chan struct{}
	err  error
	// void is set if the caller that probed was stopped before an answer.
	void bool
}

func newCircuitBreaker(
	probeGardener func(context.Context) error, onOutageChange func(context.Context, error, time.Duration),
) *circuitBreaker {
	return &circuitBreaker{probe: probeGardener, changed: onOutageChange, opened: make(chan struct{}, 1)}
}

// probeUnlessOpen reports whether Gardener is down. It returns the error of ctx if ctx ends
// before the answer is known.
func (b *circuitBreaker) probeUnlessOpen(ctx context.Context) (gardenerDown bool, err error) {
	for {
		b.mu.Lock()
		if b.open {
			b.mu.Unlock()
			return true, nil
		}
		q := b.asked
		mine := q == nil
		if mine {
			q = &sharedProbe{done: make(chan struct{})}
			b.asked = q
		}
		b.mu.Unlock()
		if mine {
			b.probeAndOpenOnFailure(ctx, q)
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

// probeAndOpenOnFailure sends one probe, and opens the breaker if the probe fails.
func (b *circuitBreaker) probeAndOpenOnFailure(ctx context.Context, shared *sharedProbe) {
	shared.err = b.probe(ctx)
	shared.void = shared.err != nil && ctx.Err() != nil // a canceled probe says nothing about Gardener
	opens := shared.err != nil && !shared.void
	b.mu.Lock()
	b.asked = nil
	if opens {
		b.open, b.since, b.reason = true, time.Now(), shared.err
	}
	b.mu.Unlock()
	if opens {
		b.changed(ctx, shared.err, 0)
		select {
		case b.opened <- struct{}{}:
		default:
		}
	}
	close(shared.done)
}

// runProbesWhileOpen probes while the breaker is open, until ctx ends.
func (b *circuitBreaker) runProbesWhileOpen(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.opened:
		}
		b.probeUntilUpThenClose(ctx)
	}
}

// probeUntilUpThenClose probes while the breaker is open, and closes it when Gardener answers.
func (b *circuitBreaker) probeUntilUpThenClose(ctx context.Context) {
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
				b.closeAndReportOutageEnd(ctx)
				return
			}
			timer.Reset(time.Until(begun.Add(probeInterval)))
		}
	}
}

// closeAndReportOutageEnd closes the breaker, so that calls continue.
func (b *circuitBreaker) closeAndReportOutageEnd(ctx context.Context) {
	b.mu.Lock()
	b.open, b.reason = false, nil
	after := time.Since(b.since)
	b.mu.Unlock()
	b.changed(ctx, nil, after)
}

func (b *circuitBreaker) isOpen() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open
}

// currentOutageOrZero returns the start of and reason for the outage, zero if the breaker is
// closed.
func (b *circuitBreaker) currentOutageOrZero() Outage {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.open {
		return Outage{}
	}
	return Outage{Since: b.since, Reason: sanitizeAndTruncateText(b.reason.Error())}
}
