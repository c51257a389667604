package pgstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/postgres"
)

// A database runs statements. what is the action as errors name it.
type database struct{ pool *postgres.Pool }

// runBatch runs statements in one round trip and one transaction. The scope is empty
// because the policies of the role ignore tenants.
func (d database) runBatch(ctx context.Context, action string, queueStatements func(*pgx.Batch)) error {
	if err := d.pool.RunBatch(ctx, postgres.Scope{}, queueStatements); err != nil {
		return fmt.Errorf("%s: %w", action, err)
	}
	return nil
}

// execStatement runs a statement.
func (d database) execStatement(ctx context.Context, action, statement string, args ...any) error {
	return d.runBatch(ctx, action, func(b *pgx.Batch) { b.Queue(statement, args...) })
}

// queryRow runs a statement that returns one row, and scans the row.
func (d database) queryRow(ctx context.Context, action string, dest []any, statement string, args ...any) error {
	return d.runBatch(ctx, action, func(b *pgx.Batch) {
		b.Queue(statement, args...).QueryRow(func(row pgx.Row) error { return row.Scan(dest...) })
	})
}

// querySyncRows runs a statement that returns syncRows.
func (d database) querySyncRows(ctx context.Context, statement string, args ...any) ([]clusterworker.Row, error) {
	var found []syncRow
	if err := d.runBatch(ctx, "read sync rows", func(b *pgx.Batch) { scanRowsInto(b.Queue(statement, args...), &found) }); err != nil {
		return nil, err
	}
	list := make([]clusterworker.Row, len(found))
	for i := range found {
		list[i] = found[i].toRow()
	}
	return list, nil
}

// scanRowsInto makes a queued statement replace the list with its rows.
func scanRowsInto[T any](query *pgx.QueuedQuery, dest *[]T) {
	query.Query(func(rows pgx.Rows) error {
		var err error
		*dest, err = pgx.AppendRows((*dest)[:0], rows, pgx.RowToStructByPos[T])
		return err
	})
}

// scanScalarsInto is scanRowsInto for rows of one column.
func scanScalarsInto[T any](query *pgx.QueuedQuery, dest *[]T) {
	query.Query(func(rows pgx.Rows) error {
		var err error
		*dest, err = pgx.AppendRows((*dest)[:0], rows, pgx.RowTo[T])
		return err
	})
}

// scanIntInto reads the single value of a queued statement.
func scanIntInto(query *pgx.QueuedQuery, dest *int) {
	query.QueryRow(func(row pgx.Row) error { return row.Scan(dest) })
}
