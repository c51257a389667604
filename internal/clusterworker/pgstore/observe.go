package pgstore

import (
	"context"
	"fmt"
	"time"

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

// AcquireOrExtendTerm begins a term, or extends the worker's current one.
func (o *Observations) AcquireOrExtendTerm(ctx context.Context, owner string, ttl time.Duration) (clusterworker.Term, error) {
	until := time.Now().Add(ttl)
	fences, err := queryScalars[int64](ctx, o.db, "acquire leadership", db.Lead, sanitizeAndTruncateText(owner), ttl)
	if err != nil || len(fences) == 0 {
		return clusterworker.Term{}, err
	}
	return clusterworker.Term{Held: true, Fence: fences[0], Until: until}, nil
}

// ReleaseTerm ends a term early.
func (o *Observations) ReleaseTerm(ctx context.Context, fence int64) error {
	return o.db.execStatement(ctx, "release leadership", db.Resign, fence)
}

// GetInstallationID returns the id of this database. A copy of a database has the id of the
// original.
func (o *Observations) GetInstallationID(ctx context.Context) (id string, err error) {
	err = o.db.queryRow(ctx, "read installation id", []any{&id}, db.Installation)
	return id, err
}

// GetHistoryID returns the id of the database's present history.
func (o *Observations) GetHistoryID(ctx context.Context) (id string, err error) {
	err = o.db.queryRow(ctx, "read history id", []any{&id}, db.HistoryID)
	return id, err
}

// AddMissingRows creates rows for up to limit clusters without one.
func (o *Observations) AddMissingRows(ctx context.Context, limit int) (clusterIDs []string, err error) {
	return queryScalars[string](ctx, o.db, "add missing sync rows", db.AddMissing, int32(limit)) //nolint:gosec // a limit of ours
}

// ListRows returns rows after an id.
func (o *Observations) ListRows(ctx context.Context, afterClusterID string, limit int) ([]clusterworker.Row, error) {
	if afterClusterID == "" {
		afterClusterID = firstID
	}
	return o.db.querySyncRows(ctx, db.Rows, afterClusterID, int64(limit))
}

// ListRowsOfClusters returns the rows of the given clusters.
func (o *Observations) ListRowsOfClusters(ctx context.Context, clusterIDs []string) ([]clusterworker.Row, error) {
	return o.db.querySyncRows(ctx, db.RowsOf, clusterIDs)
}

// ListStalestRows returns the rows that were observed longest ago.
func (o *Observations) ListStalestRows(ctx context.Context, limit int) ([]clusterworker.Row, error) {
	return o.db.querySyncRows(ctx, db.StalestRows, int64(limit))
}

// A syncRow is a row as the reading statements return it.
type syncRow struct {
	db.Sync
	Tenant   string
	Name     string
	Deleting bool
}

func derefOrEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// finiteTimeOrNil returns nil for a time that is null or infinite.
func finiteTimeOrNil(t pgtype.Timestamptz) *time.Time {
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
		Statuses: make([]string, n), Messages: make([]string, n), ShootUIDs: make([]string, n), StatusGenerations: make([]int64, n),
		Changes: make([]string, n),
	}
	for i := range changes {
		c := &changes[i]
		a.IDs[i] = c.ClusterID
		a.WasStatuses[i] = sanitizeAndTruncateText(string(c.WasStatus))
		a.WasDeleting[i] = c.WasDeleting
		a.Statuses[i] = sanitizeAndTruncateText(string(c.Status))
		a.Messages[i] = sanitizeAndTruncateText(c.Message)
		a.ShootUIDs[i] = sanitizeAndTruncateText(c.ShootUID)
		a.StatusGenerations[i] = c.Generation
		if a.Changes[i], err = marshalChangeOrEmpty(c.Change); err != nil {
			return nil, err
		}
	}
	return o.runFencedWrite(ctx, "save status of Shoots",
		db.SaveStatus, a.Fence, a.IDs, a.WasStatuses, a.WasDeleting, a.Statuses, a.Messages, a.ShootUIDs, a.StatusGenerations, a.Changes,
		o.sinks.names, o.sinks.types)
}

// RecordUnchanged records observations without a change.
func (o *Observations) RecordUnchanged(
	ctx context.Context, fence int64, observed []clusterworker.UnchangedStatus,
) (recorded []string, err error) {
	n := len(observed)
	ids, uids, generations := make([]string, n), make([]string, n), make([]int64, n)
	for i, u := range observed {
		ids[i], uids[i], generations[i] = u.ClusterID, u.ShootUID, u.Generation
	}
	return o.runFencedWrite(ctx, "record check of Shoots", db.Touch, fence, ids, uids, generations)
}

// RequeueSynced makes synced rows due again, and notifies the workers.
func (o *Observations) RequeueSynced(ctx context.Context, fence int64, clusterIDs []string) (requeued []string, err error) {
	return o.runFencedWrite(ctx, "requeue clusters", db.Requeue, fence, clusterIDs)
}

// runFencedWrite runs a statement that returns whether the fence is current, and the ids
// of the rows that it wrote.
func (o *Observations) runFencedWrite(ctx context.Context, action, statement string, args ...any) (written []string, err error) {
	var held bool
	err = o.db.queryRow(ctx, action, []any{&held, &written}, statement, args...)
	if err == nil && !held {
		return nil, fmt.Errorf("%s: %w", action, clusterworker.ErrFenced)
	}
	return written, err
}
