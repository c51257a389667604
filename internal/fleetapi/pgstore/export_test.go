package pgstore

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fleetloop/fleetloop/internal/fleetapi"
	"github.com/fleetloop/fleetloop/internal/fleetapi/timeline"
	"github.com/fleetloop/fleetloop/internal/postgres"
)

// Round runs one round of pruning.
var Round = (*Pruner).deleteExpiredChanges

// CountOnce runs one round of counting.
var CountOnce = (*RollupCounter).countChangesAndSyncs

// InsertTimelineEvents inserts change events in a transaction.
var InsertTimelineEvents = insertTimelineEvents

// RunRounds runs rounds of a roller without a database.
func RunRounds(ctx context.Context, round func(context.Context) (more bool, err error)) error {
	return (&RollupCounter{log: slog.New(slog.DiscardHandler)}).repeatRounds(ctx, round)
}

// SettleRecountBatch returns the number of rows in a step of a long recount, in which each row takes a time.
func SettleRecountBatch(perRow time.Duration) int {
	r := &RollupCounter{recountBatch: minRecountBatch}
	for range 20 {
		r.adjustRecountBatch(time.Duration(r.recountBatch) * perRow)
	}
	return r.recountBatch
}

// StuckStatements returns the statements of a page, with their arguments.
func StuckStatements(scope fleetapi.Scope, q fleetapi.StuckQuery) (statements []string, args [][]any) {
	for _, c := range buildStuckQueries(scope, q) {
		statements, args = append(statements, c.sql.String()), append(args, c.args)
	}
	return statements, args
}

// PageStatement returns the statement of a page, with its arguments.
func PageStatement(scope fleetapi.Scope, q fleetapi.Query) (statement string, args []any) {
	c := buildPageQuery(scope, q)
	return c.sql.String(), c.args
}

// TimelinePageStatement returns the statement of a page of change events, with its arguments.
func TimelinePageStatement(q timeline.Query) (statement string, args []any) {
	c := buildTimelinePageQuery(&q)
	return c.sql.String(), c.args
}

// TimelineBucketsStatement returns the statement that counts change events, with its arguments.
func TimelineBucketsStatement(q timeline.BucketQuery) (statement string, args []any) {
	c := buildBucketsQuery(&q)
	return c.sql.String(), c.args
}

// errDied is the end of a roller that dies.
var errDied = errors.New("died")

// diedState is the SQLSTATE of a roller that dies at a write.
const diedState = "DIED0"

// dieAtWrites lets the statements that write counts fail when those that a transaction may run are used up.
const dieAtWrites = `create function tenant.die_at_write() returns trigger language plpgsql as $$
	declare
		writes_left int := nullif(current_setting('fleetloop.writes_left', true), '')::int;
	begin
		if writes_left = 0 then
			raise exception 'died' using errcode = '` + diedState + `';
		elsif writes_left > 0 then
			perform set_config('fleetloop.writes_left', (writes_left - 1)::text, true);
		end if;
		return null;
	end $$;
	do $$
	declare
		written text;
	begin
		foreach written in array '{rollup, rollup_rows, rollup_counts, rollup_reasons, rollup_reason_counts, rollup_syncs}'::text[] loop
			execute format('create trigger die before insert or update or delete on tenant.%I for each statement execute function tenant.die_at_write()', written);
		end loop;
	end $$`

// LetCountersDie prepares a database for CountDying.
func LetCountersDie(ctx context.Context, owner *pgx.Conn) error {
	_, err := owner.Exec(ctx, dieAtWrites)
	return err
}

// CountDying runs one step of counting and dies before the statement or the write with a number. Queued statements count
// only as writes. It reports whether it died.
func (r *RollupCounter) CountDying(ctx context.Context, syncs bool, statement, write int) (died bool, err error) {
	step := r.countChangesOrRecount
	if syncs {
		step = r.updateSyncCountsAndReasons
	}
	err = r.pool.RunInTx(ctx, toPostgresScope(fleetapi.Scope{All: true}), func(ctx context.Context, tx postgres.Tx) error {
		tx.Queue("select set_config('fleetloop.writes_left', $1, true)", strconv.Itoa(write))
		tx.Querier = &dyingTx{tx.Querier, statement}
		_, _, err := runStepIfLockFree(ctx, tx, step)
		return err
	})
	if errors.Is(err, errDied) || postgres.SQLState(err) == diedState {
		return true, nil
	}
	return false, err
}

// A dyingTx fails when its statements are used up.
type dyingTx struct {
	postgres.Querier

	left int
}

func (t *dyingTx) useStatement() error {
	if t.left--; t.left < 0 {
		return errDied
	}
	return nil
}

func (t *dyingTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := t.useStatement(); err != nil {
		return pgconn.CommandTag{}, err
	}
	return t.Querier.Exec(ctx, sql, args...)
}

func (t *dyingTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := t.useStatement(); err != nil {
		return nil, err
	}
	return t.Querier.Query(ctx, sql, args...)
}
