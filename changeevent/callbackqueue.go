package changeevent

import (
	"sync"
	"sync/atomic"
	"time"
)

// A notice is a result that the sending goroutine leaves to runCallbacksAndLogOverflows. Either an event
// was dropped from a full queue, or the sink does not receive its action.
type notice struct {
	event   *ChangeEvent // nil if the event has no OnDelivery
	action  string
	verdict deliveryResult
	at      time.Time
}

// A callbackQueue hands notices to another goroutine, because a callback or a log write
// may block and a sender must not. It stores only events that have an OnDelivery.
type callbackQueue struct {
	mu      sync.Mutex
	notices []notice

	awake atomic.Bool
	wake  chan struct{}
	owed  sync.WaitGroup // notices that are not added yet
	idle  chan struct{}  // closed when the last worker ends
	ended chan struct{}  // closed when the last notice is processed
}

func (a *callbackQueue) initChannels() {
	a.wake = make(chan struct{}, 1)
	a.idle = make(chan struct{})
	a.ended = make(chan struct{})
}

func (a *callbackQueue) addNoticeAndWake(n notice) {
	if n.event != nil {
		a.mu.Lock()
		a.notices = append(a.notices, n)
		a.mu.Unlock()
	}
	if !a.awake.Load() && !a.awake.Swap(true) {
		a.wake <- struct{}{} // does not block: the channel is empty and has one slot
	}
}

func (a *callbackQueue) takeAllNotices() []notice {
	a.awake.Store(false)
	a.mu.Lock()
	defer a.mu.Unlock()
	notices := a.notices
	a.notices = nil
	return notices
}

// countAndQueueOverflow counts an event that was dropped from a full queue, and queues its notice.
// The caller has added the notice to owed.
func (c *client) countAndQueueOverflow(lost notice, now time.Time) {
	defer c.aside.owed.Done()
	lost.verdict, lost.at = deliveryResult{class: ClassQueueFull}, now
	c.results.countEventResult(lost.action, lost.verdict, now)
	c.aside.addNoticeAndWake(lost)
}

// queueCallbackOfUnwantedEvent queues a notice for an event whose action the sink does not receive.
func (c *client) queueCallbackOfUnwantedEvent(e *ChangeEvent, now time.Time) {
	if e.OnDelivery == nil {
		return
	}
	s := c.shardOf(e)
	s.spinThenLock()
	closed := s.closed
	if !closed {
		c.aside.owed.Add(1)
	}
	s.mu.Unlock()
	if !closed {
		c.aside.addNoticeAndWake(notice{event: new(*e), action: e.Action, at: now})
		c.aside.owed.Done()
	}
}

// runCallbacksAndLogOverflows processes notices until the workers have ended and no notice can follow.
func (c *client) runCallbacksAndLogOverflows() {
	defer close(c.aside.ended)
	var logged uint64
	for workersEnded := false; !workersEnded; {
		select {
		case <-c.aside.wake:
		case <-c.aside.idle:
			c.aside.owed.Wait()
			workersEnded = true // these are the last notices
		}
		for _, n := range c.aside.takeAllNotices() {
			c.results.callOnDelivery(n.event, n.verdict, n.at)
		}
		logged = c.results.logOverflows(logged)
	}
}
