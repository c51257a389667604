package memory

import (
	"sort"
	"strconv"
	"time"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

// A shootChange is a version of a Shoot. A watch reports only the newest version of each
// Shoot.
type shootChange struct {
	version uint64
	it      *storedShoot
	gone    bool
}

// A changeLog holds the latest changes.
type changeLog struct {
	backlog int
	version uint64 // of the last change
	log     []shootChange
	dropped uint64        // version of the newest change removed from the log
	grown   chan struct{} // closed when the log has grown or an outage begins; nil without waiters
}

// appendChange gives a Shoot its next version.
func (l *changeLog) appendChange(stored *storedShoot, removed bool) {
	l.version++
	stored.version = l.version
	l.log = append(l.log, shootChange{l.version, stored, removed})
	if len(l.log) >= 2*l.backlog { // seldom, so that the cost per change is constant
		old := len(l.log) - l.backlog
		l.dropped = l.log[old-1].version
		n := copy(l.log, l.log[old:])
		clear(l.log[n:])
		l.log = l.log[:n]
	}
	l.wakeWatchers()
}

// wakeWatchers wakes all watches.
func (l *changeLog) wakeWatchers() {
	if l.grown != nil {
		close(l.grown)
		l.grown = nil
	}
}

// toWatchEvent returns the watch event of a change.
func (c shootChange) toWatchEvent() shoot.Event {
	e := shoot.Event{Type: shoot.Seen, Shoot: c.it.toObservedShoot()}
	if c.gone {
		e.Type = shoot.Gone
	}
	e.Shoot.ResourceVersion = strconv.FormatUint(c.version, 10)
	return e
}

// pendingChanges are the changes after a version.
type pendingChanges struct {
	events  []shoot.Event
	version uint64
	grown   <-chan struct{} // closed on further changes
	next    time.Time       // time of the next scheduled change, zero without one
}

// atOnce is the largest number of changes in one batch.
const atOnce = 1000

// changesSince returns the changes after a version of the Shoots that isListed selects. It returns
// shoot.ErrExpired if the log no longer has all of them.
func (l *changeLog) changesSince(after uint64, isListed func(*storedShoot) bool) (pendingChanges, error) {
	if after < l.dropped {
		return pendingChanges{}, shoot.ErrExpired
	}
	n := pendingChanges{version: l.version, grown: l.nextChangeChannel()}
	from := sort.Search(len(l.log), func(i int) bool { return l.log[i].version > after })
	for _, c := range l.log[from:] {
		if len(n.events) == atOnce {
			n.version, n.grown = c.version-1, newClosedChannel()
			break
		}
		if isListed(c.it) && c.version == c.it.version {
			n.events = append(n.events, c.toWatchEvent())
		}
	}
	return n, nil
}

// nextChangeChannel returns a channel that is closed on further changes.
func (l *changeLog) nextChangeChannel() <-chan struct{} {
	if l.grown == nil {
		l.grown = make(chan struct{})
	}
	return l.grown
}

func newClosedChannel() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}
