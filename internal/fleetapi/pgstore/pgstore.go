// Package pgstore stores the fleet API's resources in PostgreSQL.
//
// Every call runs as a role that row-level security binds, with the caller's scope set for its
// transaction only: rows out of scope do not exist, whatever a statement asks for. Reads take one
// round trip. Writers of one row wait for each other; see Tx.
//
// A call fails with fleetapi.ErrUnavailable while the database is unavailable, and may be retried.
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
)

// A Store stores resources in PostgreSQL.
type Store struct {
	pool *postgres.Pool
	// revisions is the number of kept generations of a resource.
	revisions int
}

var _ fleetapi.Store = (*Store)(nil)

// An Option configures a store.
type Option func(*Store)

// KeepRevisions sets the number of kept generations of a resource.
func KeepRevisions(n int) Option { return func(s *Store) { s.revisions = n } }

// New returns a store on a pool whose schema is migrated. It keeps fleetapi.DefaultRevisionLimit
// generations.
func New(pool *postgres.Pool, options ...Option) *Store {
	s := &Store{pool: pool, revisions: fleetapi.DefaultRevisionLimit}
	for _, o := range options {
		o(s)
	}
	return s
}

// Get reads one row.
func (s *Store) Get(ctx context.Context, scope fleetapi.Scope, key fleetapi.Key) (fleetapi.Record, error) {
	if !isID(key.ID) {
		return fleetapi.Record{}, fleetapi.ErrNotFound
	}
	var rows []shownRow
	err := s.pool.RunBatch(ctx, scopeOf(scope), func(b *pgx.Batch) {
		collectRows(b.Queue(db.GetResource, key.ID, key.Kind), &rows)
	})
	if err != nil {
		return fleetapi.Record{}, wrapError(err, "read %s %q", key.Kind, key.ID)
	}
	if len(rows) == 0 {
		return fleetapi.Record{}, fleetapi.ErrNotFound
	}
	rec := recordOf(&rows[0].Resource)
	rows[0].fillShootStatus(&rec)
	return rec, nil
}

// A shown holds the displayed part of a cluster's sync.
type shown struct {
	ShootStatus, ShootMessage, SyncError *string
}

func (s *shown) fillShootStatus(rec *fleetapi.Record) {
	text := func(t *string) string {
		if t == nil {
			return ""
		}
		return *t
	}
	rec.Status.ShootStatus = v1.ShootStatus(text(s.ShootStatus))
	rec.Status.ShootMessage, rec.Status.SyncError = text(s.ShootMessage), text(s.SyncError)
}

// A shownRow is a row of GetResource.
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

// scopeOf converts a scope into that of package postgres.
func scopeOf(s fleetapi.Scope) postgres.Scope {
	if s.All {
		return postgres.Scope{Role: postgres.RoleAllTenants}
	}
	return postgres.Scope{Tenant: s.Tenant}
}

// collectRows appends the rows of a queued statement to a list.
func collectRows[T any](q *pgx.QueuedQuery, list *[]T) {
	q.Query(func(rows pgx.Rows) error {
		var err error
		*list, err = pgx.AppendRows(*list, rows, pgx.RowToStructByPos[T])
		return err
	})
}

// isID reports whether id can be the id of a row, which is a UUID in canonical length. The database
// would fail on other text.
func isID(id string) bool {
	const length = 36
	return len(id) == length && uuid.Validate(id) == nil
}

// wrapError adds the attempted operation to an error. It also marks connection errors, so that
// callers need not know PostgreSQL.
func wrapError(err error, format string, args ...any) error {
	err = fmt.Errorf(format+": %w", append(args, err)...)
	if errors.Is(err, postgres.ErrUnavailable) {
		return fmt.Errorf("%w: %w", fleetapi.ErrUnavailable, err)
	}
	return err
}

// reportOf converts a row into an AdapterStatus.
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
