package pgstore

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
	"github.com/fleetloop/fleetloop/internal/fleetapi/pgstore/db"
	"github.com/fleetloop/fleetloop/internal/postgres"
)

const (
	// pruneBatch is the number of changes deleted in one transaction.
	pruneBatch = 5000
	// pruneParts is the number of pruning rounds per retention.
	pruneParts = 60
	pruneMost  = time.Minute
	pruneLeast = time.Second
	// heldUpAfter is the age of a transaction after which a warning reports that it delays all change feeds.
	heldUpAfter = time.Minute
)

// A Pruner deletes old changes. Any number of pruners may work on one database: while one is
// pruning, the others have nothing to do.
type Pruner struct {
	pool      *postgres.Pool
	retention time.Duration
	log       *slog.Logger

	failing bool
	oldest  uint64    // the transaction that delays the changes
	since   time.Time // when it was first seen
	told    bool
}

// NewPruner returns a pruner of changes that are older than the retention. Zero means fleetapi.DefaultChangeRetention.
func NewPruner(pool *postgres.Pool, retention time.Duration, log *slog.Logger) *Pruner {
	return &Pruner{pool: pool, retention: cmp.Or(retention, fleetapi.DefaultChangeRetention), log: log}
}

// Run prunes periodically until ctx ends. It retries while the database is unavailable.
func (p *Pruner) Run(ctx context.Context) error {
	for backoff.Sleep(ctx, min(max(p.retention/pruneParts, pruneLeast), pruneMost)) == nil {
		err := p.deleteExpiredChanges(ctx, time.Now())
		switch {
		case ctx.Err() != nil:
		case err != nil && !p.failing:
			p.log.WarnContext(ctx, "pruning old changes failed, retrying", "err", err)
		case err == nil && p.failing:
			p.log.InfoContext(ctx, "pruning old changes works again")
		}
		p.failing = err != nil
	}
	return nil
}

func (p *Pruner) deleteExpiredChanges(ctx context.Context, now time.Time) error {
	for {
		var pruned int32
		var bounds db.FeedBoundsRow
		err := p.pool.RunBatch(ctx, toPostgresScope(fleetapi.Scope{All: true}), func(b *pgx.Batch) {
			queueScanRow(b.Queue(db.PruneChanges, p.retention, pruneBatch), &pruned)
			queueReadFeedBounds(b, fleetapi.ChangeQuery{}, func(r *db.FeedBoundsRow) error {
				bounds = *r
				return nil
			})
		})
		if err != nil {
			return fmt.Errorf("prune changes: %w", err)
		}
		p.warnOnceIfTransactionDelaysFeed(ctx, &bounds, now)
		if pruned < pruneBatch {
			return nil
		}
	}
}

// warnOnceIfTransactionDelaysFeed logs one warning for a transaction that delays the changes for long. The
// transaction may belong to another database of the server.
func (p *Pruner) warnOnceIfTransactionDelaysFeed(ctx context.Context, bounds *db.FeedBoundsRow, now time.Time) {
	if bounds.Settled != p.oldest || bounds.Settled == bounds.Known {
		p.oldest, p.since, p.told = bounds.Settled, now, false
		return
	}
	if held := now.Sub(p.since); held >= heldUpAfter && !p.told {
		p.told = true
		p.log.WarnContext(ctx, "changes are delayed by a long-running transaction", "transaction", p.oldest, "held", held.Round(time.Second),
			"hint", "select * from pg_stat_activity where backend_xid = '"+fmt.Sprint(uint32(p.oldest))+"'") //nolint:gosec // the server itself shows these 32 bits
	}
}
