package changeevent

import (
	"context"
	"sync"
	"time"
)

// An item is an event that waits, as it was when it was sent.
type item struct {
	event ChangeEvent
	ctx   context.Context //nolint:containedctx // it lends its values to the delivery, which is later
	at    time.Time       // when it was sent
}

// A ring holds items in the order in which they came. It grows up to its
// capacity, which most clients never come near.
type ring struct {
	items    []item
	first, n int
	capacity int
}

const firstRing = 16

// addSlot gives the place for one more item. If there is none left, that is the
// place of the oldest, which full says; it is to be read before it is written.
func (r *ring) addSlot() (place *item, full bool) {
	if r.n == r.capacity {
		place = &r.items[r.first]
		r.first = (r.first + 1) % len(r.items)
		return place, true
	}
	if r.n == len(r.items) {
		r.growBuffer()
	}
	place = &r.items[(r.first+r.n)%len(r.items)]
	r.n++
	return place, false
}

func (r *ring) growBuffer() {
	grown := make([]item, min(max(firstRing, 2*len(r.items)), r.capacity))
	copied := copy(grown, r.items[r.first:])
	copy(grown[copied:], r.items[:r.first])
	r.items, r.first = grown, 0
}

// oldestItem is the item that is taken next. There must be one.
func (r *ring) oldestItem() *item { return &r.items[r.first] }

// takeOldest moves the oldest item out. There must be one.
func (r *ring) takeOldest() item {
	it := r.items[r.first]
	r.items[r.first] = item{} // or it would keep alive what it refers to
	r.first = (r.first + 1) % len(r.items)
	r.n--
	return it
}

// A shard is a queue and the workers that empty it: one, which keeps the order,
// or several, where the sender keeps it.
type shard struct {
	mu      sync.Mutex
	waiting ring
	idle    int // workers that wait for wake
	closed  bool
	offered uint64 // how often something was put
	hands   []hand // what the workers are sending

	wake chan struct{}
}

// A hand is what one worker is sending.
type hand struct {
	n     int
	since time.Time // when the oldest of it was put
}

func newShard(capacity, workers int) *shard {
	return &shard{waiting: ring{capacity: capacity}, hands: make([]hand, workers), wake: make(chan struct{}, 1)}
}

// spins is how often a sender looks whether the lock has come free before it
// gets in line. The lock is held for less than a look at the clock, and who gets
// in line on a busy machine is back only when all others had their turn.
const spins = 128

func (s *shard) lockShard() {
	for range spins {
		if s.mu.TryLock() {
			return
		}
	}
	s.mu.Lock()
}

// awaitItems waits for something to take. It says false when there will be nothing
// any more.
func (s *shard) awaitItems() bool {
	for {
		s.mu.Lock()
		ready, closed := s.waiting.n > 0, s.closed
		if !ready && !closed {
			s.idle++
		}
		s.mu.Unlock()
		if ready || closed {
			if closed {
				s.wakeWorker() // the others end, too
			}
			return ready
		}
		<-s.wake
		s.mu.Lock()
		s.idle--
		s.mu.Unlock()
	}
}

// takeBatch moves at most limit of the oldest items to batch, for h to send. With
// together, only as many as are of the same cluster.
func (s *shard) takeBatch(h *hand, batch []item, limit int, together bool) []item {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(batch) < limit && s.waiting.n > 0 {
		if together && len(batch) > 0 && s.waiting.oldestItem().event.Cluster != batch[0].event.Cluster {
			break
		}
		batch = append(batch, s.waiting.takeOldest())
	}
	s.noteInFlight(h, batch)
	return batch
}

// takeOlder takes the oldest items as long as they are of before a time.
func (s *shard) takeOlder(h *hand, than time.Time) []item {
	s.mu.Lock()
	defer s.mu.Unlock()
	var older []item
	for s.waiting.n > 0 && s.waiting.oldestItem().event.Timestamp.Before(than) {
		older = append(older, s.waiting.takeOldest())
	}
	s.noteInFlight(h, older)
	return older
}

// noteInFlight notes what a worker sends, and has another worker look at what is left.
func (s *shard) noteInFlight(h *hand, items []item) {
	h.n, h.since = len(items), time.Time{}
	if len(items) > 0 {
		h.since = items[0].at
	}
	if s.waiting.n > 0 && s.idle > 0 {
		s.wakeWorker()
	}
}

// noteSent says that a worker has nothing in hand any more.
func (s *shard) noteSent(h *hand) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*h = hand{}
}

// closeShard lets nothing more in.
func (s *shard) closeShard() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.wakeWorker()
}

// wakeWorker wakes a worker, or sees that the next does not fall asleep.
func (s *shard) wakeWorker() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// pendingStats is how many events wait or are being sent, how long the oldest has
// been there, and how many there were.
func (s *shard) pendingStats(now time.Time) (n int, oldest time.Duration, offered uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n = s.waiting.n
	if n > 0 {
		oldest = now.Sub(s.waiting.oldestItem().at)
	}
	for _, h := range s.hands {
		if h.n > 0 {
			n, oldest = n+h.n, max(oldest, now.Sub(h.since))
		}
	}
	return n, oldest, s.offered
}
