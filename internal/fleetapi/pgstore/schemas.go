package pgstore

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
	"github.com/fleetloop/fleetloop/internal/fleetapi/pgstore/db"
	"github.com/fleetloop/fleetloop/internal/postgres"
)

var _ fleetapi.SchemaReader = (*resourceTx)(nil)

// newAllTenantsScope returns the scope of objects that apply to all tenants.
func newAllTenantsScope() (allTenants postgres.Scope) {
	return toPostgresScope(fleetapi.Scope{All: true})
}

// ListSpecSchemas returns all schemas, ordered by kind.
func (s *Store) ListSpecSchemas(ctx context.Context) ([]v1.SpecSchema, error) {
	var rows []db.ListSpecSchemasRow
	err := s.pool.RunBatch(ctx, newAllTenantsScope(), func(b *pgx.Batch) { queueCollectRows(b.Queue(db.ListSpecSchemas), &rows) })
	if err != nil {
		return nil, wrapAndMarkUnavailable(err, "read the schemas of specs")
	}
	list := make([]v1.SpecSchema, len(rows))
	for i, r := range rows {
		list[i] = v1.SpecSchema{Kind: r.Kind, Schema: r.Schema, UpdatedTime: r.UpdatedTime.UTC(), UpdatedBy: r.UpdatedBy}
	}
	return list, nil
}

// SetSpecSchema stores the schema of a kind.
func (s *Store) SetSpecSchema(
	ctx context.Context, kind string, schema json.RawMessage, updatedBy string,
) (stored v1.SpecSchema, err error) {
	stored = v1.SpecSchema{Kind: kind, Schema: schema, UpdatedBy: updatedBy}
	err = s.pool.RunInTx(ctx, newAllTenantsScope(), func(ctx context.Context, tx postgres.Tx) error {
		now, err := tx.ReadBeginTime(ctx)
		if err != nil {
			return err
		}
		stored.UpdatedTime = now.UTC()
		return db.New(tx).SetSpecSchema(ctx, db.SetSpecSchemaParams{Kind: kind, Schema: schema, UpdatedTime: now, UpdatedBy: updatedBy})
	})
	if err != nil {
		return v1.SpecSchema{}, wrapAndMarkUnavailable(err, "store the schema of %s specs", kind)
	}
	return stored, nil
}

// DeleteSpecSchema removes the schema of a kind.
func (s *Store) DeleteSpecSchema(ctx context.Context, kind string) error {
	var deleted int64
	err := s.pool.RunInTx(ctx, newAllTenantsScope(), func(ctx context.Context, tx postgres.Tx) (err error) {
		deleted, err = db.New(tx).DeleteSpecSchema(ctx, kind)
		return err
	})
	switch {
	case err != nil:
		return wrapAndMarkUnavailable(err, "delete the schema of %s specs", kind)
	case deleted == 0:
		return fleetapi.ErrNotFound
	}
	return nil
}

// ReadSpecSchemaIfChanged reads the schema of a kind within a transaction.
func (t *resourceTx) ReadSpecSchemaIfChanged(
	ctx context.Context, kind string, knownRevision int64,
) (revision int64, schema json.RawMessage, err error) {
	wanted := schemaQuery{kind, knownRevision}
	if t.schema == nil || t.schema.query != wanted || !t.schema.done {
		t.schema = &schemaRead{query: wanted}
		var b pgx.Batch
		t.schema.queueOn(&b)
		if err := t.tx.RunBatch(ctx, &b); err != nil {
			return 0, nil, fmt.Errorf("read the schema of %s specs: %w", kind, err)
		}
	}
	if len(t.schema.rows) == 0 {
		return 0, nil, nil
	}
	return t.schema.rows[0].Revision, t.schema.rows[0].Schema, nil
}

// QueueSpecSchemaRead lets LockAndReadResource read the schema of a kind.
func (t *resourceTx) QueueSpecSchemaRead(kind string, knownRevision int64) {
	t.schema = &schemaRead{query: schemaQuery{kind, knownRevision}}
}

// A schemaQuery holds the parameters of ReadSpecSchemaIfChanged.
type schemaQuery struct {
	kind          string
	knownRevision int64
}

// A schemaRead is a read that is wanted or done.
type schemaRead struct {
	query schemaQuery
	done  bool
	rows  []db.GetSpecSchemaRow
}

func (r *schemaRead) queueOn(b *pgx.Batch) {
	r.done, r.rows = true, nil
	queueCollectRows(b.Queue(db.GetSpecSchema, r.query.knownRevision, r.query.kind), &r.rows)
}
