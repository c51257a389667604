package audit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/jackc/pgx/v5"

	"github.com/fleetloop/fleetloop/internal/execution/audit/db"
	"github.com/fleetloop/fleetloop/internal/postgres"
)

// monthsAhead is the number of future months with a partition.
const monthsAhead = 2

// A PostgresStore stores the audit in PostgreSQL.
//
// A database function appends records and assigns each its position in one chain. The appending
// role can therefore add records, but can neither choose positions nor change existing records. A
// call appends all records or none, and is repeated if the call or its response is lost. Writers
// wait for each other while the function runs.
//
// Calls return ErrUnavailable while the database is unavailable.
type PostgresStore struct {
	pool *postgres.Pool
}

var _ Store = (*PostgresStore)(nil)

// NewPostgresStore returns a store that uses a pool with a migrated schema. Appending requires the
// role postgres.RoleExecutionController; for reading, RoleExecutionAuditor is sufficient.
func NewPostgresStore(pool *postgres.Pool) *PostgresStore { return &PostgresStore{pool: pool} }

// Append stores the records that are not stored yet, all or none.
func (s *PostgresStore) Append(ctx context.Context, records []Record) error {
	if len(records) == 0 {
		return nil
	}
	text, err := json.Marshal(records)
	if err != nil {
		return fmt.Errorf("append to the audit: %w", err)
	}
	// One statement cannot be interrupted halfway, as two could.
	err = s.pool.RunBatch(ctx, postgres.Scope{}, func(b *pgx.Batch) { b.Queue(db.AppendAudit, text) })
	if err != nil {
		return fmt.Errorf("append to the audit: %w", wrapUnavailable(err))
	}
	return nil
}

// Maintain creates the partitions of future months. If the chain is intact, it drops the partitions
// that hold only records older than the retention.
func (s *PostgresStore) Maintain(ctx context.Context, retention time.Duration) (Maintenance, error) {
	var m Maintenance
	var old []string
	err := s.pool.RunBatch(ctx, postgres.Scope{}, func(b *pgx.Batch) {
		b.Queue(db.CreateAuditPartitions, int32(monthsAhead))
		readRowsInto(b.Queue(db.ExpiredAuditPartitions, retention), pgx.RowTo[string], &old)
	})
	if err != nil {
		return m, fmt.Errorf("create audit partitions: %w", wrapUnavailable(err))
	}
	if len(old) > 0 {
		report, err := s.Verify(ctx)
		if err != nil {
			return m, fmt.Errorf("verify the audit before pruning it: %w", err)
		}
		m.Broken = report.Broken
	}
	var ends []db.AuditEndsRow
	err = s.pool.RunBatch(ctx, postgres.Scope{}, func(b *pgx.Batch) {
		if m.Broken == nil {
			readRowsInto(b.Queue(db.PruneAudit, retention), pgx.RowTo[string], &m.Pruned)
		}
		readRowsInto(b.Queue(db.AuditEnds), pgx.RowToStructByPos[db.AuditEndsRow], &ends)
	})
	if err != nil {
		return m, fmt.Errorf("prune the audit: %w", wrapUnavailable(err))
	}
	if len(ends) != 1 {
		return m, errNoEnds
	}
	m.End = Position{Position: ends[0].EndPosition, Hash: ends[0].EndHash}
	return m, nil
}

var errNoEnds = errors.New("the audit's head or anchor row is missing")

// wrapUnavailable wraps a connection error in ErrUnavailable.
func wrapUnavailable(err error) error {
	if errors.Is(err, postgres.ErrUnavailable) {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return err
}

// readRowsInto reads the rows of a queued statement into a list.
func readRowsInto[T any](q *pgx.QueuedQuery, to pgx.RowToFunc[T], list *[]T) {
	q.Query(func(rows pgx.Rows) error {
		var err error
		*list, err = pgx.AppendRows((*list)[:0], rows, to)
		return err
	})
}
