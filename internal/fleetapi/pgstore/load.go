package pgstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fleetloop/fleetloop/internal/fleetapi"
)

// insertBatch inserts the rows whose names are not in use, even by concurrent transactions. It
// inserts them ordered by name, so that batches with the same names wait for each other without
// deadlock. COPY would be faster, but PostgreSQL refuses it to a role that row-level security
// binds.
const insertBatch = `insert into tenant.resources (
	id, kind, tenant, name, display_name, owner_id, owner_kind, labels, spec, generation,
	created_time, updated_time, created_by, updated_by,
	phase, observed_generation, last_updated_time, last_transition_time, conditions
)
select r.id, $6, $7, r.name, r.display_name, $8::uuid, (select o.kind from tenant.resources o where o.id = $8::uuid),
	r.labels::jsonb, r.spec::json, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18::jsonb
from unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[]) with ordinality as r (id, name, display_name, labels, spec, place)
order by r.name collate "C", r.place
on conflict (tenant, owner_id, name, kind) where deleted_time is null do nothing
returning id, revision`

// firstMissing selects the index of the first id without a row, from zero.
const firstMissing = `select u.place - 1 from unnest($1::uuid[]) with ordinality as u (id, place)
where not exists (select from tenant.resources r where r.id = u.id and r.kind = $2)
order by u.place limit 1`

var _ fleetapi.Loader = (*tx)(nil)

// InsertBatch inserts the rows of a batch whose names are free, and returns their number.
func (t *tx) InsertBatch(ctx context.Context, b *fleetapi.Batch) (created int, err error) {
	n := len(b.Rows)
	ids, names, displayNames := make([]string, n), make([]string, n), make([]string, n)
	labels, specs := make([]string, n), make([]string, n)
	for i := range b.Rows {
		r := &b.Rows[i]
		ids[i], names[i], displayNames[i] = r.ID, r.Name, r.DisplayName
		labels[i], specs[i] = string(r.Labels), string(r.Spec)
	}
	c := &b.Common
	rows, err := t.tx.Query(ctx, insertBatch, ids, names, displayNames, labels, specs,
		c.Kind, c.Tenant, orNull(c.ParentID), c.Generation,
		c.CreatedTime, c.UpdatedTime, c.CreatedBy, c.UpdatedBy,
		string(c.Status.Phase), c.Status.ObservedGeneration, c.Status.LastUpdatedTime, c.Status.LastTransitionTime, string(c.Status.Conditions))
	var inserted []insertedRow
	if err == nil {
		inserted, err = pgx.CollectRows(rows, pgx.RowToStructByPos[insertedRow])
	}
	if err != nil {
		return 0, fmt.Errorf("insert %d of kind %s: %w", n, c.Kind, err)
	}
	return len(inserted), t.recordBatchCreation(ctx, b, inserted)
}

// An insertedRow is a row that was inserted.
type insertedRow struct {
	ID       string
	Revision int64
}

// FirstNotInserted returns the index of the first row of a batch that was not inserted. Its name is in
// use.
func (t *tx) FirstNotInserted(ctx context.Context, b *fleetapi.Batch) (index int, err error) {
	ids := make([]string, len(b.Rows))
	for i := range b.Rows {
		ids[i] = b.Rows[i].ID
	}
	rows, err := t.tx.Query(ctx, firstMissing, ids, b.Common.Kind)
	if err != nil {
		return 0, fmt.Errorf("find existing names: %w", err)
	}
	first, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[int])
	if err != nil {
		return 0, fmt.Errorf("find existing names: %w", err)
	}
	return first, nil
}
