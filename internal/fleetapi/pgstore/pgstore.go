// Package pgstore stores the fleet API's resources and the timeline of their changes in PostgreSQL.
//
// Every call runs as a role that row-level security binds, with the caller's scope set for its
// transaction only: rows out of scope do not exist, whatever a statement asks for. Reads take one
// round trip. Writers of one row wait for each other; see Tx.
//
// A Store holds the resources and a TimelineStore the change events. A change of a cluster or a node pool and its
// change event are written in the same transaction.
//
// A call fails with fleetapi.ErrUnavailable while the database is unavailable, and may be retried. It fails with
// fleetapi.ErrStatementTimeout if a statement takes too long.
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
	"github.com/fleetloop/fleetloop/internal/fleetapi/timeline"
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

// WithRevisionLimit sets the number of kept generations of a resource.
func WithRevisionLimit(limit int) Option { return func(s *Store) { s.revisions = limit } }

// New returns a store on a pool whose schema is migrated. It keeps fleetapi.DefaultRevisionLimit generations.
func New(pool *postgres.Pool, options ...Option) *Store {
	s := &Store{pool: pool, revisions: fleetapi.DefaultRevisionLimit}
	for _, o := range options {
		o(s)
	}
	return s
}

// Get reads one row.
func (s *Store) Get(ctx context.Context, scope fleetapi.Scope, key fleetapi.Key) (fleetapi.Record, error) {
	if !isUUIDText(key.ID) {
		return fleetapi.Record{}, fleetapi.ErrNotFound
	}
	var rows []resourceWithShootRow
	err := s.pool.RunBatch(ctx, toKeyScope(scope), func(b *pgx.Batch) {
		queueCollectRows(b.Queue(db.GetResource, key.ID, key.Kind), &rows)
	})
	if err != nil {
		return fleetapi.Record{}, wrapAndMarkUnavailable(err, "read %s %q", key.Kind, key.ID)
	}
	if len(rows) == 0 {
		return fleetapi.Record{}, fleetapi.ErrNotFound
	}
	record := newRecordFromRow(&rows[0].Resource)
	rows[0].copyToStatus(&record)
	return record, nil
}

// A shootColumnValues holds the displayed part of a cluster's sync.
type shootColumnValues struct {
	ShootStatus, ShootMessage, SyncError *string
}

func (s *shootColumnValues) copyToStatus(record *fleetapi.Record) {
	record.Status.ShootStatus = v1.ShootStatus(derefOrZero(s.ShootStatus))
	record.Status.ShootMessage, record.Status.SyncError = derefOrZero(s.ShootMessage), derefOrZero(s.SyncError)
}

// A resourceWithShootRow is a row of GetResource.
type resourceWithShootRow struct {
	db.Resource
	shootColumnValues
}

// ListReports reads all reports on one row, ordered by adapter.
func (s *Store) ListReports(ctx context.Context, scope fleetapi.Scope, key fleetapi.Key) ([]v1.AdapterStatus, error) {
	if !isUUIDText(key.ID) {
		return nil, fleetapi.ErrNotFound
	}
	var found bool
	var rows []db.AdapterReport
	err := s.pool.RunSnapshotBatch(ctx, toKeyScope(scope), func(b *pgx.Batch) {
		queueScanRow(b.Queue(db.ResourceExists, key.ID, key.Kind), &found)
		queueCollectRows(b.Queue(db.ListReports, key.ID, key.Kind), &rows)
	})
	if err != nil {
		return nil, wrapAndMarkUnavailable(err, "read the reports on %s %q", key.Kind, key.ID)
	}
	if !found {
		return nil, fleetapi.ErrNotFound
	}
	list := make([]v1.AdapterStatus, len(rows))
	for i := range rows {
		if list[i], err = decodeReportRow(&rows[i]); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// toPostgresScope converts the scope of resources, or that of change events, into that of package postgres.
func toPostgresScope[S fleetapi.Scope | timeline.Scope](scope S) postgres.Scope {
	s := fleetapi.Scope(scope)
	if s.All {
		return postgres.Scope{Role: postgres.RoleAllTenants}
	}
	return postgres.Scope{Tenant: s.Tenant}
}

// toKeyScope is toPostgresScope for statements that find rows by a key. Adapters, which send most of them, see all
// tenants.
func toKeyScope(scope fleetapi.Scope) postgres.Scope {
	s := toPostgresScope(scope)
	s.KeepPlans = scope.All
	return s
}

// queueCollectRows appends the rows of a queued statement to a list of structs.
func queueCollectRows[T any](q *pgx.QueuedQuery, into *[]T) {
	queueCollect(q, pgx.RowToStructByPos[T], into)
}

// queueCollectValues appends the only column of a queued statement to a list.
func queueCollectValues[T any](q *pgx.QueuedQuery, into *[]T) {
	queueCollect(q, pgx.RowTo[T], into)
}

func queueCollect[T any](q *pgx.QueuedQuery, scan pgx.RowToFunc[T], into *[]T) {
	q.Query(func(rows pgx.Rows) (err error) {
		*into, err = pgx.AppendRows(*into, rows, scan)
		return err
	})
}

// collectRows returns the rows of a statement, which are structs or, with pgx.RowTo, single values.
func collectRows[T any](ctx context.Context, tx postgres.Querier, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scan)
}

// queueScanRow scans the only row of a queued statement.
func queueScanRow(q *pgx.QueuedQuery, targets ...any) {
	q.QueryRow(func(row pgx.Row) error { return row.Scan(targets...) })
}

// isUUIDText reports whether id can be the id of a row, which is a UUID in canonical length. The database
// would fail on other text.
func isUUIDText(text string) bool {
	const length = 36
	return len(text) == length && uuid.Validate(text) == nil
}

// wrapAndMarkUnavailable adds the attempted operation to an error. It also marks connection errors and statement
// timeouts, so that callers need not know PostgreSQL.
func wrapAndMarkUnavailable(err error, operationFormat string, operationArgs ...any) error {
	return markUnavailable(fleetapi.ErrUnavailable, fmt.Errorf(operationFormat+": %w", append(operationArgs, err)...))
}

// wrapAndMarkTimelineUnavailable does the same for the change events.
func wrapAndMarkTimelineUnavailable(err error, operationFormat string, operationArgs ...any) error {
	return markUnavailable(timeline.ErrUnavailable, fmt.Errorf(operationFormat+": %w", append(operationArgs, err)...))
}

func markUnavailable(mark, err error) error {
	switch {
	case errors.Is(err, postgres.ErrUnavailable):
		return fmt.Errorf("%w: %w", mark, err)
	case postgres.IsStatementTimeout(err):
		return fmt.Errorf("%w: %w", fleetapi.ErrStatementTimeout, err)
	}
	return err
}

func decodeReportRow(row *db.AdapterReport) (v1.AdapterStatus, error) {
	s := v1.AdapterStatus{
		Adapter:            row.Adapter,
		ObservedGeneration: row.ObservedGeneration,
		Data:               row.Data,
		Metadata:           row.Metadata,
		CreatedTime:        row.CreatedTime,
		LastReportTime:     row.LastReportTime,
	}
	if err := json.Unmarshal(row.Conditions, &s.Conditions); err != nil {
		return s, fmt.Errorf("read the conditions of adapter %q on %s %q: %w", row.Adapter, row.Kind, row.ResourceID, err)
	}
	return s, nil
}
