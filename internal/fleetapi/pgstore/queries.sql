-- name: GetResource :one
select * from tenant.resources where id = $1 and kind = $2;

-- name: LockResource :one
-- Also keeps out rows that would refer to this one as their owner.
select * from tenant.resources where id = $1 and kind = $2 for update;

-- name: LockChildren :many
select * from tenant.resources where owner_id = $1 order by id for update;

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

-- name: InsertResource :one
insert into tenant.resources (
    id, kind, tenant, name, display_name, owner_id, owner_kind, labels, spec, generation,
    created_time, updated_time, deleted_time, created_by, updated_by, deleted_by,
    phase, observed_generation, last_updated_time, last_transition_time, conditions
) values (
    @id, @kind, @tenant, @name, @display_name, sqlc.narg(owner_id),
    (select o.kind from tenant.resources o where o.id = sqlc.narg(owner_id)),
    @labels, @spec, @generation,
    @created_time, @updated_time, sqlc.narg(deleted_time), @created_by, @updated_by, @deleted_by,
    @phase, @observed_generation, @last_updated_time, @last_transition_time, @conditions
)
returning revision;

-- name: SaveResource :one
-- A spec that is not given stays as it is, which spares its being written
-- again with every report. A trigger gives the new revision.
update tenant.resources set
    display_name = @display_name,
    labels = @labels,
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

-- name: PruneChanges :one
select tenant.prune_changes(@retention, @most);
