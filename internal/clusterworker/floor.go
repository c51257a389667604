package clusterworker

import (
	"sync"
	"time"
)

// A timedClaim is a claim during its processing in the worker.
type timedClaim struct {
	Claim
	// claimed is when the claim began. Earlier changes are part of the claim.
	claimed time.Time
}

// hasLeaseFor reports whether the lease lasts for at least d. Both clocks have to agree:
// the monotonic clock stops while a machine sleeps, and the wall clock can be set back.
func (t timedClaim) hasLeaseFor(duration time.Duration) bool {
	now := time.Now()
	return t.Until.Sub(now) >= duration && t.Until.Round(0).Sub(now.Round(0)) >= duration
}

const (
	// hangsAfter is how long a running call holds its slot. A slow call or a faulty
	// Shoot must not hold up the next one.
	hangsAfter = 250 * time.Millisecond
	// hangingPerSlot limits the slow calls beside the slots, so that a slow Gardener
	// does not receive ever more calls.
	hangingPerSlot = 4
	// timedOutShare is the part of the slots, as a divisor, for rows whose last try
	// timed out. There may be more such rows than calls may hang.
	timedOutShare = 4
)

// A callLimiter limits running calls in total and to one per cluster. It also counts
// the claims without a written result, which limits how far calls can get ahead of a
// slow database.
type callLimiter struct {
	slots, hanging, timedOut, limit int

	mu        sync.Mutex
	running   map[string]running // by cluster
	under     int                // claims without an outcome
	unsettled int
	freed     time.Time // end of the first call after the last claim
}

// A running is a call in progress.
type running struct {
	began    time.Time
	timedOut bool // the last try of the row timed out
}

func newCallLimiter(maxFastCalls int) *callLimiter {
	hanging := hangingPerSlot * maxFastCalls
	return &callLimiter{
		slots: maxFastCalls, hanging: hanging, timedOut: max(1, maxFastCalls/timedOutShare), limit: maxFastCalls + hanging + 2*maxBatch,
		running: map[string]running{},
	}
}

// currentClaimLimits returns how many rows may be claimed and since when there is room. It also
// returns when more room is expected (moreExpectedAt) without the end of a call, zero if it is not
// expected.
func (f *callLimiter) currentClaimLimits() (limits ClaimLimits, freedAt, moreExpectedAt time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	free, moreExpectedAt := f.countFreeSlots(time.Now())
	limits.Slots = max(0, min(free, f.limit-f.unsettled))
	limits.TimedOut = f.timedOut
	for _, c := range f.running {
		if c.timedOut {
			limits.TimedOut--
		}
	}
	limits.TimedOut = max(0, min(limits.TimedOut, limits.Slots))
	return limits, f.freed, moreExpectedAt
}

// countFreeSlots returns how many slots no call holds, and when the next slow call frees its
// slot.
func (f *callLimiter) countFreeSlots(now time.Time) (free int, moreExpectedAt time.Time) {
	holding := 0
	for _, c := range f.running {
		hangs := c.began.Add(hangsAfter)
		if !hangs.After(now) {
			continue
		}
		holding++
		if moreExpectedAt.IsZero() || hangs.Before(moreExpectedAt) {
			moreExpectedAt = hangs
		}
	}
	over := len(f.running) - holding - f.hanging
	if over >= 0 {
		moreExpectedAt = time.Time{} // the call would keep the slot
	}
	return f.slots - holding - max(0, over), moreExpectedAt
}

// addClaims adds new claims to the counts.
func (f *callLimiter) addClaims(count int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unsettled += count
	f.under += count
	f.freed = time.Time{}
}

// reserveSlot registers a call and reports whether it may run. It refuses a cluster whose
// last call still runs, which can outlast its lease if it ignores its deadline.
func (f *callLimiter) reserveSlot(claim timedClaim) (reserved bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if _, ok := f.running[claim.ClusterID]; ok {
		return false
	}
	if free, _ := f.countFreeSlots(now); free <= 0 {
		return false
	}
	f.running[claim.ClusterID] = running{began: now, timedOut: claim.LastClass == ClassTimeout}
	return true
}

// maxConcurrentCalls returns the largest number of concurrent calls.
func (f *callLimiter) maxConcurrentCalls() int { return f.slots + f.hanging }

// releaseSlot removes a call.
func (f *callLimiter) releaseSlot(clusterID string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.running, clusterID)
	if f.freed.IsZero() {
		f.freed = time.Now()
	}
}

// decrementClaimsWithoutOutcome records that one more claim has its outcome, which waits to be written.
func (f *callLimiter) decrementClaimsWithoutOutcome() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.under--
}

// subtractWrittenClaims removes written claims from the count.
func (f *callLimiter) subtractWrittenClaims(count int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unsettled -= count
}

// countCallsAndClaims returns the number of running calls, of claims without an outcome, and of
// unsettled claims.
func (f *callLimiter) countCallsAndClaims() (runningCalls, claimsWithoutOutcome, unwrittenClaims int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.running), f.under, f.unsettled
}
