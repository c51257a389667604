package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
)

// A databaseFleet describes the resources and clusters with which loadFleet fills a database. The zero
// value of a field means its default.
type databaseFleet struct {
	// Rows is the number of clusters. Default a million.
	Rows int
	// Shards is the number of values of the label "shard", evenly spread. Default 8.
	Shards int
	// Tenants is the number of tenants among which the rows alternate. Default 1.
	Tenants int
	// Reported is the time of the latest reports of adapters; those of other clusters are up to 25
	// minutes older. The default is the creation time of each cluster.
	Reported time.Time
}

const (
	loaders = 2

	defaultRows   = 1_000_000
	defaultShards = 8
)

func (f databaseFleet) withDefaults() databaseFleet {
	if f.Rows == 0 {
		f.Rows = defaultRows
	}
	if f.Shards == 0 {
		f.Shards = defaultShards
	}
	if f.Tenants == 0 {
		f.Tenants = 1
	}
	return f
}

// Label returns the value of the label "shard" of row i.
func (f databaseFleet) Label(i int) string { return fmt.Sprintf("s%d", i%f.withDefaults().Shards) }

// Tenant returns the tenant of row i.
func (f databaseFleet) Tenant(i int) string { return fmt.Sprintf("t%d", i%f.withDefaults().Tenants) }

// ID returns the id of row i. Ids sort in the order of i.
func (f databaseFleet) ID(i int) uuid.UUID {
	var id uuid.UUID
	// Version 7: 48 bits of milliseconds, then 74 arbitrary bits.
	binary.BigEndian.PutUint64(id[:8], uint64(fixedStartTime().UnixMilli()+int64(i))<<16) //nolint:gosec // of this century
	binary.BigEndian.PutUint64(id[8:], uint64(i))                                         //nolint:gosec // never negative
	id[6] = id[6]&0x0f | 0x70
	id[8] = id[8]&0x3f | 0x80
	return id
}

func fixedStartTime() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// loadFleet fills an empty, migrated database as its owner.
func loadFleet(ctx context.Context, url string, f databaseFleet) error {
	f = f.withDefaults()
	var g errgroup.Group
	for part := range loaders {
		g.Go(func() error { return f.copyRowsOfPart(ctx, url, part) })
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("load %d clusters: %w", f.Rows, err)
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	// A table in use has been vacuumed. Its rows are known to be visible, and the pending entries
	// of the index on labels have been merged.
	_, err = conn.Exec(ctx, "vacuum (analyze) tenant.resources")
	return err
}

func (f databaseFleet) copyRowsOfPart(ctx context.Context, databaseURL string, part int) error {
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	next := part
	_, err = conn.CopyFrom(ctx, pgx.Identifier{"tenant", "resources"}, []string{
		"id", "kind", "tenant", "name", "labels", "spec", "generation", "created_time", "updated_time", "created_by",
		"phase", "observed_generation", "last_updated_time", "last_transition_time", "conditions",
	}, pgx.CopyFromFunc(func() ([]any, error) {
		i := next
		if i >= f.Rows {
			return nil, nil
		}
		next += loaders
		return f.rowValues(i), nil
	}))
	return err
}

func (f databaseFleet) rowValues(i int) []any {
	created := fixedStartTime().Add(time.Duration(i) * time.Millisecond)
	reported := created
	if !f.Reported.IsZero() {
		reported = f.Reported.Add(-time.Duration(i%1500) * time.Second)
	}
	stamp := created.Format(time.RFC3339Nano)
	condition := func(kind string) string {
		return fmt.Sprintf(`{"type":%q,"status":"True","reason":"Reconciled","message":"Every adapter is done with generation 1","observed_generation":1,`+
			`"created_time":%q,"last_updated_time":%q,"last_transition_time":%q}`, kind, stamp, stamp, stamp)
	}
	return []any{
		f.ID(i), "Cluster", f.Tenant(i), fmt.Sprintf("cluster-%07d", i),
		fmt.Sprintf(`{"shard":%q,"region":"eu-%d","team":"team-%d"}`, f.Label(i), i%5, i%97),
		fmt.Sprintf(`{"provider":{"type":"aws","region":"eu-%d","zones":["a","b","c"]},"kubernetes":{"version":"1.34.%d"},`+
			`"network":{"pods":"10.%d.0.0/16","services":"10.200.0.0/16"},"nodes":{"minimum":3,"maximum":%d}}`, i%5, i%9, i%256, 3+i%20),
		int64(1), created, created, "loader",
		"Ready", int64(1), reported, created,
		"[" + condition("Reconciled") + "," + condition("LastKnownReconciled") + "," +
			condition("ValidationSuccessful") + "," + condition("DnsSuccessful") + "," + condition("ProvisioningSuccessful") + "]",
	}
}

const barePage = `select id, tenant, name, display_name, owner_id, labels, spec, generation,
	created_time, updated_time, deleted_time, created_by, updated_by, deleted_by,
	phase, observed_generation, last_updated_time, last_transition_time, conditions
from tenant.clusters where labels @> $1::jsonb and id > $2::uuid order by id limit $3`

// A bareReader reads pages on its own connection.
type bareReader struct{ conn *pgx.Conn }

// openBareReader connects a reader as the owner of the table.
func openBareReader(ctx context.Context, databaseURL string) (*bareReader, error) {
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return nil, err
	}
	return &bareReader{conn}, nil
}

// Close disconnects.
func (r *bareReader) Close(ctx context.Context) error { return r.conn.Close(ctx) }

// ReadPage reads the columns of one page of a shard's clusters after an id, and discards them. It uses
// one bare statement, and returns the number of rows and bytes.
func (r *bareReader) ReadPage(ctx context.Context, shard string, after uuid.UUID, limit int) (count, size int, err error) {
	rows, err := r.conn.Query(ctx, barePage, `{"shard":"`+shard+`"}`, after, limit)
	if err != nil {
		return 0, 0, err
	}
	defer rows.Close()
	for rows.Next() {
		count++
		for _, v := range rows.RawValues() {
			size += len(v)
		}
	}
	return count, size, rows.Err()
}
