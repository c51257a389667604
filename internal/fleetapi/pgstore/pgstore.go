// Package pgstore keeps the fleet API's resources in PostgreSQL.
//
// Every call runs as a role that row-level security binds, with the caller's
// scope set for its transaction alone: what is out of scope does not exist,
// whatever a statement says. Reads take one round trip. Writers of one row
// wait for each other; see Tx.
//
// A call fails with fleetapi.ErrUnavailable while the database is away, and
// may be tried again.
package pgstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
	"github.com/fleetloop/fleetloop/internal/fleetapi/pgstore/db"
	"github.com/fleetloop/fleetloop/internal/postgres"
	"github.com/fleetloop/fleetloop/internal/postgres/migrations"
)

// A Store keeps resources in PostgreSQL.
type Store struct {
	pool *postgres.Pool
}

var _ fleetapi.Store = (*Store)(nil)

// New makes a store on a pool whose schema is migrated.
func New(pool *postgres.Pool) *Store { return &Store{pool: pool} }

// Get reads one row.
func (s *Store) Get(ctx context.Context, scope fleetapi.Scope, key fleetapi.Key) (fleetapi.Record, error) {
	if !isID(key.ID) {
		return fleetapi.Record{}, fleetapi.ErrNotFound
	}
	var rows []shownRow
	err := s.pool.Read(ctx, scopeOf(scope), func(b *pgx.Batch) {
		collectRows(b.Queue(db.GetResource, key.ID, key.Kind), &rows)
	})
	if err != nil {
		return fleetapi.Record{}, wrapError(err, "read %s %q", key.Kind, key.ID)
	}
	if len(rows) == 0 {
		return fleetapi.Record{}, fleetapi.ErrNotFound
	}
	rec := recordOf(&rows[0].Resource)
	rows[0].fillRecord(&rec)
	return rec, nil
}

// A shown is what is shown of the sync of a cluster beside the row.
type shown struct {
	ShootStatus, ShootMessage, SyncError *string
}

func (s *shown) fillRecord(rec *fleetapi.Record) {
	text := func(t *string) string {
		if t == nil {
			return ""
		}
		return *t
	}
	rec.Status.ShootStatus = v1.ShootStatus(text(s.ShootStatus))
	rec.Status.ShootMessage, rec.Status.SyncError = text(s.ShootMessage), text(s.SyncError)
}

// A shownRow is what GetResource reads.
type shownRow struct {
	db.Resource
	shown
}

// Reports reads all reports on one row, ordered by adapter.
func (s *Store) Reports(ctx context.Context, scope fleetapi.Scope, key fleetapi.Key) ([]v1.AdapterStatus, error) {
	if !isID(key.ID) {
		return nil, fleetapi.ErrNotFound
	}
	var found bool
	var rows []db.AdapterReport
	err := s.pool.ReadSnapshot(ctx, scopeOf(scope), func(b *pgx.Batch) {
		b.Queue(db.ResourceExists, key.ID, key.Kind).QueryRow(func(row pgx.Row) error { return row.Scan(&found) })
		collectRows(b.Queue(db.ListReports, key.ID, key.Kind), &rows)
	})
	if err != nil {
		return nil, wrapError(err, "read the reports on %s %q", key.Kind, key.ID)
	}
	if !found {
		return nil, fleetapi.ErrNotFound
	}
	list := make([]v1.AdapterStatus, len(rows))
	for i := range rows {
		if list[i], err = reportOf(&rows[i]); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// scopeOf is the scope in the database's words.
func scopeOf(s fleetapi.Scope) postgres.Scope {
	if s.All {
		return postgres.Scope{Role: migrations.RoleAllTenants}
	}
	return postgres.Scope{Tenant: s.Tenant}
}

// collectRows appends the rows that a queued statement gives to a list.
func collectRows[T any](q *pgx.QueuedQuery, list *[]T) {
	q.Query(func(rows pgx.Rows) error {
		var err error
		*list, err = pgx.AppendRows(*list, rows, pgx.RowToStructByPos[T])
		return err
	})
}

// isID reports whether id can be the id of a row, which is a UUID in its usual
// form. To the database, others would be an error.
func isID(id string) bool {
	const length = 36
	return len(id) == length && uuid.Validate(id) == nil
}

// wrapError adds what was tried, and marks errors of the connection for callers
// that know nothing of PostgreSQL.
func wrapError(err error, format string, args ...any) error {
	err = fmt.Errorf(format+": %w", append(args, err)...)
	if errors.Is(err, postgres.ErrUnavailable) {
		return fmt.Errorf("%w: %w", fleetapi.ErrUnavailable, err)
	}
	return err
}

// recordOf copies a row into the API's own form.
func recordOf(r *db.Resource) fleetapi.Record {
	rec := fleetapi.Record{
		Key:         fleetapi.Key{Kind: r.Kind, ID: r.ID},
		Tenant:      r.Tenant,
		Name:        r.Name,
		DisplayName: r.DisplayName,
		Labels:      r.Labels,
		Spec:        r.Spec,
		Generation:  r.Generation,
		Revision:    r.Revision,
		CreatedTime: r.CreatedTime,
		UpdatedTime: r.UpdatedTime,
		CreatedBy:   r.CreatedBy,
		UpdatedBy:   r.UpdatedBy,
		DeletedBy:   r.DeletedBy,
		Status: fleetapi.Status{
			Phase:              v1.Phase(r.Phase),
			ObservedGeneration: r.ObservedGeneration,
			LastUpdatedTime:    r.LastUpdatedTime,
			LastTransitionTime: r.LastTransitionTime,
			Conditions:         r.Conditions,
		},
	}
	if r.OwnerID != nil {
		rec.ParentID = *r.OwnerID
	}
	if r.DeletedTime != nil {
		rec.DeletedTime = *r.DeletedTime
	}
	return rec
}

// reportOf copies a report into the API's own form.
func reportOf(r *db.AdapterReport) (v1.AdapterStatus, error) {
	s := v1.AdapterStatus{
		Adapter:            r.Adapter,
		ObservedGeneration: r.ObservedGeneration,
		Data:               r.Data,
		Metadata:           r.Metadata,
		CreatedTime:        r.CreatedTime,
		LastReportTime:     r.LastReportTime,
	}
	if err := json.Unmarshal(r.Conditions, &s.Conditions); err != nil {
		return s, fmt.Errorf("read the conditions of adapter %q on %s %q: %w", r.Adapter, r.Kind, r.ResourceID, err)
	}
	return s, nil
}
