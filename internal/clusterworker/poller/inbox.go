package poller

import (
	"context"
	"sync"

	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

// A key is a Shoot of a cluster. A cluster has one; whatever else bears its
// label must not be mistaken for it.
type key struct{ cluster, name string }

// A observation is what was seen of a Shoot.
type observation struct {
	// shoot is nil if there was none.
	shoot *shoot.Observed
	// err is why a look saw nothing at all.
	err error
	// asked is the row that a live look was begun for. Nil is a sighting of a
	// list or a watch, which may be older than the row that it is held against.
	asked *clusterworker.Row
	// thorough is whether to ask, too, if the Shoot is as it was sent.
	thorough bool
	// polled is whether the look is part of a poll.
	polled bool
	// told is whether a watch told of it just now.
	told bool
	// doubtful is whether something newer may be known.
	doubtful bool
	// tries is how often it was tried to make something of this.
	tries int
}

// A liveRead is a live look that is to be had.
type liveRead struct {
	key
	asked    *clusterworker.Row
	thorough bool
	polled   bool
	tries    int
	ticket   uint64
}

// An inbox collects what was seen until the session reads it, the newest of
// each Shoot alone: so it holds no more than there are Shoots, however slow the
// database is. It also keeps the looks that are to be had.
type inbox struct {
	wake chan struct{} // of capacity 1

	mu      sync.Mutex
	epoch   int // rises with every list; what comes from before it is forgotten
	news    map[key]observation
	queue   []liveRead
	waiting *sync.Cond       // for the queue
	asked   map[key]liveRead // and not answered
	tickets uint64
	// during are the Shoots that something came of since a list was begun: what
	// the list says of them may be older.
	during map[key]bool
}

func newInbox() *inbox {
	b := &inbox{wake: make(chan struct{}, 1), news: map[key]observation{}, asked: map[key]liveRead{}}
	b.waiting = sync.NewCond(&b.mu)
	return b
}

// noteListing notes that a list begins.
func (b *inbox) noteListing() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.during = map[key]bool{}
}

// resetEpoch forgets everything, as a list has come, and gives the epoch that begins
// and the Shoots of which the list may be older than what came before it.
func (b *inbox) resetEpoch() (epoch int, during map[key]bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.epoch++
	clear(b.news)
	clear(b.asked)
	b.queue = nil
	during, b.during = b.during, nil
	return b.epoch, during
}

// currentEpoch is the epoch that is.
func (b *inbox) currentEpoch() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.epoch
}

// putWatched puts in what a watch of an epoch says. It is newer than whatever a look
// finds that was begun before.
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

// putBack puts sightings back that nothing could be made of yet, unless something
// newer has come.
func (b *inbox) putBack(all map[key]observation) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for k, s := range all {
		if _, ok := b.news[k]; !ok {
			b.putObservation(k, s)
		}
	}
}

// noteShoot notes that something came of a Shoot while a list is under way.
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

// takeAll gives all that has come, and empties the inbox.
func (b *inbox) takeAll() map[key]observation {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.news
	b.news = map[key]observation{}
	return all
}

// requestRead has a look be had, unless one was already asked for.
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

// outstanding is how many looks were asked for and not answered.
func (b *inbox) outstanding() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.asked)
}

// nextRead gives the next look to be had, and waits for one. It is not ok when ctx
// has ended.
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
			if b.asked[l.key].ticket == l.ticket { // otherwise something newer is known
				return l, true
			}
		}
		b.waiting.Wait()
	}
	return liveRead{}, false
}

// putRead puts in what a look has found, unless something newer is known.
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
