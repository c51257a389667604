package outbox

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// Reasons for dropping events before any delivery.
const (
	errorOverflow = "dropped" // the queue was full
	errorDeleted  = "deleted" // the execution was deleted, and the controller stops
)

// metrics are the metrics of an outbox.
type metrics struct {
	dropped *prometheus.CounterVec
	pending prometheus.GaugeFunc
}

func newMetrics(reg prometheus.Registerer, pending func() float64) (*metrics, error) {
	m := &metrics{
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

func (m *metrics) countDropped(err string, n int) { m.dropped.WithLabelValues(err).Add(float64(n)) }
