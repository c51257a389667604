package clusterworker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/backoff"
)

// ReporterConfig is the operator's configuration of the reports. Zero fields mean their
// default.
type ReporterConfig struct {
	Timeout  time.Duration `key:"report_timeout" env:"CLUSTER_WORKER_REPORT_TIMEOUT" default:"10s" validate:"gt=0" doc:"Timeout of one report to the fleet API."`
	InFlight int           `key:"max_concurrent_reports" env:"CLUSTER_WORKER_MAX_CONCURRENT_REPORTS" default:"8" validate:"gte=1,lte=100" doc:"Maximum number of reports sent to the fleet API concurrently."`
}

func (c ReporterConfig) withDefaultsValidated() (ReporterConfig, error) {
	c.Timeout = cmp.Or(c.Timeout, 10*time.Second)
	c.InFlight = cmp.Or(c.InFlight, 8)
	if c.Timeout < 0 || c.InFlight < 0 {
		return c, fmt.Errorf("report_timeout %s and max_concurrent_reports %d must not be negative", c.Timeout, c.InFlight)
	}
	return c, nil
}

// A ReportReceiver receives reports. An answer that is not a success is an error with the method
// StatusCode.
type ReportReceiver interface {
	// Report sends a report. stored is false if the report came too late, or too early,
	// to count.
	Report(ctx context.Context, collection, id string, report v1.Report) (stored bool, err error)
}

// A ShootObserver observes the Shoots in this process.
type ShootObserver interface {
	// IsLeader reports whether this process is the leader.
	IsLeader() bool
	// IsStatusCurrent reports whether a row's status is about the Shoot as it was last sent.
	// known is false if this process has not observed the Shoot yet.
	IsStatusCurrent(row *Row) (current, known bool)
}

// ReporterDeps are the dependencies of a reporter.
type ReporterDeps struct {
	Store    ReportStore
	Fleet    ReportReceiver
	Observer ShootObserver

	// Pools returns the node pools that Gardener has received. It may be nil; then only
	// clusters are reported.
	Pools PoolStore

	// Log may be nil, for no logs.
	Log *slog.Logger

	// Registerer may be nil, for no metrics.
	Registerer prometheus.Registerer
}

const (
	clustersCollection = "clusters"
	poolsCollection    = "nodepools"
	// reportBatch is the number of reports in one query.
	reportBatch = 100

	// readyReportDelay is the delay of the next report on a ready cluster, and otherReportDelay on
	// any other.
	readyReportDelay = 10 * time.Minute
	otherReportDelay = 30 * time.Second
	// unseenReportDelay is the delay of the next check of a row that has not been observed
	// yet.
	unseenReportDelay = 2 * time.Second
	// failedReportDelay is the delay after an error of the fleet API. It is longer than the
	// longest backoff, so that other reports go first.
	failedReportDelay = 15 * time.Second

	// reportIdleInterval is the interval of checks for due reports that did not wake Run.
	reportIdleInterval = 5 * time.Second
	// reportGatherDelay is how long Run waits for more due reports after it was woken.
	reportGatherDelay = 50 * time.Millisecond
	// observationPatience is how long a ready cluster waits to be observed after this process
	// became the leader. A longer outage of Gardener leaves the row as the best
	// information.
	observationPatience = time.Minute
	// reportQueryTimeout limits a query.
	reportQueryTimeout = 10 * time.Second
)

// A Reporter reports the status of each cluster in Gardener to the fleet API, as the adapter "gardener". Its
// methods are safe for concurrent use.
//
// It reports every change of a row at once, progress after five seconds, and everything again from time to time, so
// that a cluster without recent reports is one whose worker is gone. A report states no
// more than is known. A cluster whose last change Gardener has not been seen to pick up
// is not ready, whatever its earlier status.
//
// Only the leading worker reports. Reports are the only effect, so a repeated report
// does no harm, and the fleet API recognises a late one by its time. The reporter retries
// while the fleet API is unavailable. A rejected report does not block the others.
type Reporter struct {
	cfg     ReporterConfig
	deps    ReporterDeps
	log     *slog.Logger
	metrics *reporterMetrics
	wake    chan struct{} // capacity 1

	leadsSince time.Time // zero while this process is not the leader
}

// NewReporter returns a reporter. It starts nothing.
func NewReporter(cfg ReporterConfig, deps ReporterDeps) (*Reporter, error) {
	cfg, err := cfg.withDefaultsValidated()
	if err != nil {
		return nil, err
	}
	if deps.Store == nil || deps.Fleet == nil || deps.Observer == nil {
		return nil, errors.New("create fleet API reporter: store, fleet client and observer are required")
	}
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	m, err := registerReporterMetrics(deps.Registerer)
	if err != nil {
		return nil, err
	}
	return &Reporter{cfg: cfg, deps: deps, log: deps.Log, metrics: m, wake: make(chan struct{}, 1)}, nil
}

// WakeRun wakes Run, as reports may be due. It never blocks; several calls are merged.
func (r *Reporter) WakeRun() {
	select {
	case r.wake <- struct{}{}:
	default: // it will wake up anyway
	}
}

// Run reports whenever this process is the leader, until ctx ends. It retries while the
// fleet API or the database is unavailable.
func (r *Reporter) Run(ctx context.Context) error {
	failures := 0
	for ctx.Err() == nil {
		if !r.updateLeadership() {
			r.waitForWakeOrTimeout(ctx, reportIdleInterval)
			continue
		}
		round, err := r.sendAndRecordDueReports(ctx)
		switch {
		case err != nil:
			r.logFirstFailureAndWait(ctx, err, failures)
			failures++
		case round.apiAnswered && failures > 0:
			r.log.InfoContext(ctx, "fleet API accepts reports again", "failures", failures)
			failures = 0
		case !round.mayHaveMore:
			r.waitForWakeOrTimeout(ctx, reportIdleInterval)
		}
	}
	return nil
}

// logFirstFailureAndWait waits for the next try, which a fleet API that asks for it delays.
func (r *Reporter) logFirstFailureAndWait(ctx context.Context, err error, earlierFailures int) {
	if earlierFailures == 0 && ctx.Err() == nil {
		r.log.WarnContext(ctx, "report to fleet API failed, retrying", "err", err)
	}
	policy := backoff.Policy{Initial: time.Second, Max: 10 * time.Second}
	retryAfter, _ := backoff.RetryAfter(err)
	_ = backoff.Sleep(ctx, max(policy.Delay(earlierFailures), min(retryAfter, backoff.MaxRetryAfter))) // Run checks ctx
}

// updateLeadership reports whether this process is the leader, and records since when.
func (r *Reporter) updateLeadership() (isLeader bool) {
	if !r.deps.Observer.IsLeader() {
		r.leadsSince = time.Time{}
		return false
	}
	if r.leadsSince.IsZero() {
		r.leadsSince = time.Now()
	}
	return true
}

// waitForWakeOrTimeout waits for WakeRun, at most for the given time.
func (r *Reporter) waitForWakeOrTimeout(ctx context.Context, timeout time.Duration) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-r.wake:
		_ = backoff.Sleep(ctx, reportGatherDelay)
		select {
		case <-r.wake: // from a call that came meanwhile
		default:
		}
	}
}
