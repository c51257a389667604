package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/fleetapi/pgstore/db"
	"github.com/fleetloop/fleetloop/internal/fleetapi/timeline"
	"github.com/fleetloop/fleetloop/internal/fleetapi/watch"
)

// selectTimelineRow selects the columns of a row.
const selectTimelineRow = `select e.xact, e.seq, e.at, e.recorded_at, e.recorded_by, coalesce(e.tenant, ''),
	e.cluster, e.node, e.source, e.actor, e.action, e.subject, e.session, e.failed, e.dry_run, e.payload, e.fields from timeline.change_event e`

// joinChangedField joins the events to a field that they changed. It is a join and not an exists, so that
// the index of the fields gives the order.
const joinChangedField = ` join timeline.changed_field f on f.at = e.at and f.seq = e.seq`

// readablePayload is the payload without the character NUL: PostgreSQL reads no value of a document that has one. Stored
// events may have it. The replacement is as long, so that an escaped backslash before it stays one. It is not
// tenant.spec_text, which would keep a statement from running in parallel.
const readablePayload = `(case when strpos(e.payload::text, '\u0000') = 0 then e.payload
	else replace(e.payload::text, '\u0000', '\ufffd')::json end)`

// buildTimelinePageQuery returns the statement that reads a page. The pages of several clusters are merged,
// each read in the order of its index; otherwise a page would read the events of all clusters.
func buildTimelinePageQuery(q *timeline.Query) *sqlBuilder {
	c := new(sqlBuilder)
	filter := q.Filter
	mergesClusters := len(q.Clusters) > 1 && q.Field == ""
	if mergesClusters {
		filter.Clusters = nil
		c.writeSQL("select e.* from (select distinct unnest(", c.addArg(q.Clusters, "text[]"), ") as name) of_cluster cross join lateral (")
	}
	c.writeSQL(selectTimelineRow)
	ordered := "e." // the table whose index gives the order
	if q.Field != "" {
		ordered = "f."
		c.writeSQL(joinChangedField)
	}
	since := q.NotBefore
	if q.Since.After(since) {
		since = q.Since
	}
	c.writeSQL(" where ", ordered, "at >= ", c.addArg(since, "timestamptz"))
	if !q.Until.IsZero() {
		c.writeSQL(" and ", ordered, "at < ", c.addArg(q.Until, "timestamptz"))
	}
	if q.After != (timeline.Place{}) {
		c.writeSQL(" and (", ordered, "at, ", ordered, "seq) < (", c.addArg(q.After.At, "timestamptz"), ", ", c.addArg(q.After.Seq, "bigint"), ")")
	}
	if mergesClusters {
		c.writeSQL(" and e.cluster = of_cluster.name")
	}
	c.writeFilterConditions(&filter)
	limit := c.addArg(q.Limit, "bigint")
	c.writeSQL(" order by ", ordered, "at desc, ", ordered, "seq desc limit ", limit)
	if mergesClusters {
		c.writeSQL(") e order by e.at desc, e.seq desc limit ", limit)
	}
	return c
}

// writeFilterConditions appends the conditions of a filter, except for its times.
func (c *sqlBuilder) writeFilterConditions(filter *timeline.Filter) {
	if filter.Field != "" {
		c.writeSQL(" and f.field = ", c.addArg(filter.Field, "text"))
	}
	if len(filter.Clusters) == 1 {
		c.writeSQL(" and e.cluster = ", c.addArg(filter.Clusters[0], "text"))
	}
	for _, f := range []struct{ column, want string }{{"node", filter.Node}, {"subject", filter.Subject}, {"session", filter.Session}} {
		if f.want != "" { // the index covers only values that are not empty
			c.writeSQL(" and e.", f.column, " = ", c.addArg(f.want, "text"), " and e.", f.column, " <> ''")
		}
	}
	if len(filter.Clusters) > 1 {
		c.writeSQL(" and e.cluster = any(", c.addArg(filter.Clusters, "text[]"), ")")
	}
	for _, f := range []struct {
		column string
		want   []string
	}{{"actor", filter.Actors}, {"source", filter.Sources}, {"action", filter.Actions}} {
		if len(f.want) > 0 {
			c.writeSQL(" and e.", f.column, " = any(", c.addArg(f.want, "text[]"), ")")
		}
	}
	if filter.Outcome != "" {
		c.writeSQL(" and e.failed = ", c.addArg(filter.Outcome == changeevent.OutcomeFailed, "boolean"))
	}
	if filter.DryRun != nil {
		c.writeSQL(" and e.dry_run = ", c.addArg(*filter.DryRun, "boolean"))
	}
	if filter.Text != "" {
		c.writeSQL(
			" and strpos(lower(concat(", readablePayload, "->>'summary', E'\\n', ", readablePayload, "->>'reason')), lower(",
			c.addArg(filter.Text, "text"),
			")) > 0",
		)
	}
}

