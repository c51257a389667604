package pgstore

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/fleetloop/fleetloop/internal/fleetapi/timeline"
	"github.com/fleetloop/fleetloop/internal/fleetapi/timeline/pgstore/db"
	"github.com/fleetloop/fleetloop/internal/fleetapi/watch"
)

// selected selects the columns of a row.
const selected = `select e.xact, e.seq, e.at, e.recorded_at, e.recorded_by, coalesce(e.tenant, ''),
	e.cluster, e.node, e.source, e.actor, e.action, e.subject, e.session, e.payload, e.fields from timeline.change_event e`

// byField joins the events to a field that they changed. It is a join and not an exists, so that
// the index of the fields gives the order.
const byField = ` join timeline.changed_field f on f.at = e.at and f.seq = e.seq`

// inOrder makes a page use the index with its order until the page is full. The planner would
// otherwise collect and sort all events of a node.
const inOrder = "select set_config('enable_bitmapscan', 'off', true)"

// A clause is a piece of SQL under construction, with its parameters.
type clause struct {
	sql  strings.Builder
	args []any
}

// writeSQL appends trusted SQL.
func (c *clause) writeSQL(parts ...string) {
	for _, p := range parts {
		c.sql.WriteString(p)
	}
}

// addArg adds a parameter and returns its placeholder.
func (c *clause) addArg(v any, sqlType string) string {
	c.args = append(c.args, v)
	return "$" + strconv.Itoa(len(c.args)) + "::" + sqlType
}

// pageStatement returns the statement that reads a page.
func pageStatement(q *timeline.Query) *clause {
	c := new(clause)
	from := q.NotBefore
	if q.Since.After(from) {
		from = q.Since
	}
	c.writeSQL(selected)
	of := "e." // the table whose index gives the order
	if q.Field != "" {
		of = "f."
		c.writeSQL(byField)
	}
	c.writeSQL(" where ", of, "at >= ", c.addArg(from, "timestamptz"))
	if q.Field != "" {
		c.writeSQL(" and f.field = ", c.addArg(q.Field, "text"))
	}
	if !q.Until.IsZero() {
		c.writeSQL(" and ", of, "at < ", c.addArg(q.Until, "timestamptz"))
	}
	if q.After != (timeline.Place{}) {
		c.writeSQL(" and (", of, "at, ", of, "seq) < (", c.addArg(q.After.At, "timestamptz"), ", ", c.addArg(q.After.Seq, "bigint"), ")")
	}
	for _, f := range []struct {
		column, want string
		partial      bool // the index covers only values that are not empty
	}{{"cluster", q.Cluster, false}, {"node", q.Node, true}, {"subject", q.Subject, true}, {"session", q.Session, true}} {
		if f.want == "" {
			continue
		}
		c.writeSQL(" and e.", f.column, " = ", c.addArg(f.want, "text"))
		if f.partial {
			c.writeSQL(" and e.", f.column, " <> ''")
		}
	}
	for _, f := range []struct {
		column string
		want   []string
	}{{"actor", q.Actors}, {"source", q.Sources}, {"action", q.Actions}} {
		if len(f.want) > 0 {
			c.writeSQL(" and e.", f.column, " = any(", c.addArg(f.want, "text[]"), ")")
		}
	}
	c.writeSQL(" order by ", of, "at desc, ", of, "seq desc limit ", c.addArg(q.Limit, "bigint"))
	return c
}

// List calls visit for the events of a page.
func (s *Store) List(ctx context.Context, scope timeline.Scope, q timeline.Query, visit func(*timeline.Row) error) (live watch.Cursor, err error) {
	v := visitor{visit: visit}
	statement := pageStatement(&q)
	err = s.readFeedRenewingEpoch(ctx, func() error {
		return s.pool.ReadSnapshot(ctx, scopeOf(scope), func(b *pgx.Batch) {
			queueHorizon(b, &live)
			b.Queue(inOrder)
			b.Queue(statement.sql.String(), statement.args...).Query(v.visitRows)
		})
	})
	switch {
	case v.err != nil:
		return watch.Cursor{}, v.err
	case err != nil:
		return watch.Cursor{}, wrapError(err, "list change events")
	}
	return live, nil
}

// changes selects the settled events after a position.
const changes = selected + ` where e.feed = (select f.no from timeline.feed f) and (e.xact, e.seq) > ($1, $2)
	and e.xact < pg_snapshot_xmin(pg_current_snapshot()) order by e.feed, e.xact, e.seq limit $3`

