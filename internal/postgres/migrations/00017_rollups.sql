-- +goose NO TRANSACTION
-- +goose Up

-- Orders by the status, and what is not ready for longest. Only clusters and node
-- pools have them, and clusters also the order by name. A report that changes neither the phase nor its time stays an
-- update in place.

-- An index that could not be finished is left invalid, and is made anew.
-- +goose StatementBegin
do $$
declare
    broken regclass;
begin
    for broken in
        select i.indexrelid::regclass from pg_index i join pg_class c on c.oid = i.indexrelid
        where not i.indisvalid and c.relkind = 'i' and c.relnamespace = 'tenant'::regnamespace
            and c.relname ~ '^(clusters|nodepools)_(tenant_)?(phase|transition|unready|name)_idx$'
    loop
        execute format('drop index %s', broken);
    end loop;
end
$$;
-- +goose StatementEnd

create index concurrently if not exists clusters_phase_idx on tenant.clusters (phase, id);
create index concurrently if not exists clusters_tenant_phase_idx on tenant.clusters (tenant, phase, id);
create index concurrently if not exists clusters_transition_idx on tenant.clusters (last_transition_time, id);
create index concurrently if not exists clusters_tenant_transition_idx on tenant.clusters (tenant, last_transition_time, id);
create index concurrently if not exists clusters_unready_idx on tenant.clusters (last_transition_time, id) where phase <> 'Ready';
create index concurrently if not exists clusters_tenant_unready_idx on tenant.clusters (tenant, last_transition_time, id) where phase <> 'Ready';
create index concurrently if not exists clusters_name_idx on tenant.clusters (name, id);
create index concurrently if not exists clusters_tenant_name_idx on tenant.clusters (tenant, name, id);
create index concurrently if not exists nodepools_phase_idx on tenant.nodepools (phase, id);
create index concurrently if not exists nodepools_tenant_phase_idx on tenant.nodepools (tenant, phase, id);
create index concurrently if not exists nodepools_transition_idx on tenant.nodepools (last_transition_time, id);
create index concurrently if not exists nodepools_tenant_transition_idx on tenant.nodepools (tenant, last_transition_time, id);
create index concurrently if not exists nodepools_unready_idx on tenant.nodepools (last_transition_time, id) where phase <> 'Ready';
create index concurrently if not exists nodepools_tenant_unready_idx on tenant.nodepools (tenant, last_transition_time, id) where phase <> 'Ready';

-- Counts of clusters and node pools, which one process at a time brings up to date
-- from the change feed; see docs/adr/0006-change-feed.md. Writers of resources
-- neither touch these tables nor wait for them.
--
-- One row. Whoever holds its lock counts. The position in the feed moves in the
-- transaction that counts the changes up to it.
create table if not exists tenant.rollup (
    only_row     boolean primary key default true check (only_row),
    -- The labels whose values are counted.
    label_keys   text[]  not null default '{}',
    -- Null: everything must be counted anew.
    epoch        uuid,
    xact         xid8    not null default '0',
    seq          bigint  not null default 0,
    -- How far everything was counted anew; null: to the end.
    recount_kind text    collate "C",
    recount_id   uuid,
    -- The counts include every change that was committed before. Null: never yet.
    as_of        timestamptz,
    syncs_as_of  timestamptz
);
insert into tenant.rollup default values on conflict do nothing;

-- What each resource was last counted as, so that none counts twice.
create table if not exists tenant.rollup_rows (
    kind   text  collate "C" not null,
    id     uuid  not null,
    tenant text  collate "C" not null,
    phase  text  collate "C" not null,
    labels jsonb not null,

    constraint rollup_rows_pkey primary key (id, kind)
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);

-- How many resources have a label and a phase; the label '' is for all resources,
-- and the tenant null for all tenants.
create table if not exists tenant.rollup_counts (
    tenant text   collate "C",
    kind   text   collate "C" not null,
    label  text   collate "C" not null,
    value  text   collate "C" not null,
    phase  text   collate "C" not null,
    n      bigint not null,

    constraint rollup_counts_key unique nulls not distinct (tenant, kind, label, value, phase)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);

