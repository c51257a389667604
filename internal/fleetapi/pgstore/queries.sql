-- name: GetResource :one
-- A cluster is shown with the status of its Shoot.
select r.*, s.shoot_status, s.shoot_status_message, s.sync_error
from tenant.resources r
left join tenant.cluster_sync s on s.cluster_id = r.id and r.kind = 'Cluster'
where r.id = $1 and r.kind = $2;

-- name: LockResource :one
-- Also keeps out rows that would refer to this one as their owner.
select * from tenant.resources where id = $1 and kind = $2 for update;

-- name: LockChildren :many
select * from tenant.resources where owner_id = $1 order by id for update;

-- name: HasClusterWorker :one
select tenant.has_cluster_worker();

-- name: ShootOf :one
-- What is known of the Shoot of a cluster.
select tenant.has_cluster_worker() as guarded, tenant.shoot_confirmed_gone(s, r.deleted_time is not null) as gone,
    coalesce(s.synced is not null and s.synced_generation = s.generation, false)::boolean as synced,
    coalesce(s.sync_attempts, 0)::integer as attempts, coalesce(s.cluster_generation, 0)::bigint as generation,
    coalesce(s.report_version, 0)::bigint as version, coalesce(s.status_report_version, 0)::bigint as settled,
    tenant.shoot_status_outdated(s) as status_outdated,
    coalesce(s.shoot_status, '')::text as shoot_status, coalesce(s.shoot_status_message, '')::text as shoot_message,
    coalesce(s.sync_error, '')::text as sync_error
from tenant.resources r
left join tenant.cluster_sync s on s.cluster_id = r.id
where r.id = $1 and r.kind = 'Cluster';

-- name: ListReports :many
select * from tenant.adapter_reports where resource_id = $1 and kind = $2 order by adapter;

-- name: ListReportConditions :many
-- What the aggregation reads of the reports.
select resource_id, adapter, observed_generation, conditions, created_time, last_report_time
from tenant.adapter_reports where resource_id = $1 order by adapter;

-- name: ListChildReportConditions :many
select p.resource_id, p.adapter, p.observed_generation, p.conditions, p.created_time, p.last_report_time
from tenant.adapter_reports p
where p.resource_id in (select c.id from tenant.resources c where c.owner_id = $1)
order by p.resource_id, p.adapter;

-- name: CountChildren :one
-- The clock is read here because by now the row is locked.
select count(*) as children, clock_timestamp()::timestamptz as now
from tenant.resources where owner_id = $1;

-- name: CountGrandchildren :many
select c.owner_id::uuid as owner_id, count(*) as children
from tenant.resources c
where c.owner_id in (select o.id from tenant.resources o where o.owner_id = $1)
group by c.owner_id;

-- name: SaveResource :one
-- A spec that is not given stays as it is, which spares its being written
-- again with every report. A trigger gives the new revision.
update tenant.resources set
    display_name = @display_name,
    labels = @labels,
    annotations = @annotations,
    spec = coalesce(sqlc.narg(spec), spec),
    generation = @generation,
    updated_time = @updated_time,
    deleted_time = sqlc.narg(deleted_time),
    updated_by = @updated_by,
    deleted_by = @deleted_by,
    phase = @phase,
    observed_generation = @observed_generation,
    last_updated_time = @last_updated_time,
    last_transition_time = @last_transition_time,
    conditions = @conditions
where id = @id and kind = @kind
returning revision;

-- name: SaveReport :exec
insert into tenant.adapter_reports (
    resource_id, kind, tenant, adapter, observed_generation, conditions, data, metadata,
    created_time, last_report_time
) values (
    @resource_id, @kind, @tenant, @adapter, @observed_generation, @conditions, sqlc.narg(data), sqlc.narg(metadata),
    @created_time, @last_report_time
)
on conflict (resource_id, adapter) do update set
    observed_generation = excluded.observed_generation,
    conditions = excluded.conditions,
    data = excluded.data,
    metadata = excluded.metadata,
    created_time = excluded.created_time,
    last_report_time = excluded.last_report_time;

-- name: RemoveResource :execrows
delete from tenant.resources where id = $1 and kind = $2;

-- name: ResourceExists :one
select exists (select from tenant.resources where id = $1 and kind = $2);

-- name: Clock :one
select clock_timestamp()::timestamptz as now;

-- name: FeedState :one
select epoch::uuid, current::boolean, xact::xid8, seq::bigint, pending::xid8[] from tenant.feed_state(@kind::text);

-- name: FeedBounds :one
select epoch::uuid, current::boolean, pruned_xact::xid8, pruned_seq::bigint,
    settled::xid8, last_xact::xid8, last_seq::bigint, known::xid8, more::boolean
from tenant.feed_bounds(@kind::text, @xact::xid8, @seq::bigint);

-- name: RenewFeed :one
select tenant.renew_change_feed(@most);

-- name: SettleSync :exec
update tenant.cluster_sync set status_report_version = $2 where cluster_id = $1;

-- name: UnsettledSyncs :many
select s.cluster_id from tenant.cluster_sync s
where s.status_report_version <> s.report_version and s.cluster_id > @after::uuid
order by s.cluster_id limit @most::bigint;

-- name: PruneChanges :one
select tenant.prune_changes(@retention, @most);

-- name: ListSpecSchemas :many
select kind, schema, updated_time, updated_by from tenant.spec_schemas order by kind;

-- name: GetSpecSchema :one
-- The schema is left out if the caller has that revision already.
select revision, (case when revision <> @have then schema end)::json as schema
from tenant.spec_schemas where kind = @kind;

-- name: SetSpecSchema :exec
insert into tenant.spec_schemas (kind, schema, updated_time, updated_by)
values (@kind, @schema, @updated_time, @updated_by)
on conflict (kind) do update set
    schema = excluded.schema,
    revision = nextval('tenant.resource_revision'),
    updated_time = excluded.updated_time,
    updated_by = excluded.updated_by;

-- name: DeleteSpecSchema :execrows
delete from tenant.spec_schemas where kind = $1;
