package poller

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

// Error classes in addition to those of Gardener.
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
	liveReads      prometheus.Counter
	drift          *prometheus.CounterVec
	missing        prometheus.Counter
	orphans        prometheus.Gauge
	strays         prometheus.Gauge
	orphanHalts    prometheus.Counter
	orphansDeleted prometheus.Counter
	errors         *prometheus.CounterVec
}

// listRowStatuses returns the statuses that a row can have.
func listRowStatuses() []v1.ShootStatus {
	return []v1.ShootStatus{v1.ShootPending, v1.ShootProgressing, v1.ShootReady, v1.ShootError, v1.ShootDeleting, v1.ShootDeleted}
}

func registerMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		leader:         newGauge("leader", "1 if this cluster-worker is the leader, the only process that watches the Shoots in Gardener, 0 otherwise."),
		termLosses:     newCounter("leadership_losses_total", "Total number of times that this cluster-worker stopped being the leader although it was not shutting down."),
		shoots:         prometheus.NewGaugeVec(prometheus.GaugeOpts(newMetricOpts("shoots", "Number of clusters, by status of their Shoot in Gardener, such as ready or error. The leader counts them whenever it lists the Shoots; all other processes report 0.")), []string{"status"}),
		changes:        prometheus.NewCounterVec(prometheus.CounterOpts(newMetricOpts("shoot_status_changes_total", "Total number of status changes of Shoots that the cluster-worker recorded in the database, by new status, such as ready or error.")), []string{"status"}),
		lag:            prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Subsystem: subsystem, Name: "shoot_status_lag_seconds", Help: "Time from a status change of a Shoot in Gardener until the cluster-worker records the change in the database, in seconds. Gardener's timestamps have a resolution of one second.", Buckets: prometheus.ExponentialBuckets(0.05, 2, 14)}),
		watchRestarts:  newCounter("shoot_watch_restarts_total", "Total number of times that the watch of Shoots ended and the cluster-worker had to restart it."),
		relists:        newCounter("shoot_relists_total", "Total number of times that the cluster-worker listed all Shoots in Gardener."),
		polls:          newCounter("shoot_poll_rounds_total", "Total number of times that the cluster-worker read a batch of Shoots, with one request per Shoot, because it could not watch Shoots. Each batch contains the Shoots that were read longest ago."),
		liveReads:      newCounter("shoot_lookups_total", "Total number of GET requests that this cluster-worker sent to Gardener to read one Shoot. List and watch requests are not counted."),
		drift:          prometheus.NewCounterVec(prometheus.CounterOpts(newMetricOpts("shoot_drift_total", "Total number of Shoots that differed from the last applied spec, by reason: missing (not in Gardener), not_deleted (its deletion was requested, but has not begun), stale_generation (older than the applied spec), newer_generation (newer than the applied spec, after a restore of the database) or changed (by another client). The cluster-worker then synced the cluster again.")), []string{"reason"}),
		missing:        newCounter("missing_sync_rows_total", "Total number of missing rows that the cluster-worker added to the database table tenant.cluster_sync. The table has one row for each cluster, with the state of its sync."),
		orphans:        newGauge("orphan_shoots", "Number of Shoots in Gardener that this installation created and that have no cluster in its database. The leader counts them whenever it lists the Shoots; all other processes report 0."),
		strays:         newGauge("duplicate_shoots", "Number of Shoots in Gardener that are duplicates: their cluster already has another Shoot. The leader counts them whenever it lists the Shoots; all other processes report 0."),
		orphanHalts:    newCounter("orphan_cleanup_blocked_total", "Total number of times that the cluster-worker skipped the cleanup of orphan Shoots (Shoots without a cluster in the database). It skips the cleanup if the database has no clusters or if too many Shoots are orphans, because the database may be the wrong one."),
		orphansDeleted: newCounter("orphan_shoots_deleted_total", "Total number of Shoots that the cluster-worker deleted because they had no cluster in the database."),
		errors:         prometheus.NewCounterVec(prometheus.CounterOpts(newMetricOpts("shoot_watch_errors_total", "Total number of errors of the cluster-worker while it watched Shoots or recorded their status, by class, such as forbidden, unavailable, database or panic.")), []string{"class"}),
	}
	for _, st := range listRowStatuses() {
		m.changes.WithLabelValues(string(st))
	}
	for _, d := range listDriftKinds() {
		m.drift.WithLabelValues(string(d))
	}
	for _, c := range shoot.ListClasses() {
		m.errors.WithLabelValues(string(c))
	}
	m.errors.WithLabelValues(classDatabase)
	m.errors.WithLabelValues(classPanic)
	m.clearLeaderMetrics()
	if reg == nil {
		return m, nil
	}
	var errs []error
	for _, c := range []prometheus.Collector{
		m.leader, m.termLosses, m.shoots, m.changes, m.lag, m.watchRestarts, m.relists, m.polls, m.liveReads,
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

func newMetricOpts(name, help string) prometheus.Opts {
	return prometheus.Opts{Namespace: namespace, Subsystem: subsystem, Name: name, Help: help}
}

func newGauge(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts(newMetricOpts(name, help)))
}

func newCounter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts(newMetricOpts(name, help)))
}

// clearLeaderMetrics resets the metrics that only the leader sets, so that the sum over
// all processes is right.
func (m *metrics) clearLeaderMetrics() {
	m.leader.Set(0)
	m.orphans.Set(0)
	m.strays.Set(0)
	m.setShootCounts(nil)
}

func (m *metrics) setShootCounts(counts map[v1.ShootStatus]int) {
	for _, st := range listRowStatuses() {
		m.shoots.WithLabelValues(string(st)).Set(float64(counts[st]))
	}
}

func (m *metrics) countStatusChange(status v1.ShootStatus) {
	m.changes.WithLabelValues(string(status)).Inc()
}

func (m *metrics) countFailure(class string) { m.errors.WithLabelValues(class).Inc() }
