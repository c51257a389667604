package clusterworker

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

const metricsPrefix = "fleetloop_clusterworker_"

// A verb is the kind of a call to Gardener. The set is closed: it is a metric label.
type verb string

const (
	verbApply  verb = "apply"
	verbDelete verb = "delete"
)

// Results of a call in addition to the error classes.
const (
	resultOK      = "ok"
	resultStopped = "canceled" // by the worker
)

// metrics are the worker's metrics. All labels come from closed sets, and their series
// exist from the start.
type metrics struct {
	claims, emptyClaims map[claimCause]prometheus.Counter
	rowsPerClaim        prometheus.Histogram

	calls    map[verb]map[string]prometheus.Observer
	failures map[ErrorClass]prometheus.Counter
	attempts prometheus.Histogram
	synced   prometheus.Counter
	latency  prometheus.Histogram

	abandoned   prometheus.Counter
	renewals    prometheus.Counter
	fenced      prometheus.Counter
	outages     prometheus.Counter
	breaker     prometheus.Gauge
	dbOutages   prometheus.Counter
	panics      prometheus.Counter
	countErrors prometheus.Counter
}

// A metricRegistrar creates and registers metrics, and collects the errors.
type metricRegistrar struct {
	reg  prometheus.Registerer
	errs []error
}

func registerMetrics(reg prometheus.Registerer, w *Worker) (*metrics, error) {
	r := &metricRegistrar{reg: reg}
	m := &metrics{
		rowsPerClaim: r.registerHistogram("rows_per_claim", "Number of clusters that the cluster-worker reserved for a sync in one database query. Queries that found no cluster are not observed.", prometheus.ExponentialBuckets(1, 2, 11)),
		attempts:     r.registerHistogram("sync_consecutive_failures", "Number of consecutive failed syncs of one cluster to Gardener, observed at each failure.", []float64{1, 2, 3, 4, 5, 6, 7, 8, 12, 24, 96, 672}),
		synced:       r.registerCounter("syncs_succeeded_total", "Total number of successful syncs of clusters to Gardener, including deletions."),
		latency:      r.registerHistogram("sync_latency_seconds", "Time from a change to a cluster until the cluster-worker records its successful sync to Gardener, in seconds.", prometheus.ExponentialBuckets(0.005, 2, 20)),
		abandoned:    r.registerCounter("lost_leases_total", "Total number of times that this cluster-worker reserved a cluster for a sync, but could not start or finish the sync. Either its lease on the cluster expired or could not be renewed, or its previous call to Gardener for the same cluster was still running."),
		renewals:     r.registerCounter("lease_renewals_total", "Total number of times that this cluster-worker extended its lease on a cluster in the database, because a call to Gardener took long."),
		fenced:       r.registerCounter("fence_rejections_total", "Total number of sync results that the database rejected, because another cluster-worker had taken over the cluster in the meantime."),
		outages:      r.registerCounter("gardener_outages_total", "Total number of times that this cluster-worker found Gardener unavailable and paused the sync of all clusters."),
		breaker:      r.registerGauge("circuit_breaker_open", "1 if this cluster-worker has paused all calls that create, change or delete Shoots because Gardener is unavailable, 0 otherwise."),
		dbOutages:    r.registerCounter("database_outages_total", "Total number of times that the database requests of this cluster-worker began to fail. An outage counts once, however many requests fail."),
		panics:       r.registerCounter("panics_total", "Total number of panics from which the cluster-worker recovered. The worker records each panic as the sync error of a cluster."),
		countErrors:  r.registerCounter("cluster_count_errors_total", "Total number of times that the cluster-worker failed to count the clusters in its database. After a failure, the metrics with the counts, such as fleetloop_clusterworker_clusters, are absent until the next success."),
	}
	claims := r.registerCounterVec(
		"claims_total",
		"Total number of database queries in which this cluster-worker reserved at least one cluster for a sync, by cause of the query: notify (PostgreSQL notification), drain (the previous query returned a full batch, so more clusters may be due), retry (a retry was due) or poll (the poll interval passed).",
		"cause",
	)
	empty := r.registerCounterVec(
		"empty_claims_total",
		"Total number of database queries in which this cluster-worker found no cluster to sync, by cause of the query: notify (PostgreSQL notification), drain (the previous query returned a full batch, so more clusters may be due), retry (a retry was due) or poll (the poll interval passed).",
		"cause",
	)
	m.claims, m.emptyClaims = map[claimCause]prometheus.Counter{}, map[claimCause]prometheus.Counter{}
	for _, c := range []claimCause{causeNotify, causeDrain, causeRetry, causePoll} {
		m.claims[c], m.emptyClaims[c] = claims.WithLabelValues(string(c)), empty.WithLabelValues(string(c))
	}
	m.registerCallMetrics(r)
	r.registerCollector(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: metricsPrefix + "gardener_calls_in_flight", Help: "Number of calls from this cluster-worker to Gardener that are currently in progress."}, func() float64 {
		return float64(w.limiter.counts().running)
	}))
	r.registerCollector(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: metricsPrefix + "max_concurrent_syncs", Help: "Limit on the number of clusters that this cluster-worker syncs at the same time."}, func() float64 {
		return float64(w.cfg.Slots)
	}))
	r.registerCollector(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: metricsPrefix + "listener_down", Help: "1 if the LISTEN connection of this cluster-worker to PostgreSQL is down; 0 if the connection is up, or if the configuration disables LISTEN. While the connection is down, the cluster-worker polls the database for changed clusters."}, func() float64 {
		if w.deps.Waker != nil && w.deps.Waker.Ready() != nil {
			return 1
		}
		return 0
	}))
	if err := errors.Join(r.errs...); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return m, nil
}

