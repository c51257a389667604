package pgstore

import (
	"context"
	"encoding/json"
	"fmt"
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

// keepRevision keeps a new generation of a cluster or a node pool.
func (t *tx) keepRevision(ctx context.Context, r, was *fleetapi.Record) error {
	if _, told := actionsOf(r.Kind); !told || r.Generation == was.Generation {
		return nil
	}
	wasAt, wasBy := was.CreatedTime, was.CreatedBy
	if was.Generation > 1 { // only if it is older than the keeping of generations
		wasAt, wasBy = was.UpdatedTime, was.UpdatedBy
	}
	_, err := t.tx.Exec(ctx, keepGenerations, r.ID, r.Kind, r.Tenant,
		[]int64{was.Generation, r.Generation}, []time.Time{wasAt, r.UpdatedTime}, []string{wasBy, r.UpdatedBy},
		[]bool{was.Deleting(), r.Deleting() && !was.Deleting()}, []string{string(was.Spec), string(r.Spec)}, t.revisions,
		[]string{string(was.Labels), string(r.Labels)})
	if err != nil {
		return fmt.Errorf("keep generation %d of %s %q: %w", r.Generation, r.Kind, r.ID, err)
	}
	return nil
}

const listRevisions = `select generation, created_time, actor, deleting, spec, labels from tenant.resource_revisions
	where resource_id = $1 and kind = $2 and generation < $3 order by generation desc limit $4`

// Revisions calls visit for the kept generations of a resource, the newest first.
func (s *Store) Revisions( //nolint:revive // the arguments are the fields of one query
	ctx context.Context, scope fleetapi.Scope, key fleetapi.Key, below int64, limit int, visit func(*v1.Revision) bool,
) error {
	if !isID(key.ID) {
		return nil
	}
	err := s.pool.RunBatch(ctx, scopeOf(scope), func(b *pgx.Batch) {
		b.Queue(listRevisions, key.ID, key.Kind, below, limit).Query(func(rows pgx.Rows) error {
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
		return wrapError(err, "list the revisions of %s %q", key.Kind, key.ID)
	}
	return nil
}
