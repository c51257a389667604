package outbox

import (
	"slices"
	"time"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
)

// eventQueue holds the undelivered events of one execution.
type eventQueue struct {
	events  []*event // oldest first
	sinks   map[string]*progress
	acked   time.Time // time of the oldest unwritten acknowledgement; zero means none
	deleted bool
}

// event is a stored change event.
type event struct {
	key     key
	change  execution.Change
	waiting []string // sinks that have not acknowledged it
}

// key identifies an event of an execution.
type key struct {
	action string
	at     int64 // microseconds
}

func keyOf(p *v1alpha1.PendingChangeEvent) key { return key{p.Action, p.At.UnixMicro()} }

// progress is the delivery state of a sink.
type progress struct {
	inFlight *event
	failures int // consecutive failures of the next event
	next     time.Time
}

// hasPending reports whether a sink has not yet acknowledged an event.
func (l *eventQueue) hasPending() bool {
	return slices.ContainsFunc(l.events, func(e *event) bool { return len(e.waiting) > 0 })
}

// isPartlyAcknowledged reports whether a sink of a stored event has acknowledged it.
func (l *eventQueue) isPartlyAcknowledged(p *v1alpha1.PendingChangeEvent) bool {
	for _, e := range l.events {
		if e.key == keyOf(p) {
			return len(e.waiting) < len(p.Sinks)
		}
	}
	return false
}

// isAcknowledgedBy reports whether a sink has acknowledged a stored event.
func (l *eventQueue) isAcknowledgedBy(k key, sink string) bool {
	if l == nil {
		return false
	}
	for _, e := range l.events {
		if e.key == k {
			return !slices.Contains(e.waiting, sink)
		}
	}
	return false
}

// acknowledge removes a sink from the sinks that an event waits for.
func (l *eventQueue) acknowledge(e *event, sink string, now time.Time) {
	e.waiting = slices.DeleteFunc(e.waiting, func(name string) bool { return name == sink })
	if l.acked.IsZero() {
		l.acked = now
	}
}

// earlierWait returns the shorter of two waits. Zero means none.
func earlierWait(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}
