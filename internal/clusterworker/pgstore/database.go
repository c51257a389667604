package pgstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/postgres"
)

// A database runs statements. Their action is what errors call them.
type database struct {
	pool *postgres.Pool
	// preferIndexes makes the planner use indexes for all statements of a batch.
	preferIndexes bool
}

// runBatch runs statements in one round trip and one transaction. The scope is empty
// because the policies of the role ignore tenants.
func (d database) runBatch(ctx context.Context, action string, queueStatements func(*pgx.Batch)) error {
	err := d.pool.RunBatch(ctx, postgres.Scope{}, func(b *pgx.Batch) {
		if d.preferIndexes {
			b.Queue(byIndex)
		}
		queueStatements(b)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", action, err)
	}
	return nil
}

// byIndex makes the planner use indexes. Right after many rows have become due at once,
// its statistics are outdated, and it might collect and sort all rows for each claim.
// It also likes to read a small table completely to find a few rows. JIT is off because
// compilation takes longer than any of these statements.
const byIndex = "select set_config('enable_bitmapscan', 'off', true), set_config('enable_hashjoin', 'off', true), " +
	"set_config('enable_mergejoin', 'off', true), set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true)"

// execStatement runs a statement.
func (d database) execStatement(ctx context.Context, action, statement string, args ...any) error {
	return d.runBatch(ctx, action, func(b *pgx.Batch) { b.Queue(statement, args...) })
}

// queryRow runs a statement that returns one row, and scans the row.
func (d database) queryRow(ctx context.Context, action string, dest []any, statement string, args ...any) error {
	return d.runBatch(ctx, action, func(b *pgx.Batch) { scanRowInto(b.Queue(statement, args...), dest...) })
}

// queryStructs runs a statement whose columns are the fields of T.
func queryStructs[T any](ctx context.Context, d database, action, statement string, args ...any) (list []T, err error) {
	err = d.runBatch(ctx, action, func(b *pgx.Batch) { scanListInto(b.Queue(statement, args...), &list, pgx.RowToStructByPos[T]) })
	return list, err
}

// queryScalars runs a statement with one column.
func queryScalars[T any](ctx context.Context, d database, action, statement string, args ...any) (list []T, err error) {
	err = d.runBatch(ctx, action, func(b *pgx.Batch) { scanListInto(b.Queue(statement, args...), &list, pgx.RowTo[T]) })
	return list, err
}

// querySyncRows runs a statement that returns syncRows.
func (d database) querySyncRows(ctx context.Context, statement string, args ...any) ([]clusterworker.Row, error) {
	found, err := queryStructs[syncRow](ctx, d, "read sync rows", statement, args...)
	if err != nil {
		return nil, err
	}
	list := make([]clusterworker.Row, len(found))
	for i := range found {
		list[i] = found[i].toRow()
	}
	return list, nil
}

// scanListInto makes a queued statement replace the list with its rows. A batch may run twice.
func scanListInto[T any](query *pgx.QueuedQuery, dest *[]T, toElement pgx.RowToFunc[T]) {
	query.Query(func(rows pgx.Rows) (err error) {
		*dest, err = pgx.AppendRows((*dest)[:0], rows, toElement)
		return err
	})
}

// scanRowInto scans the single row of a queued statement.
func scanRowInto(query *pgx.QueuedQuery, dest ...any) {
	query.QueryRow(func(row pgx.Row) error { return row.Scan(dest...) })
}
