package operator

import (
	"errors"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
)

// eventQueue holds the undelivered events of one execution.
type eventQueue struct {
	events  []*outboxEvent           // oldest first
	sinks   map[string]*sinkProgress // by name
	acked   time.Time                // time of the oldest unwritten acknowledgement; zero means none
	deleted bool                     // whether the execution is deleted
}

// outboxEvent is a stored change event.
type outboxEvent struct {
	key     outboxKey
	change  execution.Change
	waiting []string // sinks that have not acknowledged it
}

// outboxKey identifies an event of an execution.
type outboxKey struct {
	action string
	at     int64 // microseconds
}

func outboxKeyOf(p *v1alpha1.PendingChangeEvent) outboxKey {
	return outboxKey{p.Action, p.At.UnixMicro()}
}

// sinkProgress is the delivery state of a sink.
type sinkProgress struct {
	inFlight *outboxEvent // sent and not answered yet; nil means none
	failures int          // consecutive failures of the next event
	next     time.Time    // when the next event may be sent
}

// resetFailures lets the next event be sent at once.
func (p *sinkProgress) resetFailures() {
	p.failures = 0
	p.next = time.Time{}
}

// countPending returns the number of events that some sink has not acknowledged.
func (q *eventQueue) countPending() int {
	count := 0
	for _, event := range q.events {
		if len(event.waiting) > 0 {
			count++
		}
	}
	return count
}

// findEvent returns the event with a key. Nil means none.
func (q *eventQueue) findEvent(key outboxKey) *outboxEvent {
	for _, event := range q.events {
		if event.key == key {
			return event
		}
	}
	return nil
}

// isAcknowledgedByAnySink reports whether a sink of a stored event has acknowledged it.
func (q *eventQueue) isAcknowledgedByAnySink(stored *v1alpha1.PendingChangeEvent) bool {
	event := q.findEvent(outboxKeyOf(stored))
	return event != nil && len(event.waiting) < len(stored.Sinks)
}

// isAcknowledgedBy reports whether a sink has acknowledged an event. A nil queue knows no event.
func (q *eventQueue) isAcknowledgedBy(key outboxKey, sink string) bool {
	if q == nil {
		return false
	}
	event := q.findEvent(key)
	return event != nil && !slices.Contains(event.waiting, sink)
}

// hasUnwrittenAcknowledgement reports whether a sink has acknowledged one of the stored events, so that
// the status must still be written.
func (q *eventQueue) hasUnwrittenAcknowledgement(stored []v1alpha1.PendingChangeEvent) bool {
	for i := range stored {
		if q.isAcknowledgedByAnySink(&stored[i]) {
			return true
		}
	}
	return false
}

// acknowledge removes a sink from the sinks that an event waits for.
func (q *eventQueue) acknowledge(event *outboxEvent, sink string, now time.Time) {
	event.waiting = slices.DeleteFunc(event.waiting, func(name string) bool { return name == sink })
	if q.acked.IsZero() {
		q.acked = now
	}
}

// shorterNonZero returns the shorter of two waits. Zero means none.
func shorterNonZero(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// Reasons for dropping events before any delivery.
const (
	errorOverflow = "dropped" // the queue was full
	errorDeleted  = "deleted" // the execution was deleted, and the controller stops
)

// outboxMetrics are the metrics of an outbox.
type outboxMetrics struct {
	dropped *prometheus.CounterVec
	pending prometheus.GaugeFunc
}

func newOutboxMetrics(reg prometheus.Registerer, pending func() float64) (*outboxMetrics, error) {
	m := &outboxMetrics{
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubernetesexecution_change_events_undeliverable_total",
			Help: "Total number of times that the controller gave up the delivery of a change event about a KubernetesExecution to a sink, by error: client_error (the sink rejected the event), encode (the event could not be encoded), expired (older than 12 hours), dropped (the queue was full) or deleted (the KubernetesExecution was deleted, and the controller stopped before it could deliver the event). A sink is the HTTP endpoint that receives change events.",
		}, []string{"error"}),
		pending: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "kubernetesexecution_change_events_pending", Help: "Number of change events about KubernetesExecutions in the queue. An event stays in the queue until every sink has accepted it, or until the controller gives up its delivery. A sink is the HTTP endpoint that receives change events.",
		}, pending),
	}
	for _, e := range []string{errorOverflow, errorDeleted, "expired", "client_error", "encode"} {
		m.dropped.WithLabelValues(e)
	}
	return m, errors.Join(reg.Register(m.dropped), reg.Register(m.pending))
}

func (m *outboxMetrics) countDropped(err string, n int) {
	m.dropped.WithLabelValues(err).Add(float64(n))
}
