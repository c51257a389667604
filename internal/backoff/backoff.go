// Package backoff waits between attempts.
//
// A Policy defines the delays, Retry runs the whole loop, and Sleep only waits, for other kinds of
// loops. Delays grow exponentially up to a maximum and have random jitter, so that clients that
// failed together do not retry together.
package backoff

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// Defaults of the zero fields of a Policy.
const (
	DefaultInitial = 100 * time.Millisecond
	DefaultMax     = 30 * time.Second
	DefaultFactor  = 2.0
	DefaultJitter  = 0.2
)

// MaxRetryAfter limits the delay that a server can request with a RetryAfter error. A wrong header
// must not stop a client for a week.
const MaxRetryAfter = 5 * time.Minute

// A Policy defines the delays between attempts and when to give up. The zero value is usable: it
// never gives up.
type Policy struct {
	// Initial is the delay before the first retry. Zero means DefaultInitial.
	Initial time.Duration

	// Max is the maximum delay, and takes precedence over Initial. Zero means DefaultMax.
	Max time.Duration

	// Factor is the ratio of each delay to the previous one. Zero means DefaultFactor; below one
	// counts as one, which is a constant delay.
	Factor float64

	// Jitter is the random fraction of a delay: 0.2 spreads it evenly over 80 % to 100 %. Zero
	// means DefaultJitter, a negative number means none, above one counts as one.
	Jitter float64

	// MaxElapsed limits Retry: no wait begins that would end later than this after the start of the
	// first attempt. Zero means no limit.
	MaxElapsed time.Duration

	// MaxAttempts limits the number of attempts of Retry, including the first. Zero means no limit.
	MaxAttempts int
}

// defaultAndClamp returns p with every field in its documented range.
func (p Policy) defaultAndClamp() Policy {
	if p.Initial <= 0 {
		p.Initial = DefaultInitial
	}
	if p.Max <= 0 {
		p.Max = DefaultMax
	}
	switch {
	case p.Factor == 0 || math.IsNaN(p.Factor):
		p.Factor = DefaultFactor
	case p.Factor < 1:
		p.Factor = 1
	}
	switch {
	case p.Jitter == 0 || math.IsNaN(p.Jitter):
		p.Jitter = DefaultJitter
	default:
		p.Jitter = min(max(p.Jitter, 0), 1)
	}
	return p
}

// Delay returns the delay before a retry; attempt 0 is the first retry. It is at most Max, and at
// least Max or the grown delay without its jitter, however large the attempt.
func (p Policy) Delay(attempt int) time.Duration {
	p = p.defaultAndClamp()
	d := p.delayWithoutJitter(max(attempt, 0))
	//nolint:gosec // where a delay falls within its spread is no secret
	return d - time.Duration(p.Jitter*rand.Float64()*float64(d))
}

// delayWithoutJitter returns the delay without jitter.
func (p Policy) delayWithoutJitter(attempt int) time.Duration {
	d := float64(p.Initial) * math.Pow(p.Factor, float64(attempt))
	// Compared as float, because above the maximum the conversion would overflow.
	if d >= float64(p.Max) {
		return p.Max
	}
	return time.Duration(d)
}

// Retry calls op until it returns nil, and then returns nil. It gives up when ctx ends, when op
// returns an error marked by Permanent, or at a limit of the policy. The error is the last one of
// op, with the cause of ctx if ctx ended the loop. Retry removes a mark around the whole error: the
// mark was meant for this Retry, and an outer one decides for itself which errors are permanent. An
// error with a RetryAfter method lengthens the next wait by that time, up to MaxRetryAfter.
func Retry(ctx context.Context, p Policy, op func(context.Context) error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	begin := time.Now()
	for attempt := 0; ; attempt++ {
		err := op(ctx)
		if err == nil {
			return nil
		}
		if IsPermanent(err) {
			return removePermanentMark(err)
		}
		if ctx.Err() != nil {
			return joinContextCause(ctx, err)
		}
		wait := p.Delay(attempt)
		if after, ok := RetryAfter(err); ok {
			// In addition to the delay, because otherwise all clients with the same RetryAfter
			// would retry at the same time.
			after = min(after, MaxRetryAfter)
			wait = min(wait, math.MaxInt64-after) + after
		}
		if p.MaxAttempts > 0 && attempt+1 >= p.MaxAttempts ||
			p.MaxElapsed > 0 && wait > p.MaxElapsed-time.Since(begin) {
			return fmt.Errorf("failed after %d attempts in %s: %w", attempt+1, time.Since(begin).Round(time.Millisecond), err)
		}
		if Sleep(ctx, wait) != nil {
			return joinContextCause(ctx, err)
		}
	}
}

// joinContextCause joins the cause of ctx to the last error, unless that already contains it.
func joinContextCause(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w: %w", cause, err)
}

// Sleep waits for d. It returns the cause of ctx if that ends first.
func Sleep(ctx context.Context, d time.Duration) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// Permanent marks err as one that no retry will fix. It reads and unwraps as err does.
// Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err: err}
}

// removePermanentMark removes a mark around err.
func removePermanentMark(err error) error {
	if marked, ok := err.(*permanentError); ok { //nolint:errorlint // the outermost alone
		return marked.err
	}
	return err
}

// IsPermanent reports whether err, or an error that it wraps, is marked by Permanent.
func IsPermanent(err error) bool {
	_, ok := errors.AsType[*permanentError](err)
	return ok
}

// RetryAfter returns the delay that an error requests: that of the first error in the chain with a
// method RetryAfter. ok is false if no error has one, or if it returns zero or less.
func RetryAfter(err error) (delay time.Duration, ok bool) {
	type asker interface {
		error
		RetryAfter() time.Duration
	}
	e, ok := errors.AsType[asker](err)
	if !ok || e.RetryAfter() <= 0 {
		return 0, false
	}
	return e.RetryAfter(), true
}
