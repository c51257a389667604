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
	events  []*outboxEvent // oldest first
	sinks   map[string]*sinkProgress
	acked   time.Time // time of the oldest unwritten acknowledgement; zero means none
	deleted bool
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
	inFlight *outboxEvent
	failures int // consecutive failures of the next event
	next     time.Time
}

// hasPending reports whether a sink has not yet acknowledged an event.
func (l *eventQueue) hasPending() bool {
	return slices.ContainsFunc(l.events, func(e *outboxEvent) bool { return len(e.waiting) > 0 })
}

// isAcknowledgedByAnySink reports whether a sink of a stored event has acknowledged it.
func (l *eventQueue) isAcknowledgedByAnySink(p *v1alpha1.PendingChangeEvent) bool {
	for _, e := range l.events {
		if e.key == outboxKeyOf(p) {
			return len(e.waiting) < len(p.Sinks)
		}
	}
	return false
}

// isAcknowledgedBy reports whether a sink has acknowledged a stored event.
func (l *eventQueue) isAcknowledgedBy(k outboxKey, sink string) bool {
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
func (l *eventQueue) acknowledge(e *outboxEvent, sink string, now time.Time) {
	e.waiting = slices.DeleteFunc(e.waiting, func(name string) bool { return name == sink })
	if l.acked.IsZero() {
		l.acked = now
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
