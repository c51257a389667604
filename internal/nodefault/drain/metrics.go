package drain

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/kube/eviction"
)

// metrics holds the metrics of the drainer. All labels are closed sets, and all series
// exist from the start.
type metrics struct {
	pods  *prometheus.CounterVec
	ends  *prometheus.CounterVec
	nodes prometheus.Gauge
}

func newMetrics() *metrics {
	const prefix = "fleetloop_node_fault_"
	m := &metrics{
		pods: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "drain_pod_requests_total",
			Help: "Total number of requests of node-fault-controller to remove a pod from a node that it drains, by method (evict, delete or force_delete) and result: accepted, not_found, blocked_by_pdb (a PodDisruptionBudget forbids the eviction), rejected (by the API server, for another reason) or failed (no response, or a temporary error).",
		}, []string{"method", "result"}),
		ends: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "drains_total",
			Help: "Total number of node drains that ended, by final state: Completed, Failed (deadline reached) or Cancelled.",
		}, []string{"state"}),
		nodes: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: prefix + "draining_nodes",
			Help: "Number of nodes that node-fault-controller is currently draining.",
		}),
	}
	for _, method := range allRemovalMethods() {
		for _, result := range eviction.Results() {
			m.pods.WithLabelValues(string(method), string(result))
		}
	}
	ends := []v1alpha1.DrainState{v1alpha1.DrainCompleted, v1alpha1.DrainFailed, v1alpha1.DrainCancelled}
	for _, state := range ends {
		m.ends.WithLabelValues(string(state))
	}
	return m
}

// RegisterMetrics registers the metrics of the drainer.
func (d *Drainer) RegisterMetrics(reg prometheus.Registerer) error {
	return errors.Join(reg.Register(d.metrics.pods), reg.Register(d.metrics.ends), reg.Register(d.metrics.nodes))
}
