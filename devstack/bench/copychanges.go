package main

import (
	"context"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5"
)

// changeColumns are the columns that an append sets; the others have defaults.
const changeColumns = `at, feed, tenant, recorded_by, cluster, node, source, actor, action, subject, session, payload, fields`

// exportChanges writes all change events, and their keys, in the format of COPY.
func exportChanges(ctx context.Context, databaseURL string, keys, events io.Writer) (eventRows int64, err error) {
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.PgConn().CopyTo(ctx, keys, "copy (select k.* from timeline.change_key k join timeline.change_event e using (at) order by e.seq) to stdout (format binary)"); err != nil {
		return 0, fmt.Errorf("copy the keys out: %w", err)
	}
	tag, err := conn.PgConn().
		CopyTo(ctx, events, "copy (select "+changeColumns+" from timeline.change_event order by seq) to stdout (format binary)")
	if err != nil {
		return 0, fmt.Errorf("copy the change events out: %w", err)
	}
	return tag.RowsAffected(), nil
}

// importChanges reads the output of exportChanges into a migrated database, as its owner.
func importChanges(ctx context.Context, databaseURL string, keys, events io.Reader) (eventRows int64, err error) {
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.PgConn().CopyFrom(ctx, keys, "copy timeline.change_key from stdin (format binary)"); err != nil {
		return 0, fmt.Errorf("copy the keys in: %w", err)
	}
	tag, err := conn.PgConn().CopyFrom(ctx, events, "copy timeline.change_event ("+changeColumns+") from stdin (format binary)")
	if err != nil {
		return 0, fmt.Errorf("copy the change events in: %w", err)
	}
	return tag.RowsAffected(), nil
}
