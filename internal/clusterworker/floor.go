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

// A floor is where calls run: so many at a time, and one of each cluster. It
// also counts the claims about which nothing is written yet, which bounds how
// far calls can get ahead of a slow database.
type floor struct {
	slots, limit int

	mu        sync.Mutex
	running   map[string]struct{} // clusters
	under     int                 // claims whose outcome is not known
	unsettled int
	freed     time.Time // when the first call ended after the last claim
}

func newFloor(slots int) *floor {
	return &floor{slots: slots, limit: slots + 2*maxBatch, running: map[string]struct{}{}}
}

// room is how many rows may be claimed, and since when there is any.
func (f *floor) room() (int, time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return max(0, min(f.slots-len(f.running), f.limit-f.unsettled)), f.freed
}

// admit counts claims in.
func (f *floor) admit(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unsettled += n
	f.under += n
	f.freed = time.Time{}
}

// enter begins a call. There is none for a cluster whose last one has not ended, which can
// outlast its lease if it heeds no deadline.
func (f *floor) enter(clusterID string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.running[clusterID]; ok || len(f.running) >= f.slots {
		return false
	}
	f.running[clusterID] = struct{}{}
	return true
}

// leave ends a call.
func (f *floor) leave(clusterID string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.running, clusterID)
	if f.freed.IsZero() {
		f.freed = time.Now()
	}
}

// known notes that the outcome of a claim is on its way to be written.
func (f *floor) known() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.under--
}

// settle counts claims out.
func (f *floor) settle(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unsettled -= n
}

// busy is how many calls run, how many claims have no outcome yet, and how many
// are not settled.
func (f *floor) busy() (running, under, unsettled int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.running), f.under, f.unsettled
}
