package shard

import (
	"sync"
	"sync/atomic"
	"time"
)

// A holding is what a member owns until a time by its own clock. The zero
// value is nothing.
type holding struct {
	share share
	until time.Duration
}

func (h *holding) containsID(id uint64, now time.Duration) bool {
	return now < h.until && h.share.containsHash(id)
}

// holdings are what a member owns just now, and its attempts under way.
//
// Whether the time of a holding has run out is seen by whoever asks, not by a
// timer: a process that was stopped for a while owns nothing when it goes on,
// before anything of its own could have told it.
type holdings struct {
	now  func() time.Duration
	held atomic.Pointer[holding]

	mu       sync.Mutex
	attempts map[uint64]int // under way, by the hash of the id
	changed  chan struct{}

	// released gets a value when an attempt ended for what is not ours any
	// more.
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

// ownsNothing reports whether nothing is owned.
func (h *holdings) ownsNothing() bool { return h.now() >= h.held.Load().until }

func (h *holdings) acquireID(id uint64) (release func(), ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	// Under the lock, so that set sees either this attempt or none.
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

// keepsID reports whether id is in the share, whether its time has run out or
// not: an attempt for it is not in the way of anybody who was given some.
func (h *holdings) keepsID(id uint64) bool {
	held := h.held.Load()
	return held.until > 0 && held.share.containsHash(id)
}

// extendUntil sets until when the present share is owned.
func (h *holdings) extendUntil(until time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	held := *h.held.Load()
	held.until = until
	h.held.Store(&held)
}

// setHolding replaces what is owned, and tells those who wait for changed.
func (h *holdings) setHolding(next holding) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held.Store(&next)
	close(h.changed)
	h.changed = make(chan struct{})
}

// isDrained reports whether no attempt is under way for what is not owned.
func (h *holdings) isDrained() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id := range h.attempts {
		if !h.keepsID(id) {
			return false
		}
	}
	return true
}

// awaitChange is closed when what is owned is another than now.
func (h *holdings) awaitChange() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.changed
}
