package kube

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// LibraryMetricsGatherer returns the metrics of controller-runtime and its client from their separate
// registry. It omits those of the Go runtime and the process, which the registry of the
// process has as well.
func LibraryMetricsGatherer() prometheus.Gatherer {
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		all, err := metrics.Registry.Gather()
		var own []*dto.MetricFamily
		for _, family := range all {
			if name := family.GetName(); !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") {
				own = append(own, family)
			}
		}
		return own, err
	})
}
