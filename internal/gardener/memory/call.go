package memory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

// callCountedAndLocked performs one call under the lock, with the configured faults.
func callCountedAndLocked[T any](
	ctx context.Context, g *Garden, verb Verb, name string, call func(now time.Time) (T, error),
) (T, error) {
	g.mu.Lock()
	g.calls.countCallStart(verb, name)
	g.mu.Unlock()
	answer, err := callLockedWithFaults(ctx, g, verb, name, call)
	g.mu.Lock()
	g.calls.countCallEnd(verb, name, err)
	g.mu.Unlock()
	return answer, err
}

func callLockedWithFaults[T any](
	ctx context.Context, g *Garden, verb Verb, name string, call func(now time.Time) (T, error),
) (answer T, err error) {
	if err := simulateLatencyAndFaults(ctx, g, verb, name); err != nil {
		return answer, err
	}
	now := g.lockAndAdvance()
	if g.outage { // it may have begun during the call
		err = newOutageError()
	} else {
		answer, err = call(now)
		err = addCallToError(err, verb, name)
	}
	g.mu.Unlock()
	if err == nil && g.o.Lose != nil {
		if err := g.o.Lose(ctx, verb, name); err != nil {
			return *new(T), err
		}
	}
	return answer, err
}

// addCallToError adds the attempted action to an error, as the client of a real Gardener
// does.
func addCallToError(err error, verb Verb, name string) error {
	e, ok := errors.AsType[*shoot.Error](err)
	if !ok {
		return err
	}
	did := string(verb)
	if verb == Preflight {
		did = "check"
	}
	return &shoot.Error{Class: e.Class, RetryAfter: e.RetryAfter, Err: fmt.Errorf("%s Shoot %q: %w", did, name, e.Err)}
}

// simulateLatencyAndFaults applies the configured latency and faults before a call.
func simulateLatencyAndFaults(ctx context.Context, g *Garden, verb Verb, name string) error {
	if err := backoff.Sleep(ctx, g.o.Latency); err != nil {
		return &shoot.Error{Class: shoot.ClassUnavailable, Err: context.Cause(ctx)}
	}
	if g.o.Fail != nil {
		if err := g.o.Fail(ctx, verb, name); err != nil {
			return err
		}
	}
	if g.o.FailRate > 0 {
		g.mu.Lock()
		unlucky := g.random.Float64() < g.o.FailRate
		g.mu.Unlock()
		if unlucky {
			return shoot.NewClassErrorf(shoot.ClassUnavailable, "internal server error: injected fault")
		}
	}
	return nil
}

// newOutageError returns the error of every call during an outage.
func newOutageError() error {
	return shoot.NewClassErrorf(shoot.ClassUnavailable, "connection refused")
}

// A callCounter counts the calls to a garden.
type callCounter struct {
	counts Counts
	busy   map[string]int // writing calls in progress, by name
}

// countCallStart counts the start of a call.
func (c *callCounter) countCallStart(verb Verb, name string) {
	c.counts.Calls[verb]++
	if verb != Apply && verb != Delete {
		return
	}
	c.busy[name]++
	if c.busy[name] > 1 {
		c.counts.Overlaps++
	}
	c.counts.MaxInFlight = max(c.counts.MaxInFlight, len(c.busy))
}

// countCallEnd counts the end of a call.
func (c *callCounter) countCallEnd(verb Verb, name string, err error) {
	if err != nil && !errors.Is(err, shoot.ErrNotFound) {
		c.counts.Failed[verb]++
	}
	if verb != Apply && verb != Delete {
		return
	}
	if c.busy[name]--; c.busy[name] == 0 {
		delete(c.busy, name)
	}
}

// countApply counts the result of an apply.
func (c *callCounter) countApply(created, changed bool) {
	switch {
	case created:
		c.counts.Created++
	case changed:
		c.counts.Changed++
	default:
		c.counts.Unchanged++
	}
}
