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

	shootColumnValues
}

// buildScanTargets returns the targets into which pageColumns are scanned.
func (row *pageRow) buildScanTargets(into *fleetapi.Record) []any {
	return []any{
		&into.ID, &into.Tenant, &into.Name, &into.DisplayName, &row.owner, &row.labels, &row.annotations, &row.spec, &into.Generation, &into.Revision,
		&into.CreatedTime, &into.UpdatedTime, &row.deleted, &into.CreatedBy, &into.UpdatedBy, &into.DeletedBy,
		&row.phase, &into.Status.ObservedGeneration, &into.Status.LastUpdatedTime, &into.Status.LastTransitionTime, &row.conditions,
		&row.ShootStatus, &row.ShootMessage, &row.SyncError,
	}
}

// copyToRecord completes a record whose columns were read.
func (row *pageRow) copyToRecord(into *fleetapi.Record) {
	into.ParentID, into.DeletedTime = "", time.Time{}
	if row.owner.Valid {
		into.ParentID = row.owner.String()
	}
	if row.deleted != nil {
		into.DeletedTime = *row.deleted
	}
	into.Status.Phase = v1.Phase(row.phase)
	into.Labels, into.Annotations, into.Spec = json.RawMessage(row.labels), json.RawMessage(row.annotations), json.RawMessage(row.spec)
	into.Status.Conditions = json.RawMessage(row.conditions)
	row.copyToStatus(into)
}

// scanRecords calls visit for every row. The record is reused for the next one.
func scanRecords(rows pgx.Rows, kind string, visit func(*fleetapi.Record) error) error {
	var row pageRow
	rec := fleetapi.Record{Key: fleetapi.Key{Kind: kind}}
	into := row.buildScanTargets(&rec)
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		row.copyToRecord(&rec)
		if err := visit(&rec); err != nil {
			return err
		}
	}
	return rows.Err()
}

func newRecordFromRow(row *db.Resource) fleetapi.Record {
	rec := fleetapi.Record{
		Key: fleetapi.Key{Kind: row.Kind, ID: row.ID},
		Content: fleetapi.Content{
			Name:        row.Name,
			DisplayName: row.DisplayName,
			Labels:      row.Labels,
			Annotations: row.Annotations,
			Spec:        row.Spec,
		},
		Tenant:      row.Tenant,
		Generation:  row.Generation,
		Revision:    row.Revision,
		CreatedTime: row.CreatedTime,
		UpdatedTime: row.UpdatedTime,
		CreatedBy:   row.CreatedBy,
		UpdatedBy:   row.UpdatedBy,
		DeletedBy:   row.DeletedBy,
		Status: fleetapi.Status{
			Phase:              v1.Phase(row.Phase),
			ObservedGeneration: row.ObservedGeneration,
			LastUpdatedTime:    row.LastUpdatedTime,
			LastTransitionTime: row.LastTransitionTime,
			Conditions:         row.Conditions,
		},
	}
	if row.OwnerID != nil {
		rec.ParentID = *row.OwnerID
	}
	if row.DeletedTime != nil {
		rec.DeletedTime = *row.DeletedTime
	}
	return rec
}

// insertBatch inserts the rows whose names are not in use, even by concurrent transactions. It inserts them ordered by
// name, so that batches with the same names wait for each other without deadlock. COPY would be faster, but PostgreSQL
// refuses it to a role that row-level security binds.
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

// insertRowsWithFreeNames inserts the rows whose names are not in use, and returns them. The rows have common
// without its id and content.
func (t *resourceTx) insertRowsWithFreeNames(
	ctx context.Context, common *fleetapi.Record, rows []fleetapi.BatchRow,
) (newRows []insertedRow, err error) {
	n := len(rows)
	ids, names, displayNames := make([]string, n), make([]string, n), make([]string, n)
	labels, specs := make([]string, n), make([]string, n)
	annotations := make([]*string, n)
	for i := range rows {
		r := &rows[i]
		ids[i], names[i], displayNames[i] = r.ID, r.Name, r.DisplayName
		labels[i], specs[i], annotations[i] = string(r.Labels), string(r.Spec), nilIfZero(string(r.Annotations))
	}
	c := common
	return collectRows(ctx, t.tx, pgx.RowToStructByPos[insertedRow], insertBatch, ids, names, displayNames, labels, specs,
		c.Kind, c.Tenant, nilIfZero(c.ParentID), c.Generation,
		c.CreatedTime, c.UpdatedTime, nilIfZero(c.DeletedTime), c.CreatedBy, c.UpdatedBy, c.DeletedBy,
		string(c.Status.Phase), c.Status.ObservedGeneration, c.Status.LastUpdatedTime, c.Status.LastTransitionTime, string(c.Status.Conditions), annotations)
}

// listSaveResourceArgs returns the parameters of SaveResource. A nil spec leaves the spec unchanged.
func listSaveResourceArgs(record *fleetapi.Record, newSpec []byte) []any {
	s := &record.Status
	return []any{
		record.DisplayName, []byte(record.Labels), []byte(record.Annotations), newSpec, record.Generation,
		record.UpdatedTime, nilIfZero(record.DeletedTime), record.UpdatedBy, record.DeletedBy,
		string(s.Phase), s.ObservedGeneration, s.LastUpdatedTime, s.LastTransitionTime, []byte(s.Conditions), record.ID, record.Kind,
	}
}
