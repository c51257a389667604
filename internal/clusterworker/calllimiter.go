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
	// slowAfter is how long a running call holds its slot. A slow call or a faulty
	// Shoot must not hold up the next one.
	slowAfter = 250 * time.Millisecond
	// slowCallsPerSlot limits the slow calls beside the slots, so that a slow Gardener
	// does not receive ever more calls.
	slowCallsPerSlot = 4
	// timedOutSlotsDivisor is the part of the slots, as a divisor, for rows whose last try
	// timed out. There may be more such rows than slow calls.
	timedOutSlotsDivisor = 4
)

// A callLimiter limits running calls in total and to one per cluster. It also counts
// the claims without a written result, which limits how far calls can get ahead of a
// slow database.
type callLimiter struct {
	slots, maxSlowCalls, maxTimedOut, maxClaims int

	mu             sync.Mutex
	running        map[string]runningCall // by cluster
	slotFreedAt    time.Time              // end of the first call after the last claim, zero before
	withoutOutcome int                    // claims whose outcome is unknown
	unfinished     int                    // claims whose outcome is not written
}

// A runningCall is a call in progress.
type runningCall struct {
	began    time.Time
	timedOut bool // the last try of the row timed out
}

func newCallLimiter(slots int) *callLimiter {
	maxSlowCalls := slowCallsPerSlot * slots
	return &callLimiter{
		slots:        slots,
		maxSlowCalls: maxSlowCalls,
		maxTimedOut:  max(1, slots/timedOutSlotsDivisor),
		maxClaims:    slots + maxSlowCalls + 2*maxBatch,
		running:      map[string]runningCall{},
	}
}

// maxConcurrentCalls returns the largest number of concurrent calls.
func (l *callLimiter) maxConcurrentCalls() int { return l.slots + l.maxSlowCalls }

// currentClaimLimits returns how many rows may be claimed and since when there is room. It also
// returns when more room is expected (moreExpectedAt) without the end of a call, zero if it is not
// expected.
func (l *callLimiter) currentClaimLimits() (limits ClaimLimits, slotFreedAt, moreExpectedAt time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	freeSlots, moreExpectedAt := l.countFreeSlots(time.Now())
	limits.Slots = max(0, min(freeSlots, l.maxClaims-l.unfinished))
	limits.TimedOut = l.maxTimedOut
	for _, call := range l.running {
		if call.timedOut {
			limits.TimedOut--
		}
	}
	limits.TimedOut = max(0, min(limits.TimedOut, limits.Slots))
	return limits, l.slotFreedAt, moreExpectedAt
}

// countFreeSlots returns how many slots no call holds, and when the next call becomes slow and frees its
// slot.
func (l *callLimiter) countFreeSlots(now time.Time) (free int, moreExpectedAt time.Time) {
	fastCalls := 0
	for _, call := range l.running {
		slowAt := call.began.Add(slowAfter)
		if !slowAt.After(now) {
			continue
		}
		fastCalls++
		if moreExpectedAt.IsZero() || slowAt.Before(moreExpectedAt) {
			moreExpectedAt = slowAt
		}
	}
	// Slow calls beyond their limit hold slots, too.
	excess := len(l.running) - fastCalls - l.maxSlowCalls
	if excess >= 0 {
		moreExpectedAt = time.Time{} // the call would keep the slot
	}
	return l.slots - fastCalls - max(0, excess), moreExpectedAt
}

// addClaims adds new claims to the counts.
func (l *callLimiter) addClaims(count int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unfinished += count
	l.withoutOutcome += count
	l.slotFreedAt = time.Time{}
}

// reserveSlot registers a call and reports whether it may run. It refuses a cluster whose
// last call still runs, which can outlast its lease if it ignores its deadline.
func (l *callLimiter) reserveSlot(claim timedClaim) (reserved bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if _, running := l.running[claim.ClusterID]; running {
		return false
	}
	if free, _ := l.countFreeSlots(now); free <= 0 {
		return false
	}
	l.running[claim.ClusterID] = runningCall{began: now, timedOut: claim.LastClass == ClassTimeout}
	return true
}

// releaseSlot removes a call.
func (l *callLimiter) releaseSlot(clusterID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.running, clusterID)
	if l.slotFreedAt.IsZero() {
		l.slotFreedAt = time.Now()
	}
}

// subtractClaimWithoutOutcome records that one more claim has its outcome, which waits to be written.
func (l *callLimiter) subtractClaimWithoutOutcome() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.withoutOutcome--
}

// subtractFinishedClaims removes claims whose outcome is written, or needs no write.
func (l *callLimiter) subtractFinishedClaims(count int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unfinished -= count
}

// callCounts are the numbers of running calls, of claims whose outcome is unknown, and of claims whose outcome is not
// written.
type callCounts struct{ running, withoutOutcome, unfinished int }

func (l *callLimiter) counts() callCounts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return callCounts{running: len(l.running), withoutOutcome: l.withoutOutcome, unfinished: l.unfinished}
}

// A throttle records until when Gardener asked the worker to wait.
type throttle struct {
	mu    sync.Mutex
	until time.Time
}

// extendWaitUntil moves the end of the wait to until if that is later.
func (t *throttle) extendWaitUntil(until time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if until.After(t.until) {
		t.until = until
	}
}

func (t *throttle) waitEnd() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.until
}
