package pgstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi/timeline"
	"github.com/fleetloop/fleetloop/internal/fleetapi/timeline/pgstore/db"
	"github.com/fleetloop/fleetloop/internal/postgres"
)

// ListDeliveries returns the deliveries of an event by the names of the sinks.
func (s *Store) ListDeliveries(ctx context.Context, scope timeline.Scope, eventID string) ([]v1.ChangeDelivery, error) {
	var list []v1.ChangeDelivery
	err := s.pool.RunBatch(ctx, toPostgresScope(scope), func(b *pgx.Batch) {
		list = nil
		b.Queue(db.Deliveries, eventID).Query(func(rows pgx.Rows) error {
			return visitEachRow(rows, pgx.RowToStructByPos[db.DeliveriesRow], func(r db.DeliveriesRow) {
				list = append(list, v1.ChangeDelivery{
					Sink: r.Sink, Type: r.SinkType, State: v1.DeliveryState(r.State), Attempts: int(r.Attempts),
					FirstAttemptAt: timeOrNil(r.FirstAttemptAt), LastAttemptAt: timeOrNil(r.LastAttemptAt), NextAttemptAt: timeOrNil(r.NextAttemptAt),
					FinishedAt: timeOrNil(r.FinishedAt), Error: r.Error, HTTPStatus: int(r.HttpStatus),
				})
			})
		})
	})
	if err != nil {
		return nil, wrapAndMarkUnavailable(err, "read the deliveries of change event %q", eventID)
	}
	return list, nil
}

// ListUndelivered returns deliveries that fail, and those that were given up.
func (s *Store) ListUndelivered(
	ctx context.Context, scope timeline.Scope, givenUpWithin time.Duration, limitOfEach int,
) ([]v1.UndeliveredChange, error) {
	var found []db.UndeliveredRow
	err := s.pool.RunBatch(ctx, toPostgresScope(scope), func(b *pgx.Batch) {
		b.Queue(db.Undelivered, givenUpWithin, limitOfEach).Query(func(rows pgx.Rows) (err error) {
			found, err = pgx.CollectRows(rows, pgx.RowToStructByPos[db.UndeliveredRow])
			return err
		})
	})
	if err != nil {
		return nil, wrapAndMarkUnavailable(err, "list the deliveries that fail")
	}
	list := make([]v1.UndeliveredChange, len(found))
	for i, r := range found {
		var change struct {
			Action, Cluster string
			At              time.Time
		}
		if err := json.Unmarshal([]byte(r.Change), &change); err != nil {
			return nil, fmt.Errorf("read the stored change %q: %w", r.EventID, err)
		}
		list[i] = v1.UndeliveredChange{EventID: r.EventID, Action: change.Action, Cluster: change.Cluster, Time: change.At.UTC(), Delivery: v1.ChangeDelivery{
			Sink: r.Sink, Type: r.SinkType, State: v1.DeliveryState(r.State), Attempts: int(r.Attempts),
			FirstAttemptAt: timeOrNil(r.FirstAttemptAt), LastAttemptAt: timeOrNil(r.LastAttemptAt), NextAttemptAt: timeOrNil(r.NextAttemptAt),
			FinishedAt: timeOrNil(r.FinishedAt), Error: r.Error, HTTPStatus: int(r.HttpStatus),
		}}
	}
	return list, nil
}

// timeOrNil returns a time, nil for null.
func timeOrNil(column pgtype.Timestamptz) *time.Time {
	if !column.Valid {
		return nil
	}
	return new(column.Time.UTC())
}

// errRepeated means that a request was already carried out.
var errRepeated = errors.New("request repeated")

// RequeueEvent queues an event again and records that, in one transaction.
func (s *Store) RequeueEvent(ctx context.Context, scope timeline.Scope, r timeline.Resend) (queuedSinks []string, err error) {
	err = s.pool.RunInTx(ctx, toPostgresScope(scope), func(ctx context.Context, tx postgres.Tx) error {
		var there bool
		var again []db.RequeueChangeRow
		var b pgx.Batch
		b.Queue(db.LockResend, r.EventID)
		b.Queue(db.RequeueChange, r.EventID, r.Sink).Query(func(rows pgx.Rows) (err error) {
			again, err = pgx.CollectRows(rows, pgx.RowToStructByPos[db.RequeueChangeRow])
			return err
		})
		b.Queue(db.CanResend, r.EventID, r.Sink).QueryRow(func(row pgx.Row) error { return row.Scan(&there) })
		if err := tx.SendBatch(ctx, &b).Close(); err != nil {
			return err
		}
		queuedSinks = []string{}
		for i := range again {
			queuedSinks = append(queuedSinks, again[i].Sink)
		}
		switch {
		case len(again) > 0:
			return insertResendEvent(ctx, tx, r, again[0], queuedSinks)
		case !there:
			return timeline.ErrNoDelivery
		}
		return nil
	})
	switch {
	case errors.Is(err, errRepeated):
		return []string{}, nil
	case errors.Is(err, timeline.ErrNoDelivery):
		return nil, err
	case err != nil:
		return nil, wrapAndMarkUnavailable(err, "queue change event %q again", r.EventID)
	}
	return queuedSinks, nil
}

// insertResendEvent records a request in the timeline. Its key is unique, so a repeated request fails with
// errRepeated, which also undoes what it queued.
func insertResendEvent(ctx context.Context, tx postgres.Tx, resend timeline.Resend, requeued db.RequeueChangeRow, sinks []string) error {
	c := timeline.ResentChange{Resend: resend, Tenant: requeued.Tenant.String, Sinks: sinks, At: tx.Now}
	var change struct{ Action, Cluster string }
	if err := json.Unmarshal([]byte(requeued.Change), &change); err != nil {
		return fmt.Errorf("read the stored change: %w", err)
	}
	c.Action, c.Cluster = change.Action, change.Cluster
	event, err := c.BuildEvent()
	if err != nil {
		return err
	}
	rows, err := tx.Query(ctx, insert, buildInsertParams([]timeline.Event{event})...)
	if err != nil {
		return err
	}
	fresh, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err == nil && len(fresh) == 0 {
		err = errRepeated
	}
	return err
}
