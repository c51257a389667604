package pgstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
	"github.com/fleetloop/fleetloop/internal/fleetapi/pgstore/db"
	"github.com/fleetloop/fleetloop/internal/fleetapi/watch"
	"github.com/fleetloop/fleetloop/internal/postgres"
)

// changes selects the changes after a position up to the horizon. It keeps only the last change of
// a row (stepwise, also the last that relabelled it), and joins the current row. Stepwise, the
// current row must still belong to that tenant, because a row may have moved and watches sort by
// the tenant of the change. The limit counts log entries, so that an answer costs the same whatever
// it contains. Each row is looked up by its key: a join that reads the whole table would never pay.
const changes = `select ` + pageColumns + `, ` + shootColumns + `, at_xact, at_seq, of_kind, of_id, of_tenant, was_relabelled, total
from (
	select xact as at_xact, seq as at_seq, kind as of_kind, id as of_id, tenant as of_tenant,
		%s as was_relabelled,
		row_number() over (partition by %s order by xact desc, seq desc) as age,
		labels_changed and row_number() over (partition by %[2]s, labels_changed order by xact desc, seq desc) = 1 as relabelled_last,
		count(*) over () as total
	from (
		select * from tenant.resource_changes
		where (xact, seq) > ($1, $2) and xact < pg_snapshot_xmin(pg_current_snapshot())%s
		order by xact, seq limit $3
	) log
) changes
left join lateral (select * from tenant.resources where id = of_id and kind = of_kind%s limit 1) now on true%s
where age = 1%s
order by at_xact, at_seq`

// changesStatement returns the statement for one kind, or for all.
func changesStatement(q fleetapi.ChangeQuery) *clause {
	c := new(clause)
	c.args = []any{q.After.Xact, q.After.Seq, q.Limit}
	of := ""
	if q.Kind != "" {
		of = " and kind = " + c.addArg(q.Kind, "text")
	}
	relabelled, row, still, also := "bool_or(labels_changed) over (partition by kind, id)", "kind, id", "", ""
	if q.Stepwise {
		relabelled, row, still, also = "labels_changed", "kind, id, tenant", " and tenant = of_tenant", " or relabelled_last"
	}
	c.writeSQL(fmt.Sprintf(changes, relabelled, row, of, still, shootOf("of_id", "of_kind = '"+v1.KindCluster+"'"), also))
	return c
}

// renewBatch is the number of changes of another history that are deleted in one transaction.
const renewBatch = 100_000

// errOtherHistory means that the feed belongs to another history of the database.
var errOtherHistory = errors.New("the change feed belongs to another database")

// Changes calls visit for the settled changes after a cursor.
func (s *Store) Changes(ctx context.Context, scope fleetapi.Scope, q fleetapi.ChangeQuery, visit func(*fleetapi.Change) error) (next watch.Cursor, more bool, err error) {
	// Most polls find nothing. Peeking first takes a fifth of the time of reading an empty result.
	next, more, err = peekHorizon(ctx, s.pool, q)
	visiting := visitor[*fleetapi.Change]{visit: visit}
	if err == nil && more {
		err = readFeedRenewingEpoch(ctx, s.pool, func() error {
			next, more, err = readChanges(ctx, s.pool, scope, q, visiting.visitItem)
			return err
		})
	}
	switch {
	case visiting.err != nil:
		return watch.Cursor{}, false, visiting.err
	case errors.Is(err, fleetapi.ErrCursorExpired):
		return watch.Cursor{}, false, fleetapi.ErrCursorExpired
	case err != nil:
		return watch.Cursor{}, false, wrapError(err, "read the changes")
	}
	return next, more, nil
}

// peekHorizon returns the horizon, and whether there are changes between the cursor of a query and
// the horizon.
func peekHorizon(ctx context.Context, pool *postgres.Pool, q fleetapi.ChangeQuery) (next watch.Cursor, more bool, err error) {
	err = readFeedRenewingEpoch(ctx, pool, func() error {
		return pool.RunBatch(ctx, scopeOf(fleetapi.Scope{}), func(b *pgx.Batch) {
			queueBounds(b, q, func(bounds *db.FeedBoundsRow) (err error) {
				next, err = horizonNotBefore(q.After, bounds)
				more = bounds.More
				return err
			})
		})
	})
	return next, more, err
}

// readChanges reads the changes after the cursor of a query.
func readChanges(ctx context.Context, pool *postgres.Pool, scope fleetapi.Scope, q fleetapi.ChangeQuery, visit func(*fleetapi.Change) error) (next watch.Cursor, more bool, err error) {
	statement := changesStatement(q)
	err = pool.ReadSnapshot(ctx, scopeOf(scope), func(b *pgx.Batch) {
		queueBounds(b, q, func(bounds *db.FeedBoundsRow) (err error) {
			next, err = horizonNotBefore(q.After, bounds)
			return err
		})
		b.Queue(statement.sql.String(), statement.args...).Query(func(rows pgx.Rows) error {
			last, read, err := visitChanges(rows, visit)
			if more = read == q.Limit; more {
				next.Position = last
			}
			return err
		})
	})
	return next, more, err
}

