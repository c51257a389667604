package console

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	requests *prometheus.CounterVec
	signIns  *prometheus.CounterVec
	streams  prometheus.Gauge
}

func registerMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fleetloop_console_requests_total",
			Help: "Total number of HTTP requests to the console, by area (page, console for its own endpoints, or api for requests to the fleet API) and code (the class of the status code, such as 5xx).",
		}, []string{"area", "code"}),
		signIns: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fleetloop_console_sign_ins_total",
			Help: "Total number of attempts to sign in to the console, by mode and result: succeeded, refused, limited (too many from one address) or failed.",
		}, []string{"mode", "result"}),
		streams: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fleetloop_console_streams", Help: "Number of open streams of pages of the console.",
		}),
	}
	for _, c := range []prometheus.Collector{m.requests, m.signIns, m.streams} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics of the console: %w", err)
		}
	}
	return m, nil
}

// RegisterMetrics registers the metrics of the console, for the metrics reference.
func RegisterMetrics(reg prometheus.Registerer) error {
	_, err := registerMetrics(reg)
	return err
}

func (m *metrics) countRequest(r *http.Request, basePath string, status int) {
	path := strings.TrimPrefix(r.URL.Path, basePath)
	area := "page"
	switch {
	case strings.HasPrefix(path, "api/"):
		area = "api"
	case strings.HasPrefix(path, "console/"):
		area = "console"
	}
	if status == 0 {
		status = http.StatusOK
	}
	m.requests.WithLabelValues(area, fmt.Sprintf("%dxx", status/100)).Inc()
}

func (m *metrics) countSignInResult(mode string, err error) {
	result := "failed"
	switch {
	case err == nil:
		result = "succeeded"
	case errors.Is(err, errTooMany):
		result = "limited"
	case errors.Is(err, ErrToken):
		result = "refused"
	}
	m.signIns.WithLabelValues(mode, result).Inc()
}
