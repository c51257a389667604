package poller

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

// Classes of errors besides those of Gardener.
const (
	classDatabase = "database"
	classPanic    = "panic"
)

type metrics struct {
	leader         prometheus.Gauge
	termLosses     prometheus.Counter
	shoots         *prometheus.GaugeVec
	changes        *prometheus.CounterVec
	lag            prometheus.Histogram
	watchRestarts  prometheus.Counter
	relists        prometheus.Counter
	polls          prometheus.Counter
	looks          prometheus.Counter
	drift          *prometheus.CounterVec
	missing        prometheus.Counter
	orphans        prometheus.Gauge
	strays         prometheus.Gauge
	orphanHalts    prometheus.Counter
	orphansDeleted prometheus.Counter
	errors         *prometheus.CounterVec
}

// statuses are those that a row can have.
func statuses() []v1.ShootStatus {
	return []v1.ShootStatus{v1.ShootPending, v1.ShootProgressing, v1.ShootReady, v1.ShootError, v1.ShootDeleting, v1.ShootDeleted}
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		leader:         gauge("leader", "1 if this process is the leader, which watches the Shoots for all workers, 0 otherwise."),
		termLosses:     counter("leadership_losses_total", "Total number of times this process lost leadership without shutting down."),
		shoots:         prometheus.NewGaugeVec(prometheus.GaugeOpts(opts("shoots", "Number of clusters by status of their Shoot, as of the last list; 0 unless this process is the leader.")), []string{"status"}),
		changes:        prometheus.NewCounterVec(prometheus.CounterOpts(opts("shoot_status_changes_total", "Total number of recorded Shoot status changes, by new status.")), []string{"status"}),
		lag:            prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Subsystem: subsystem, Name: "shoot_status_lag_seconds", Help: "Time from a status change in Gardener until it is recorded, in seconds. Gardener's timestamps have a resolution of one second.", Buckets: prometheus.ExponentialBuckets(0.05, 2, 14)}),
		watchRestarts:  counter("shoot_watch_restarts_total", "Total number of Shoot watches that ended."),
		relists:        counter("shoot_relists_total", "Total number of full lists of Shoots."),
		polls:          counter("shoot_poll_rounds_total", "Total number of polling rounds, in which Shoots are looked up one by one."),
		looks:          counter("shoot_lookups_total", "Total number of Shoots looked up individually."),
		drift:          prometheus.NewCounterVec(prometheus.CounterOpts(opts("shoot_drift_total", "Total number of Shoots that differed from the applied spec and were applied again, by reason.")), []string{"reason"}),
		missing:        counter("missing_sync_rows_total", "Total number of clusters that had no row in the sync table, for which the worker added one."),
		orphans:        gauge("orphan_shoots", "Number of Shoots of this installation without a cluster, as of the last list; 0 unless this process is the leader."),
		strays:         gauge("duplicate_shoots", "Number of Shoots whose cluster has another Shoot, as of the last list; 0 unless this process is the leader."),
		orphanHalts:    counter("orphan_cleanup_blocked_total", "Total number of lists after which orphan handling was blocked because the database may be the wrong one."),
		orphansDeleted: counter("orphan_shoots_deleted_total", "Total number of orphan Shoots deleted."),
		errors:         prometheus.NewCounterVec(prometheus.CounterOpts(opts("shoot_watch_errors_total", "Total number of errors while watching Shoots and recording their status, by error class.")), []string{"class"}),
	}
	for _, st := range statuses() {
		m.changes.WithLabelValues(string(st))
	}
	for _, d := range drifts() {
		m.drift.WithLabelValues(string(d))
	}
	for _, c := range shoot.Classes() {
		m.errors.WithLabelValues(string(c))
	}
	m.errors.WithLabelValues(classDatabase)
	m.errors.WithLabelValues(classPanic)
	m.deposed()
	if reg == nil {
		return m, nil
	}
	var errs []error
	for _, c := range []prometheus.Collector{
		m.leader, m.termLosses, m.shoots, m.changes, m.lag, m.watchRestarts, m.relists, m.polls, m.looks,
		m.drift, m.missing, m.orphans, m.strays, m.orphanHalts, m.orphansDeleted, m.errors,
	} {
		errs = append(errs, reg.Register(c))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("register status poller metrics: %w", err)
	}
	return m, nil
}

const (
	namespace = "fleetloop"
	subsystem = "clusterworker"
)

func opts(name, help string) prometheus.Opts {
	return prometheus.Opts{Namespace: namespace, Subsystem: subsystem, Name: name, Help: help}
}

func gauge(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts(opts(name, help)))
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts(opts(name, help)))
}

// deposed takes back what only whoever observes can say, so that the sum over
// all processes is right.
func (m *metrics) deposed() {
	m.leader.Set(0)
	m.orphans.Set(0)
	m.strays.Set(0)
	m.tally(nil)
}

func (m *metrics) tally(counts map[v1.ShootStatus]int) {
	for _, st := range statuses() {
		m.shoots.WithLabelValues(string(st)).Set(float64(counts[st]))
	}
}

func (m *metrics) changed(st v1.ShootStatus) { m.changes.WithLabelValues(string(st)).Inc() }

func (m *metrics) failed(class string) { m.errors.WithLabelValues(class).Inc() }
