package shard

import (
	"sync"
	"sync/atomic"
	"time"
)

// A holding is a member's share until a time by its own clock. The zero value means nothing.
type holding struct {
	share rendezvousShare
	until time.Duration
}

func (h *holding) containsHashAt(idHash uint64, now time.Duration) bool {
	return now < h.until && h.share.containsHash(idHash)
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
	changed  chan struct{}  // closed and replaced when the share changes or comes back

	// released receives a value when an attempt for a resource outside the share has ended.
	released chan struct{}
}

func newHoldings(now func() time.Duration) *holdings {
	h := &holdings{
		now:      now,
		attempts: map[uint64]int{},
		changed:  make(chan struct{}),
		released: make(chan struct{}, 1),
	}
	h.held.Store(&holding{})
	return h
}

func (h *holdings) ownsHash(idHash uint64) bool { return h.held.Load().containsHashAt(idHash, h.now()) }

// ownsNothing reports whether the share is empty or expired.
func (h *holdings) ownsNothing() bool { return h.now() >= h.held.Load().until }

// beginAttempt counts an attempt for an id of the share, until release is called. ok is false if the
// id is not in the share.
func (h *holdings) beginAttempt(idHash uint64) (release func(), ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	// Under the lock, so that setHoldingAndNotify sees either this attempt or none.
	if !h.ownsHash(idHash) {
		return func() {}, false
	}
	h.attempts[idHash]++
	return sync.OnceFunc(func() { h.endAttemptAndNotifyRelease(idHash) }), true
}

func (h *holdings) endAttemptAndNotifyRelease(idHash uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.attempts[idHash]--
	if h.attempts[idHash] == 0 {
		delete(h.attempts, idHash)
	}
	if !h.isInShareIgnoringExpiry(idHash) {
		select {
		case h.released <- struct{}{}:
		default:
		}
	}
}

// isInShareIgnoringExpiry reports whether id is in the share, even if its time has expired. An
// attempt for such an id does not block any other member.
func (h *holdings) isInShareIgnoringExpiry(idHash uint64) bool {
	held := h.held.Load()
	return held.until > 0 && held.share.containsHash(idHash)
}

// extendUntil sets how long the current share is owned. If it had expired, the member owned nothing
// for a while, and the waiters of nextChange are notified.
func (h *holdings) extendUntil(until time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.held.Load()
	h.held.Store(&holding{share: before.share, until: until})
	if h.now() >= before.until {
		h.notifyChange()
	}
}

// setHoldingAndNotify replaces the share, and notifies the waiters of nextChange.
func (h *holdings) setHoldingAndNotify(next holding) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held.Store(&next)
	h.notifyChange()
}

// notifyChange notifies the waiters of nextChange. The caller holds the lock.
func (h *holdings) notifyChange() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// hasNoAttemptOutsideShare reports whether no attempt is in progress for a resource outside the share.
func (h *holdings) hasNoAttemptOutsideShare() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id := range h.attempts {
		if !h.isInShareIgnoringExpiry(id) {
			return false
		}
	}
	return true
}

// nextChange returns a channel that is closed when the share changes, or comes back after it expired.
func (h *holdings) nextChange() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.changed
}
