package pgstore

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
)

// keepGenerations inserts the new generation of a resource, and the one before it if that is not
// kept yet, and deletes the oldest ones beyond the limit.
const keepGenerations = `with old as (
	delete from tenant.resource_revisions where resource_id = $1::uuid and generation <= ($4::bigint[])[2] - $9::bigint
)
insert into tenant.resource_revisions (resource_id, kind, tenant, generation, created_time, actor, deleting, spec, labels)
select $1::uuid, $2::text, $3::text, g.generation, g.created_time, g.actor, g.deleting, g.spec::json, g.labels::jsonb
from unnest($4::bigint[], $5::timestamptz[], $6::text[], $7::boolean[], $8::text[], $10::text[])
	as g (generation, created_time, actor, deleting, spec, labels)
where g.generation > ($4::bigint[])[2] - $9::bigint
on conflict (resource_id, generation) do nothing`

// queueRevisionIfNewGeneration saves a new generation of a cluster or a node pool.
func (t *resourceTx) queueRevisionIfNewGeneration(updated, previous *fleetapi.Record) {
	if _, recorded := changeActionsFor(updated.Kind); !recorded || updated.Generation == previous.Generation {
		return
	}
	wasAt, wasBy := previous.CreatedTime, previous.CreatedBy
	if previous.Generation > 1 { // only if it is older than the keeping of generations
		wasAt, wasBy = previous.UpdatedTime, previous.UpdatedBy
	}
	saving := t.tx.Queue(keepGenerations, updated.ID, updated.Kind, updated.Tenant,
		[]int64{previous.Generation, updated.Generation}, []time.Time{wasAt, updated.UpdatedTime}, []string{wasBy, updated.UpdatedBy},
		[]bool{previous.IsBeingDeleted(), updated.IsBeingDeleted() && !previous.IsBeingDeleted()}, []string{string(previous.Spec), string(updated.Spec)}, t.revisions,
		[]string{string(previous.Labels), string(updated.Labels)})
	nameFailure(saving, "keep generation %d of %s %q", updated.Generation, updated.Kind, updated.ID)
}

const listRevisions = `select generation, created_time, actor, deleting, spec, labels from tenant.resource_revisions
	where resource_id = $1 and kind = $2 and generation < $3 order by generation desc limit $4`

// VisitRevisions calls visit for the kept generations of a resource, the newest first.
func (s *Store) VisitRevisions( //nolint:revive // the arguments are the fields of one query
	ctx context.Context, scope fleetapi.Scope, key fleetapi.Key, belowGeneration int64, limit int, visit func(*v1.Revision) bool,
) error {
	if !isUUIDText(key.ID) {
		return nil
	}
	err := s.pool.RunBatch(ctx, toPostgresScope(scope), func(b *pgx.Batch) {
		b.Queue(listRevisions, key.ID, key.Kind, belowGeneration, limit).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				var r v1.Revision
				var spec, labels []byte
				if err := rows.Scan(&r.Generation, &r.CreatedTime, &r.Actor, &r.Deleting, &spec, &labels); err != nil {
					return err
				}
				r.CreatedTime, r.Spec = r.CreatedTime.UTC(), spec
				if err := json.Unmarshal(labels, &r.Labels); err != nil {
					return err
				}
				if !visit(&r) {
					break
				}
			}
			rows.Close()
			return rows.Err()
		})
	})
	if err != nil {
		return wrapAndMarkUnavailable(err, "list the revisions of %s %q", key.Kind, key.ID)
	}
	return nil
}
