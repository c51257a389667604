package pgstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
	"github.com/fleetloop/fleetloop/internal/fleetapi/pgstore/db"
	"github.com/fleetloop/fleetloop/internal/fleetapi/watch"
	"github.com/fleetloop/fleetloop/internal/postgres"
)

const (
	// rollInterval is the interval at which rounds of counting begin. The counts are at most as old as
	// one interval and one round, unless rounds are long: they get the time at which their round began when it ends.
	rollInterval = 500 * time.Millisecond
	// After a round longer than longRound, the next one begins after that many times its duration, or maxLongPause.
	longRound      = 500 * time.Millisecond
	longRoundPause = 9
	maxLongPause   = 30 * time.Second
	// rollBatch is the maximum number of changes, or of rows of a recount, that one transaction counts. The
	// change feed stops at a transaction that writes, so each must be short.
	rollBatch = 1000
	// minRecountBatch is the number of rows with which a recount begins. It doubles while a step takes less than
	// half of recountStep, and halves when one takes longer than that.
	minRecountBatch = 250
	recountStep     = 50 * time.Millisecond
	// sweepInterval is the interval at which counts that have become zero are removed.
	sweepInterval = time.Minute
)

// A RollupCounter counts clusters, node pools and syncs for Store.ReadSummary, from the change feed. Any number
// of counters may work on one database: while one is counting, the others have nothing to do.
//
// Each step is one transaction, which counts some changes and moves the position in the feed past
// them. What a row was last counted as is remembered with the counts, so a row that is read again
// does not count twice. If the feed no longer has the changes after the position, all rows are
// counted anew, in steps of the same kind.
type RollupCounter struct {
	pool      *postgres.Pool
	labelKeys []string // saved by the first step
	log       *slog.Logger

	keysSaved    bool
	recountBatch int // rows in the next step of a recount, 0 before the first
	failing      bool
	sweepAt      time.Time
}

// NewRollupCounter returns a counter of clusters by the values of the label keys. If counters of
// several processes have different keys, those of the process that started last count.
func NewRollupCounter(pool *postgres.Pool, labelKeys []string, log *slog.Logger) *RollupCounter {
	return &RollupCounter{pool: pool, labelKeys: append([]string{}, labelKeys...), log: log}
}

// Run counts until ctx ends. It retries while the database is unavailable.
func (r *RollupCounter) Run(ctx context.Context) error {
	return r.repeatRounds(ctx, r.countChangesAndSyncs)
}

// repeatRounds runs rounds until ctx ends. The next one begins after rollInterval or, if a round leaves something to
// count, after as long as the round took. Counting takes at most half of the time, and about a tenth in each process
// while hundreds of thousands of clusters are not synced, which need the database more.
func (r *RollupCounter) repeatRounds(ctx context.Context, runRound func(context.Context) (more bool, err error)) error {
	for {
		began := time.Now()
		more, err := runRound(ctx)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // it stops
		case err != nil && !r.failing:
			r.log.WarnContext(ctx, "counting resources failed, retrying", "err", err)
		case err == nil && r.failing:
			r.log.InfoContext(ctx, "counting resources works again")
		}
		r.failing = err != nil
		took := time.Since(began)
		pause := max(rollInterval-took, took)
		switch {
		case more && err == nil:
			pause = took
		case err == nil && took > longRound:
			pause = min(longRoundPause*took, maxLongPause)
		}
		if backoff.Sleep(ctx, pause) != nil {
			return nil //nolint:nilerr // it stops
		}
	}
}

// A rollupPosition is the row of tenant.rollup.
type rollupPosition struct {
	labelKeys   []string
	epoch       *string
	after       watch.Position
	recountKind *string
	recountID   *string
}

// countChangesAndSyncs counts changes and, once there are none left, the syncs. It reports whether there is
// more to count at once.
func (r *RollupCounter) countChangesAndSyncs(ctx context.Context) (hasMore bool, err error) {
	hasMore, ran, err := r.runStepInTxIfLockFree(ctx, r.countChangesOrRecount)
	r.keysSaved = r.keysSaved || (ran && err == nil)
	if err == nil && !hasMore {
		hasMore, _, err = r.runStepInTxIfLockFree(ctx, r.updateSyncCountsAndReasons)
	}
	if err != nil {
		return false, fmt.Errorf("count resources: %w", err)
	}
	return hasMore, nil
}

// A countStep reads before it writes. It reports whether there is more to count at once.
type countStep func(ctx context.Context, tx postgres.Tx, at *rollupPosition) (more bool, err error)

