package gate

import (
	"slices"
	"time"
)

// state is how far a member is.
type state int

const (
	stateQueued   state = iota // behind another in the queue of its target
	stateHead                  // the next for its target, once the cooldown is over
	stateReady                 // nothing but a budget is in its way
	stateReserved              // a place is kept for it, and it was told
	stateInside
)

// A member is a claim at the gate.
type member struct {
	Claim
	since   time.Time
	arrival uint64
	state   state
	target  *target
	stream  *stream // while it is ready
	at      int     // where it stands in its heap
}

// before is whose turn comes first. A rollback goes before others: it takes back
// what the target has now, not what others make of it.
func (m *member) before(o *member) bool {
	switch {
	case m.Rollback != o.Rollback:
		return m.Rollback
	case !m.since.Equal(o.since):
		return m.since.Before(o.since)
	case !m.Created.Equal(o.Created):
		return m.Created.Before(o.Created)
	}
	return m.arrival < o.arrival
}

func (m *member) setAt(i int) { m.at = i }

// A target is what one at a time may act on.
type target struct {
	name   string
	inside []*member // one, unless more were restored
	head   *member   // the next, out of the queue
	queue  heap[*member]
}

func (t *target) leave(m *member) {
	t.inside = slices.DeleteFunc(t.inside, func(o *member) bool { return o == m })
}

func (t *target) empty() bool { return len(t.inside) == 0 && t.head == nil && len(t.queue) == 0 }

// settle finds who is next for a target.
func (g *Gate) settle(t *target, now time.Time) {
	if len(t.inside) > 0 {
		return
	}
	if t.head != nil && len(t.queue) > 0 && t.queue[0].before(t.head) {
		if t.head.state == stateReady {
			g.budget.unplace(t.head)
		}
		t.head.state = stateQueued
		t.queue.push(t.head)
		t.head = nil
	}
	if t.head == nil && len(t.queue) > 0 {
		t.head = t.queue.remove(0)
		t.head.state = stateHead
		g.wake(t.head)
	}
	if m := t.head; m != nil && m.state == stateHead && !now.IsZero() && g.free(m, now) {
		m.state = stateReady
		g.budget.place(m)
	}
}

// free says whether nothing but a budget is in the way of the next for a target.
func (g *Gate) free(m *member, now time.Time) bool {
	_, broken := g.circuit(m, now)
	return !broken && g.cooldown(m, now) <= 0
}

// dispatch gives away the places that are free.
func (g *Gate) dispatch() {
	for !g.stopped {
		m := g.budget.next()
		if m == nil {
			return
		}
		g.budget.unplace(m)
		g.budget.hold(m)
		m.target.head = nil
		m.target.inside = append(m.target.inside, m)
		m.state = stateReserved
		g.reserved[m.UID] = m
		g.wake(m)
	}
}

func (g *Gate) wake(m *member) {
	if !slices.Contains(g.wakes, m.Key) {
		g.wakes = append(g.wakes, m.Key)
	}
}

// ordered are things that stand in a heap, and know where.
type ordered[T any] interface {
	before(other T) bool
	setAt(i int)
}

// A heap has its first at 0. Unlike those of container/heap it needs no boxes.
type heap[T ordered[T]] []T

func (h *heap[T]) push(x T) {
	*h = append(*h, x)
	x.setAt(len(*h) - 1)
	h.up(len(*h) - 1)
}

// remove takes out what stands at i.
func (h *heap[T]) remove(i int) T {
	s := *h
	x, last := s[i], len(s)-1
	s.swap(i, last)
	var none T
	s[last] = none
	*h = s[:last]
	if i < last {
		h.fix(i)
	}
	return x
}

// fix puts what stands at i where it belongs.
func (h *heap[T]) fix(i int) {
	if !h.down(i) {
		h.up(i)
	}
}

func (h heap[T]) swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].setAt(i)
	h[j].setAt(j)
}

func (h heap[T]) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !h[i].before(h[parent]) {
			return
		}
		h.swap(i, parent)
		i = parent
	}
}

func (h heap[T]) down(i int) (moved bool) {
	for {
		first := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(h); child++ {
			if h[child].before(h[first]) {
				first = child
			}
		}
		if first == i {
			return moved
		}
		h.swap(i, first)
		i, moved = first, true
	}
}