func (m *metrics) registerCallMetrics(r *metricRegistrar) {
	calls := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: metricsPrefix + "gardener_call_duration_seconds", Help: "Duration of calls to Gardener that apply or delete a Shoot, in seconds, by verb (apply or delete) and result: ok, canceled (the cluster-worker stopped the call) or an error class, such as timeout.",
		Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
	}, []string{"verb", "result"})
	r.registerCollector(calls)
	failures := r.registerCounterVec(
		"sync_failures_total",
		"Total number of failed attempts to sync a cluster to Gardener, by class of the error, such as invalid_spec, forbidden or timeout.",
		"class",
	)
	results := []string{resultOK, resultStopped, string(ClassPanic), string(ClassTimeout)}
	m.failures = map[ErrorClass]prometheus.Counter{}
	for _, c := range []ErrorClass{ClassBadSpec, ClassPanic, ClassTimeout} {
		m.failures[c] = failures.WithLabelValues(string(c))
	}
	for _, c := range shoot.ListClasses() {
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

func (r *metricRegistrar) registerCollector(collector prometheus.Collector) {
	if err := r.reg.Register(collector); err != nil {
		r.errs = append(r.errs, err)
	}
}

func (r *metricRegistrar) registerGauge(name, help string) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: metricsPrefix + name, Help: help})
	r.registerCollector(g)
	return g
}

func (r *metricRegistrar) registerCounter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: metricsPrefix + name, Help: help})
	r.registerCollector(c)
	return c
}

func (r *metricRegistrar) registerCounterVec(name, help, label string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: metricsPrefix + name, Help: help}, []string{label})
	r.registerCollector(c)
	return c
}

func (r *metricRegistrar) registerHistogram(name, help string, buckets []float64) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: metricsPrefix + name, Help: help, Buckets: buckets})
	r.registerCollector(h)
	return h
}

// countClaimQuery counts a claim by cause and observes its rows.
func (m *metrics) countClaimQuery(cause claimCause, claimedRows int) {
	if claimedRows == 0 {
		m.emptyClaims[cause].Inc()
		return
	}
	m.claims[cause].Inc()
	m.rowsPerClaim.Observe(float64(claimedRows))
}

// observeCallDuration observes the duration of a call.
func (m *metrics) observeCallDuration(v verb, result string, duration time.Duration) {
	m.calls[v][result].Observe(duration.Seconds())
}

// countSyncResult counts a written result.
func (m *metrics) countSyncResult(claim timedClaim, result Result) {
	if result.Err == nil {
		m.synced.Inc()
		if !claim.UnsyncedSince.IsZero() {
			// The times come from two clocks; a negative difference is noise.
			m.latency.Observe(max(0, time.Since(claim.UnsyncedSince)).Seconds())
		}
		return
	}
	m.failures[result.Class].Inc()
	if result.CountsAttempt {
		m.attempts.Observe(float64(countFailuresWithThis(claim.Claim)))
	}
}
