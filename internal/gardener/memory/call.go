package memory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

// callLocked performs one call under the lock, with the configured faults.
func callLocked[T any](ctx context.Context, g *Garden, v Verb, name string, do func(now time.Time) (T, error)) (T, error) {
	g.noteCallStart(v, name)
	answer, err := attemptCall(ctx, g, v, name, do)
	g.noteCallEnd(v, name, err)
	return answer, err
}

func attemptCall[T any](ctx context.Context, g *Garden, v Verb, name string, do func(now time.Time) (T, error)) (answer T, err error) {
	if err := g.delayOrFail(ctx, v, name); err != nil {
		return answer, err
	}
	g.mu.Lock()
	now := time.Now()
	g.advanceTo(now)
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
func (g *Garden) delayOrFail(ctx context.Context, v Verb, name string) error {
	if err := sleepFor(ctx, g.o.Latency); err != nil {
		return err
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

// sleepFor waits for the latency of a call.
func sleepFor(ctx context.Context, d time.Duration) error {
	if ctx.Err() == nil && d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-ctx.Done():
		case <-timer.C:
			return nil
		}
	}
	if ctx.Err() == nil {
		return nil
	}
	return &shoot.Error{Class: shoot.ClassUnavailable, Err: context.Cause(ctx)}
}

// outageError returns the error of every call during an outage.
func outageError() error { return shoot.Errorf(shoot.ClassUnavailable, "connection refused") }

// noteCallStart counts the start of a call.
func (g *Garden) noteCallStart(v Verb, name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.counts.Calls[v]++
	if v != Apply && v != Delete {
		return
	}
	g.busy[name]++
	if g.busy[name] > 1 {
		g.counts.Overlaps++
	}
	g.counts.MaxInFlight = max(g.counts.MaxInFlight, len(g.busy))
}

// noteCallEnd counts the end of a call.
func (g *Garden) noteCallEnd(v Verb, name string, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil && !errors.Is(err, shoot.ErrNotFound) {
		g.counts.Failed[v]++
	}
	if v != Apply && v != Delete {
		return
	}
	if g.busy[name]--; g.busy[name] == 0 {
		delete(g.busy, name)
	}
}
