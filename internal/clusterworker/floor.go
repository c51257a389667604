package clusterworker

import (
	"sync"
	"time"
)

// A ticket is a claim during its processing in the worker.
type ticket struct {
	Claim
	// claimed is when the claim began. Earlier changes are part of the claim.
	claimed time.Time
}

// hasTime reports whether the lease lasts for at least d. Both clocks have to agree:
// the monotonic clock stops while a machine sleeps, and the wall clock can be set back.
func (t ticket) hasTime(d time.Duration) bool {
	now := time.Now()
	return t.Until.Sub(now) >= d && t.Until.Round(0).Sub(now.Round(0)) >= d
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

func newCallLimiter(slots int) *callLimiter {
	hanging := hangingPerSlot * slots
	return &callLimiter{
		slots: slots, hanging: hanging, timedOut: max(1, slots/timedOutShare), limit: slots + hanging + 2*maxBatch,
		running: map[string]running{},
	}
}

// freeRoom returns how many rows may be claimed and since when there is room. It also
// returns when more room is expected (moreAt) without the end of a call, zero if it is not
// expected.
func (f *callLimiter) freeRoom() (r Room, freedAt, moreAt time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	free, moreAt := f.freeSlots(time.Now())
	r.Slots = max(0, min(free, f.limit-f.unsettled))
	r.TimedOut = f.timedOut
	for _, c := range f.running {
		if c.timedOut {
			r.TimedOut--
		}
	}
	r.TimedOut = max(0, min(r.TimedOut, r.Slots))
	return r, f.freed, moreAt
}

// freeSlots returns how many slots no call holds, and when the next slow call frees its
// slot.
func (f *callLimiter) freeSlots(now time.Time) (free int, moreAt time.Time) {
	holding := 0
	for _, c := range f.running {
		hangs := c.began.Add(hangsAfter)
		if !hangs.After(now) {
			continue
		}
		holding++
		if moreAt.IsZero() || hangs.Before(moreAt) {
			moreAt = hangs
		}
	}
	over := len(f.running) - holding - f.hanging
	if over >= 0 {
		moreAt = time.Time{} // the call would keep the slot
	}
	return f.slots - holding - max(0, over), moreAt
}

// admitClaims adds n claims to the counts.
func (f *callLimiter) admitClaims(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unsettled += n
	f.under += n
	f.freed = time.Time{}
}

// beginCall registers a call and reports whether it may run. It refuses a cluster whose
// last call still runs, which can outlast its lease if it ignores its deadline.
func (f *callLimiter) beginCall(t ticket) (admitted bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if _, ok := f.running[t.ClusterID]; ok {
		return false
	}
	if free, _ := f.freeSlots(now); free <= 0 {
		return false
	}
	f.running[t.ClusterID] = running{began: now, timedOut: t.LastClass == ClassTimeout}
	return true
}

// maxCalls returns the largest number of concurrent calls.
func (f *callLimiter) maxCalls() int { return f.slots + f.hanging }

// endCall removes a call.
func (f *callLimiter) endCall(clusterID string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.running, clusterID)
	if f.freed.IsZero() {
		f.freed = time.Now()
	}
}

// noteOutcome counts the outcome of a claim that waits to be written.
func (f *callLimiter) noteOutcome() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.under--
}

// settleClaims removes n claims from the counts.
func (f *callLimiter) settleClaims(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unsettled -= n
}

// currentLoad returns the number of running calls, of claims without an outcome, and of
// unsettled claims.
func (f *callLimiter) currentLoad() (running, under, unsettled int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.running), f.under, f.unsettled
}
