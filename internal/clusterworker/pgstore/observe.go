package pgstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/clusterworker/pgstore/db"
)

// firstID sorts before the id of every cluster.
const firstID = "00000000-0000-0000-0000-000000000000"

// Lead begins a term, or extends the worker's current one.
func (s *Store) Lead(ctx context.Context, owner string, ttl time.Duration) (clusterworker.Term, error) {
	until := time.Now().Add(ttl)
	var fences []int64
	err := s.sendBatch(ctx, func(b *pgx.Batch) { collectScalars(b.Queue(db.Lead, sanitizeText(owner), ttl), &fences) })
	switch {
	case err != nil:
		return clusterworker.Term{}, fmt.Errorf("acquire leadership: %w", err)
	case len(fences) == 0:
		return clusterworker.Term{}, nil
	}
	return clusterworker.Term{Held: true, Fence: fences[0], Until: until}, nil
}

// Resign ends a term early.
func (s *Store) Resign(ctx context.Context, fence int64) error {
	if err := s.sendBatch(ctx, func(b *pgx.Batch) { b.Queue(db.Resign, fence) }); err != nil {
		return fmt.Errorf("release leadership: %w", err)
	}
	return nil
}

// Installation returns the id of this database. A copy of a database has the id of the
// original.
func (s *Store) Installation(ctx context.Context) (string, error) {
	var id string
	err := s.sendBatch(ctx, func(b *pgx.Batch) {
		b.Queue(db.Installation).QueryRow(func(row pgx.Row) error { return row.Scan(&id) })
	})
	if err != nil {
		return "", fmt.Errorf("read installation id: %w", err)
	}
	return id, nil
}

// AddMissingRows creates rows for up to limit clusters without one.
func (s *Store) AddMissingRows(ctx context.Context, limit int) (clusterIDs []string, err error) {
	err = s.sendBatch(ctx, func(b *pgx.Batch) { collectScalars(b.Queue(db.AddMissing, int32(limit)), &clusterIDs) }) //nolint:gosec // a limit of ours
	if err != nil {
		return nil, fmt.Errorf("add missing sync rows: %w", err)
	}
	return clusterIDs, nil
}

// Rows returns rows after an id.
func (s *Store) Rows(ctx context.Context, after string, limit int) ([]clusterworker.Row, error) {
	if after == "" {
		after = firstID
	}
	return s.queryRows(ctx, db.Rows, after, int64(limit))
}

// RowsOf returns the rows of the given clusters.
func (s *Store) RowsOf(ctx context.Context, clusterIDs []string) ([]clusterworker.Row, error) {
	return s.queryRows(ctx, db.RowsOf, clusterIDs)
}

// StalestRows returns the rows that were observed longest ago.
func (s *Store) StalestRows(ctx context.Context, limit int) ([]clusterworker.Row, error) {
	return s.queryRows(ctx, db.StalestRows, int64(limit))
}

// A syncRow is a row as the reading statements return it.
type syncRow struct {
	db.Sync
	Tenant   string
	Name     string
	Deleting bool
}

// queryRows runs a statement that returns syncRows.
func (s *Store) queryRows(ctx context.Context, statement string, args ...any) ([]clusterworker.Row, error) {
	var found []syncRow
	if err := s.sendBatch(ctx, func(b *pgx.Batch) { collectRows(b.Queue(statement, args...), &found) }); err != nil {
		return nil, fmt.Errorf("read sync rows: %w", err)
	}
	list := make([]clusterworker.Row, len(found))
	for i := range found {
		list[i] = found[i].toRow()
	}
	return list, nil
}

func orEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// orNil returns nil for a time that is null or infinite.
func orNil(t pgtype.Timestamptz) *time.Time {
	if !t.Valid || t.InfinityModifier != pgtype.Finite {
		return nil
	}
	at := t.Time.UTC()
	return &at
}

// SaveStatus writes observed changes.
func (s *Store) SaveStatus(ctx context.Context, fence int64, changes []clusterworker.StatusChange) (saved []string, err error) {
	n := len(changes)
	a := db.SaveStatusParams{
		Fence: fence, IDs: make([]string, n), WasStatuses: make([]string, n), WasDeleting: make([]bool, n),
		Statuses: make([]string, n), Messages: make([]string, n), ShootUIDs: make([]string, n), Changes: make([]string, n),
	}
	for i := range changes {
		c := &changes[i]
		a.IDs[i], a.WasStatuses[i], a.WasDeleting[i] = c.ClusterID, sanitizeText(string(c.WasStatus)), c.WasDeleting
		a.Statuses[i], a.Messages[i], a.ShootUIDs[i] = sanitizeText(string(c.Status)), sanitizeText(c.Message), sanitizeText(c.ShootUID)
		if a.Changes[i], err = encodeChange(c.Change); err != nil {
			return nil, err
		}
	}
	return s.queryFencedWrite(ctx, "save status of Shoots",
		db.SaveStatus, a.Fence, a.IDs, a.WasStatuses, a.WasDeleting, a.Statuses, a.Messages, a.ShootUIDs, a.Changes, s.sinks, s.sinkTypes)
}

// Touch records that rows were observed.
func (s *Store) Touch(ctx context.Context, fence int64, clusterIDs []string) error {
	_, err := s.queryFencedWrite(ctx, "record check of Shoots", db.Touch, fence, clusterIDs)
	return err
}

// Requeue makes synced rows due again, and notifies the workers.
func (s *Store) Requeue(ctx context.Context, fence int64, clusterIDs []string) (requeued []string, err error) {
	return s.queryFencedWrite(ctx, "requeue clusters", db.Requeue, fence, clusterIDs)
}

// queryFencedWrite runs a statement that returns whether the fence is current, and the ids
// of the rows that it wrote.
func (s *Store) queryFencedWrite(ctx context.Context, what, statement string, args ...any) (written []string, err error) {
	var held bool
	err = s.sendBatch(ctx, func(b *pgx.Batch) {
		b.Queue(statement, args...).QueryRow(func(row pgx.Row) error { return row.Scan(&held, &written) })
	})
	if err == nil && !held {
		err = clusterworker.ErrFenced
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return written, nil
}
