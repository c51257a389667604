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
	// onOutageChange is called when the breaker opens, with the reason, and when it closes,
	// with nil and the time that it was open.
	onOutageChange func(ctx context.Context, reason error, after time.Duration)

	mu      sync.Mutex
	open    bool
	since   time.Time
	reason  error         // why it opened
	running *sharedProbe  // nil if no caller probes
	opened  chan struct{} // capacity 1
}

// A sharedProbe is one probe that several callers wait for.
type sharedProbe struct {
	done chan struct{}
	err  error
	// canceled is set if the caller that probed was stopped before an answer.
	canceled bool
}

func newCircuitBreaker(
	probeGardener func(context.Context) error, onOutageChange func(context.Context, error, time.Duration),
) *circuitBreaker {
	return &circuitBreaker{probe: probeGardener, onOutageChange: onOutageChange, opened: make(chan struct{}, 1)}
}

// probeUnlessOpen reports whether Gardener is down. It returns the error of ctx if ctx ends
// before the answer is known.
func (b *circuitBreaker) probeUnlessOpen(ctx context.Context) (gardenerDown bool, err error) {
	for {
		probe, isOwn, isOpen := b.joinOrAddProbe()
		if isOpen {
			return true, nil
		}
		if isOwn {
			b.probeAndOpenOnFailure(ctx, probe)
		}
		select {
		case <-probe.done:
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
		if !probe.canceled {
			return probe.err != nil, nil
		}
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
	}
}

// joinOrAddProbe returns the running probe, or a new one that the caller has to send. It returns none if the breaker is
// open.
func (b *circuitBreaker) joinOrAddProbe() (probe *sharedProbe, isOwn, isOpen bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open {
		return nil, false, true
	}
	if b.running != nil {
		return b.running, false, false
	}
	b.running = &sharedProbe{done: make(chan struct{})}
	return b.running, true, false
}

// probeAndOpenOnFailure sends one probe, and opens the breaker if the probe fails.
func (b *circuitBreaker) probeAndOpenOnFailure(ctx context.Context, shared *sharedProbe) {
	defer close(shared.done)
	shared.err = b.probe(ctx)
	shared.canceled = shared.err != nil && ctx.Err() != nil // a canceled probe says nothing about Gardener
	isOutage := shared.err != nil && !shared.canceled
	b.mu.Lock()
	b.running = nil
	if isOutage {
		b.open, b.since, b.reason = true, time.Now(), shared.err
	}
	b.mu.Unlock()
	if !isOutage {
		return
	}
	b.onOutageChange(ctx, shared.err, 0)
	select {
	case b.opened <- struct{}{}:
	default:
	}
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
	began := time.Now()
	timer := time.NewTimer(probeInterval)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			began = time.Now()
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
			timer.Reset(time.Until(began.Add(probeInterval)))
		}
	}
}

// closeAndReportOutageEnd closes the breaker, so that calls continue.
func (b *circuitBreaker) closeAndReportOutageEnd(ctx context.Context) {
	b.mu.Lock()
	b.open, b.reason = false, nil
	after := time.Since(b.since)
	b.mu.Unlock()
	b.onOutageChange(ctx, nil, after)
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
