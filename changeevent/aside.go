package changeevent

import (
	"sync"
	"sync/atomic"
	"time"
)

// A notice is what a sender has found out and has no time to tell: that an
// event had to make way, or that the sink does not want it.
type notice struct {
	event   *ChangeEvent // nil if nobody asked to be told
	action  string
	verdict verdict
	at      time.Time
}

// An callbackQueue takes what senders leave to another goroutine, because a callback or
// a log may take its time and they must not. It holds what callers have asked to
// be told, and nothing of other events.
type callbackQueue struct {
	mu      sync.Mutex
	notices []notice

	awake atomic.Bool
	wake  chan struct{}
	owed  sync.WaitGroup // notices that are on their way here
	idle  chan struct{}  // closed when no worker is left
	ended chan struct{}  // closed when nothing is left
}

func (a *callbackQueue) startQueue() {
	a.wake, a.idle, a.ended = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
}

func (a *callbackQueue) addNotice(n notice) {
	if n.event != nil {
		a.mu.Lock()
		a.notices = append(a.notices, n)
		a.mu.Unlock()
	}
	if !a.awake.Load() && !a.awake.Swap(true) {
		a.wake <- struct{}{} // it has a place: there was nothing in it
	}
}

func (a *callbackQueue) takeNotices() []notice {
	a.awake.Store(false)
	a.mu.Lock()
	defer a.mu.Unlock()
	notices := a.notices
	a.notices = nil
	return notices
}

// noteOverflow counts an event that had to make way, and leaves the rest aside. It
// was reckoned with in owed.
func (c *client) noteOverflow(lost notice, now time.Time) {
	defer c.aside.owed.Done()
	lost.verdict, lost.at = verdict{class: ClassQueueFull}, now
	c.countEvent(lost.action, lost.verdict, now)
	c.aside.addNotice(lost)
}

// notifySkipped tells whoever asked that the sink does not want an event.
func (c *client) notifySkipped(e *ChangeEvent, now time.Time) {
	if e.OnDelivery == nil {
		return
	}
	s := c.shardOf(e)
	s.lockShard()
	closed := s.closed
	if !closed {
		c.aside.owed.Add(1)
	}
	s.mu.Unlock()
	if !closed {
		c.aside.addNotice(notice{event: new(*e), action: e.Action, at: now})
		c.aside.owed.Done()
	}
}

// runCallbacks tells what senders have left aside, until nothing can come any more.
func (c *client) runCallbacks() {
	defer close(c.aside.ended)
	var logged uint64
	for over := false; !over; {
		select {
		case <-c.aside.wake:
		case <-c.aside.idle:
			c.aside.owed.Wait()
			over = true
		}
		for _, n := range c.aside.takeNotices() {
			c.notifySender(n.event, n.verdict, n.at)
		}
		logged = c.reportFull(logged)
	}
}

// reportFull logs that events had to make way since so many had: how many more,
// and not which, because there are as many as were sent.
func (c *client) reportFull(before uint64) uint64 {
	n := c.tally.classes[ClassQueueFull].n.Load()
	if n == before {
		return n
	}
	if _, ok := c.lines.allowLine(ClassQueueFull, time.Now()); !ok {
		return before
	}
	c.log.ErrorContext(c.root, "change events not delivered",
		"reason", explainClass(ClassQueueFull), "error_class", ClassQueueFull, "count", n-before)
	return n
}
