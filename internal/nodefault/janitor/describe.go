package janitor

import "github.com/prometheus/client_golang/prometheus"

// Describe registers the metrics of a janitor without running it, for the metrics
// reference.
func Describe(reg prometheus.Registerer) error {
	_, err := newMetrics(reg)
	return err
}