// Changes calls visit for the settled events after a cursor, in the order of arrival.
func (s *Store) Changes(ctx context.Context, scope timeline.Scope, after watch.Cursor, limit int, visit func(*timeline.Row) error) (next watch.Cursor, more bool, err error) {
	v := visitor{visit: visit}
	next = after
	// Most polls find nothing, and checking costs less than reading.
	err = s.readFeedRenewingEpoch(ctx, func() error {
		return s.pool.RunBatch(ctx, scopeOf(timeline.Scope{}), func(b *pgx.Batch) { queueBounds(b, after, &more) })
	})
	if err == nil && more {
		err = s.pool.ReadSnapshot(ctx, scopeOf(scope), func(b *pgx.Batch) {
			var there bool
			var horizon watch.Cursor
			queueBounds(b, after, &there)
			queueHorizon(b, &horizon)
			b.Queue(changes, after.Xact, after.Seq, limit).Query(func(rows pgx.Rows) error {
				if err := v.visitRows(rows); err != nil {
					return err
				}
				if more = v.rows == limit; more {
					next.Position = v.last
				} else if next.Compare(horizon.Position) < 0 {
					next.Position = horizon.Position // past the events of other scopes
				}
				return nil
			})
		})
	}
	switch {
	case v.err != nil:
		return watch.Cursor{}, false, v.err
	case errors.Is(err, timeline.ErrCursorExpired), errors.Is(err, errOtherHistory):
		return watch.Cursor{}, false, timeline.ErrCursorExpired
	case err != nil:
		return watch.Cursor{}, false, wrapError(err, "read new change events")
	}
	return next, more, nil
}

// Horizon returns the cursor after all events that are settled now.
func (s *Store) Horizon(ctx context.Context) (at watch.Cursor, err error) {
	err = s.readFeedRenewingEpoch(ctx, func() error {
		return s.pool.RunBatch(ctx, scopeOf(timeline.Scope{}), func(b *pgx.Batch) { queueHorizon(b, &at) })
	})
	if err != nil {
		return watch.Cursor{}, wrapError(err, "read the bounds of the change events")
	}
	return at, nil
}

// queueHorizon adds the read of the horizon to a batch.
func queueHorizon(b *pgx.Batch, into *watch.Cursor) {
	b.Queue(db.Horizon).QueryRow(func(row pgx.Row) error {
		var r db.HorizonRow
		if err := row.Scan(&r.Epoch, &r.Current, &r.Xact, &r.Seq); err != nil {
			return err
		}
		id, err := parseEpoch(r.Epoch, r.Current)
		*into = watch.Cursor{Epoch: id, Position: watch.Position{Xact: r.Xact, Seq: r.Seq}}
		return err
	})
}

// queueBounds adds a check to a batch: whether there are events after a cursor. It fails for a
// cursor that cannot have been issued by now.
func queueBounds(b *pgx.Batch, after watch.Cursor, more *bool) {
	b.Queue(db.Bounds, after.Xact, after.Seq).QueryRow(func(row pgx.Row) error {
		var r db.BoundsRow
		if err := row.Scan(&r.Epoch, &r.Current, &r.Settled, &r.Known, &r.More); err != nil {
			return err
		}
		id, err := parseEpoch(r.Epoch, r.Current)
		if err == nil && (after.Epoch != id || after.Xact > r.Known) {
			err = timeline.ErrCursorExpired
		}
		*more = r.More
		return err
	})
}

// A visitor distinguishes the error of a visit from those of the database.
type visitor struct {
	visit func(*timeline.Row) error
	err   error
	rows  int
	last  watch.Position
}

// visitRows calls visit for every row. The row is reused for the next one.
func (v *visitor) visitRows(rows pgx.Rows) error {
	var row timeline.Row
	var payload pgtype.DriverBytes
	into := []any{
		&row.Arrival.Xact, &row.Arrival.Seq, &row.At, &row.RecordedAt, &row.RecordedBy, &row.Tenant,
		&row.Cluster, &row.Node, &row.Source, &row.Actor, &row.Action, &row.Subject, &row.Session, &payload, &row.Fields,
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		if len(row.Fields) == 0 {
			row.Fields = nil
		}
		row.Seq, row.Payload = row.Arrival.Seq, []byte(payload)
		row.At, row.RecordedAt = row.At.In(time.UTC), row.RecordedAt.In(time.UTC)
		if v.err = v.visit(&row); v.err != nil {
			return v.err
		}
		v.rows, v.last = v.rows+1, row.Arrival
	}
	return rows.Err()
}
