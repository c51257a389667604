package janitor

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetloop/fleetloop/internal/nodefault/provider"
)

// metrics are what the janitor counts.
type metrics struct {
	ended  *prometheus.CounterVec
	took   *prometheus.HistogramVec
	asked  *prometheus.CounterVec
	failed prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fleetloop_node_actions_total", Help: "Reboots and terminations of nodes that ended, by how.",
		}, []string{"action", "result"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "fleetloop_node_action_seconds", Help: "How long reboots and terminations of nodes took that succeeded.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 13), //nolint:mnd // from a second to more than an hour
		}, []string{"action"}),
		asked: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fleetloop_node_action_requests_total", Help: "Requests to providers, by what they said: accepted, waiting, refused or error.",
		}, []string{"action", "answer"}),
		failed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fleetloop_node_action_looks_failed_total", Help: "Times that a provider could not say how far a request is.",
		}),
	}
	err := errors.Join(reg.Register(m.ended), reg.Register(m.took), reg.Register(m.asked), reg.Register(m.failed))
	for _, a := range []provider.Action{provider.ActionReboot, provider.ActionTerminate} {
		for _, result := range []string{"succeeded", "failed", "timeout"} {
			m.ended.WithLabelValues(string(a), result)
		}
	}
	return m, err
}
