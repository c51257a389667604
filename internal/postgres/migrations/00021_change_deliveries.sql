-- +goose Up

-- What became of a change of a Shoot at a sink so far. event_id and tenant are null in
-- rows of workers from before this migration: their deliveries are not recorded.
-- retry_at is due_at as it was set after a failure. They differ while a worker sends.
alter table tenant.cluster_change_events
    add column event_id         text        collate "C",
    add column tenant           text        collate "C",
    add column sink_type        text        not null default '',
    add column attempts         integer     not null default 0,
    add column first_attempt_at timestamptz,
    add column last_attempt_at  timestamptz,
    add column retry_at         timestamptz,
    add column error            text        not null default '',
    add column http_status      integer     not null default 0;
create index cluster_change_events_event_idx on tenant.cluster_change_events (event_id);

-- The deliveries that are over. The statement that removes a row of
-- tenant.cluster_change_events writes its row here. Attempts add up if the event was
-- queued more than once. cluster_id and change are what queues it again. happened_at is
-- the time of the change, by which the timeline forgets it.
create table tenant.cluster_change_deliveries (
    event_id         text        collate "C" not null,
    sink             text        collate "C" not null,
    tenant           text        collate "C" not null,
    sink_type        text        not null,
    state            text        not null check (state in ('delivered', 'skipped', 'rejected', 'expired')),
    attempts         integer     not null,
    first_attempt_at timestamptz,
    last_attempt_at  timestamptz,
    finished_at      timestamptz not null default now(),
    error            text        not null,
    http_status      integer     not null,
    happened_at      timestamptz not null,
    cluster_id       uuid        not null,
    change           text        not null,

    primary key (event_id, sink)
);
create index cluster_change_deliveries_happened_idx on tenant.cluster_change_deliveries (happened_at);

-- Removes the deliveries of changes that are older than a retention, at most so many,
-- and returns how many it removed. It is for the role that serves all tenants.
-- +goose StatementBegin
create function tenant.delete_expired_deliveries(retention interval, most integer) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    gone integer;
begin
    delete from tenant.cluster_change_deliveries d
    where (d.event_id, d.sink) in (
        select o.event_id, o.sink from tenant.cluster_change_deliveries o where o.happened_at < clock_timestamp() - retention
        order by o.happened_at limit most for update skip locked
    );
    get diagnostics gone = row_count;
    return gone;
end
$$;
-- +goose StatementEnd

revoke execute on function tenant.delete_expired_deliveries(interval, integer) from public;
grant execute on function tenant.delete_expired_deliveries(interval, integer) to fleet_api_all_tenants;

alter table tenant.cluster_change_deliveries enable row level security;
create policy workers on tenant.cluster_change_deliveries to cluster_worker using (true);
create policy one_tenant on tenant.cluster_change_deliveries for select to fleet_api
    using (tenant = current_setting('fleetloop.tenant', true));
create policy all_tenants on tenant.cluster_change_deliveries for select to fleet_api_all_tenants using (true);
grant select, insert, update on tenant.cluster_change_deliveries to cluster_worker;
grant select on tenant.cluster_change_deliveries to fleet_api, fleet_api_all_tenants;

create policy one_tenant on tenant.cluster_change_events for select to fleet_api
    using (tenant = current_setting('fleetloop.tenant', true));
create policy all_tenants on tenant.cluster_change_events for select to fleet_api_all_tenants using (true);
grant select on tenant.cluster_change_events to fleet_api, fleet_api_all_tenants;
-- A change that is queued again starts anew, so only these columns can be given. A
-- cluster-worker sends what is queued, so it must be what one has recorded. The
-- recorded deliveries are those that the role may see.
create policy one_tenant_again on tenant.cluster_change_events for insert to fleet_api with check (exists (
    select from tenant.cluster_change_deliveries d where (d.event_id, d.sink, d.tenant, d.sink_type, d.cluster_id, d.change) =
        (cluster_change_events.event_id, cluster_change_events.sink, cluster_change_events.tenant, cluster_change_events.sink_type,
        cluster_change_events.cluster_id, cluster_change_events.change)));
create policy all_tenants_again on tenant.cluster_change_events for insert to fleet_api_all_tenants with check (exists (
    select from tenant.cluster_change_deliveries d where (d.event_id, d.sink, d.tenant, d.sink_type, d.cluster_id, d.change) =
        (cluster_change_events.event_id, cluster_change_events.sink, cluster_change_events.tenant, cluster_change_events.sink_type,
        cluster_change_events.cluster_id, cluster_change_events.change)));
grant insert (event_id, sink, tenant, sink_type, cluster_id, change) on tenant.cluster_change_events to fleet_api, fleet_api_all_tenants;
