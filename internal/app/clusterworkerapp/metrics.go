package clusterworkerapp

import (
	"errors"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetloop/fleetloop/internal/clusterworker/pgstore"
)

// registerListenerMetrics registers the metrics of a listener.
func registerListenerMetrics(listener *pgstore.Listener, reg prometheus.Registerer) error {
	return errors.Join(
		reg.Register(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "fleetloop_clusterworker_notifications_total",
			Help: "Total number of PostgreSQL notifications about changed clusters that this cluster-worker received.",
		}, func() float64 { return float64(listener.CountNotifications()) })),
		reg.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "fleetloop_clusterworker_listener_last_ping_age_seconds",
			Help: "Time since this cluster-worker last received its own test notification over the LISTEN connection to PostgreSQL, in seconds; +Inf before the first. The metric is absent if the configuration disables LISTEN.",
		}, func() float64 {
			if at := listener.LastPingTime(); !at.IsZero() {
				return time.Since(at).Seconds()
			}
			return math.Inf(1)
		})),
	)
}
