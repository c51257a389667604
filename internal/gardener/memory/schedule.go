package memory

import (
	"container/heap"
	"time"
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
