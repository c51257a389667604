package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/fleetapi/pgstore/db"
	"github.com/fleetloop/fleetloop/internal/fleetapi/timeline"
	"github.com/fleetloop/fleetloop/internal/postgres"
)

const (
	// maintainEvery is the interval of the rounds, and maintainAgain the first retry delay after a failure,
	// which doubles. Failed rounds are not retried at once, because other transactions wait behind
	// the locks that a round waits for.
	maintainEvery = 10 * time.Minute
	maintainAgain = 10 * time.Second
	// deleteBatch is the number of keys, or fields, deleted in one transaction.
	deleteBatch = 5000
)

// A PartitionMaintainer creates the partitions for future events, and drops those that are older than the
// retention. Any number of maintainers may work on one database.
type PartitionMaintainer struct {
	pool      *postgres.Pool
	retention time.Duration
	log       *slog.Logger
	metrics   maintainerMetrics

	failures int
}

type maintainerMetrics struct {
	kept, overdue prometheus.Gauge
}

// NewPartitionMaintainer returns a maintainer. A retention of zero means timeline.DefaultRetention.
func NewPartitionMaintainer(
	pool *postgres.Pool, retention time.Duration, log *slog.Logger, reg prometheus.Registerer,
) (*PartitionMaintainer, error) {
	m := &PartitionMaintainer{
		pool:      pool,
		retention: cmp.Or(retention, timeline.DefaultRetention),
		log:       log,
		metrics: maintainerMetrics{
			kept: prometheus.NewGauge(prometheus.GaugeOpts{
				Name: "fleetloop_timeline_last_maintenance_timestamp_seconds",
				Help: "Unix time at which this process last completed the maintenance of the table of change events, in seconds; 0 before the first time. The maintenance creates the weekly partitions for new events and drops the expired partitions.",
			}),
			overdue: prometheus.NewGauge(prometheus.GaugeOpts{
				Name: "fleetloop_timeline_expired_partitions",
				Help: "Number of weekly partitions of the table of change events that are older than the retention period, but that the fleet API could not drop.",
			}),
		},
	}
	if err := errors.Join(reg.Register(m.metrics.kept), reg.Register(m.metrics.overdue)); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return m, nil
}

// Run runs a round at once and then periodically, until ctx ends. It retries while the database is unavailable.
func (m *PartitionMaintainer) Run(ctx context.Context) error {
	for pause := time.Duration(0); backoff.Sleep(ctx, pause) == nil; {
		pause = maintainEvery
		err := m.MaintainTimelineOnce(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			pause = backoff.Policy{Initial: maintainAgain, Max: maintainEvery}.Delay(m.failures)
			// If another process creates the schema, the first rounds run too early.
			if m.failures++; m.failures == 2 {
				m.log.WarnContext(ctx, "timeline maintenance failed, retrying", "err", err)
			}
		default:
			if m.failures > 1 {
				m.log.InfoContext(ctx, "timeline maintenance works again")
			}
			m.failures = 0
		}
	}
	return nil
}

// MaintainTimelineOnce runs one round of maintenance.
func (m *PartitionMaintainer) MaintainTimelineOnce(ctx context.Context) error {
	// A restored database starts a new feed, the sooner the better: events stored before that do not reach streams.
	if _, err := NewTimelineStore(m.pool).ReadLatestCursor(ctx); err != nil {
		return err
	}
	var dropped []string
	var overdue int32
	err := m.pool.RunBatch(ctx, toPostgresScope(timeline.Scope{All: true}), func(b *pgx.Batch) {
		queueCollectValues(b.Queue(db.MaintainPartitions, m.retention), &dropped)
		queueScanRow(b.Queue(db.CountExpiredPartitions, m.retention), &overdue)
	})
	if err != nil {
		return fmt.Errorf("maintain the partitions of the timeline: %w", err)
	}
	m.metrics.overdue.Set(float64(overdue))
	if len(dropped) > 0 {
		m.log.InfoContext(ctx, "expired partitions dropped", "partitions", dropped)
	}
	for what, statement := range map[string]string{
		"keys": db.DeleteExpiredKeys, "changed fields": db.DeleteExpiredFields, "deliveries": db.DeleteExpiredDeliveries,
	} {
		if err := m.deleteExpiredInBatches(ctx, statement); err != nil {
			return fmt.Errorf("delete the %s of expired change events: %w", what, err)
		}
	}
	m.metrics.kept.SetToCurrentTime()
	return nil
}

// deleteExpiredInBatches runs a statement that deletes entries older than the retention, batch by batch.
func (m *PartitionMaintainer) deleteExpiredInBatches(ctx context.Context, deleteSQL string) error {
	for {
		var deleted int32
		err := m.pool.RunBatch(ctx, toPostgresScope(timeline.Scope{All: true}), func(b *pgx.Batch) {
			queueScanRow(b.Queue(deleteSQL, m.retention, deleteBatch), &deleted)
		})
		if err != nil || deleted < deleteBatch {
			return err
		}
	}
}
