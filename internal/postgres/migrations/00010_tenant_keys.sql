-- +goose NO TRANSACTION
-- +goose Up

-- A resource has the tenant of its owner, and a report the tenant of its resource.
-- Foreign keys look past row-level security, so they have to name the tenant: a role
-- that is bound to one tenant could refer to the rows of another.

-- Rows that break the rule would stop the migration half way. It says which they are.
-- +goose StatementBegin
do $$
declare
    wrong text;
begin
    select string_agg(format('%s %s of tenant %s', r.kind, r.id, r.tenant), ', ') into wrong from (
        select r.kind, r.id, r.tenant
        from tenant.resources r join tenant.resources o on o.id = r.owner_id and o.kind = r.owner_kind
        where o.tenant <> r.tenant limit 10) r;
    if wrong is not null then
        raise exception 'these resources belong to an owner of another tenant: %', wrong
            using errcode = 'check_violation', hint = 'Remove each of them, or give it the tenant of its owner; then migrate again.';
    end if;
    select string_agg(format('of adapter %s on %s %s', p.adapter, p.kind, p.resource_id), ', ') into wrong from (
        select p.adapter, p.kind, p.resource_id
        from tenant.adapter_reports p join tenant.resources r on r.id = p.resource_id and r.kind = p.kind
        where r.tenant <> p.tenant limit 10) p;
    if wrong is not null then
        raise exception 'these reports have another tenant than their resource: %', wrong
            using errcode = 'check_violation', hint = 'Remove them; their adapters report again. Then migrate again.';
    end if;
end
$$;
-- +goose StatementEnd

-- An index that could not be finished is left invalid, and is made anew.
-- +goose StatementBegin
do $$
declare
    broken regclass;
begin
    for broken in
        select i.indexrelid::regclass from pg_index i join pg_class c on c.oid = i.indexrelid
        where not i.indisvalid and c.relkind = 'i' and c.relnamespace = 'tenant'::regnamespace
            and c.relname in ('clusters_tenant_id_key', 'nodepools_tenant_id_key', 'manifests_tenant_id_key', 'workloads_tenant_id_key',
                'cluster_sync_unsettled_idx')
    loop
        execute format('drop index %s', broken);
    end loop;
end
$$;
-- +goose StatementEnd

create unique index concurrently if not exists clusters_tenant_id_key on tenant.clusters (tenant, id, kind);
create unique index concurrently if not exists nodepools_tenant_id_key on tenant.nodepools (tenant, id, kind);
create unique index concurrently if not exists manifests_tenant_id_key on tenant.manifests (tenant, id, kind);
create unique index concurrently if not exists workloads_tenant_id_key on tenant.workloads (tenant, id, kind);

-- The clusters whose status does not include their sync yet.
create index concurrently if not exists cluster_sync_unsettled_idx on tenant.cluster_sync (cluster_id) where status_report_version <> report_version;

-- The whole of the table has the index when each partition has it. It serves what
-- the index on (tenant, id) served.
-- +goose StatementBegin
do $$
declare
    part text;
begin
    lock table tenant.resources in access exclusive mode;
    create unique index if not exists resources_tenant_id_key on only tenant.resources (tenant, id, kind);
    foreach part in array array['clusters', 'nodepools', 'manifests', 'workloads'] loop
        execute format('alter index tenant.resources_tenant_id_key attach partition tenant.%I', part || '_tenant_id_key');
    end loop;
    drop index if exists tenant.resources_tenant_id_idx;
end
$$;
-- +goose StatementEnd

-- One foreign key for each partition, because that of a partitioned table cannot be
-- validated later. Each holds for new rows at once. The locks are taken in the order
-- of those who write.
-- +goose StatementBegin
do $$
declare
    part text;
begin
    lock table tenant.resources in share row exclusive mode;
    foreach part in array array['clusters', 'nodepools', 'manifests', 'workloads'] loop
        if not exists (select from pg_constraint c where c.conrelid = format('tenant.%I', part)::regclass and c.conname = part || '_owner_tenant_fkey') then
            execute format('alter table tenant.%I add constraint %I foreign key (tenant, owner_id, owner_kind) references tenant.resources (tenant, id, kind) not valid',
                part, part || '_owner_tenant_fkey');
        end if;
    end loop;
    if not exists (select from pg_constraint c where c.conrelid = 'tenant.adapter_reports'::regclass and c.conname = 'adapter_reports_tenant_fkey') then
        alter table tenant.adapter_reports add constraint adapter_reports_tenant_fkey foreign key (tenant, resource_id, kind)
            references tenant.resources (tenant, id, kind) on delete cascade not valid;
    end if;
end
$$;
-- +goose StatementEnd

alter table tenant.clusters validate constraint clusters_owner_tenant_fkey;
alter table tenant.nodepools validate constraint nodepools_owner_tenant_fkey;
alter table tenant.manifests validate constraint manifests_owner_tenant_fkey;
alter table tenant.workloads validate constraint workloads_owner_tenant_fkey;
alter table tenant.adapter_reports validate constraint adapter_reports_tenant_fkey;

-- Those above say all that these said.
-- +goose StatementBegin
do $$
begin
    lock table tenant.resources in access exclusive mode;
    alter table tenant.resources drop constraint if exists resources_owner_fkey;
    alter table tenant.adapter_reports drop constraint if exists adapter_reports_resource_fkey;
end
$$;
-- +goose StatementEnd

-- What removes the history of all tenants is for the role that serves all tenants.
revoke execute on function tenant.prune_changes(interval, integer), timeline.maintain_partitions(interval), timeline.delete_expired_keys(interval, integer) from fleet_api;
revoke execute on function tenant.history() from public;
