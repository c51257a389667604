package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// The delays between attempts.
const (
	firstDelay = 200 * time.Millisecond
	maxDelay   = 10 * time.Second
	// maxRetryAfter limits the delay that a server can request. The caller decides about longer ones.
	maxRetryAfter = 30 * time.Second
)

// sendAndReadWithRetry is sendAndRead, repeated until it succeeds, its error is permanent, or the attempts are used up.
func (c *caller) sendAndReadWithRetry(ctx context.Context, r request) (body []byte, a answer, err error) {
	for attempt := 1; ; attempt++ {
		body, a, err = c.sendAndRead(ctx, r, nil)
		if err == nil || attempt >= c.maxAttempts || !r.mayRepeat(err) || requestedDelay(err) > maxRetryAfter {
			return body, a, err
		}
		delay := max(delayAfter(attempt), requestedDelay(err))
		if end, ok := ctx.Deadline(); ok && time.Until(end) < delay {
			return nil, a, err
		}
		c.log.DebugContext(ctx, "retrying request", "request", r.operation(), "attempt", attempt, "delay", delay, "err", err)
		if !sleep(ctx, delay) {
			return nil, a, c.wrapTransportError(ctx, r, err)
		}
	}
}

// mayRepeat reports whether the request can be sent again after an error.
func (r request) mayRepeat(err error) bool {
	op, isNetworkError := errors.AsType[*net.OpError](err)
	notConnected := isNetworkError && op.Op == "dial"
	notProcessed := notConnected || hasStatus(err, http.StatusTooManyRequests)
	return IsTransient(err) && (notProcessed || r.isIdempotent())
}

// isIdempotent reports whether sending the request twice has the effect of sending it once.
func (r request) isIdempotent() bool {
	switch r.method {
	case http.MethodGet, http.MethodPut, http.MethodDelete:
		return true
	}
	return r.header["If-Match"] != "" || r.header[v1.IdempotencyKeyHeader] != ""
}

// delayAfter returns the delay after the nth consecutive failure, with jitter so that clients that
// failed together do not retry together.
func delayAfter(n int) time.Duration {
	d := min(firstDelay<<min(n-1, 10), maxDelay)
	return d - rand.N(d/2) //nolint:gosec // where a delay falls within its spread is no secret
}

func requestedDelay(err error) time.Duration {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.RetryAfter()
	}
	return 0
}

// sleep waits, and reports whether ctx is still in force.
func sleep(ctx context.Context, d time.Duration) (elapsed bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
