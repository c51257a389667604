package memory

import (
	"container/heap"
	"time"
)

// A schedule orders the Shoots with an operation in progress by their next step.
type schedule struct{ items shootHeap }

// putIfDueOrRemove updates the place of a Shoot in the schedule, or removes it without a next
// step.
func (s *schedule) putIfDueOrRemove(stored *storedShoot) {
	switch due := !stored.op.due.IsZero(); {
	case due && stored.at < 0:
		heap.Push(&s.items, stored)
	case due:
		heap.Fix(&s.items, stored.at)
	default:
		s.removeShoot(stored)
	}
}

func (s *schedule) removeShoot(stored *storedShoot) {
	if stored.at >= 0 {
		heap.Remove(&s.items, stored.at)
	}
}

// nextStepTime returns the time of the next change, zero without one.
func (s *schedule) nextStepTime() time.Time {
	if len(s.items) == 0 {
		return time.Time{}
	}
	return s.items[0].op.due
}

type shootHeap []*storedShoot //nolint:recvcheck // as package heap has it

func (h shootHeap) Len() int           { return len(h) }
func (h shootHeap) Less(i, j int) bool { return h[i].op.due.Before(h[j].op.due) }
func (h shootHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

// Push implements heap.Interface.
func (h *shootHeap) Push(x any) {
	it := x.(*storedShoot) //nolint:errcheck,forcetypeassert // nothing else is pushed
	it.at = len(*h)
	*h = append(*h, it)
}

// Pop implements heap.Interface.
func (h *shootHeap) Pop() any {
	last := len(*h) - 1
	it := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	it.at = -1
	return it
}