// runStepInTxIfLockFree runs a step in one transaction, unless another process is counting. It reports whether it ran.
func (r *RollupCounter) runStepInTxIfLockFree(ctx context.Context, step countStep) (hasMore, ran bool, err error) {
	err = retryReadAfterEpochRenewal(ctx, r.pool, func() error {
		return r.pool.RunInTx(ctx, toPostgresScope(fleetapi.Scope{All: true}), func(ctx context.Context, tx postgres.Tx) error {
			hasMore, ran, err = runStepIfLockFree(ctx, tx, step)
			return err
		})
	})
	return hasMore, ran, err
}

// lockCounts locks the counts for the transaction, and reports whether it could. It keeps the planner
// on indexes while few rows are read, and other processors free. The change feed waits for the commit, which does not
// wait for the disk: what a crash undoes is counted again.
const lockCounts = `select pg_try_advisory_xact_lock(hashtext('fleetloop tenant.rollup')),
	set_config('jit', 'off', true), set_config('random_page_cost', '1.1', true), set_config('max_parallel_workers_per_gather', '0', true),
	set_config('synchronous_commit', 'off', true)`

// runStepIfLockFree reads the position and runs a step. The lock is an advisory one, because a lock on a
// row would make the transaction one that writes before it has read.
func runStepIfLockFree(ctx context.Context, tx postgres.Tx, step countStep) (hasMore, ran bool, err error) {
	var locked bool
	err = tx.QueryRow(ctx, lockCounts).Scan(&locked, nil, nil, nil, nil)
	if err != nil || !locked {
		return false, false, err
	}
	var position rollupPosition
	err = tx.QueryRow(ctx, `select label_keys, epoch, xact, seq, recount_kind, recount_id from tenant.rollup`).
		Scan(&position.labelKeys, &position.epoch, &position.after.Xact, &position.after.Seq, &position.recountKind, &position.recountID)
	if err != nil {
		return false, false, fmt.Errorf("read the position: %w", err)
	}
	hasMore, err = step(ctx, tx, &position)
	return hasMore, true, err
}

// countChangesOrRecount counts the next changes, or the next rows of a recount.
func (r *RollupCounter) countChangesOrRecount(ctx context.Context, tx postgres.Tx, at *rollupPosition) (hasMore bool, err error) {
	expired, horizon, err := checkPositionInFeed(ctx, tx, at)
	if err != nil {
		return false, err
	}
	changedKeys := !r.keysSaved && !slices.Equal(at.labelKeys, r.labelKeys)
	switch {
	case expired || changedKeys:
		if changedKeys {
			at.labelKeys = r.labelKeys
		}
		r.log.InfoContext(ctx, "counting all resources anew", "label_keys", at.labelKeys)
		hasMore, err = true, startRecount(ctx, tx, at.labelKeys, horizon)
	case at.recountKind != nil:
		began := time.Now()
		r.recountBatch = max(r.recountBatch, minRecountBatch)
		hasMore, err = true, recountNextRows(ctx, tx, at, r.recountBatch)
		r.adjustRecountBatch(time.Since(began))
	default:
		hasMore, err = countNextChanges(ctx, tx, at)
	}
	return hasMore, err
}

// adjustRecountBatch chooses the number of rows of the next step by the time that the last one took.
func (r *RollupCounter) adjustRecountBatch(took time.Duration) {
	switch {
	case took > recountStep:
		r.recountBatch /= 2
	case took < recountStep/2:
		r.recountBatch *= 2
	}
	r.recountBatch = min(max(r.recountBatch, minRecountBatch), rollBatch)
}

// checkPositionInFeed returns the current end of the feed, and whether changes after the position are gone.
func checkPositionInFeed(ctx context.Context, tx postgres.Tx, at *rollupPosition) (expired bool, feedEnd watch.Cursor, err error) {
	after := watch.Cursor{Position: at.after}
	if at.epoch != nil {
		if after.Epoch, err = uuid.Parse(*at.epoch); err != nil {
			return false, feedEnd, fmt.Errorf("read the epoch of the counts: %w", err)
		}
	}
	var row db.FeedBoundsRow
	var b pgx.Batch
	queueReadFeedBounds(&b, fleetapi.ChangeQuery{After: after}, func(bounds *db.FeedBoundsRow) error {
		row = *bounds
		return nil
	})
	if err := tx.RunBatch(ctx, &b); err != nil {
		return false, feedEnd, fmt.Errorf("read the bounds of the change feed: %w", err)
	}
	if feedEnd, err = newSettledCursor(&row); err != nil {
		return false, feedEnd, err
	}
	_, err = validateAndAdvanceToSettled(after, &row)
	if errors.Is(err, fleetapi.ErrCursorExpired) {
		return true, feedEnd, nil
	}
	return false, feedEnd, err
}

