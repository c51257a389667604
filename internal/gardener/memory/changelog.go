package memory

import (
	"sort"
	"strconv"
	"time"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

// A change is a version of a Shoot. A watch reports only the newest version of each
// Shoot.
type change struct {
	version uint64
	it      *item
	gone    bool
}

// A changeLog holds the latest changes.
type changeLog struct {
	backlog int
	version uint64 // of the last change
	log     []change
	dropped uint64        // version of the newest change removed from the log
	grown   chan struct{} // closed when the log has grown or an outage begins; nil without waiters
}

// record gives a Shoot its next version.
func (l *changeLog) record(it *item, gone bool) {
	l.version++
	it.version = l.version
	l.log = append(l.log, change{l.version, it, gone})
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

// toEvent returns the watch event of a change.
func (c change) toEvent() shoot.Event {
	e := shoot.Event{Type: shoot.Seen, Shoot: c.it.toObserved()}
	if c.gone {
		e.Type = shoot.Gone
	}
	e.Shoot.ResourceVersion = strconv.FormatUint(c.version, 10)
	return e
}

// news are the changes after a version.
type news struct {
	events  []shoot.Event
	version uint64
	grown   <-chan struct{} // closed on further changes
	next    time.Time       // time of the next scheduled change, zero without one
}

// atOnce is the largest number of changes in one batch.
const atOnce = 1000

// since returns the changes after a version of the Shoots that listed selects. It returns
// shoot.ErrExpired if the log no longer has all of them.
func (l *changeLog) since(after uint64, listed func(*item) bool) (news, error) {
	if after < l.dropped {
		return news{}, shoot.ErrExpired
	}
	n := news{version: l.version, grown: l.signal()}
	from := sort.Search(len(l.log), func(i int) bool { return l.log[i].version > after })
	for _, c := range l.log[from:] {
		if len(n.events) == atOnce {
			n.version, n.grown = c.version-1, closedChannel()
			break
		}
		if listed(c.it) && c.version == c.it.version {
			n.events = append(n.events, c.toEvent())
		}
	}
	return n, nil
}

// signal returns a channel that is closed on further changes.
func (l *changeLog) signal() <-chan struct{} {
	if l.grown == nil {
		l.grown = make(chan struct{})
	}
	return l.grown
}

func closedChannel() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}
