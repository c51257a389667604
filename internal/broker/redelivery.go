package broker

import (
	"time"

	"github.com/fleetloop/fleetloop/internal/backoff"
)

// RedeliveryDelay returns the delay before an event whose handler returned err is delivered again:
// the delay that err asks for with a RetryAfter method, or else standard.
func RedeliveryDelay(handlerErr error, defaultDelay time.Duration) time.Duration {
	if delay, ok := backoff.RetryAfter(handlerErr); ok {
		return min(delay, backoff.MaxRetryAfter)
	}
	return defaultDelay
}

// MustNotRedeliver reports whether an event whose handler returned err must not be delivered again. Such
// errors are marked by backoff.Permanent.
func MustNotRedeliver(handlerErr error) bool { return backoff.IsPermanent(handlerErr) }
