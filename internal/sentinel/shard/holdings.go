package shard

import (
	"sync"
	"sync/atomic"
	"time"
)

// A holding is a member's share until a time by its own clock. The zero value means nothing.
type holding struct {
	share share
	until time.Duration
}

func (h *holding) containsID(id uint64, now time.Duration) bool {
	return now < h.until && h.share.containsHash(id)
}

// holdings holds a member's current share and its attempts in progress.
//
// Each call checks whether a holding has expired, without a timer. A process that was stopped for a
// while therefore owns nothing when it continues, before any of its timers could fire.
type holdings struct {
	now  func() time.Duration
	held atomic.Pointer[holding]

	mu       sync.Mutex
	attempts map[uint64]int // in progress, by the hash of the id
	changed  chan struct{}

	// released receives a value when an attempt for a resource outside the share has ended.
	released chan struct{}
}

func newHoldings(now func() time.Duration) *holdings {
	h := &holdings{
		now: now, attempts: map[uint64]int{}, changed: make(chan struct{}), released: make(chan struct{}, 1),
	}
	h.held.Store(&holding{})
	return h
}

func (h *holdings) ownsID(id uint64) bool { return h.held.Load().containsID(id, h.now()) }

// ownsNothing reports whether the share is empty or expired.
func (h *holdings) ownsNothing() bool { return h.now() >= h.held.Load().until }

func (h *holdings) acquireID(id uint64) (release func(), ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	// Under the lock, so that setHolding sees either this attempt or none.
	if !h.ownsID(id) {
		return func() {}, false
	}
	h.attempts[id]++
	return sync.OnceFunc(func() { h.releaseID(id) }), true
}

func (h *holdings) releaseID(id uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.attempts[id]--; h.attempts[id] == 0 {
		delete(h.attempts, id)
	}
	if !h.keepsID(id) {
		select {
		case h.released <- struct{}{}:
		default:
		}
	}
}

// keepsID reports whether id is in the share, even if its time has expired. An attempt for such an
// id does not block any other member.
func (h *holdings) keepsID(id uint64) bool {
	held := h.held.Load()
	return held.until > 0 && held.share.containsHash(id)
}

// extendUntil sets how long the current share is owned.
func (h *holdings) extendUntil(until time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	held := *h.held.Load()
	held.until = until
	h.held.Store(&held)
}

// setHolding replaces the share, and notifies the waiters of awaitChange.
func (h *holdings) setHolding(next holding) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held.Store(&next)
	close(h.changed)
	h.changed = make(chan struct{})
}

// hasNoAttemptOutsideShare reports whether no attempt is in progress for a resource outside the share.
func (h *holdings) hasNoAttemptOutsideShare() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id := range h.attempts {
		if !h.keepsID(id) {
			return false
		}
	}
	return true
}

// awaitChange returns a channel that is closed when the share changes.
func (h *holdings) awaitChange() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.changed
}
