package clusterworker

import "time"

// The specified backoff.
const (
	firstDelay = 30 * time.Second
	maxDelay   = 15 * time.Minute
)

// RetryDelay returns how long a row waits after consecutive failures: 30 s × 2^consecutiveFailures, at
// most 15 minutes. consecutiveFailures includes the last one. So a minute follows the first
// failure. It holds for any number of failures.
//
// There is no jitter. The slots limit how many rows are tried at a time, so rows that
// come due together do no harm.
func RetryDelay(consecutiveFailures int) time.Duration {
	d := firstDelay
	for range consecutiveFailures { // not a shift, which would overflow
		if d *= 2; d >= maxDelay {
			return maxDelay
		}
	}
	return d
}
