package operator

import (
	"github.com/prometheus/client_golang/prometheus"
)

// RegisterMetrics registers the metrics of an operator without running it, for the metrics
// reference.
func RegisterMetrics(reg prometheus.Registerer) error {
	if _, err := newMetrics(reg, emptyLister{}); err != nil {
		return err
	}
	_, err := NewOutboxMetrics(reg)
	return err
}
