package janitor

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics holds the metrics of the janitor.
type metrics struct {
	ended  *prometheus.CounterVec
	took   *prometheus.HistogramVec
	asked  *prometheus.CounterVec
	failed prometheus.Counter
}

// RegisterMetrics registers the metrics of a janitor without running it, for the metrics
// reference.
func RegisterMetrics(reg prometheus.Registerer) error {
	_, err := newMetrics(reg)
	return err
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fleetloop_janitor_actions_total", Help: "Total number of RebootNode and TerminateNode objects that ended, by action (reboot or terminate) and result: succeeded, failed or timeout.",
		}, []string{"action", "result"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "fleetloop_janitor_action_duration_seconds", Help: "Time that successful reboots and terminations of nodes took, in seconds, by action: reboot or terminate. The time starts when the janitor starts the action; the wait for other actions on the node is not included.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 13), //nolint:mnd // from a second to more than an hour
		}, []string{"action"}),
		asked: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fleetloop_janitor_action_provider_requests_total", Help: "Total number of requests to reboot or terminate a node that the janitor sent to the provider, by action and result: accepted (the action has started), pending (the action has not started; the janitor asks again), rejected (not retried) or error (retried). The provider reboots or terminates machines, for example through a webhook or Cluster API.",
		}, []string{"action", "result"}),
		failed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fleetloop_janitor_action_status_checks_failed_total", Help: "Total number of failed requests that asked the provider for the status of a reboot or termination. The provider reboots or terminates machines, for example through a webhook or Cluster API.",
		}),
	}
	err := errors.Join(reg.Register(m.ended), reg.Register(m.took), reg.Register(m.asked), reg.Register(m.failed))
	for _, a := range []Action{ActionReboot, ActionTerminate} {
		for _, result := range []string{"succeeded", "failed", "timeout"} {
			m.ended.WithLabelValues(string(a), result)
		}
	}
	return m, err
}
