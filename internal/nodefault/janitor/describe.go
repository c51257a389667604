package janitor

import "github.com/prometheus/client_golang/prometheus"

// RegisterMetrics registers the metrics of a janitor without running it, for the metrics
// reference.
func RegisterMetrics(reg prometheus.Registerer) error {
	_, err := newMetrics(reg)
	return err
}
