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

var _ clusterworker.ObserverStore = (*Observations)(nil)

// Observations stores what the leader observes, and its term.
type Observations struct {
	db    database
	sinks sinkColumns
}

// Lead begins a term, or extends the worker's current one.
func (o *Observations) Lead(ctx context.Context, owner string, ttl time.Duration) (clusterworker.Term, error) {
	until := time.Now().Add(ttl)
	var fences []int64
	err := o.db.sendBatch(ctx, "acquire leadership", func(b *pgx.Batch) { collectScalars(b.Queue(db.Lead, sanitizeText(owner), ttl), &fences) })
	if err != nil || len(fences) == 0 {
		return clusterworker.Term{}, err
	}
	return clusterworker.Term{Held: true, Fence: fences[0], Until: until}, nil
}

// Resign ends a term early.
func (o *Observations) Resign(ctx context.Context, fence int64) error {
	return o.db.exec(ctx, "release leadership", db.Resign, fence)
}

// Installation returns the id of this database. A copy of a database has the id of the
// original.
func (o *Observations) Installation(ctx context.Context) (id string, err error) {
	err = o.db.queryRow(ctx, "read installation id", []any{&id}, db.Installation)
	return id, err
}

// AddMissingRows creates rows for up to limit clusters without one.
func (o *Observations) AddMissingRows(ctx context.Context, limit int) (clusterIDs []string, err error) {
	err = o.db.sendBatch(ctx, "add missing sync rows", func(b *pgx.Batch) { collectScalars(b.Queue(db.AddMissing, int32(limit)), &clusterIDs) }) //nolint:gosec // a limit of ours
	return clusterIDs, err
}

// Rows returns rows after an id.
func (o *Observations) Rows(ctx context.Context, after string, limit int) ([]clusterworker.Row, error) {
	if after == "" {
		after = firstID
	}
	return o.db.queryRows(ctx, db.Rows, after, int64(limit))
}

// RowsOf returns the rows of the given clusters.
func (o *Observations) RowsOf(ctx context.Context, clusterIDs []string) ([]clusterworker.Row, error) {
	return o.db.queryRows(ctx, db.RowsOf, clusterIDs)
}

// StalestRows returns the rows that were observed longest ago.
func (o *Observations) StalestRows(ctx context.Context, limit int) ([]clusterworker.Row, error) {
	return o.db.queryRows(ctx, db.StalestRows, int64(limit))
}

// A syncRow is a row as the reading statements return it.
type syncRow struct {
	db.Sync
	Tenant   string
	Name     string
	Deleting bool
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
func (o *Observations) SaveStatus(ctx context.Context, fence int64, changes []clusterworker.StatusChange) (saved []string, err error) {
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
	return o.queryFencedWrite(ctx, "save status of Shoots",
		db.SaveStatus, a.Fence, a.IDs, a.WasStatuses, a.WasDeleting, a.Statuses, a.Messages, a.ShootUIDs, a.Changes, o.sinks.names, o.sinks.types)
}

// Touch records that rows were observed.
func (o *Observations) Touch(ctx context.Context, fence int64, clusterIDs []string) error {
	_, err := o.queryFencedWrite(ctx, "record check of Shoots", db.Touch, fence, clusterIDs)
	return err
}

// Requeue makes synced rows due again, and notifies the workers.
func (o *Observations) Requeue(ctx context.Context, fence int64, clusterIDs []string) (requeued []string, err error) {
	return o.queryFencedWrite(ctx, "requeue clusters", db.Requeue, fence, clusterIDs)
}

// queryFencedWrite runs a statement that returns whether the fence is current, and the ids
// of the rows that it wrote.
func (o *Observations) queryFencedWrite(ctx context.Context, what, statement string, args ...any) (written []string, err error) {
	var held bool
	err = o.db.queryRow(ctx, what, []any{&held, &written}, statement, args...)
	if err == nil && !held {
		return nil, fmt.Errorf("%s: %w", what, clusterworker.ErrFenced)
	}
	return written, err
}
