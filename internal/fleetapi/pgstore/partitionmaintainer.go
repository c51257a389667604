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
	// keepEvery is the interval of a keeper, and keepAgain its first retry delay after a failure,
	// which doubles. Failed rounds are not retried at once, because other transactions wait behind
	// the locks that a round waits for.
	keepEvery = 10 * time.Minute
	keepAgain = 10 * time.Second
	// forgetBatch is the number of keys, or fields, deleted in one transaction.
	forgetBatch = 5000
)

// A PartitionMaintainer creates the partitions for future events, and drops those that are older than the
// retention. Any number of keepers may work on one database.
type PartitionMaintainer struct {
	pool      *postgres.Pool
	retention time.Duration
	log       *slog.Logger
	metrics   maintainerMetrics

	failures int
}

// maintainerMetrics holds the metrics of keepers.
type maintainerMetrics struct {
	kept, overdue prometheus.Gauge
}

// NewPartitionMaintainer returns a keeper. A retention of zero means timeline.DefaultRetention.
func NewPartitionMaintainer(
	pool *postgres.Pool, retention time.Duration, log *slog.Logger, reg prometheus.Registerer,
) (*PartitionMaintainer, error) {
	k := &PartitionMaintainer{pool: pool, retention: cmp.Or(retention, timeline.DefaultRetention), log: log, metrics: maintainerMetrics{
		kept: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fleetloop_timeline_last_maintenance_timestamp_seconds",
			Help: "Unix time at which this process last completed the maintenance of the table of change events, in seconds; 0 before the first time. The maintenance creates the weekly partitions for new events and drops the expired partitions.",
		}),
		overdue: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fleetloop_timeline_expired_partitions",
			Help: "Number of weekly partitions of the table of change events that are older than the retention period, but that the fleet API could not drop.",
		}),
	}}
	if err := errors.Join(reg.Register(k.metrics.kept), reg.Register(k.metrics.overdue)); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return k, nil
}

// Run runs a round at once and then periodically, until ctx ends. It retries while the database is
// unavailable.
func (k *PartitionMaintainer) Run(ctx context.Context) error {
	for pause := time.Duration(0); backoff.Sleep(ctx, pause) == nil; {
		pause = keepEvery
		err := k.MaintainPartitionsOnce(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			pause = backoff.Policy{Initial: keepAgain, Max: keepEvery}.Delay(k.failures)
			// If another process creates the schema, the first rounds run too early.
			if k.failures++; k.failures == 2 {
				k.log.WarnContext(ctx, "timeline maintenance failed, retrying", "err", err)
			}
		case k.failures > 1:
			k.log.InfoContext(ctx, "timeline maintenance works again")
			fallthrough
		default:
			k.failures = 0
		}
	}
	return nil
}

// MaintainPartitionsOnce runs one round of maintenance.
func (k *PartitionMaintainer) MaintainPartitionsOnce(ctx context.Context) error {
	// A restored database starts a new feed, the sooner the better: events stored before that do
	// not reach streams.
	if _, err := NewTimelineStore(k.pool).ReadLatestCursor(ctx); err != nil {
		return err
	}
	var dropped []string
	var overdue int32
	err := k.pool.RunBatch(ctx, toPostgresScope(timeline.Scope{All: true}), func(b *pgx.Batch) {
		dropped = nil
		b.Queue(db.MaintainPartitions, k.retention).Query(func(rows pgx.Rows) error {
			return visitEachRow(rows, pgx.RowTo[string], func(name string) { dropped = append(dropped, name) })
		})
		b.Queue(db.CountExpiredPartitions, k.retention).QueryRow(func(row pgx.Row) error { return row.Scan(&overdue) })
	})
	if err != nil {
		return fmt.Errorf("maintain the partitions of the timeline: %w", err)
	}
	k.metrics.overdue.Set(float64(overdue))
	if len(dropped) > 0 {
		k.log.InfoContext(ctx, "expired partitions dropped", "partitions", dropped)
	}
	for what, statement := range map[string]string{
		"keys": db.DeleteExpiredKeys, "changed fields": db.DeleteExpiredFields, "deliveries": db.DeleteExpiredDeliveries,
	} {
		if err := k.deleteExpiredInBatches(ctx, statement); err != nil {
			return fmt.Errorf("delete the %s of expired change events: %w", what, err)
		}
	}
	k.metrics.kept.SetToCurrentTime()
	return nil
}

// deleteExpiredInBatches runs a statement that deletes entries older than the retention, batch by batch.
func (k *PartitionMaintainer) deleteExpiredInBatches(ctx context.Context, deleteSQL string) error {
	for gone := int32(forgetBatch); gone == forgetBatch; {
		err := k.pool.RunBatch(ctx, toPostgresScope(timeline.Scope{All: true}), func(b *pgx.Batch) {
			b.Queue(deleteSQL, k.retention, forgetBatch).QueryRow(func(row pgx.Row) error { return row.Scan(&gone) })
		})
		if err != nil {
			return err
		}
	}
	return nil
}
