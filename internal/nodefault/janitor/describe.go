package janitor

import "github.com/prometheus/client_golang/prometheus"

// Describe registers the metrics of a janitor and runs nothing: for the
// reference of metrics.
func Describe(reg prometheus.Registerer) error {
	_, err := newMetrics(reg)
	return err
}
