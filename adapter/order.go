package adapter

import (
	"context"
	"errors"
	"slices"
	"sync"
)

const (
	// maxResources is the number of idle resources whose handled events are remembered.
	maxResources = 16384
	// maxPending is the number of unfinished events that are remembered for each resource.
	maxPending = 64
	// maxHandled is the number of handled events that are remembered for each resource. One
	// evaluation can handle all that are pending.
	maxHandled = maxPending
)

var (
	// errHandled is the error of an event that an evaluation has already covered.
	errHandled = errors.New("event already handled")
	// errReplaced is the error of an event that a newer event of the same resource replaced.
	errReplaced = errors.New("a newer event of the resource waits for its evaluation")
)

// An order lets one evaluation at a time work on each resource, and remembers which events were
// covered. An evaluation covers all events of its resource that arrived before it began.
type resourceSerializer struct {
	mu        sync.Mutex
	resources map[resourceKey]*resourceState
	idle      []resourceKey // oldest first; may hold a resource repeatedly
}

// resourceState is the state of one resource.
type resourceState struct {
	users   int // calls of begin that have not ended
	busy    bool
	waiting *waiter // the newest event that waits

	pending    map[string]int // failed attempts of the events that no evaluation has covered
	handled    []string       // events that were covered, oldest first
	generation int64          // that was reported last
	behind     int            // reads of this generation that were older than their event
}

// A waiter is an event that waits for the end of an evaluation.
type waiter struct{ turn, replaced chan struct{} }

// An evaluation is the right to work on a resource, until it is ended.
type evaluation struct {
	order   *resourceSerializer
	subject resourceKey
	event   string
	covers  []string // events that arrived before it began
}

// waitAndBegin waits until no other evaluation of the resource runs, and begins one. The error is
// errHandled, errReplaced or the cause of ctx. generation is that of the event, or 0.
func (o *resourceSerializer) waitAndBegin(ctx context.Context, s resourceKey, eventID string, generation int64) (*evaluation, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	t := o.resources[s]
	if t == nil {
		if o.resources == nil {
			o.resources = map[resourceKey]*resourceState{}
		}
		t = &resourceState{pending: map[string]int{}}
		o.resources[s] = t
	}
	t.users++
	err := o.waitUntilResourceIdle(ctx, t, eventID, generation)
	if err != nil {
		o.leaveAndEvictOldestIdle(s, t)
		return nil, err
	}
	t.busy = true
	covers := make([]string, 0, len(t.pending))
	for id := range t.pending {
		covers = append(covers, id)
	}
	return &evaluation{order: o, subject: s, event: eventID, covers: covers}, nil
}

// waitUntilResourceIdle waits until the resource is not busy. It is called and returns with the lock held.
func (o *resourceSerializer) waitUntilResourceIdle(ctx context.Context, t *resourceState, eventID string, generation int64) error {
	for {
		older := generation != 0 && generation < t.generation
		covered := generation <= t.generation && slices.Contains(t.handled, eventID)
		if older || covered {
			delete(t.pending, eventID)
			return errHandled
		}
		_, known := t.pending[eventID]
		if known && t.waiting != nil {
			return errReplaced // redelivered, so the one that waits is newer
		}
		if !known {
			t.addPending(eventID)
		}
		if !t.busy {
			return nil
		}
		if err := o.replaceWaiterAndWait(ctx, t); err != nil {
			return err
		}
	}
}

func (t *resourceState) addPending(event string) {
	if len(t.pending) >= maxPending {
		clear(t.pending) // they are evaluated again
	}
	t.pending[event] = 0
}

// replaceWaiterAndWait waits for the end of the evaluation in progress, in place of the event that waits
// already. The lock is released meanwhile.
func (o *resourceSerializer) replaceWaiterAndWait(ctx context.Context, t *resourceState) error {
	if t.waiting != nil {
		close(t.waiting.replaced)
	}
	w := &waiter{turn: make(chan struct{}), replaced: make(chan struct{})}
	t.waiting = w
	o.mu.Unlock()
	defer func() {
		o.mu.Lock()
		if t.waiting == w {
			t.waiting = nil
		}
	}()
	select {
	case <-w.turn:
		return nil
	case <-w.replaced:
		return errReplaced
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// leaveAndEvictOldestIdle ends a call of begin. The lock is held.
func (o *resourceSerializer) leaveAndEvictOldestIdle(s resourceKey, t *resourceState) {
	if t.users--; t.users > 0 {
		return
	}
	o.idle = append(o.idle, s)
	for len(o.idle) > maxResources {
		oldest := o.idle[0]
		o.idle = o.idle[1:]
		if t := o.resources[oldest]; t != nil && t.users == 0 {
			delete(o.resources, oldest)
		}
	}
}

// attempts returns the number of failed attempts of the event.
func (e *evaluation) attempts() int {
	e.order.mu.Lock()
	defer e.order.mu.Unlock()
	return e.order.resources[e.subject].pending[e.event]
}

// endAsSucceeded ends the evaluation. The events that it covers are handled.
func (e *evaluation) endAsSucceeded(generation int64) {
	e.end(func(t *resourceState) {
		for _, id := range e.covers {
			delete(t.pending, id)
		}
		t.handled = append(t.handled, e.covers...)
		if n := len(t.handled) - maxHandled; n > 0 {
			t.handled = slices.Delete(t.handled, 0, n)
		}
		if generation > t.generation {
			t.generation, t.behind = generation, 0
		}
	})
}

// endAsBehind ends the evaluation of an event about a newer generation than was read.
func (e *evaluation) endAsBehind() { e.end(func(t *resourceState) { t.behind++ }) }

// behindReads returns the number of such evaluations since the generation that was reported last.
func (e *evaluation) behindReads() int {
	e.order.mu.Lock()
	defer e.order.mu.Unlock()
	return e.order.resources[e.subject].behind
}

// endAsFailed ends the evaluation after an attempt that counts. forget drops the count.
func (e *evaluation) endAsFailed(forgetAttempts bool) {
	e.end(func(t *resourceState) {
		if t.pending[e.event]++; forgetAttempts {
			delete(t.pending, e.event)
		}
	})
}

// abandon ends the evaluation without a result.
func (e *evaluation) abandon() { e.end(func(*resourceState) {}) }

func (e *evaluation) end(change func(*resourceState)) {
	e.order.mu.Lock()
	defer e.order.mu.Unlock()
	t := e.order.resources[e.subject]
	change(t)
	t.busy = false
	if t.waiting != nil {
		close(t.waiting.turn)
		t.waiting = nil
	}
	e.order.leaveAndEvictOldestIdle(e.subject, t)
}
