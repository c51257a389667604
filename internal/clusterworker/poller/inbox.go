package poller

import (
	"context"
	"sync"

	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

// A shootKey identifies a Shoot of a cluster. A cluster has one Shoot; another Shoot with
// its label must not be mistaken for it.
type shootKey struct{ cluster, name string }

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
	shootKey
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
	news    map[shootKey]observation
	queue   []liveRead
	waiting *sync.Cond            // signals the queue
	asked   map[shootKey]liveRead // requested and unanswered reads
	tickets uint64
	// during are the Shoots with an observation since the current list began. The list
	// may be older than those observations.
	during map[shootKey]bool
}

func newInbox() *inbox {
	b := &inbox{wake: make(chan struct{}, 1), news: map[shootKey]observation{}, asked: map[shootKey]liveRead{}}
	b.waiting = sync.NewCond(&b.mu)
	return b
}

// startTrackingObservations records that a list begins.
func (b *inbox) startTrackingObservations() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.during = map[shootKey]bool{}
}

// clearForNewEpoch clears the inbox after a list. It returns the new epoch and the Shoots for
// which the list may be older than an earlier observation.
func (b *inbox) clearForNewEpoch() (epoch int, observedDuringList map[shootKey]bool) {
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

// putWatchObservation adds an observation of the watch of an epoch. It is newer than the result
// of any live read that began before.
func (b *inbox) putWatchObservation(epoch int, key shootKey, observed observation) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if epoch != b.epoch {
		return
	}
	if l, ok := b.asked[key]; ok {
		observed.thorough = l.thorough
		delete(b.asked, key)
	}
	b.recordObservedDuringList(key)
	b.mergeObservationAndWake(key, observed)
}

// putBackObservations returns observations that could not be handled yet, unless newer ones have
// arrived. These then check for drift if the older ones had to.
func (b *inbox) putBackObservations(observations map[shootKey]observation) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for k, s := range observations {
		if n, ok := b.news[k]; ok {
			n.thorough = n.thorough || s.thorough
			b.news[k] = n
			continue
		}
		b.mergeObservationAndWake(k, s)
	}
}

// recordObservedDuringList records that a Shoot was observed while a list is in progress.
func (b *inbox) recordObservedDuringList(key shootKey) {
	if b.during != nil {
		b.during[key] = true
	}
}

func (b *inbox) mergeObservationAndWake(key shootKey, observed observation) {
	observed.thorough = observed.thorough || b.news[key].thorough
	b.news[key] = observed
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// takeAllObservations returns all observations and empties the inbox.
func (b *inbox) takeAllObservations() map[shootKey]observation {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.news
	b.news = map[shootKey]observation{}
	return all
}

// queueLiveRead queues a live read, unless one is already requested. It reports whether
// it did.
func (b *inbox) queueLiveRead(read liveRead) (queued bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.asked[read.shootKey]; ok {
		return false
	}
	b.tickets++
	read.ticket = b.tickets
	b.asked[read.shootKey] = read
	b.queue = append(b.queue, read)
	b.waiting.Signal()
	return true
}

// countUnansweredReads returns the number of unanswered live reads.
func (b *inbox) countUnansweredReads() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.asked)
}

// waitForNextRead waits for the next live read and returns it, or false after ctx ends.
func (b *inbox) waitForNextRead(ctx context.Context) (read liveRead, ok bool) {
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
			if b.asked[l.shootKey].ticket == l.ticket { // otherwise newer state is known
				return l, true
			}
		}
		b.waiting.Wait()
	}
	return liveRead{}, false
}

// putLiveReadResultIfCurrent adds the observation of a live read, unless newer state is known.
func (b *inbox) putLiveReadResultIfCurrent(read liveRead, observed observation) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.asked[read.shootKey].ticket != read.ticket {
		return
	}
	delete(b.asked, read.shootKey)
	b.recordObservedDuringList(read.shootKey)
	b.mergeObservationAndWake(read.shootKey, observed)
}
