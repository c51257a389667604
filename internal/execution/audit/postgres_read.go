package audit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/fleetloop/fleetloop/internal/execution/audit/db"
	"github.com/fleetloop/fleetloop/internal/postgres"
)

// eventPageSize is the number of events held in memory at a time.
const eventPageSize = 1000

// Verify verifies the chain from its oldest event to the newest at the start of the call. It also
// compares the end with the stored end. It pauses pruning but not appending.
func (s *PostgresStore) Verify(ctx context.Context, checkpoints ...Position) (Report, error) {
	var report Report
	err := s.pool.RunInTx(ctx, postgres.Scope{}, func(ctx context.Context, tx postgres.Tx) error {
		q := db.New(tx)
		ends, err := q.AuditEnds(ctx)
		if errors.Is(err, pgx.ErrNoRows) {
			report = Report{Broken: &Break{Kind: Missing, Message: errNoEnds.Error()}}
			return nil
		}
		if err != nil {
			return err
		}
		v := NewVerifier(Position{Position: ends.BeginPosition, Hash: ends.BeginHash}, checkpoints...)
		if err := verifyEvents(ctx, q, v, ends.EndPosition); err != nil {
			return err
		}
		report = v.Close(Position{Position: ends.EndPosition, Hash: ends.EndHash})
		if report.Broken == nil {
			report.Broken, err = findBreakOutsideChain(ctx, q, ends)
		}
		return err
	})
	if err != nil {
		return Report{}, fmt.Errorf("verify the audit: %w", wrapUnavailable(err))
	}
	return report, nil
}

// verifyEvents passes the events up to a position to a verifier, page by page.
func verifyEvents(ctx context.Context, q *db.Queries, v *Verifier, end int64) error {
	position := int64(math.MinInt64)
	recorded := pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}
	for {
		rows, err := q.ReadAudit(ctx, position, recorded, eventPageSize)
		if err != nil {
			return err
		}
		for i := range rows {
			if rows[i].Position > end || !v.Add(eventFromRow(&rows[i])) {
				return nil
			}
		}
		if len(rows) < eventPageSize {
			return nil
		}
		last := rows[len(rows)-1]
		position, recorded = last.Position, last.RecordedAt
	}
}

func eventFromRow(e *db.Event) *Event {
	return &Event{
		Record: Record{
			ExecutionUID: e.ExecutionUID,
			Seq:          e.Seq,
			Time:         e.EventTime.Time.UTC(),
			Type:         Type(e.Type),
			ActorType:    ActorType(e.ActorType),
			ActorID:      e.ActorID,
			Action:       e.Action,
			Target:       Target{e.TargetAPIVersion, e.TargetKind, e.TargetNamespace, e.TargetName, e.TargetUID},
			Cluster:      e.Cluster,
			Namespace:    e.Namespace,
			Name:         e.Name,
			Outcome:      e.Outcome,
			Reason:       e.Reason,
			PolicyHash:   e.PolicyHash,
			PlanHash:     e.PlanHash,
			Correlation:  e.CorrelationID,
			Parent:       e.Parent,
			Payload:      e.Payload,
		},
		Position: e.Position,
		Recorded: e.RecordedAt.Time.UTC(),
		PrevHash: e.PrevHash,
		Hash:     e.Hash,
	}
}

// findBreakOutsideChain detects breaks that the chain itself does not show: an event beyond its end, and an
// execution that refers to a missing event.
func findBreakOutsideChain(ctx context.Context, q *db.Queries, ends db.AuditEndsRow) (*Break, error) {
	if ends.LastPosition > ends.EndPosition {
		message := fmt.Sprintf("the chain was recorded up to position %d, and this event comes after it", ends.EndPosition)
		b := Break{Kind: Inserted, Position: ends.LastPosition, Message: message}
		rows, err := q.ReadAuditPosition(ctx, ends.LastPosition)
		if err == nil && len(rows) > 0 {
			b.ExecutionUID, b.Seq = rows[0].ExecutionUID, rows[0].Seq
		}
		return &b, err
	}
	rows, err := q.SummaryWithoutEvent(ctx, ends.BeginPosition)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return &Break{
		Kind: Missing, Position: rows[0].LastPosition, ExecutionUID: rows[0].ExecutionUID,
		Message: "the execution summary has its last event at this position",
	}, nil
}

// A Filter selects events. Empty fields match all.
type Filter struct {
	// Execution is the name of an execution as namespace/name, or its UID.
	Execution string
	// Target is the name of the target: namespace/name, Kind/name or Kind/namespace/name.
	Target  string
	Actor   string
	Cluster string
	Since   time.Time
	Most    int // zero means no limit
}

// List calls each for the events that match a filter, newest first.
func (s *PostgresStore) List(ctx context.Context, f Filter, each func(*Event) error) error {
	p := listParams(f)
	left := f.Most
	if f.Most == 0 {
		left = math.MaxInt
	}
	for left > 0 {
		p.Most = int64(min(left, eventPageSize))
		var rows []db.Event
		err := s.pool.RunInTx(ctx, postgres.Scope{}, func(ctx context.Context, tx postgres.Tx) error {
			var err error
			rows, err = db.New(tx).ListAudit(ctx, p)
			return err
		})
		if err != nil {
			return fmt.Errorf("list the audit: %w", wrapUnavailable(err))
		}
		for i := range rows {
			if err := each(eventFromRow(&rows[i])); err != nil {
				return err
			}
		}
		left -= len(rows)
		if len(rows) < int(p.Most) {
			return nil
		}
		p.Before = rows[len(rows)-1].Position
	}
	return nil
}

func listParams(f Filter) db.ListAuditParams {
	p := db.ListAuditParams{
		Before: math.MaxInt64, Execution: f.Execution, Actor: f.Actor, Cluster: f.Cluster,
		Since: pgtype.Timestamptz{Time: f.Since, Valid: true},
	}
	p.ExecutionNamespace, p.ExecutionName = "", f.Execution
	if namespace, name, ok := strings.Cut(f.Execution, "/"); ok {
		p.ExecutionNamespace, p.ExecutionName = namespace, name
	}
	switch parts := strings.SplitN(f.Target, "/", 3); len(parts) {
	case 1:
		p.TargetName = parts[0]
	case 2:
		p.TargetIn, p.TargetName = parts[0], parts[1]
	default:
		p.TargetKind, p.TargetNamespace, p.TargetName = parts[0], parts[1], parts[2]
	}
	return p
}

// ListOpenExecutions returns the executions with neither an end nor a deletion on record.
func (s *PostgresStore) ListOpenExecutions(ctx context.Context, p Page) ([]Record, error) {
	var rows []db.Summary
	err := s.pool.RunInTx(ctx, postgres.Scope{}, func(ctx context.Context, tx postgres.Tx) error {
		var err error
		rows, err = db.New(tx).OpenExecutions(ctx, db.OpenExecutionsParams{
			After: p.After, Cluster: p.Cluster, Namespace: p.Namespace, Most: int64(p.Most),
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list open executions in the audit: %w", wrapUnavailable(err))
	}
	list := make([]Record, len(rows))
	for i := range rows {
		r := &rows[i]
		list[i] = Record{
			ExecutionUID: r.ExecutionUID, Action: r.Action, Cluster: r.Cluster, Namespace: r.Namespace, Name: r.Name,
			Target:      Target{APIVersion: r.TargetAPIVersion, Kind: r.TargetKind, Namespace: r.TargetNamespace, Name: r.TargetName},
			Correlation: r.CorrelationID, Parent: r.Parent,
		}
	}
	return list, nil
}
