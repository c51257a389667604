package poller

import (
	"context"
	"sync"

	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

// A key identifies a Shoot of a cluster. A cluster has one Shoot; another Shoot with
// its label must not be mistaken for it.
type key struct{ cluster, name string }

// An observation is the observed state of a Shoot.
type observation struct {
	// shoot is nil if the Shoot was absent.
	shoot *shoot.Observed
	// err is the error of a live read that failed.
	err error
	// asked is the row for which a live read was started. It is nil for an observation
	// of a list or a watch, which may be older than the row that it is compared with.
	asked *clusterworker.Row
	// thorough is whether to check for drift as well.
	thorough bool
	// polled is whether the read is part of a poll.
	polled bool
	// told is whether the observation is a new watch event.
	told bool
	// doubtful is whether newer state may be known.
	doubtful bool
	// tries counts the live reads and the delays of the observation.
	tries int
	// waited is whether the observation was delayed since it was made. Then it is confirmed by
	// a live read at once, however many tries it had.
	waited bool
}

// A liveRead is a requested live read of a Shoot.
type liveRead struct {
	key
	asked    *clusterworker.Row
	thorough bool
	polled   bool
	tries    int
	ticket   uint64
}

// An inbox collects observations until the session reads them, and keeps only the
// newest of each Shoot. So it holds no more entries than there are Shoots, however slow
// the database is. It also holds the requested live reads.
type inbox struct {
	wake chan struct{} // capacity 1

	mu      sync.Mutex
	epoch   int // rises with every list; observations of earlier epochs are dropped
	news    map[key]observation
	queue   []liveRead
	waiting *sync.Cond       // signals the queue
	asked   map[key]liveRead // requested and unanswered reads
	tickets uint64
	// during are the Shoots with an observation since the current list began. The list
	// may be older than those observations.
	during map[key]bool
}

func newInbox() *inbox {
	b := &inbox{wake: make(chan struct{}, 1), news: map[key]observation{}, asked: map[key]liveRead{}}
	b.waiting = sync.NewCond(&b.mu)
	return b
}

// noteListing records that a list begins.
func (b *inbox) noteListing() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.during = map[key]bool{}
}

// resetEpoch clears the inbox after a list. It returns the new epoch and the Shoots for
// which the list may be older than an earlier observation.
func (b *inbox) resetEpoch() (epoch int, observedDuringList map[key]bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.epoch++
	clear(b.news)
	clear(b.asked)
	b.queue = nil
	observedDuringList, b.during = b.during, nil
	return b.epoch, observedDuringList
}

// currentEpoch returns the current epoch.
func (b *inbox) currentEpoch() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.epoch
}

// putWatched adds an observation of the watch of an epoch. It is newer than the result
// of any live read that began before.
func (b *inbox) putWatched(epoch int, k key, s observation) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if epoch != b.epoch {
		return
	}
	if l, ok := b.asked[k]; ok {
		s.thorough = l.thorough
		delete(b.asked, k)
	}
	b.noteShoot(k)
	b.putObservation(k, s)
}

// putBack returns observations that could not be handled yet, unless newer ones have
// arrived. These then check for drift if the older ones had to.
func (b *inbox) putBack(all map[key]observation) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for k, s := range all {
		if n, ok := b.news[k]; ok {
			n.thorough = n.thorough || s.thorough
			b.news[k] = n
			continue
		}
		b.putObservation(k, s)
	}
}

// noteShoot records that a Shoot was observed while a list is in progress.
func (b *inbox) noteShoot(k key) {
	if b.during != nil {
		b.during[k] = true
	}
}

func (b *inbox) putObservation(k key, s observation) {
	s.thorough = s.thorough || b.news[k].thorough
	b.news[k] = s
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// takeAll returns all observations and empties the inbox.
func (b *inbox) takeAll() map[key]observation {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.news
	b.news = map[key]observation{}
	return all
}

// requestRead queues a live read, unless one is already requested. It reports whether
// it did.
func (b *inbox) requestRead(l liveRead) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.asked[l.key]; ok {
		return false
	}
	b.tickets++
	l.ticket = b.tickets
	b.asked[l.key] = l
	b.queue = append(b.queue, l)
	b.waiting.Signal()
	return true
}

// outstanding returns the number of unanswered live reads.
func (b *inbox) outstanding() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.asked)
}

// nextRead waits for the next live read and returns it, or false after ctx ends.
func (b *inbox) nextRead(ctx context.Context) (liveRead, bool) {
	stop := context.AfterFunc(ctx, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.waiting.Broadcast()
	})
	defer stop()
	b.mu.Lock()
	defer b.mu.Unlock()
	for ctx.Err() == nil {
		for len(b.queue) > 0 {
			l := b.queue[0]
			b.queue = b.queue[1:]
			if b.asked[l.key].ticket == l.ticket { // otherwise newer state is known
				return l, true
			}
		}
		b.waiting.Wait()
	}
	return liveRead{}, false
}

// putRead adds the observation of a live read, unless newer state is known.
func (b *inbox) putRead(l liveRead, s observation) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.asked[l.key].ticket != l.ticket {
		return
	}
	delete(b.asked, l.key)
	b.noteShoot(l.key)
	b.putObservation(l.key, s)
}