// Horizon returns the cursor after all changes that are settled now.
func (s *Store) Horizon(ctx context.Context) (next watch.Cursor, err error) {
	err = readFeedRenewingEpoch(ctx, s.pool, func() error {
		return s.pool.RunBatch(ctx, scopeOf(fleetapi.Scope{}), func(b *pgx.Batch) {
			queueBounds(b, fleetapi.ChangeQuery{}, func(bounds *db.FeedBoundsRow) (err error) {
				next, err = horizonCursor(bounds)
				return err
			})
		})
	})
	if err != nil {
		return watch.Cursor{}, wrapError(err, "read the bounds of the change feed")
	}
	return next, nil
}

// State returns the visible state of the changes of a kind.
func (s *Store) State(ctx context.Context, kind string) (state watch.FeedState, err error) {
	err = readFeedRenewingEpoch(ctx, s.pool, func() error {
		return s.pool.RunBatch(ctx, scopeOf(fleetapi.Scope{}), func(b *pgx.Batch) { queueState(b, kind, &state) })
	})
	if err != nil {
		return watch.FeedState{}, wrapError(err, "read the state of the change feed")
	}
	return state, nil
}

// readFeedRenewingEpoch runs a read of the feed. If the database has been restored since, the feed begins a new
// epoch and the read runs again.
func readFeedRenewingEpoch(ctx context.Context, pool *postgres.Pool, read func() error) error {
	err := read()
	if !errors.Is(err, errOtherHistory) {
		return err
	}
	for done := false; !done; {
		err := pool.RunBatch(ctx, scopeOf(fleetapi.Scope{}), func(b *pgx.Batch) {
			b.Queue(db.RenewFeed, renewBatch).QueryRow(func(row pgx.Row) error { return row.Scan(&done) })
		})
		if err != nil {
			return fmt.Errorf("start a new epoch of the change feed: %w", err)
		}
	}
	return read()
}

// queueState adds the read of a kind's state to a batch.
func queueState(b *pgx.Batch, kind string, state *watch.FeedState) {
	b.Queue(db.FeedState, kind).QueryRow(func(row pgx.Row) error {
		var r db.FeedStateRow
		if err := row.Scan(&r.Epoch, &r.Current, &r.Xact, &r.Seq, &r.Pending); err != nil {
			return err
		}
		var err error
		*state = watch.FeedState{Newest: watch.Position{Xact: r.Xact, Seq: r.Seq}, Pending: r.Pending}
		state.Epoch, err = parseEpoch(r.Epoch, r.Current)
		return err
	})
}

// queueBounds adds the read of a query's bounds to a batch.
func queueBounds(b *pgx.Batch, q fleetapi.ChangeQuery, use func(*db.FeedBoundsRow) error) {
	b.Queue(db.FeedBounds, q.Kind, q.After.Xact, q.After.Seq).QueryRow(func(row pgx.Row) error {
		var r db.FeedBoundsRow
		if err := row.Scan(&r.Epoch, &r.Current, &r.PrunedXact, &r.PrunedSeq, &r.Settled, &r.LastXact, &r.LastSeq, &r.Known, &r.More); err != nil {
			return err
		}
		return use(&r)
	})
}

// horizonCursor returns the position of the last change before the oldest running transaction.
// Transactions between the two were rolled back or changed nothing, and must not be used as
// positions: after a crash the server may reuse their numbers. The number of a committed
// transaction with changes is never reused.
func horizonCursor(r *db.FeedBoundsRow) (watch.Cursor, error) {
	id, err := parseEpoch(r.Epoch, r.Current)
	return watch.Cursor{Epoch: id, Position: watch.Position{Xact: r.LastXact, Seq: r.LastSeq}}, err
}

func parseEpoch(text string, isCurrent bool) (uuid.UUID, error) {
	if !isCurrent {
		return uuid.UUID{}, errOtherHistory
	}
	return uuid.Parse(text)
}

// horizonNotBefore returns the later of the horizon and the cursor. It fails if changes after the
// cursor were pruned, or if the cursor cannot have been issued by now. (The cursor of a page may be
// at a running transaction.)
func horizonNotBefore(after watch.Cursor, r *db.FeedBoundsRow) (watch.Cursor, error) {
	next, err := horizonCursor(r)
	pruned := watch.Position{Xact: r.PrunedXact, Seq: r.PrunedSeq}
	if err == nil && (after.Epoch != next.Epoch || after.Compare(pruned) < 0 || after.Xact > r.Known) {
		err = fleetapi.ErrCursorExpired
	}
	if next.Compare(after.Position) < 0 {
		next.Position = after.Position
	}
	return next, err
}

// visitChanges calls visit for every change. The change and its record are reused for the next one.
// It returns the position of the last change, and the number of log entries.
func visitChanges(rows pgx.Rows, visit func(*fleetapi.Change) error) (last watch.Position, read int, err error) {
	var row pageRow
	var rec fleetapi.Record
	var c fleetapi.Change
	of := []any{&c.At.Xact, &c.At.Seq, &c.Key.Kind, &c.Key.ID, &c.Tenant, &c.Relabelled, &read}
	there := append(row.scanTargets(&rec), of...)
	gone := append(make([]any, len(there)-len(of)), of...) // columns without a target are skipped
	for rows.Next() {
		c.Record = nil
		if rows.RawValues()[0] == nil {
			err = rows.Scan(gone...)
		} else if err = rows.Scan(there...); err == nil {
			row.fillRecord(&rec)
			rec.Kind = c.Key.Kind
			c.Record = &rec
		}
		if err == nil {
			err = visit(&c)
		}
		if err != nil {
			return last, read, err
		}
		last = c.At
	}
	return last, read, rows.Err()
}
