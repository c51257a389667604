package telemetry

import (
	"net/http"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// scrapeTimeout bounds one scrape, so that a stuck collector does not pile up
// requests.
const scrapeTimeout = 10 * time.Second

// NewRegistry makes the registry of a process, with the Go runtime's and the
// process's own metrics and fleetloop_build_info.
func NewRegistry(component string) *prometheus.Registry {
	version, revision := Version()
	r := prometheus.NewRegistry()
	r.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "fleetloop_build_info",
			Help: "Always 1; the labels say which build this is.",
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

// Version is the module's version and the commit that the binary was built
// of, with "-dirty" behind it if it was built of more than that. What the
// build did not record is "unknown".
func Version() (version, revision string) {
	version, revision = "unknown", "unknown"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return version, revision
	}
	if info.Main.Version != "" {
		version = info.Main.Version
	}
	dirty := ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	return version, revision + dirty
}
