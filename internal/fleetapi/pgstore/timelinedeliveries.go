package pgstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi/pgstore/db"
	"github.com/fleetloop/fleetloop/internal/fleetapi/timeline"
	"github.com/fleetloop/fleetloop/internal/postgres"
)

// A deliveryRow is a row of ListDeliveries.
type deliveryRow struct {
	Sink, SinkType, State                                    string
	Attempts                                                 int32
	FirstAttemptAt, LastAttemptAt, NextAttemptAt, FinishedAt *time.Time
	Error                                                    string
	HTTPStatus                                               int32
}

func (r *deliveryRow) toDelivery() v1.ChangeDelivery {
	return v1.ChangeDelivery{
		Sink: r.Sink, Type: r.SinkType, State: v1.DeliveryState(r.State), Attempts: int(r.Attempts),
		FirstAttemptAt: inUTC(r.FirstAttemptAt), LastAttemptAt: inUTC(r.LastAttemptAt), NextAttemptAt: inUTC(r.NextAttemptAt),
		FinishedAt: inUTC(r.FinishedAt), Error: r.Error, HTTPStatus: int(r.HTTPStatus),
	}
}

// inUTC returns a time in UTC, nil for nil.
func inUTC(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	return new(t.UTC())
}

// An undeliveredRow is a row of ListUndelivered.
type undeliveredRow struct {
	EventID string
	deliveryRow
	Change string
}

// ListDeliveries returns the deliveries of an event by the names of the sinks.
func (s *TimelineStore) ListDeliveries(ctx context.Context, scope timeline.Scope, eventID string) ([]v1.ChangeDelivery, error) {
	var rows []deliveryRow
	err := s.pool.RunBatch(ctx, toPostgresScope(scope), func(b *pgx.Batch) {
		queueCollectRows(b.Queue(db.ListDeliveries, eventID), &rows)
	})
	if err != nil {
		return nil, wrapAndMarkTimelineUnavailable(err, "read the deliveries of change event %q", eventID)
	}
	var list []v1.ChangeDelivery
	for i := range rows {
		list = append(list, rows[i].toDelivery())
	}
	return list, nil
}

// ListUndelivered returns deliveries that fail, and those that were given up.
func (s *TimelineStore) ListUndelivered(
	ctx context.Context, scope timeline.Scope, givenUpWithin time.Duration, limitOfEach int,
) ([]v1.UndeliveredChange, error) {
	var found []undeliveredRow
	err := s.pool.RunBatch(ctx, toPostgresScope(scope), func(b *pgx.Batch) {
		queueCollectRows(b.Queue(db.ListUndelivered, givenUpWithin, limitOfEach), &found)
	})
	if err != nil {
		return nil, wrapAndMarkTimelineUnavailable(err, "list the deliveries that fail")
	}
	list := make([]v1.UndeliveredChange, len(found))
	for i := range found {
		r := &found[i]
		var change struct {
			Action, Cluster string
			At              time.Time
		}
		if err := json.Unmarshal([]byte(r.Change), &change); err != nil {
			return nil, fmt.Errorf("read the stored change %q: %w", r.EventID, err)
		}
		list[i] = v1.UndeliveredChange{
			EventID: r.EventID, Action: change.Action, Cluster: change.Cluster, Time: change.At.UTC(), Delivery: r.toDelivery(),
		}
	}
	return list, nil
}

// errRepeated means that a request was already carried out.
var errRepeated = errors.New("request repeated")

// RequeueEvent queues an event again and records that, in one transaction.
func (s *TimelineStore) RequeueEvent(ctx context.Context, scope timeline.Scope, r timeline.Resend) (queuedSinks []string, err error) {
	err = s.pool.RunInTx(ctx, toPostgresScope(scope), func(ctx context.Context, tx postgres.Tx) error {
		queuedSinks, err = requeueEventInTx(ctx, tx, r)
		return err
	})
	switch {
	case errors.Is(err, errRepeated):
		return []string{}, nil
	case errors.Is(err, timeline.ErrNoDelivery):
		return nil, err
	case err != nil:
		return nil, wrapAndMarkTimelineUnavailable(err, "queue change event %q again", r.EventID)
	}
	return queuedSinks, nil
}

func requeueEventInTx(ctx context.Context, tx postgres.Tx, r timeline.Resend) (queuedSinks []string, err error) {
	var deliveryExists bool
	var requeued []db.RequeueChangeRow
	var b pgx.Batch
	b.Queue(db.LockResend, r.EventID)
	queueCollectRows(b.Queue(db.RequeueChange, r.EventID, r.Sink), &requeued)
	queueScanRow(b.Queue(db.CanResend, r.EventID, r.Sink), &deliveryExists)
	if err := tx.RunBatch(ctx, &b); err != nil {
		return nil, err
	}
	if len(requeued) == 0 && !deliveryExists {
		return nil, timeline.ErrNoDelivery
	}
	queuedSinks = []string{}
	for i := range requeued {
		queuedSinks = append(queuedSinks, requeued[i].Sink)
	}
	if len(requeued) == 0 { // the deliveries are pending
		return queuedSinks, nil
	}
	return queuedSinks, recordResendInTimeline(ctx, tx, r, requeued[0], queuedSinks)
}

// recordResendInTimeline records a request in the timeline. Its key is unique, so a repeated request fails with
// errRepeated, which also undoes what it queued.
func recordResendInTimeline(
	ctx context.Context,
	tx postgres.Tx,
	resend timeline.Resend,
	requeued db.RequeueChangeRow,
	sinks []string,
) error {
	c := timeline.ResentChange{Resend: resend, Tenant: derefOrZero(requeued.Tenant), Sinks: sinks}
	var change struct{ Action, Cluster string }
	if err := json.Unmarshal([]byte(requeued.Change), &change); err != nil {
		return fmt.Errorf("read the stored change: %w", err)
	}
	c.Action, c.Cluster = change.Action, change.Cluster
	var err error
	if c.At, err = tx.ReadBeginTime(ctx); err != nil {
		return err
	}
	event, err := c.BuildEvent()
	if err != nil {
		return err
	}
	insertedKeys, err := collectRows(ctx, tx, pgx.RowTo[string], insertKeyedEvents, buildInsertParams([]timeline.Event{event})...)
	if err == nil && len(insertedKeys) == 0 {
		err = errRepeated
	}
	return err
}
