package clusterworker

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

const metricsPrefix = "fleetloop_clusterworker_"

// A verb is what is asked of Gardener. The set is closed: it is a metric's
// label.
type verb string

const (
	verbApply  verb = "apply"
	verbDelete verb = "delete"
)

// What became of a call besides the classes of errors.
const (
	resultOK      = "ok"
	resultStopped = "stopped" // by us
)

// metrics are the worker's. All labels come from closed sets, and their series
// are there from the start.
type metrics struct {
	claims, emptyClaims map[cause]prometheus.Counter
	rowsPerClaim        prometheus.Histogram

	calls    map[verb]map[string]prometheus.Observer
	failures map[ErrorClass]prometheus.Counter
	attempts prometheus.Histogram
	synced   prometheus.Counter
	latency  prometheus.Histogram

	forgone    prometheus.Counter
	renewals   prometheus.Counter
	fenced     prometheus.Counter
	outages    prometheus.Counter
	breaker    prometheus.Gauge
	dbOutages  prometheus.Counter
	panics     prometheus.Counter
	tallyFails prometheus.Counter
}

// A registrar makes metrics and registers them, and keeps the errors.
type registrar struct {
	reg  prometheus.Registerer
	errs []error
}

func newMetrics(reg prometheus.Registerer, w *Worker) (*metrics, error) {
	r := &registrar{reg: reg}
	m := &metrics{
		rowsPerClaim: r.histogram("rows_per_claim", "How many rows one claim got.", prometheus.ExponentialBuckets(1, 2, 11)),
		attempts:     r.histogram("failure_attempts", "Of each failure that counts, the how manieth in a row it was.", []float64{1, 2, 3, 4, 5, 6, 7, 8, 12, 24, 96, 672}),
		synced:       r.counter("synced_total", "Clusters that were brought to Gardener, or whose deletion was."),
		latency:      r.histogram("sync_latency_seconds", "From the change of a cluster to when it was noted that Gardener has it.", prometheus.ExponentialBuckets(0.005, 2, 20)),
		forgone:      r.counter("lost_leases_total", "Claims that were given up: before the call because the lease left no time for it or a call of the same cluster still ran, or during it because the lease could not be renewed."),
		renewals:     r.counter("lease_renewals_total", "Leases that were renewed because a call took long."),
		fenced:       r.counter("fence_rejections_total", "Results that were not taken because another worker had claimed the row by then."),
		outages:      r.counter("outages_total", "Times that Gardener was found to be down."),
		breaker:      r.gauge("breaker_open", "1 while Gardener is down and nothing is tried."),
		dbOutages:    r.counter("database_outages_total", "Times that the database began to fail."),
		panics:       r.counter("panics_total", "Panics that were caught and became the error of a row."),
		tallyFails:   r.counter("tally_errors_total", "Times that the rows could not be counted; their metrics are missing then."),
	}
	claims := r.counters("claims_total", "Claims that got rows, by what they were made for.", "cause")
	empty := r.counters("empty_claims_total", "Claims that found nothing, by what they were made for.", "cause")
	m.claims, m.emptyClaims = map[cause]prometheus.Counter{}, map[cause]prometheus.Counter{}
	for _, c := range []cause{causeNotify, causeDrain, causeRetry, causePoll} {
		m.claims[c], m.emptyClaims[c] = claims.WithLabelValues(string(c)), empty.WithLabelValues(string(c))
	}
	m.callMetrics(r)
	r.add(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: metricsPrefix + "calls_in_flight", Help: "Calls of Gardener that run."}, func() float64 {
		running, _, _ := w.floor.busy()
		return float64(running)
	}))
	r.add(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: metricsPrefix + "slots", Help: "Calls of Gardener that may run."}, func() float64 {
		return float64(w.cfg.Slots)
	}))
	r.add(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: metricsPrefix + "deaf", Help: "1 while the database should tell of changes and does not, so that it is asked often; 0 if it does, or need not."}, func() float64 {
		if w.waker != nil && w.waker.Ready() != nil {
			return 1
		}
		return 0
	}))
	if err := errors.Join(r.errs...); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return m, nil
}

func (m *metrics) callMetrics(r *registrar) {
	calls := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: metricsPrefix + "call_duration_seconds", Help: "Time that calls of Gardener took, by what was asked and what became of it.",
		Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
	}, []string{"verb", "result"})
	r.add(calls)
	failures := r.counters("failures_total", "Tries that failed, by what was wrong.", "class")
	results := []string{resultOK, resultStopped, string(ClassPanic), string(ClassTimeout)}
	m.failures = map[ErrorClass]prometheus.Counter{}
	for _, c := range []ErrorClass{ClassBadSpec, ClassPanic, ClassTimeout} {
		m.failures[c] = failures.WithLabelValues(string(c))
	}
	for _, c := range shoot.Classes() {
		results = append(results, string(c))
		m.failures[ErrorClass(c)] = failures.WithLabelValues(string(c))
	}
	m.calls = map[verb]map[string]prometheus.Observer{}
	for _, v := range []verb{verbApply, verbDelete} {
		m.calls[v] = map[string]prometheus.Observer{}
		for _, result := range results {
			m.calls[v][result] = calls.WithLabelValues(string(v), result)
		}
	}
}

func (r *registrar) add(c prometheus.Collector) {
	if err := r.reg.Register(c); err != nil {
		r.errs = append(r.errs, err)
	}
}

func (r *registrar) gauge(name, help string) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: metricsPrefix + name, Help: help})
	r.add(g)
	return g
}

func (r *registrar) counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: metricsPrefix + name, Help: help})
	r.add(c)
	return c
}

func (r *registrar) counters(name, help, label string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: metricsPrefix + name, Help: help}, []string{label})
	r.add(c)
	return c
}

func (r *registrar) histogram(name, help string, buckets []float64) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: metricsPrefix + name, Help: help, Buckets: buckets})
	r.add(h)
	return h
}

// claimed counts a claim.
func (m *metrics) claimed(c cause, rows int) {
	if rows == 0 {
		m.emptyClaims[c].Inc()
		return
	}
	m.claims[c].Inc()
	m.rowsPerClaim.Observe(float64(rows))
}

// called counts a call.
func (m *metrics) called(v verb, result string, took time.Duration) {
	m.calls[v][result].Observe(took.Seconds())
}

// completed counts a result that was written.
func (m *metrics) completed(t ticket, r Result) {
	if r.Err == nil {
		m.synced.Inc()
		if !t.UnsyncedSince.IsZero() {
			// Of two clocks; they can not be so far apart that a negative time would mean anything.
			m.latency.Observe(max(0, time.Since(t.UnsyncedSince)).Seconds())
		}
		return
	}
	m.failures[r.Class].Inc()
	if r.Spend {
		m.attempts.Observe(float64(failures(t.Claim)))
	}
}
