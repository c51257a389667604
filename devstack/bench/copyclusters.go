package main

import (
	"context"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5"
)

// resourceColumns are the columns that an insert sets; the others have defaults.
const resourceColumns = `id, kind, tenant, name, display_name, labels, spec, generation, created_time, updated_time,
	created_by, updated_by, phase, observed_generation, last_updated_time, last_transition_time, conditions`

// exportClusters writes all clusters in the format of COPY, ordered by id.
func exportClusters(ctx context.Context, databaseURL string, w io.Writer) (rows int64, err error) {
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	tag, err := conn.PgConn().CopyTo(ctx, w, "copy (select "+resourceColumns+" from tenant.clusters order by id) to stdout (format binary)")
	if err != nil {
		return 0, fmt.Errorf("copy the clusters out: %w", err)
	}
	return tag.RowsAffected(), nil
}

// importClusters reads the output of exportClusters into a migrated database, as its owner: the
// fastest way into the table.
func importClusters(ctx context.Context, databaseURL string, r io.Reader) (rows int64, err error) {
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	tag, err := conn.PgConn().CopyFrom(ctx, r, "copy tenant.resources ("+resourceColumns+") from stdin (format binary)")
	if err != nil {
		return 0, fmt.Errorf("copy the clusters in: %w", err)
	}
	return tag.RowsAffected(), nil
}
