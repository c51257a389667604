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
		leader:         gauge("leader", "1 while this process observes the Shoots for all workers."),
		termLosses:     counter("term_losses_total", "Terms of this process that ended although it did not stop."),
		shoots:         prometheus.NewGaugeVec(prometheus.GaugeOpts(opts("shoots", "Clusters by the status of their Shoot, as of the last list; 0 in a process that does not observe.")), []string{"status"}),
		changes:        prometheus.NewCounterVec(prometheus.CounterOpts(opts("status_changes_total", "Changes of a Shoot's status that were written, by the new one.")), []string{"status"}),
		lag:            prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Subsystem: subsystem, Name: "status_lag_seconds", Help: "From when Gardener says that it did something to when that was written. Gardener's times are whole seconds, by its own clock.", Buckets: prometheus.ExponentialBuckets(0.05, 2, 14)}),
		watchRestarts:  counter("watch_restarts_total", "Watches of the Shoots that ended."),
		relists:        counter("relists_total", "Times that all Shoots were listed."),
		polls:          counter("status_polls_total", "Rounds of looking Shoots up one by one."),
		looks:          counter("status_looks_total", "Shoots that were looked up."),
		drift:          prometheus.NewCounterVec(prometheus.CounterOpts(opts("drift_total", "Shoots that were not as they were sent, and were sent again, by what was wrong.")), []string{"reason"}),
		missing:        counter("missing_rows_total", "Clusters that had no sync row, for which one was made."),
		orphans:        gauge("orphan_shoots", "Shoots of this installation that no cluster knows, as of the last list; 0 in a process that does not observe."),
		strays:         gauge("stray_shoots", "Shoots whose cluster has another one, as of the last list; 0 in a process that does not observe."),
		orphanHalts:    counter("orphan_halts_total", "Lists after which orphans were left alone because the database may be the wrong one."),
		orphansDeleted: counter("orphans_deleted_total", "Orphans that were deleted."),
		errors:         prometheus.NewCounterVec(prometheus.CounterOpts(opts("observer_errors_total", "Errors while observing, by class.")), []string{"class"}),
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
		return nil, fmt.Errorf("register metrics of the poller: %w", err)
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
