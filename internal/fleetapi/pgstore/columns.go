package pgstore

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
	"github.com/fleetloop/fleetloop/internal/fleetapi/pgstore/db"
)

// All that reads or writes the columns of a resource one by one is in this file.

// pageColumns are the columns of a Record, in the order of the scan targets.
const pageColumns = `id, tenant, name, display_name, owner_id, labels, annotations, spec, generation, revision,
	created_time, updated_time, deleted_time, created_by, updated_by, deleted_by,
	phase, observed_generation, last_updated_time, last_transition_time, conditions`

// A pageRow holds the scanned columns of a row. Long text stays in the connection's buffer.
type pageRow struct {
	owner                    pgtype.UUID
	deleted                  *time.Time
	phase                    string
	labels, spec, conditions pgtype.DriverBytes
	annotations              pgtype.DriverBytes

	shown
}

// scanTargets returns the targets into which pageColumns are scanned.
func (row *pageRow) scanTargets(rec *fleetapi.Record) []any {
	return []any{
		&rec.ID, &rec.Tenant, &rec.Name, &rec.DisplayName, &row.owner, &row.labels, &row.annotations, &row.spec, &rec.Generation, &rec.Revision,
		&rec.CreatedTime, &rec.UpdatedTime, &row.deleted, &rec.CreatedBy, &rec.UpdatedBy, &rec.DeletedBy,
		&row.phase, &rec.Status.ObservedGeneration, &rec.Status.LastUpdatedTime, &rec.Status.LastTransitionTime, &row.conditions,
		&row.ShootStatus, &row.ShootMessage, &row.SyncError,
	}
}

// fillRecord completes a record whose columns were read.
func (row *pageRow) fillRecord(rec *fleetapi.Record) {
	rec.ParentID, rec.DeletedTime = "", time.Time{}
	if row.owner.Valid {
		rec.ParentID = row.owner.String()
	}
	if row.deleted != nil {
		rec.DeletedTime = *row.deleted
	}
	rec.Status.Phase = v1.Phase(row.phase)
	rec.Labels, rec.Annotations, rec.Spec = json.RawMessage(row.labels), json.RawMessage(row.annotations), json.RawMessage(row.spec)
	rec.Status.Conditions = json.RawMessage(row.conditions)
	row.fillShootStatus(rec)
}

// visitRows calls visit for every row. The record is reused for the next one.
func visitRows(rows pgx.Rows, kind string, visit func(*fleetapi.Record) error) error {
	var row pageRow
	rec := fleetapi.Record{Key: fleetapi.Key{Kind: kind}}
	into := row.scanTargets(&rec)
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		row.fillRecord(&rec)
		if err := visit(&rec); err != nil {
			return err
		}
	}
	return rows.Err()
}

// recordOf converts a row into a Record.
func recordOf(r *db.Resource) fleetapi.Record {
	rec := fleetapi.Record{
		Key:         fleetapi.Key{Kind: r.Kind, ID: r.ID},
		Content:     fleetapi.Content{Name: r.Name, DisplayName: r.DisplayName, Labels: r.Labels, Annotations: r.Annotations, Spec: r.Spec},
		Tenant:      r.Tenant,
		Generation:  r.Generation,
		Revision:    r.Revision,
		CreatedTime: r.CreatedTime,
		UpdatedTime: r.UpdatedTime,
		CreatedBy:   r.CreatedBy,
		UpdatedBy:   r.UpdatedBy,
		DeletedBy:   r.DeletedBy,
		Status: fleetapi.Status{
			Phase:              v1.Phase(r.Phase),
			ObservedGeneration: r.ObservedGeneration,
			LastUpdatedTime:    r.LastUpdatedTime,
			LastTransitionTime: r.LastTransitionTime,
			Conditions:         r.Conditions,
		},
	}
	if r.OwnerID != nil {
		rec.ParentID = *r.OwnerID
	}
	if r.DeletedTime != nil {
		rec.DeletedTime = *r.DeletedTime
	}
	return rec
}

// insertBatch inserts the rows whose names are not in use, even by concurrent transactions. It
// inserts them ordered by name, so that batches with the same names wait for each other without
// deadlock. COPY would be faster, but PostgreSQL refuses it to a role that row-level security
// binds.
const insertBatch = `insert into tenant.resources (
	id, kind, tenant, name, display_name, owner_id, owner_kind, labels, annotations, spec, generation,
	created_time, updated_time, deleted_time, created_by, updated_by, deleted_by,
	phase, observed_generation, last_updated_time, last_transition_time, conditions
)
select r.id, $6, $7, r.name, r.display_name, $8::uuid, (select o.kind from tenant.resources o where o.id = $8::uuid),
	r.labels::jsonb, coalesce(r.annotations, '{}')::jsonb, r.spec::json, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20::jsonb
from unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $21::text[]) with ordinality as r (id, name, display_name, labels, spec, annotations, place)
order by r.name collate "C", r.place
on conflict (tenant, owner_id, name, kind) where deleted_time is null do nothing
returning id, revision`

// An insertedRow is a row that was inserted.
type insertedRow struct {
	ID       string
	Revision int64
}

// insertRows inserts the rows whose names are not in use, and returns them. The rows have common
// without its id and content.
func (t *tx) insertRows(ctx context.Context, common *fleetapi.Record, rows []fleetapi.BatchRow) ([]insertedRow, error) {
	n := len(rows)
	ids, names, displayNames := make([]string, n), make([]string, n), make([]string, n)
	labels, specs := make([]string, n), make([]string, n)
	annotations := make([]*string, n)
	for i := range rows {
		r := &rows[i]
		ids[i], names[i], displayNames[i] = r.ID, r.Name, r.DisplayName
		labels[i], specs[i], annotations[i] = string(r.Labels), string(r.Spec), orNull(string(r.Annotations))
	}
	c := common
	inserted, err := t.tx.Query(ctx, insertBatch, ids, names, displayNames, labels, specs,
		c.Kind, c.Tenant, orNull(c.ParentID), c.Generation,
		c.CreatedTime, c.UpdatedTime, orNull(c.DeletedTime), c.CreatedBy, c.UpdatedBy, c.DeletedBy,
		string(c.Status.Phase), c.Status.ObservedGeneration, c.Status.LastUpdatedTime, c.Status.LastTransitionTime, string(c.Status.Conditions), annotations)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(inserted, pgx.RowToStructByPos[insertedRow])
}

// saveParams returns the parameters of SaveResource. A nil spec leaves the spec unchanged.
func saveParams(r *fleetapi.Record, spec []byte) db.SaveResourceParams {
	return db.SaveResourceParams{
		ID:                 r.ID,
		Kind:               r.Kind,
		DisplayName:        r.DisplayName,
		Labels:             r.Labels,
		Annotations:        r.Annotations,
		Spec:               spec,
		Generation:         r.Generation,
		UpdatedTime:        r.UpdatedTime,
		DeletedTime:        orNull(r.DeletedTime),
		UpdatedBy:          r.UpdatedBy,
		DeletedBy:          r.DeletedBy,
		Phase:              string(r.Status.Phase),
		ObservedGeneration: r.Status.ObservedGeneration,
		LastUpdatedTime:    r.Status.LastUpdatedTime,
		LastTransitionTime: r.Status.LastTransitionTime,
		Conditions:         r.Status.Conditions,
	}
}
