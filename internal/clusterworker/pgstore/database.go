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

// sendBatch runs statements in one round trip and one transaction. The scope is empty
// because the policies of the role ignore tenants.
func (d database) sendBatch(ctx context.Context, what string, fill func(*pgx.Batch)) error {
	if err := d.pool.RunBatch(ctx, postgres.Scope{}, fill); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// exec runs a statement.
func (d database) exec(ctx context.Context, what, statement string, args ...any) error {
	return d.sendBatch(ctx, what, func(b *pgx.Batch) { b.Queue(statement, args...) })
}

// queryRow runs a statement that returns one row, and scans the row.
func (d database) queryRow(ctx context.Context, what string, into []any, statement string, args ...any) error {
	return d.sendBatch(ctx, what, func(b *pgx.Batch) {
		b.Queue(statement, args...).QueryRow(func(row pgx.Row) error { return row.Scan(into...) })
	})
}

// queryRows runs a statement that returns syncRows.
func (d database) queryRows(ctx context.Context, statement string, args ...any) ([]clusterworker.Row, error) {
	var found []syncRow
	if err := d.sendBatch(ctx, "read sync rows", func(b *pgx.Batch) { collectRows(b.Queue(statement, args...), &found) }); err != nil {
		return nil, err
	}
	list := make([]clusterworker.Row, len(found))
	for i := range found {
		list[i] = found[i].toRow()
	}
	return list, nil
}

// collectRows appends the rows of a queued statement to a list.
func collectRows[T any](q *pgx.QueuedQuery, list *[]T) {
	q.Query(func(rows pgx.Rows) error {
		var err error
		*list, err = pgx.AppendRows((*list)[:0], rows, pgx.RowToStructByPos[T])
		return err
	})
}

// collectScalars is collectRows for rows of one column.
func collectScalars[T any](q *pgx.QueuedQuery, list *[]T) {
	q.Query(func(rows pgx.Rows) error {
		var err error
		*list, err = pgx.AppendRows((*list)[:0], rows, pgx.RowTo[T])
		return err
	})
}

// readCount reads the single value of a queued statement.
func readCount(q *pgx.QueuedQuery, n *int) {
	q.QueryRow(func(row pgx.Row) error { return row.Scan(n) })
}