// startRecount moves the position to the end of the feed, and begins to count all rows. Until the
// last of them is counted, the counts keep their age. Its commit waits for the disk, because the label keys are saved once.
func startRecount(ctx context.Context, tx postgres.Tx, labelKeys []string, feedEnd watch.Cursor) error {
	tx.Queue("select set_config('synchronous_commit', 'on', true)")
	_, err := tx.Exec(ctx, `update tenant.rollup set label_keys = $1, epoch = $2::uuid, xact = $3, seq = $4, recount_kind = $5, recount_id = $6::uuid`,
		labelKeys, feedEnd.Epoch.String(), feedEnd.Xact, feedEnd.Seq, v1.KindCluster, uuid.Nil.String())
	if err != nil {
		return fmt.Errorf("start to count all resources: %w", err)
	}
	return nil
}

// nextRows selects the next ids of a kind in order: of rows that exist, and of rows that were counted.
const nextRows = `select id from (
	(select id from tenant.all_resources where kind = $1 and id > $2::uuid order by id limit $3)
	union
	(select id from tenant.rollup_rows where kind = $1 and id > $2::uuid order by id limit $3)
) both_rows order by id limit $3`

func recountNextRows(ctx context.Context, tx postgres.Tx, at *rollupPosition, limit int) error {
	kind := *at.recountKind
	ids, err := collectRows(ctx, tx, pgx.RowTo[string], nextRows, kind, *at.recountID, limit)
	if err != nil {
		return fmt.Errorf("read the rows to count: %w", err)
	}
	var keys rowKeys
	for _, id := range ids {
		keys.add(kind, id)
	}
	if err := updateCountsOfRows(ctx, tx, keys, at.labelKeys); err != nil {
		return err
	}
	// The node pools follow the clusters, and then the recount is over.
	var nextKind, afterID *string
	switch {
	case len(ids) == limit:
		nextKind, afterID = &kind, &ids[len(ids)-1]
	case kind == v1.KindCluster:
		nextKind, afterID = new(v1.KindNodePool), new(uuid.Nil.String())
	}
	tx.Queue("update tenant.rollup set recount_kind = $1, recount_id = $2::uuid", nextKind, afterID)
	if err := tx.RunQueued(ctx); err != nil {
		return fmt.Errorf("save the next step of the recount: %w", err)
	}
	return nil
}

// settledChanges selects the next changes of all kinds. The counts are as old as the oldest change
// that is committed but stands behind a transaction that is still running.
const (
	settledChanges = `select xact, seq, kind, id from tenant.resource_changes
		where (xact, seq) > ($1, $2) and xact < pg_snapshot_xmin(pg_current_snapshot()) order by xact, seq limit $3`
	countedUntil = `select least(statement_timestamp(), (select min(changed_at) from tenant.resource_changes where xact >= pg_snapshot_xmin(pg_current_snapshot())))`
)

// A settledChange is a row of settledChanges.
type settledChange struct {
	watch.Position
	fleetapi.Key
}

func countNextChanges(ctx context.Context, tx postgres.Tx, at *rollupPosition) (hasMore bool, err error) {
	// The time is read before the changes: those that settle in between are counted without it.
	var until time.Time
	if err := tx.QueryRow(ctx, countedUntil).Scan(&until); err != nil {
		return false, fmt.Errorf("read the age of the change feed: %w", err)
	}
	changes, err := collectRows(ctx, tx, pgx.RowToStructByPos[settledChange], settledChanges, at.after.Xact, at.after.Seq, rollBatch)
	if err != nil {
		return false, fmt.Errorf("read the changes: %w", err)
	}
	var keys rowKeys
	seen := map[fleetapi.Key]bool{}
	for _, change := range changes {
		at.after = change.Position
		isCounted := change.Kind == v1.KindCluster || change.Kind == v1.KindNodePool
		if isCounted && !seen[change.Key] {
			seen[change.Key] = true
			keys.add(change.Kind, change.ID)
		}
	}
	if err := updateCountsOfRows(ctx, tx, keys, at.labelKeys); err != nil {
		return false, err
	}
	hasMore = len(changes) == rollBatch
	update, args := "update tenant.rollup set xact = $1, seq = $2", []any{at.after.Xact, at.after.Seq}
	if !hasMore {
		update, args = update+", as_of = $3", append(args, until)
	}
	nameFailure(tx.Queue(update, args...), "save the position in the change feed")
	return hasMore, nil
}

// deleteZeroCountsIfDue removes counts that have become zero. They do no harm, so it does so rarely.
func (r *RollupCounter) deleteZeroCountsIfDue(tx postgres.Tx) {
	if time.Now().Before(r.sweepAt) {
		return
	}
	for _, table := range []string{"rollup_counts", "rollup_reason_counts"} {
		nameFailure(tx.Queue("delete from tenant."+table+" where n = 0"), "remove empty counts")
	}
	r.sweepAt = time.Now().Add(sweepInterval)
}
