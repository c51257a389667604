package httpserver

import (
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics measures requests: fleetloop_http_request_duration_seconds by
// method, route and class of status, and fleetloop_http_requests_in_flight.
// The label server tells apart the servers of one process. It must be within
// whatever gives the router another *http.Request, and outside Recover.
func Metrics(r prometheus.Registerer, server string) (Middleware, error) {
	duration := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:                        "fleetloop_http_request_duration_seconds",
		Help:                        "How long requests took until their answer was written.",
		Buckets:                     prometheus.DefBuckets,
		NativeHistogramBucketFactor: 1.1,
		ConstLabels:                 prometheus.Labels{"server": server},
	}, []string{"method", "route", "code"})
	inFlight := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "fleetloop_http_requests_in_flight",
		Help:        "Requests that are being answered.",
		ConstLabels: prometheus.Labels{"server": server},
	})
	for _, c := range []prometheus.Collector{duration, inFlight} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics of HTTP server %q: %w", server, err)
		}
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			rec, begin := record(w), time.Now()
			inFlight.Inc()
			defer func() {
				inFlight.Dec()
				duration.WithLabelValues(method(r.Method), route(r), class(rec.status())).Observe(time.Since(begin).Seconds())
			}()
			next.ServeHTTP(rec, r)
		})
	}, nil
}

// method keeps what a client makes up out of the labels.
func method(m string) string {
	switch m {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return m
	}
	return "other"
}

func class(code int) string {
	if code < 200 || code > 599 {
		return "other"
	}
	return string(rune('0'+code/100)) + "xx"
}
