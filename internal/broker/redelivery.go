package broker

import (
	"time"

	"github.com/fleetloop/fleetloop/internal/backoff"
)

// RedeliveryDelay returns the delay before an event whose handler failed is delivered again. It is
// the delay that handlerErr asks for with a RetryAfter method, or else defaultDelay.
func RedeliveryDelay(handlerErr error, defaultDelay time.Duration) time.Duration {
	if delay, ok := backoff.RetryAfter(handlerErr); ok {
		return min(delay, backoff.MaxRetryAfter)
	}
	return defaultDelay
}

// MustNotRedeliver reports whether an event whose handler returned handlerErr must not be
// delivered again. Such errors are marked by backoff.Permanent.
func MustNotRedeliver(handlerErr error) bool { return backoff.IsPermanent(handlerErr) }
