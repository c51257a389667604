package fleetapi

import (
	"fmt"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics holds the metrics of the API. Labels come from closed sets: the registered paths, their
// methods, the status classes, the kinds and the verdicts.
type metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	reports  *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fleetloop_api_requests_total",
			Help: "Total number of HTTP requests to the fleet API, by path, method and code (the class of the status code, such as 5xx).",
		}, []string{"path", "method", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "fleetloop_api_request_duration_seconds",
			Help:    "Duration of HTTP requests to the fleet API in seconds, from the arrival of the request to the end of the response.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"path", "method"}),
		reports: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fleetloop_api_status_reports_total",
			Help: "Total number of valid status reports that adapters sent to the fleet API, by resource type and result: stored or, for a report that the API ignored, the reason, such as generation_behind (the adapter has already reported a newer generation). Adapters are the controllers that reconcile clusters and node pools.",
		}, []string{"resource_type", "result"}),
	}
	for _, c := range []prometheus.Collector{m.requests, m.duration, m.reports} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) observeRequest(path, method string, status int, took time.Duration) {
	m.requests.WithLabelValues(path, method, strconv.Itoa(status/100)+"xx").Inc()
	m.duration.WithLabelValues(path, method).Observe(took.Seconds())
}

func (m *metrics) countReport(collection string, verdict ReportVerdict) {
	m.reports.WithLabelValues(collection, string(verdict)).Inc()
}