// List calls visit for the events of a page.
func (s *TimelineStore) List(
	ctx context.Context, scope timeline.Scope, q timeline.Query, visit func(*timeline.Row) error,
) (live watch.Cursor, err error) {
	v := timelineVisitor{visit: visit}
	statement := buildTimelinePageQuery(&q)
	err = s.retryReadAfterEpochRenewal(ctx, func() error {
		return s.pool.RunSnapshotBatch(ctx, toPostgresScope(scope), func(b *pgx.Batch) {
			queueReadTimelineCursor(b, &live)
			b.Queue(inOrder) // the planner would collect and sort all events of a node
			statement.queueOn(b).Query(v.visitRows)
		})
	})
	switch {
	case v.err != nil:
		return watch.Cursor{}, v.err
	case err != nil:
		return watch.Cursor{}, wrapAndMarkTimelineUnavailable(err, "list change events")
	}
	return live, nil
}

// selectSettledEvents selects the settled events after a position.
const selectSettledEvents = selectTimelineRow + ` where e.feed = (select f.no from timeline.feed f) and (e.xact, e.seq) > ($1, $2)
	and e.xact < pg_snapshot_xmin(pg_current_snapshot()) order by e.feed, e.xact, e.seq limit $3`

// VisitEventsAfter calls visit for the settled events after a cursor, in the order of arrival.
func (s *TimelineStore) VisitEventsAfter(
	ctx context.Context, scope timeline.Scope, cursor watch.Cursor, limit int, visit func(*timeline.Row) error,
) (next watch.Cursor, hasMore bool, err error) {
	v := timelineVisitor{visit: visit}
	next = cursor
	// Most polls find nothing, and checking costs less than reading.
	err = waitUntilReached(ctx, func() error {
		return s.readFeed(ctx, func(b *pgx.Batch) { queueCheckForNewEvents(b, cursor, &hasMore) })
	})
	if err == nil && hasMore {
		err = s.pool.RunSnapshotBatch(ctx, toPostgresScope(scope), func(b *pgx.Batch) {
			var there bool
			var horizon watch.Cursor
			queueCheckForNewEvents(b, cursor, &there)
			queueReadTimelineCursor(b, &horizon)
			b.Queue(selectSettledEvents, cursor.Xact, cursor.Seq, limit).Query(func(rows pgx.Rows) error {
				if err := v.visitRows(rows); err != nil {
					return err
				}
				if hasMore = v.rows == limit; hasMore {
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
		return watch.Cursor{}, false, wrapAndMarkTimelineUnavailable(err, "read new change events")
	}
	return next, hasMore, nil
}

// ReadLatestCursor returns the cursor after all events that are settled now.
func (s *TimelineStore) ReadLatestCursor(ctx context.Context) (latest watch.Cursor, err error) {
	err = s.readFeed(ctx, func(b *pgx.Batch) { queueReadTimelineCursor(b, &latest) })
	if err != nil {
		return watch.Cursor{}, wrapAndMarkTimelineUnavailable(err, "read the bounds of the change events")
	}
	return latest, nil
}

// queueReadTimelineCursor adds the read of the horizon to a batch.
func queueReadTimelineCursor(b *pgx.Batch, into *watch.Cursor) {
	b.Queue(db.TimelineHorizon).QueryRow(func(row pgx.Row) error {
		var r db.TimelineHorizonRow
		if err := row.Scan(&r.Epoch, &r.Current, &r.Xact, &r.Seq); err != nil {
			return err
		}
		id, err := parseEpochIfCurrent(r.Epoch, r.Current)
		*into = watch.Cursor{Epoch: id, Position: watch.Position{Xact: r.Xact, Seq: r.Seq}}
		return err
	})
}

// queueCheckForNewEvents adds a check to a batch: whether there are events after a cursor. It fails for a
// cursor that cannot have been issued by now.
func queueCheckForNewEvents(b *pgx.Batch, cursor watch.Cursor, hasNewEvents *bool) {
	b.Queue(db.TimelineBounds, cursor.Xact, cursor.Seq).QueryRow(func(row pgx.Row) error {
		var r db.TimelineBoundsRow
		if err := row.Scan(&r.Epoch, &r.Current, &r.Settled, &r.Known, &r.More); err != nil {
			return err
		}
		id, err := parseEpochIfCurrent(r.Epoch, r.Current)
		switch {
		case err != nil:
		case cursor.Epoch != id:
			err = timeline.ErrCursorExpired
		case cursor.Xact > r.Known:
			err = fmt.Errorf("%w: %w", timeline.ErrCursorExpired, errCursorAhead)
		}
		*hasNewEvents = r.More
		return err
	})
}

// A timelineVisitor distinguishes the error of a visit from those of the database.
type timelineVisitor struct {
	visit func(*timeline.Row) error
	err   error
	rows  int
	last  watch.Position
}

// visitRows calls visit for every row. The row is reused for the next one.
func (v *timelineVisitor) visitRows(rows pgx.Rows) error {
	var row timeline.Row
	var payload pgtype.DriverBytes
	into := []any{
		&row.Arrival.Xact, &row.Arrival.Seq, &row.At, &row.RecordedAt, &row.RecordedBy, &row.Tenant,
		&row.Cluster, &row.Node, &row.Source, &row.Actor, &row.Action, &row.Subject, &row.Session, &row.Failed, &row.DryRun, &payload, &row.Fields,
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
