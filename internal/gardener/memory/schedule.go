package memory

import (
	"container/heap"
	"strconv"
	"time"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

// A schedule orders the Shoots with an operation in progress by their next step.
type schedule struct{ items items }

// putItem updates the place of a Shoot in the schedule, or removes it without a next
// step.
func (s *schedule) putItem(it *item) {
	switch due := !it.op.due.IsZero(); {
	case due && it.at < 0:
		heap.Push(&s.items, it)
	case due:
		heap.Fix(&s.items, it.at)
	default:
		s.dropItem(it)
	}
}

func (s *schedule) dropItem(it *item) {
	if it.at >= 0 {
		heap.Remove(&s.items, it.at)
	}
}

// nextTime returns the time of the next change, zero without one.
func (s *schedule) nextTime() time.Time {
	if len(s.items) == 0 {
		return time.Time{}
	}
	return s.items[0].op.due
}

type items []*item //nolint:recvcheck // as package heap has it

func (h items) Len() int           { return len(h) }
func (h items) Less(i, j int) bool { return h[i].op.due.Before(h[j].op.due) }
func (h items) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

// Push implements heap.Interface.
func (h *items) Push(x any) {
	it := x.(*item) //nolint:errcheck,forcetypeassert // nothing else is pushed
	it.at = len(*h)
	*h = append(*h, it)
}

// Pop implements heap.Interface.
func (h *items) Pop() any {
	last := len(*h) - 1
	it := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	it.at = -1
	return it
}

// advanceTo runs the steps since the last call.
func (g *Garden) advanceTo(now time.Time) {
	for {
		next := g.schedule.nextTime()
		if next.IsZero() || next.After(now) {
			return
		}
		// One step of one Shoot at a time keeps the changes of all in order.
		g.runDueSteps(g.schedule.items[0], next)
	}
}

// A change is a version of a Shoot. A watch reports only the newest version of each
// Shoot.
type change struct {
	version uint64
	it      *item
	gone    bool
}

// bumpVersion gives a Shoot its next version.
func (g *Garden) bumpVersion(it *item) { g.recordChange(it, false) }

func (g *Garden) recordChange(it *item, gone bool) {
	g.version++
	it.version = g.version
	g.log = append(g.log, change{g.version, it, gone})
	if len(g.log) >= 2*g.o.Backlog { // seldom, so that the cost per change is constant
		old := len(g.log) - g.o.Backlog
		g.dropped = g.log[old-1].version
		n := copy(g.log, g.log[old:])
		clear(g.log[n:])
		g.log = g.log[:n]
	}
	g.wakeWatchers()
}

// wakeWatchers wakes all watches.
func (g *Garden) wakeWatchers() {
	if g.grown != nil {
		close(g.grown)
		g.grown = nil
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
