package telemetry

import (
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// scrapeTimeout limits one scrape, so that a stuck collector does not accumulate requests.
const scrapeTimeout = 10 * time.Second

// NewRegistry returns the registry of a process, with the metrics of the Go runtime and of the
// process, and fleetloop_build_info, which has the version and the revision as labels.
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

// MetricsHandler serves the metrics of g to Prometheus, including OpenMetrics with exemplars. A
// failing collector removes only its own metrics from the response.
func MetricsHandler(g prometheus.Gatherer) http.Handler {
	return promhttp.HandlerFor(g, promhttp.HandlerOpts{
		ErrorHandling:     promhttp.ContinueOnError,
		EnableOpenMetrics: true,
		Timeout:           scrapeTimeout,
	})
}
