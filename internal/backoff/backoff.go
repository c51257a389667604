// Package backoff waits between attempts.
//
// A Policy says how long, Retry does the whole loop, Sleep is the wait alone
// for those whose loop looks different. Delays grow exponentially up to a
// maximum and are spread at random, so that clients that failed together do
// not come back together.
package backoff

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// What the zero fields of a Policy mean.
const (
	DefaultInitial = 100 * time.Millisecond
	DefaultMax     = 30 * time.Second
	DefaultFactor  = 2.0
	DefaultJitter  = 0.2
)

// MaxRetryAfter bounds what a server can ask for with a RetryAfter error, so
// that a mistaken header does not stop a client for a week.
const MaxRetryAfter = 5 * time.Minute

// A Policy says how long to wait between attempts and when to give up. The
// zero value is usable: it never gives up.
type Policy struct {
	// Initial is the delay before the first retry. Zero means DefaultInitial.
	Initial time.Duration

	// Max is the longest delay, and wins over Initial. Zero means DefaultMax.
	Max time.Duration

	// Factor is what each delay is multiplied by for the next. Zero means
	// DefaultFactor; below one counts as one, which is a constant delay.
	Factor float64

	// Jitter is the part of a delay that is left to chance: 0.2 spreads it
	// evenly over 80 % to 100 %. Zero means DefaultJitter, a negative number
	// means none, above one counts as one.
	Jitter float64

	// MaxElapsed bounds Retry: no wait begins that would end later than this
	// after the first attempt began. Zero means no bound.
	MaxElapsed time.Duration

	// MaxAttempts bounds how often Retry calls, the first time included.
	// Zero means no bound.
	MaxAttempts int
}

// withDefaults puts every field into its documented range.
func (p Policy) withDefaults() Policy {
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

// Delay is how long to wait before a retry; attempt 0 is the first retry.
// It is never more than Max nor less than Max or the grown delay without its
// jitter, however large the attempt.
func (p Policy) Delay(attempt int) time.Duration {
	p = p.withDefaults()
	d := p.delayWithoutJitter(max(attempt, 0))
	//nolint:gosec // where a delay falls within its spread is no secret
	return d - time.Duration(p.Jitter*rand.Float64()*float64(d))
}

// delayWithoutJitter is the delay without jitter.
func (p Policy) delayWithoutJitter(attempt int) time.Duration {
	d := float64(p.Initial) * math.Pow(p.Factor, float64(attempt))
	// Compared as float: past the maximum the conversion would overflow.
	if d >= float64(p.Max) {
		return p.Max
	}
	return time.Duration(d)
}

// Retry calls op until it returns nil, and then returns nil. It gives up when
// ctx ends, when op returns an error marked by Permanent, or at a bound of
// the policy; the error is the last one of op, with the cause of ctx if that
// was what ended it. A mark around the whole error is taken off: it spoke to
// this Retry, and one further out has its own idea of what can be mended. An error with a RetryAfter method makes the next wait
// that much longer, up to MaxRetryAfter.
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
			return unwrapMark(err)
		}
		if ctx.Err() != nil {
			return interrupted(ctx, err)
		}
		wait := p.Delay(attempt)
		if after, ok := RetryAfter(err); ok {
			// On top of the delay: all who were told the same time would
			// otherwise come back at the same time.
			after = min(after, MaxRetryAfter)
			wait = min(wait, math.MaxInt64-after) + after
		}
		if p.MaxAttempts > 0 && attempt+1 >= p.MaxAttempts ||
			p.MaxElapsed > 0 && wait > p.MaxElapsed-time.Since(begin) {
			return fmt.Errorf("failed after %d attempts in %s: %w", attempt+1, time.Since(begin).Round(time.Millisecond), err)
		}
		if Sleep(ctx, wait) != nil {
			return interrupted(ctx, err)
		}
	}
}

// interrupted joins the cause of ctx to the last error, unless that tells it.
func interrupted(ctx context.Context, err error) error {
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

// Permanent marks err as one that no retry will mend. It reads and unwraps as
// err does. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err: err}
}

// unwrapMark takes off a mark around err.
func unwrapMark(err error) error {
	if marked, ok := err.(*permanentError); ok { //nolint:errorlint // the outermost alone
		return marked.err
	}
	return err
}

// IsPermanent reports whether err, or one that it wraps, is marked by
// Permanent.
func IsPermanent(err error) bool {
	_, ok := errors.AsType[*permanentError](err)
	return ok
}

// RetryAfter finds how long an error asks to wait: the first error in the
// chain with a method RetryAfter. It is not ok if there is none, or if that
// gives zero or less.
func RetryAfter(err error) (time.Duration, bool) {
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
