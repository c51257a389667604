package clusterworker

import "time"

// The specified backoff.
const (
	firstDelay = 30 * time.Second
	maxDelay   = 15 * time.Minute
)

// Delay is how long a row waits that has failed so many times in a row, the last
// failure included: 30 s × 2^attempts, at most 15 minutes. So the first failure
// is followed by a minute. It holds for any number of attempts.
//
// There is no jitter: how much is tried at a time is bounded by the slots, so
// rows that come due together do no harm.
func Delay(attempts int) time.Duration {
	d := firstDelay
	for range attempts { // not a shift, which would overflow
		if d *= 2; d >= maxDelay {
			return maxDelay
		}
	}
	return d
}
