package operator

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// OutboxMetrics holds the metrics of an outbox.
type OutboxMetrics struct {
	undeliverable *prometheus.CounterVec
	pending       prometheus.GaugeFunc

	mu                sync.Mutex
	undeliveredByNode map[string]int32
}

// NewOutboxMetrics creates and registers the metrics.
func NewOutboxMetrics(reg prometheus.Registerer) (*OutboxMetrics, error) {
	m := &OutboxMetrics{
		undeliverable: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fleetloop_node_fault_change_events_undeliverable_total",
			Help: "Total number of times that node-fault-controller gave up the delivery of a change event about a node to a sink, by error: client_error (the sink rejected the event), encode (the event could not be encoded), expired (older than the setting outbox.max_age; the default is 12 hours) or queue_full (too many events of one node were waiting). A sink is the HTTP endpoint that receives change events.",
		}, []string{"error"}),
		undeliveredByNode: map[string]int32{},
	}
	m.pending = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "fleetloop_node_fault_change_events_pending",
		Help: "Number of change events about nodes in the queue. An event stays in the queue until every sink has accepted it, or until node-fault-controller gives up its delivery. A sink is the HTTP endpoint that receives change events.",
	}, m.sumUndelivered)
	if err := reg.Register(m.undeliverable); err != nil {
		return nil, err
	}
	return m, reg.Register(m.pending)
}

// setUndelivered records how many records of a node are undelivered.
func (m *OutboxMetrics) setUndelivered(node string, undelivered int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if undelivered == 0 {
		delete(m.undeliveredByNode, node)
		return
	}
	m.undeliveredByNode[node] = undelivered
}

func (m *OutboxMetrics) sumUndelivered() float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	var sum int32
	for _, undelivered := range m.undeliveredByNode {
		sum += undelivered
	}
	return float64(sum)
}
