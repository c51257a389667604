-- +goose Up
create schema tenant;

-- Roles belong to the whole server: another database of ours may have made
-- them already, or be about to.
-- +goose StatementBegin
do $$
declare
    r text;
begin
    foreach r in array array['fleet_api', 'fleet_api_all_tenants'] loop
        if not exists (select from pg_roles where rolname = r) then
            begin
                execute format('create role %I nologin noinherit', r);
            exception when duplicate_object or unique_violation then
                null;
            end;
        end if;
        if not pg_has_role(current_user, r, 'member') then
            execute format('grant %I to current_user', r);
        end if;
    end loop;
end
$$;
-- +goose StatementEnd

-- Every change of a row takes a number here, so that a feed of changes has an
-- order to follow.
create sequence tenant.resource_revision as bigint;

-- One table for all kinds, one partition for each, so that the statements are
-- the same and tenant.clusters is a table that others can refer to.
create table tenant.resources (
    id                   uuid        not null,
    kind                 text        collate "C" not null,
    tenant               text        collate "C" not null check (tenant <> ''),
    name                 text        collate "C" not null,
    display_name         text        collate "C" not null default '',
    owner_id             uuid,
    owner_kind           text        collate "C",
    labels               jsonb       not null default '{}' check (jsonb_typeof(labels) = 'object'),
    -- json, not jsonb: kept as it was sent, also what jsonb cannot hold.
    spec                 json        not null,
    generation           bigint      not null check (generation >= 1),
    revision             bigint      not null default nextval('tenant.resource_revision'),
    created_time         timestamptz not null,
    updated_time         timestamptz not null,
    deleted_time         timestamptz,
    created_by           text        collate "C" not null default '',
    updated_by           text        collate "C" not null default '',
    deleted_by           text        collate "C" not null default '',
    phase                text        collate "C" not null,
    observed_generation  bigint      not null default 0,
    last_updated_time    timestamptz not null,
    last_transition_time timestamptz not null,
    conditions           jsonb       not null default '[]' check (jsonb_typeof(conditions) = 'array'),

    constraint resources_pkey primary key (id, kind),
    -- A name is taken until its row is gone, not only until deletion is asked for.
    constraint resources_name_key unique nulls not distinct (tenant, owner_id, name, kind),
    constraint resources_owner_fkey foreign key (owner_id, owner_kind) references tenant.resources (id, kind),
    constraint resources_owner_check check ((owner_id is null) = (owner_kind is null))
) partition by list (kind);

-- Reports change only columns that no index covers; with room in the page they
-- are updates in place.
create table tenant.clusters partition of tenant.resources for values in ('Cluster')
    with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
create table tenant.nodepools partition of tenant.resources for values in ('NodePool')
    with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
create table tenant.manifests partition of tenant.resources for values in ('Manifest')
    with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
create table tenant.workloads partition of tenant.resources for values in ('Workload')
    with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);

-- What a foreign key of another table refers to.
alter table tenant.clusters add constraint clusters_id_key unique (id);

-- The two orders of a list, for one tenant and for all; by id alone there is
-- the primary key.
create index resources_created_idx on tenant.resources (created_time, id);
create index resources_tenant_id_idx on tenant.resources (tenant, id);
create index resources_tenant_created_idx on tenant.resources (tenant, created_time, id);
create index resources_owner_idx on tenant.resources (owner_id, id) where owner_id is not null;
create index resources_labels_idx on tenant.resources using gin (labels jsonb_path_ops);

-- The last report of each adapter on each resource.
create table tenant.adapter_reports (
    resource_id         uuid        not null,
    kind                text        collate "C" not null,
    tenant              text        collate "C" not null,
    adapter             text        collate "C" not null,
    observed_generation bigint      not null,
    conditions          json        not null,
    data                json,
    metadata            json,
    created_time        timestamptz not null,
    last_report_time    timestamptz not null,

    constraint adapter_reports_pkey primary key (resource_id, adapter),
    constraint adapter_reports_resource_fkey foreign key (resource_id, kind)
        references tenant.resources (id, kind) on delete cascade
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);

-- Row-level security. Without a policy for the role that asks there are no
-- rows, so whoever reads a partition by its own name needs a policy on it.
alter table tenant.resources enable row level security;
alter table tenant.clusters enable row level security;
alter table tenant.nodepools enable row level security;
alter table tenant.manifests enable row level security;
alter table tenant.workloads enable row level security;
alter table tenant.adapter_reports enable row level security;

create policy one_tenant on tenant.resources to fleet_api
    using (tenant = current_setting('fleetloop.tenant', true));
create policy one_tenant on tenant.adapter_reports to fleet_api
    using (tenant = current_setting('fleetloop.tenant', true));
create policy all_tenants on tenant.resources to fleet_api_all_tenants using (true);
create policy all_tenants on tenant.adapter_reports to fleet_api_all_tenants using (true);

-- Under row-level security, be it a policy that lets everything through, the
-- planner may not look at the statistics of labels, takes every value to be as
-- frequent as every other, and reads the whole table for a rare one. A view works with
-- the rights of its owner, whom the policies do not bind.
create view tenant.all_resources as select * from tenant.resources;
grant select on tenant.all_resources to fleet_api_all_tenants;

grant usage on schema tenant to fleet_api, fleet_api_all_tenants;
grant usage on sequence tenant.resource_revision to fleet_api, fleet_api_all_tenants;
grant select, insert, update, delete on tenant.resources, tenant.adapter_reports to fleet_api, fleet_api_all_tenants;
