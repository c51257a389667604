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
	// readFor is the row for which a live read was started. It is nil for an observation
	// of a list or a watch, which may be older than the row that it is compared with.
	readFor *clusterworker.Row
	// checkDrift is whether to check for drift as well.
	checkDrift bool
	// fromPoll is whether the read is part of a poll.
	fromPoll bool
	// fromWatch is whether the observation is a new watch event.
	fromWatch bool
	// mayBeStale is whether newer state may be known.
	mayBeStale bool
	// tries counts the live reads and the delays of the observation.
	tries int
	// wasDelayed is whether the observation was delayed since it was made. Then it is confirmed by
	// a live read at once, however many tries it had.
	wasDelayed bool
}

// A liveRead is a requested live read of a Shoot.
type liveRead struct {
	shootKey
	readFor    *clusterworker.Row
	checkDrift bool
	fromPoll   bool
	tries      int
	ticket     uint64
}

// An inbox collects observations until the session reads them, and keeps only the
// newest of each Shoot. So it holds no more entries than there are Shoots, however slow
// the database is. It also holds the requested live reads.
type inbox struct {
	wake chan struct{} // capacity 1

	mu      sync.Mutex
	epoch   int // rises with every list; observations of earlier epochs are dropped
	newest  map[shootKey]observation
	queue   []liveRead
	waiting *sync.Cond            // signals the queue
	pending map[shootKey]liveRead // requested and unanswered reads
	tickets uint64
	// seenDuringList are the Shoots with an observation since the current list began. The list
	// may be older than those observations.
	seenDuringList map[shootKey]bool
}

func newInbox() *inbox {
	i := &inbox{wake: make(chan struct{}, 1), newest: map[shootKey]observation{}, pending: map[shootKey]liveRead{}}
	i.waiting = sync.NewCond(&i.mu)
	return i
}

// startTrackingObservations records that a list begins.
func (i *inbox) startTrackingObservations() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.seenDuringList = map[shootKey]bool{}
}

// clearForNewEpoch clears the inbox after a list. It returns the new epoch and the Shoots for
// which the list may be older than an earlier observation.
func (i *inbox) clearForNewEpoch() (epoch int, observedDuringList map[shootKey]bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.epoch++
	clear(i.newest)
	clear(i.pending)
	i.queue = nil
	observedDuringList, i.seenDuringList = i.seenDuringList, nil
	return i.epoch, observedDuringList
}

// currentEpoch returns the current epoch.
func (i *inbox) currentEpoch() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.epoch
}

// putWatchObservation adds an observation of the watch of an epoch. It is newer than the result
// of any live read that began before.
func (i *inbox) putWatchObservation(epoch int, key shootKey, observed observation) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if epoch != i.epoch {
		return
	}
	if read, ok := i.pending[key]; ok {
		observed.checkDrift = read.checkDrift
		delete(i.pending, key)
	}
	i.recordObservedDuringList(key)
	i.mergeObservationAndWake(key, observed)
}

// putBackObservations returns observations that could not be handled yet, unless newer ones have
// arrived. These then check for drift if the older ones had to.
func (i *inbox) putBackObservations(observations map[shootKey]observation) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for key, older := range observations {
		if newer, ok := i.newest[key]; ok {
			newer.checkDrift = newer.checkDrift || older.checkDrift
			i.newest[key] = newer
			continue
		}
		i.mergeObservationAndWake(key, older)
	}
}

// recordObservedDuringList records that a Shoot was observed while a list is in progress.
func (i *inbox) recordObservedDuringList(key shootKey) {
	if i.seenDuringList != nil {
		i.seenDuringList[key] = true
	}
}

func (i *inbox) mergeObservationAndWake(key shootKey, observed observation) {
	observed.checkDrift = observed.checkDrift || i.newest[key].checkDrift
	i.newest[key] = observed
	select {
	case i.wake <- struct{}{}:
	default: // the session will read the inbox anyway
	}
}

// takeAllObservations returns all observations and empties the inbox.
func (i *inbox) takeAllObservations() map[shootKey]observation {
	i.mu.Lock()
	defer i.mu.Unlock()
	all := i.newest
	i.newest = map[shootKey]observation{}
	return all
}

// queueLiveReadIfNotPending queues a live read, unless one is already requested. It reports whether
// it did.
func (i *inbox) queueLiveReadIfNotPending(read liveRead) (queued bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if _, ok := i.pending[read.shootKey]; ok {
		return false
	}
	i.tickets++
	read.ticket = i.tickets
	i.pending[read.shootKey] = read
	i.queue = append(i.queue, read)
	i.waiting.Signal()
	return true
}

// countUnansweredReads returns the number of unanswered live reads.
func (i *inbox) countUnansweredReads() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.pending)
}

// waitForNextRead waits for the next live read and returns it, or false after ctx ends.
func (i *inbox) waitForNextRead(ctx context.Context) (read liveRead, ok bool) {
	stop := context.AfterFunc(ctx, func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.waiting.Broadcast()
	})
	defer stop()
	i.mu.Lock()
	defer i.mu.Unlock()
	for ctx.Err() == nil {
		for len(i.queue) > 0 {
			next := i.queue[0]
			i.queue = i.queue[1:]
			if i.pending[next.shootKey].ticket == next.ticket { // otherwise newer state is known
				return next, true
			}
		}
		i.waiting.Wait()
	}
	return liveRead{}, false
}

// putLiveReadResultIfCurrent adds the observation of a live read, unless newer state is known.
func (i *inbox) putLiveReadResultIfCurrent(read liveRead, observed observation) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.pending[read.shootKey].ticket != read.ticket {
		return
	}
	delete(i.pending, read.shootKey)
	i.recordObservedDuringList(read.shootKey)
	i.mergeObservationAndWake(read.shootKey, observed)
}
