package memory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

// callLocked performs one call under the lock, with the configured faults.
func callLocked[T any](ctx context.Context, g *Garden, v Verb, name string, do func(now time.Time) (T, error)) (T, error) {
	g.mu.Lock()
	g.calls.startCall(v, name)
	g.mu.Unlock()
	answer, err := attemptCall(ctx, g, v, name, do)
	g.mu.Lock()
	g.calls.endCall(v, name, err)
	g.mu.Unlock()
	return answer, err
}

func attemptCall[T any](ctx context.Context, g *Garden, v Verb, name string, do func(now time.Time) (T, error)) (answer T, err error) {
	if err := delayOrFail(ctx, g, v, name); err != nil {
		return answer, err
	}
	now := g.lockNow()
	if g.outage { // it may have begun during the call
		err = outageError()
	} else {
		answer, err = do(now)
		err = wrapCallError(err, v, name)
	}
	g.mu.Unlock()
	if err == nil && g.o.Lose != nil {
		if err := g.o.Lose(ctx, v, name); err != nil {
			return *new(T), err
		}
	}
	return answer, err
}

// wrapCallError adds the attempted action to an error, as the client of a real Gardener
// does.
func wrapCallError(err error, v Verb, name string) error {
	e, ok := errors.AsType[*shoot.Error](err)
	if !ok {
		return err
	}
	did := string(v)
	if v == Preflight {
		did = "check"
	}
	return &shoot.Error{Class: e.Class, RetryAfter: e.RetryAfter, Err: fmt.Errorf("%s Shoot %q: %w", did, name, e.Err)}
}

// delayOrFail applies the configured latency and faults before a call.
func delayOrFail(ctx context.Context, g *Garden, v Verb, name string) error {
	if err := backoff.Sleep(ctx, g.o.Latency); err != nil {
		return &shoot.Error{Class: shoot.ClassUnavailable, Err: context.Cause(ctx)}
	}
	if g.o.Fail != nil {
		if err := g.o.Fail(ctx, v, name); err != nil {
			return err
		}
	}
	if g.o.FailRate > 0 {
		g.mu.Lock()
		unlucky := g.random.Float64() < g.o.FailRate
		g.mu.Unlock()
		if unlucky {
			return shoot.Errorf(shoot.ClassUnavailable, "internal server error: injected fault")
		}
	}
	return nil
}

// outageError returns the error of every call during an outage.
func outageError() error { return shoot.Errorf(shoot.ClassUnavailable, "connection refused") }

// A callCounter counts the calls to a garden.
type callCounter struct {
	counts Counts
	busy   map[string]int // writing calls in progress, by name
}

// startCall counts the start of a call.
func (c *callCounter) startCall(v Verb, name string) {
	c.counts.Calls[v]++
	if v != Apply && v != Delete {
		return
	}
	c.busy[name]++
	if c.busy[name] > 1 {
		c.counts.Overlaps++
	}
	c.counts.MaxInFlight = max(c.counts.MaxInFlight, len(c.busy))
}

// endCall counts the end of a call.
func (c *callCounter) endCall(v Verb, name string, err error) {
	if err != nil && !errors.Is(err, shoot.ErrNotFound) {
		c.counts.Failed[v]++
	}
	if v != Apply && v != Delete {
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
