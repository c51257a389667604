package telemetry

import (
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// scrapeTimeout bounds one scrape, so that a stuck collector does not pile up
// requests.
const scrapeTimeout = 10 * time.Second

// NewRegistry makes the registry of a process, with the Go runtime's and the
// process's own metrics and fleetloop_build_info, which has the version and the
// revision as labels.
func NewRegistry(component, version, revision string) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "fleetloop_build_info",
			Help: "Build information in the labels; the value is always 1.",
			ConstLabels: prometheus.Labels{
				"component": component, "version": version, "revision": revision, "goversion": runtime.Version(),
			},
		}, func() float64 { return 1 }),
	)
	return r
}

// MetricsHandler serves what g gathers to Prometheus, OpenMetrics with its
// exemplars included. A collector that fails takes only its own metrics out
// of the answer.
func MetricsHandler(g prometheus.Gatherer) http.Handler {
	return promhttp.HandlerFor(g, promhttp.HandlerOpts{
		ErrorHandling:     promhttp.ContinueOnError,
		EnableOpenMetrics: true,
		Timeout:           scrapeTimeout,
	})
}
