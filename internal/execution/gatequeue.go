package execution

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// memberState is the progress of a member towards admission.
type memberState int

const (
	stateQueued   memberState = iota // behind another member in the queue of its target
	stateHead                        // next for its target, in cooldown
	stateReady                       // blocked only by a budget
	stateReserved                    // a place is reserved and its wake was sent
	stateInside
)

// A gateMember is a claim that waits at the gate or is inside.
type gateMember struct {
	Claim
	since   time.Time // when it began to wait
	arrival uint64    // rank among the members that began to wait at the same time
	state   memberState
	target  *gateTarget
	stream  *memberStream // set while it is ready

	heapIndex int // in the queue of its target, or in its stream
}

// isBefore reports whether m is admitted before other. Rollbacks precede others, because they revert
// the present state of the target, not the result of another change.
func (m *gateMember) isBefore(other *gateMember) bool {
	switch {
	case m.Rollback != other.Rollback:
		return m.Rollback
	case !m.since.Equal(other.since):
		return m.since.Before(other.since)
	case !m.Created.Equal(other.Created):
		return m.Created.Before(other.Created)
	}
	return m.arrival < other.arrival
}

func (m *gateMember) setHeapIndex(i int) { m.heapIndex = i }

// A gateTarget is an object on which one execution acts at a time.
type gateTarget struct {
	name   string
	inside []*gateMember // one member, or more after Restore
	head   *gateMember   // next member, removed from the queue
	queue  memberHeap[*gateMember]
}

func (t *gateTarget) removeInside(m *gateMember) {
	t.inside = slices.DeleteFunc(t.inside, func(o *gateMember) bool { return o == m })
}

func (t *gateTarget) isEmpty() bool { return len(t.inside) == 0 && t.head == nil && len(t.queue) == 0 }

// selectNextHead selects the next member for a target. The head becomes ready if only a budget can
// still block it. With a zero time, its cooldown is not checked and it does not become ready.
func (g *Gate) selectNextHead(t *gateTarget, now time.Time) {
	if len(t.inside) > 0 {
		return
	}

	// A member that goes first, such as a rollback, displaces the head.
	if t.head != nil && len(t.queue) > 0 && t.queue[0].isBefore(t.head) {
		if t.head.state == stateReady {
			g.budget.removeReady(t.head)
		}
		t.head.state = stateQueued
		t.queue.pushItem(t.head)
		t.head = nil
	}
	if t.head == nil && len(t.queue) > 0 {
		t.head = t.queue.removeAt(0)
		t.head.state = stateHead
		g.wakes.addMember(t.head)
	}

	head := t.head
	if head == nil || head.state != stateHead || now.IsZero() {
		return
	}
	if _, circuitOpen := g.past.circuitOpenUntil(head, g.cfg, now); circuitOpen {
		return
	}
	if g.past.cooldownLeft(head, g.cfg.Cooldown, now) > 0 {
		return
	}
	head.state = stateReady
	g.budget.queueReady(head)
}

// reservePlaces reserves the free places for ready members.
func (g *Gate) reservePlaces() {
	for !g.stopped {
		member := g.budget.firstReadyWithRoom()
		if member == nil {
			return
		}
		g.budget.removeReady(member)
		g.budget.addToInsideCounts(member)
		member.target.head = nil
		member.target.inside = append(member.target.inside, member)
		member.state = stateReserved
		g.reserved[member.UID] = member
		g.wakes.addMember(member)
	}
}

// wakeList holds the executions to wake.
type wakeList []types.NamespacedName

func (w *wakeList) addMember(m *gateMember) {
	if !slices.Contains(*w, m.Key) {
		*w = append(*w, m.Key)
	}
}

// A memberHeapItem is an element of a heap that knows its index.
type memberHeapItem[T any] interface {
	isBefore(other T) bool
	setHeapIndex(i int)
}

// A memberHeap is a binary heap with its first element at 0. Unlike container/heap it does not box its
// elements.
type memberHeap[T memberHeapItem[T]] []T

func (h *memberHeap[T]) pushItem(x T) {
	*h = append(*h, x)
	x.setHeapIndex(len(*h) - 1)
	h.siftUp(len(*h) - 1)
}

// removeAt removes and returns the element at i.
func (h *memberHeap[T]) removeAt(i int) T {
	items := *h
	removed := items[i]
	last := len(items) - 1
	items.swapItems(i, last)
	var none T
	items[last] = none // so that the array behind the heap does not keep it alive
	*h = items[:last]
	if i < last {
		h.restoreOrderAt(i)
	}
	return removed
}

// restoreOrderAt restores the heap order for the element at i.
func (h *memberHeap[T]) restoreOrderAt(i int) {
	if !h.siftDown(i) {
		h.siftUp(i)
	}
}

func (h memberHeap[T]) swapItems(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].setHeapIndex(i)
	h[j].setHeapIndex(j)
}

func (h memberHeap[T]) siftUp(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !h[i].isBefore(h[parent]) {
			return
		}
		h.swapItems(i, parent)
		i = parent
	}
}

func (h memberHeap[T]) siftDown(i int) (moved bool) {
	for {
		first := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(h); child++ {
			if h[child].isBefore(h[first]) {
				first = child
			}
		}
		if first == i {
			return moved
		}
		h.swapItems(i, first)
		i, moved = first, true
	}
}
