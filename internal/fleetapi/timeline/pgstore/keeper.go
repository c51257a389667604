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
	"github.com/fleetloop/fleetloop/internal/fleetapi/timeline"
	"github.com/fleetloop/fleetloop/internal/fleetapi/timeline/pgstore/db"
	"github.com/fleetloop/fleetloop/internal/postgres"
)

const (
	// keepEvery is how often a keeper works, and keepAgain how soon after it could
	// not, which doubles: what it waits for, others wait for behind it.
	keepEvery = 10 * time.Minute
	keepAgain = 10 * time.Second
	// forgetBatch is how many keys, or fields, are forgotten in one transaction.
	forgetBatch = 5000
)

// A Keeper makes room for the events to come, and lets go of those that are older
// than the retention. Any number of them may work on one database.
type Keeper struct {
	pool      *postgres.Pool
	retention time.Duration
	log       *slog.Logger
	metrics   keeperMetrics

	failures int
}

// keeperMetrics say whether keepers work.
type keeperMetrics struct {
	kept, overdue prometheus.Gauge
}

// NewKeeper makes a keeper. A retention of zero means timeline.DefaultRetention.
func NewKeeper(pool *postgres.Pool, retention time.Duration, log *slog.Logger, reg prometheus.Registerer) (*Keeper, error) {
	k := &Keeper{pool: pool, retention: cmp.Or(retention, timeline.DefaultRetention), log: log, metrics: keeperMetrics{
		kept: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fleetloop_timeline_last_maintenance_timestamp_seconds",
			Help: "Unix time at which any process last created and dropped the weekly partitions of the change event table without an error, in seconds; 0 before the first time.",
		}),
		overdue: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fleetloop_timeline_expired_partitions",
			Help: "Number of weekly partitions of the change event table that are older than the retention period and that the fleet API could not drop.",
		}),
	}}
	if err := errors.Join(reg.Register(k.metrics.kept), reg.Register(k.metrics.overdue)); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return k, nil
}

// Run works from time to time, at once at first, until ctx ends. A database that
// is away is tried again.
func (k *Keeper) Run(ctx context.Context) error {
	for pause := time.Duration(0); backoff.Sleep(ctx, pause) == nil; {
		pause = keepEvery
		err := k.Round(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			pause = backoff.Policy{Initial: keepAgain, Max: keepEvery}.Delay(k.failures)
			// Where the schema is made by another, the first tries come too early.
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

// Round does once what there is to do.
func (k *Keeper) Round(ctx context.Context) error {
	// In a database that was restored the feed begins anew, the sooner the better:
	// what is told before that is told to nobody who follows.
	if _, err := New(k.pool).Horizon(ctx); err != nil {
		return err
	}
	var dropped []string
	var overdue int32
	err := k.pool.Read(ctx, scopeOf(timeline.Scope{All: true}), func(b *pgx.Batch) {
		dropped = nil
		b.Queue(db.Keep, k.retention).Query(func(rows pgx.Rows) error {
			return eachOf(rows, pgx.RowTo[string], func(name string) { dropped = append(dropped, name) })
		})
		b.Queue(db.OverdueWeeks, k.retention).QueryRow(func(row pgx.Row) error { return row.Scan(&overdue) })
	})
	if err != nil {
		return fmt.Errorf("maintain the partitions of the timeline: %w", err)
	}
	k.metrics.overdue.Set(float64(overdue))
	if len(dropped) > 0 {
		k.log.InfoContext(ctx, "expired partitions dropped", "partitions", dropped)
	}
	for what, statement := range map[string]string{"keys": db.ForgetKeys, "changed fields": db.ForgetFields} {
		if err := k.deleteExpired(ctx, statement); err != nil {
			return fmt.Errorf("delete the %s of expired change events: %w", what, err)
		}
	}
	k.metrics.kept.SetToCurrentTime()
	return nil
}

// deleteExpired removes what a statement finds that is older than the retention, batch
// by batch.
func (k *Keeper) deleteExpired(ctx context.Context, statement string) error {
	for gone := int32(forgetBatch); gone == forgetBatch; {
		err := k.pool.Read(ctx, scopeOf(timeline.Scope{All: true}), func(b *pgx.Batch) {
			b.Queue(statement, k.retention, forgetBatch).QueryRow(func(row pgx.Row) error { return row.Scan(&gone) })
		})
		if err != nil {
			return err
		}
	}
	return nil
}
