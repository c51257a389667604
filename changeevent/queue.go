package changeevent

import (
	"context"
	"sync"
	"time"
)

// An item is a queued event, as it was sent.
type item struct {
	event ChangeEvent
	ctx   context.Context //nolint:containedctx // it lends its values to the delivery, which is later
	at    time.Time       // time at which it was queued
}

// A ring holds items in order of arrival. It grows up to its capacity, which most clients
// never reach.
type ring struct {
	items    []item
	first, n int
	capacity int
}

const firstRing = 16

// reserveSlot returns the slot for a new item. If the ring is full, it is the slot of the
// oldest item, which the caller must read before it writes the new one.
func (r *ring) reserveSlot() (slot *item, overwritesOldest bool) {
	if r.n == r.capacity {
		slot = &r.items[r.first]
		r.first = (r.first + 1) % len(r.items)
		return slot, true
	}
	if r.n == len(r.items) {
		r.growBuffer()
	}
	slot = &r.items[(r.first+r.n)%len(r.items)]
	r.n++
	return slot, false
}

func (r *ring) growBuffer() {
	size := min(max(firstRing, 2*len(r.items)), r.capacity)
	grown := make([]item, size)
	copied := copy(grown, r.items[r.first:])
	copy(grown[copied:], r.items[:r.first])
	r.items, r.first = grown, 0
}

// oldestItem returns the next item. The ring must not be empty.
func (r *ring) oldestItem() *item { return &r.items[r.first] }

// takeOldest removes and returns the oldest item. The ring must not be empty.
func (r *ring) takeOldest() item {
	it := r.items[r.first]
	r.items[r.first] = item{} // release what the item refers to
	r.first = (r.first + 1) % len(r.items)
	r.n--
	return it
}

// A shard is a queue and its workers: one worker, which keeps the order, or several if
// the sender keeps the order.
type shard struct {
	mu      sync.Mutex
	waiting ring
	idle    int // workers that wait for wake
	closed  bool
	offered uint64           // number of events that were offered
	hands   []inFlightEvents // events that each worker is sending

	wake chan struct{}
}

// inFlightEvents describes the events that one worker is sending.
type inFlightEvents struct {
	n     int
	since time.Time // time at which the oldest of them was queued
}

func newShard(capacity, workers int) *shard {
	return &shard{
		waiting: ring{capacity: capacity},
		hands:   make([]inFlightEvents, workers),
		wake:    make(chan struct{}, 1),
	}
}

// spins limits how often a sender tries the lock before it blocks. The lock is held only
// briefly, and on a busy machine a blocked sender returns only after all others have run.
const spins = 128

func (s *shard) spinThenLock() {
	for range spins {
		if s.mu.TryLock() {
			return
		}
	}
	s.mu.Lock()
}

// awaitItems waits for an item. It returns false if the shard is closed and empty.
func (s *shard) awaitItems() (hasItems bool) {
	for {
		s.mu.Lock()
		hasItems, closed := s.waiting.n > 0, s.closed
		if !hasItems && !closed {
			s.idle++
		}
		s.mu.Unlock()
		if hasItems || closed {
			if closed {
				s.wakeWorker() // the other workers must end, too
			}
			return hasItems
		}
		<-s.wake
		s.mu.Lock()
		s.idle--
		s.mu.Unlock()
	}
}

// takeBatchAsInFlight moves at most limit of the oldest items to batch and records them in inFlight. If
// sameCluster is set, all of them are of the same cluster.
func (s *shard) takeBatchAsInFlight(inFlight *inFlightEvents, batch []item, limit int, sameCluster bool) []item {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(batch) < limit && s.waiting.n > 0 {
		next := s.waiting.oldestItem()
		if sameCluster && len(batch) > 0 && next.event.Cluster != batch[0].event.Cluster {
			break
		}
		batch = append(batch, s.waiting.takeOldest())
	}
	s.setInFlightAndWakeAnother(inFlight, batch)
	return batch
}

// takeOlderAsInFlight removes and returns the oldest items while their time is before than.
func (s *shard) takeOlderAsInFlight(inFlight *inFlightEvents, than time.Time) []item {
	s.mu.Lock()
	defer s.mu.Unlock()
	var older []item
	for s.waiting.n > 0 && s.waiting.oldestItem().event.laterOfTimestampAndQueuedAt().Before(than) {
		older = append(older, s.waiting.takeOldest())
	}
	s.setInFlightAndWakeAnother(inFlight, older)
	return older
}

// setInFlightAndWakeAnother records the events that a worker sends, and wakes another worker if items
// are left.
func (s *shard) setInFlightAndWakeAnother(inFlight *inFlightEvents, items []item) {
	inFlight.n, inFlight.since = len(items), time.Time{}
	if len(items) > 0 {
		inFlight.since = items[0].at
	}
	if s.waiting.n > 0 && s.idle > 0 {
		s.wakeWorker()
	}
}

// clearInFlight records that a worker is sending nothing.
func (s *shard) clearInFlight(inFlight *inFlightEvents) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*inFlight = inFlightEvents{}
}

// closeAndWakeWorker makes the shard reject new items and wakes the workers.
func (s *shard) closeAndWakeWorker() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.wakeWorker()
}

// wakeWorker wakes an idle worker, or the next one that would wait.
func (s *shard) wakeWorker() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// pendingStats returns how many events are queued or being sent, the age of the oldest,
// and how many were offered in total.
func (s *shard) pendingStats(now time.Time) (pending int, oldest time.Duration, offered uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pending = s.waiting.n
	if pending > 0 {
		oldest = now.Sub(s.waiting.oldestItem().at)
	}
	for _, inFlight := range s.hands {
		if inFlight.n > 0 {
			pending += inFlight.n
			oldest = max(oldest, now.Sub(inFlight.since))
		}
	}
	return pending, oldest, s.offered
}
