-- +goose Up

-- Ends the pauses whose time is over, up to a number of them, and returns how many
-- it ended. The end of each is a change event of the same transaction. Workers call it
-- with every claim, so a pause ends although nobody calls the API. Its time is that
-- of the pause, also if no worker ran then. Few rows are in its index, which the
-- planner does not know of a table without statistics.
-- +goose StatementBegin
create function tenant.end_expired_pauses(most integer) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
declare
    p     record;
    ended integer := 0;
begin
    for p in
        with expired as materialized (
            select s.cluster_id, s.paused_at, s.paused_until, s.paused_by, s.pause_reason
            from tenant.cluster_sync s
            where s.paused_at is not null and s.paused_until is not null and s.paused_until <= now()
            order by s.paused_until limit most
            for update skip locked
        ), resumed as (
            update tenant.cluster_sync s
            set generation = s.generation, paused_at = null, paused_until = null, paused_by = null, pause_reason = null
            from expired e where s.cluster_id = e.cluster_id
            returning e.*
        )
        select r.*, c.name, c.tenant from resumed r join tenant.clusters c on c.id = r.cluster_id
    loop
        ended := ended + 1;
        insert into timeline.change_event (feed, at, tenant, recorded_by, cluster, node, source, actor, action, subject, session, payload)
        select f.no, p.paused_until, p.tenant, '', p.name, '', 'fleetloop/fleet-api', 'fleetloop/fleet-api', 'sync-resumed', 'clusters/' || p.name, '',
            json_strip_nulls(json_build_object(
                'action', 'sync-resumed',
                'timestamp', to_char(p.paused_until at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
                'source', 'fleetloop/fleet-api', 'cluster', p.name, 'node', '', 'dryRun', false,
                'id', format('cluster/%s/sync-resumed/%s', p.cluster_id, (extract(epoch from p.paused_until) * 1000000)::bigint),
                'subject', 'clusters/' || p.name,
                'summary', format('The pause of the sync of cluster %s ended', p.name),
                'outcome', 'succeeded',
                'reason', 'the time of the pause is over',
                'details', json_build_object('id', p.cluster_id, 'paused_by', p.paused_by, 'pause_reason', p.pause_reason,
                    'paused_since', to_char(p.paused_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'))))
        from timeline.feed f;
    end loop;
    return ended;
end
$$;
-- +goose StatementEnd

-- Pauses a sync, or changes its pause, and returns whether there is such a sync. A
-- pause keeps its beginning, and one without an end is not changed by a call without a
-- reason. The parameters beside the cluster have defaults for callers that know only
-- the cluster. A pause with an end is notified, so that workers learn when.
drop function tenant.pause_cluster_sync(uuid);
-- +goose StatementBegin
create function tenant.pause_cluster_sync(cluster uuid, author text default null, why text default null, until timestamptz default null) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    was tenant.cluster_sync;
begin
    perform tenant.end_expired_pauses(100);
    select * into was from tenant.cluster_sync s where s.cluster_id = cluster for update;
    if not found then
        return false;
    end if;
    if was.paused_at is not null and was.paused_until is null and why is null and until is null then
        return true;
    end if;
    if until is null then
        update tenant.cluster_sync s set paused_at = coalesce(s.paused_at, now()), paused_by = author, pause_reason = why, paused_until = null
        where s.cluster_id = cluster;
    else
        update tenant.cluster_sync s set generation = s.generation,
            paused_at = coalesce(s.paused_at, now()), paused_by = author, pause_reason = why, paused_until = until
        where s.cluster_id = cluster;
    end if;
    return true;
end
$$;
-- +goose StatementEnd

-- +goose StatementBegin
create or replace function tenant.resume_cluster_sync(cluster uuid) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform tenant.end_expired_pauses(100);
    update tenant.cluster_sync s set generation = s.generation, paused_at = null, paused_until = null, paused_by = null, pause_reason = null
    where s.cluster_id = cluster;
    return found;
end
$$;
-- +goose StatementEnd

revoke execute on function tenant.end_expired_pauses(integer), tenant.pause_cluster_sync(uuid, text, text, timestamptz) from public;
grant execute on function tenant.end_expired_pauses(integer) to fleet_api, fleet_api_all_tenants, cluster_worker;
grant execute on function tenant.pause_cluster_sync(uuid, text, text, timestamptz) to fleet_api, fleet_api_all_tenants;

-- The spec and the labels of clusters and node pools at each generation, with the
-- author of the change. A resource whose spec never changed has no rows: its only
-- generation is the resource itself, so that creating many costs nothing more.
create table tenant.resource_revisions (
    resource_id  uuid        not null,
    kind         text        collate "C" not null,
    tenant       text        collate "C" not null,
    generation   bigint      not null,
    created_time timestamptz not null,
    actor        text        collate "C" not null,
    -- Whether the change was the request to delete the resource.
    deleting     boolean     not null,
    spec         json        not null,
    labels       jsonb       not null,

    constraint resource_revisions_pkey primary key (resource_id, generation),
    constraint resource_revisions_tenant_fkey foreign key (tenant, resource_id, kind)
        references tenant.resources (tenant, id, kind) on update cascade on delete cascade
);
alter table tenant.resource_revisions enable row level security;
create policy one_tenant on tenant.resource_revisions to fleet_api
    using (tenant = current_setting('fleetloop.tenant', true));
create policy all_tenants on tenant.resource_revisions to fleet_api_all_tenants using (true);
-- Nobody changes a revision; the oldest are removed with a new one.
grant select, insert, delete on tenant.resource_revisions to fleet_api, fleet_api_all_tenants;
