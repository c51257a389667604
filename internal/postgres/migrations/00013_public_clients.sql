-- +goose NO TRANSACTION
-- +goose Up

-- Each statement can be run again, because a failure leaves those before it done.

-- The value at a path of a spec as text, null if there is none. A spec may hold
-- what PostgreSQL cannot turn into text, such as the character NUL: such a spec
-- has no values here, and does not fail the query. It runs for one row after the
-- other, since a block that catches errors cannot run in parallel.
-- +goose StatementBegin
create or replace function tenant.spec_text(spec json, path text[]) returns text
language plpgsql immutable strict parallel unsafe as $$
begin
    if pg_catalog.strpos(spec::text, '\u') = 0 then
        return spec #>> path;
    end if;
    begin
        return spec #>> path;
    exception when data_exception then
        return null;
    end;
end
$$;
-- +goose StatementEnd

-- The same as a number, null if it is none.
-- +goose StatementBegin
create or replace function tenant.spec_number(spec json, path text[]) returns numeric
language plpgsql immutable strict parallel unsafe as $$
declare
    value text := tenant.spec_text(spec, path);
begin
    if value ~ '^-?[0-9]{1,18}([.][0-9]{1,18})?$' then
        return value::numeric;
    elsif value ~ '^-?[0-9]' then
        begin
            return value::numeric;
        exception when data_exception then
            return null;
        end;
    end if;
    return null;
end
$$;
-- +goose StatementEnd

revoke execute on function tenant.spec_text(json, text[]), tenant.spec_number(json, text[]) from public;
grant execute on function tenant.spec_text(json, text[]), tenant.spec_number(json, text[]) to fleet_api, fleet_api_all_tenants;

-- The schema that the specs of a kind have to meet. No row means that every
-- object is taken.
create table if not exists tenant.spec_schemas (
    kind         text        collate "C" primary key,
    schema       json        not null,
    -- Another one after every change, so that processes know what they have read.
    revision     bigint      not null default nextval('tenant.resource_revision'),
    updated_time timestamptz not null,
    updated_by   text        collate "C" not null
);
alter table tenant.spec_schemas enable row level security;
drop policy if exists everybody_reads on tenant.spec_schemas;
create policy everybody_reads on tenant.spec_schemas for select to fleet_api using (true);
drop policy if exists all_tenants on tenant.spec_schemas;
create policy all_tenants on tenant.spec_schemas to fleet_api_all_tenants using (true);
grant select on tenant.spec_schemas to fleet_api;
grant select, insert, update, delete on tenant.spec_schemas to fleet_api_all_tenants;

-- A name is free again once the deletion of the resource that has it was asked
-- for. The new indexes are there before the old constraint goes, so that names are
-- unique all along. Their own names end like those of the old one, by which
-- programs know the error.
-- +goose StatementBegin
do $$
declare
    partition text;
begin
    -- A concurrent build that failed leaves an index that is not valid.
    foreach partition in array array['clusters', 'nodepools', 'manifests', 'workloads'] loop
        if exists (select from pg_index i where i.indexrelid = to_regclass(format('tenant.%I', partition || '_live_name_kind_key')) and not i.indisvalid) then
            execute format('drop index tenant.%I', partition || '_live_name_kind_key');
        end if;
    end loop;
end
$$;
-- +goose StatementEnd
create unique index concurrently if not exists clusters_live_name_kind_key on tenant.clusters (tenant, owner_id, name, kind)
    nulls not distinct where deleted_time is null;
create unique index concurrently if not exists nodepools_live_name_kind_key on tenant.nodepools (tenant, owner_id, name, kind)
    nulls not distinct where deleted_time is null;
create unique index concurrently if not exists manifests_live_name_kind_key on tenant.manifests (tenant, owner_id, name, kind)
    nulls not distinct where deleted_time is null;
create unique index concurrently if not exists workloads_live_name_kind_key on tenant.workloads (tenant, owner_id, name, kind)
    nulls not distinct where deleted_time is null;
create unique index if not exists resources_live_name_kind_key on only tenant.resources (tenant, owner_id, name, kind)
    nulls not distinct where deleted_time is null;
alter index tenant.resources_live_name_kind_key attach partition tenant.clusters_live_name_kind_key;
alter index tenant.resources_live_name_kind_key attach partition tenant.nodepools_live_name_kind_key;
alter index tenant.resources_live_name_kind_key attach partition tenant.manifests_live_name_kind_key;
alter index tenant.resources_live_name_kind_key attach partition tenant.workloads_live_name_kind_key;
alter table tenant.resources drop constraint if exists resources_name_key;
