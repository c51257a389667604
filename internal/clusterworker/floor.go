package clusterworker

import (
	"sync"
	"time"
)

// A ticket is a claim on its way through the worker.
type ticket struct {
	Claim
	// claimed is when the claim began: what happened before is in it.
	claimed time.Time
}

// hasTime reports whether a lease goes on for d. Both clocks have to say so: the
// monotonic one does not count while a machine sleeps, and the other one can
// be set back.
func (t ticket) hasTime(d time.Duration) bool {
	now := time.Now()
	return t.Until.Sub(now) >= d && t.Until.Round(0).Sub(now.Round(0)) >= d
}

const (
	// hangsAfter is when a call that runs frees its slot for another one. What is wrong
	// with it or with its Shoot is not the next one's business.
	hangsAfter = 250 * time.Millisecond
	// hangingPerSlot bounds how many such calls there may be beside the slots, so that
	// a slow Gardener is not asked for ever more at a time.
	hangingPerSlot = 4
	// timedOutShare is the part of the slots, as a divisor, that rows may hold whose
	// last try timed out: there may be more of them than calls may hang.
	timedOutShare = 4
)

// A callLimiter is where calls run: so many at a time, and one of each cluster. It
// also counts the claims about which nothing is written yet, which bounds how
// far calls can get ahead of a slow database.
type callLimiter struct {
	slots, hanging, timedOut, limit int

	mu        sync.Mutex
	running   map[string]running // by cluster
	under     int                // claims whose outcome is not known
	unsettled int
	freed     time.Time // when the first call ended after the last claim
}

// A running is a call that runs.
type running struct {
	began    time.Time
	timedOut bool // the row's last try timed out
}

func newFloor(slots int) *callLimiter {
	hanging := hangingPerSlot * slots
	return &callLimiter{
		slots: slots, hanging: hanging, timedOut: max(1, slots/timedOutShare), limit: slots + hanging + 2*maxBatch,
		running: map[string]running{},
	}
}

// freeRoom is how many rows may be claimed, since when there is any, and when there may
// be more without a call that ends, zero if that is not to be expected.
func (f *callLimiter) freeRoom() (r Room, freed, more time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	free, more := f.freeSlots(time.Now())
	r.Slots = max(0, min(free, f.limit-f.unsettled))
	r.TimedOut = f.timedOut
	for _, c := range f.running {
		if c.timedOut {
			r.TimedOut--
		}
	}
	r.TimedOut = max(0, min(r.TimedOut, r.Slots))
	return r, f.freed, more
}

// freeSlots is how many slots no call holds, and when the next call frees its slot by
// hanging.
func (f *callLimiter) freeSlots(now time.Time) (free int, more time.Time) {
	holding := 0
	for _, c := range f.running {
		hangs := c.began.Add(hangsAfter)
		if !hangs.After(now) {
			continue
		}
		holding++
		if more.IsZero() || hangs.Before(more) {
			more = hangs
		}
	}
	over := len(f.running) - holding - f.hanging
	if over >= 0 {
		more = time.Time{} // it would keep the slot
	}
	return f.slots - holding - max(0, over), more
}

// admitClaims counts claims in.
func (f *callLimiter) admitClaims(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unsettled += n
	f.under += n
	f.freed = time.Time{}
}

// beginCall begins a call. There is none for a cluster whose last one has not ended, which can
// outlast its lease if it heeds no deadline.
func (f *callLimiter) beginCall(t ticket) bool {
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

// maxCalls is how many calls there can be at a time.
func (f *callLimiter) maxCalls() int { return f.slots + f.hanging }

// endCall ends a call.
func (f *callLimiter) endCall(clusterID string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.running, clusterID)
	if f.freed.IsZero() {
		f.freed = time.Now()
	}
}

// noteOutcome notes that the outcome of a claim is on its way to be written.
func (f *callLimiter) noteOutcome() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.under--
}

// settleClaims counts claims out.
func (f *callLimiter) settleClaims(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unsettled -= n
}

// currentLoad is how many calls run, how many claims have no outcome yet, and how many
// are not settled.
func (f *callLimiter) currentLoad() (running, under, unsettled int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.running), f.under, f.unsettled
}