-- Why each resource that is not ready, or not synced, is not: what an adapter
-- reported or what the sync failed with, with all that differs between resources
-- replaced.
create table if not exists tenant.rollup_reasons (
    kind   text        collate "C" not null,
    id     uuid        not null,
    source text        collate "C" not null,
    tenant text        collate "C" not null,
    reason text        collate "C" not null,
    since  timestamptz not null,
    -- Of the error of a sync, so that one that was counted is not read again.
    digest uuid,

    constraint rollup_reasons_pkey primary key (id, kind, source)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
create index if not exists rollup_reasons_oldest_idx on tenant.rollup_reasons (source, reason, since, id);
create index if not exists rollup_reasons_tenant_oldest_idx on tenant.rollup_reasons (tenant, source, reason, since, id);
create index if not exists rollup_reasons_sync_idx on tenant.rollup_reasons (id) where source = 'sync';

create table if not exists tenant.rollup_reason_counts (
    tenant text   collate "C",
    source text   collate "C" not null,
    reason text   collate "C" not null,
    n      bigint not null,

    constraint rollup_reason_counts_key unique nulls not distinct (tenant, source, reason)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);
create index if not exists rollup_reason_counts_top_idx on tenant.rollup_reason_counts (tenant, n desc, source, reason);

-- How many syncs have a state other than synced, and the one that waits longest.
create table if not exists tenant.rollup_syncs (
    tenant       text        collate "C",
    state        text        collate "C" not null,
    n            bigint      not null,
    oldest_since timestamptz,
    oldest_id    uuid,

    constraint rollup_syncs_key unique nulls not distinct (tenant, state)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);

alter table tenant.rollup enable row level security;
alter table tenant.rollup_rows enable row level security;
alter table tenant.rollup_counts enable row level security;
alter table tenant.rollup_reasons enable row level security;
alter table tenant.rollup_reason_counts enable row level security;
alter table tenant.rollup_syncs enable row level security;

-- A tenant sees its own counts; a row without a tenant equals no tenant.
-- +goose StatementBegin
do $$
declare
    part text;
begin
    foreach part in array array['rollup_counts', 'rollup_reasons', 'rollup_reason_counts', 'rollup_syncs'] loop
        execute format('drop policy if exists one_tenant on tenant.%I', part);
        execute format('create policy one_tenant on tenant.%I for select to fleet_api using (tenant = current_setting(''fleetloop.tenant'', true))', part);
    end loop;
    foreach part in array array['rollup', 'rollup_rows', 'rollup_counts', 'rollup_reasons', 'rollup_reason_counts', 'rollup_syncs'] loop
        execute format('drop policy if exists all_tenants on tenant.%I', part);
        execute format('create policy all_tenants on tenant.%I to fleet_api_all_tenants using (true)', part);
        execute format('grant select, insert, update, delete on tenant.%I to fleet_api_all_tenants', part);
    end loop;
    drop policy if exists readers on tenant.rollup;
    create policy readers on tenant.rollup for select to fleet_api using (true);
end
$$;
-- +goose StatementEnd
grant select (as_of, syncs_as_of, label_keys) on tenant.rollup to fleet_api;
grant select on tenant.rollup_counts, tenant.rollup_reasons, tenant.rollup_reason_counts, tenant.rollup_syncs to fleet_api;

-- The counter of syncs reads all of them, and row-level security would look at each.
-- It works with the rights of the owner, and is for the role that serves all tenants.
create or replace view tenant.all_cluster_syncs as
    select cluster_id, synced, sync_error, sync_attempts, due_at, claim_token, unsynced_since, paused_at from tenant.cluster_sync;
grant select on tenant.all_cluster_syncs to fleet_api_all_tenants;
