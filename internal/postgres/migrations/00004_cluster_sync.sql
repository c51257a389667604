-- +goose Up

-- The role of the workers that bring clusters to Gardener. Roles belong to the
-- whole server: another database of ours may have made it already.
-- +goose StatementBegin
do $$
begin
    if not exists (select from pg_roles where rolname = 'cluster_worker') then
        begin
            create role cluster_worker nologin noinherit;
        exception when duplicate_object or unique_violation then
            null;
        end;
    end if;
    if not pg_has_role(current_user, 'cluster_worker', 'member') then
        grant cluster_worker to current_user;
    end if;
end
$$;
-- +goose StatementEnd

-- The strongest lock first: whoever asks for more of a table than he has may
-- meet another who does the same.
create policy every_cluster on tenant.clusters for select to cluster_worker using (true);
create policy every_pool on tenant.nodepools for select to cluster_worker using (true);
grant select on tenant.clusters, tenant.nodepools, fleetloop_migrations to cluster_worker;
grant usage on schema tenant to cluster_worker;

-- How far the sync of each cluster is. It is a table of its own because others
-- write it than the clusters, and far more often.
create table tenant.cluster_sync (
    cluster_id           uuid        not null,
    synced               timestamptz,                        -- null: there is something to do
    sync_error           text,
    sync_attempts        integer     not null default 0,
    sync_last_attempt    timestamptz,
    shoot_status         text        collate "C",
    shoot_status_message text,
    shoot_status_updated timestamptz,

    error_class          text        collate "C",
    -- It rises with every change of the cluster or its node pools. What was sent to
    -- Gardener is what it was at the generation that was claimed.
    generation           bigint      not null default 1,
    synced_generation    bigint      not null default 0,
    cluster_generation   bigint      not null default 0,     -- the cluster's own, when it was last tried
    -- Not before: the end of a wait after a failure, or of a worker's lease.
    due_at               timestamptz not null default now(),
    claim_token          bigint,                             -- null: no worker is at it
    claimed_by           text,
    unsynced_since       timestamptz default now(),
    paused_at            timestamptz,

    shoot_name           text        collate "C",
    shoot_uid            text        collate "C",
    shoot_generation     bigint      not null default 0,
    ready_once           boolean     not null default false,
    deletion_sent        boolean     not null default false,

    report_due_at        timestamptz,                        -- null: there is nothing to report yet
    report_version       bigint      not null default 0,

    constraint cluster_sync_pkey primary key (cluster_id),
    constraint cluster_sync_cluster_fkey foreign key (cluster_id) references tenant.clusters (id) on delete cascade,
    constraint cluster_sync_shoot_status_check
        check (shoot_status in ('pending', 'progressing', 'ready', 'error', 'deleting', 'deleted'))
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);

-- What workers look for, and what users look at. However many rows are synced,
-- these hold only the others. They are few, because every claim writes all.
create index cluster_sync_due_idx on tenant.cluster_sync (due_at) where synced is null and paused_at is null;
create index cluster_sync_unsynced_idx on tenant.cluster_sync (unsynced_since, cluster_id) where synced is null;
create index cluster_sync_paused_idx on tenant.cluster_sync (cluster_id) where paused_at is not null;
create unique index cluster_sync_shoot_name_idx on tenant.cluster_sync (shoot_name) where shoot_name is not null;
create index cluster_sync_report_idx on tenant.cluster_sync (report_due_at) where report_due_at is not null;

-- Whoever claims a row gets a higher number than all before, so that one who
-- comes back too late is known.
create sequence tenant.cluster_sync_token as bigint;

-- Who observes the Shoots, for all workers. One row.
create table tenant.cluster_worker_leader (
    only_row boolean     primary key default true check (only_row),
    fence    bigint      not null,
    holder   text        not null,
    until    timestamptz not null
);

-- Which database this is, as the labels of its Shoots say it.
create table tenant.installation (
    only_row boolean primary key default true check (only_row),
    id       uuid    not null default gen_random_uuid(),
    -- Where its Shoots are, as the first worker found it. Whoever is pointed
    -- elsewhere by mistake would take them all for gone.
    garden   text    collate "C"
);
insert into tenant.installation default values;

-- Notes that there is something to do for a cluster. A new thing to try begins
-- without a history of failures; what went wrong last is shown until there is
-- something newer to show. While a worker is at it the row stays the worker's; and
-- one that waits keeps its place, however often it is changed meanwhile.
--
-- Whoever changes clusters may have every statement planned each time it is run.
-- For these that takes longer than to run them, and there is one plan only.
-- +goose StatementBegin
create function tenant.mark_unsynced(cluster uuid) returns void
language plpgsql set plan_cache_mode = force_generic_plan as $$
begin
    insert into tenant.cluster_sync as s (cluster_id) values (cluster)
    on conflict (cluster_id) do update set
        generation = s.generation + 1,
        synced = null,
        sync_attempts = 0,
        unsynced_since = coalesce(s.unsynced_since, now()),
        due_at = case
            when s.synced is not null then now()
            when s.claim_token is not null and s.due_at > now() then s.due_at
            else least(s.due_at, now()) end;
    -- One notification will do for the whole transaction; see below.
    if coalesce(current_setting('fleetloop.cluster_sync', true), '') = '' then
        perform set_config('fleetloop.cluster_sync', 'noted', true);
    end if;
end
$$;
-- +goose StatementEnd

-- +goose StatementBegin
create function tenant.cluster_changed() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan as $$
begin
    perform tenant.mark_unsynced(new.id);
    return null;
end
$$;
-- +goose StatementEnd

-- +goose StatementBegin
create function tenant.pool_changed() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform tenant.mark_unsynced(c.id) from tenant.clusters c where c.id in (old.owner_id, new.owner_id);
    return null;
end
$$;
-- +goose StatementEnd

-- Row by row, because the statements name the table above these. A report on a
-- cluster's status changes nothing of what it should be.
create trigger cluster_added after insert on tenant.clusters
    for each row execute function tenant.cluster_changed();
create trigger cluster_changed after update on tenant.clusters
    for each row when (old.generation <> new.generation or old.deleted_time is distinct from new.deleted_time
        or old.name <> new.name or old.spec::text <> new.spec::text)
    execute function tenant.cluster_changed();

-- A pool that is being deleted is no part of its cluster any more.
create trigger pool_added after insert on tenant.nodepools
    for each row when (new.deleted_time is null) execute function tenant.pool_changed();
create trigger pool_changed after update on tenant.nodepools
    for each row when ((old.deleted_time is null or new.deleted_time is null)
        and (old.generation <> new.generation or old.deleted_time is distinct from new.deleted_time
            or old.owner_id is distinct from new.owner_id or old.name <> new.name or old.spec::text <> new.spec::text))
    execute function tenant.pool_changed();
create trigger pool_removed after delete on tenant.nodepools
    for each row when (old.deleted_time is null) execute function tenant.pool_changed();

-- When the last notification was sent, in microseconds. A transaction that sends one
-- holds up the commits of all others that do, so there are at most so many in a
-- second; a sequence tells them of each other without a lock. A worker that was
-- notified looks again for a while, and so finds what was not told of.
create sequence tenant.cluster_sync_notified as bigint minvalue 0;

-- +goose StatementBegin
create function tenant.notify_cluster_sync() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    at bigint := extract(epoch from clock_timestamp()) * 1000000;
begin
    -- Mostly this is all there is to do, so it is no statement, which would be planned.
    if at - pg_sequence_last_value('tenant.cluster_sync_notified') between 0 and 49999
        or current_setting('fleetloop.cluster_sync', true) = 'sent' then
        return null;
    end if;
    perform set_config('fleetloop.cluster_sync', 'sent', true);
    perform setval('tenant.cluster_sync_notified', at);
    perform pg_notify('cluster_sync', '');
    return null;
end
$$;
-- +goose StatementEnd

-- At the end of the transaction, so that its time is that of the commit; and for
-- statements that name the generation, which a worker's do not.
create constraint trigger notify after insert or update of generation on tenant.cluster_sync
    deferrable initially deferred
    for each row when (coalesce(current_setting('fleetloop.cluster_sync', true), '') = '')
    execute function tenant.notify_cluster_sync();

-- What users may do to the sync of a cluster that they see. Each says whether
-- there is one. They work with the rights of the caller.

-- Tries at once what waits after failures. What a worker is at is left to it.
-- +goose StatementBegin
create function tenant.retry_cluster_sync(cluster uuid) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    update tenant.cluster_sync s set
        generation = s.generation,
        due_at = case when s.claim_token is not null and s.due_at > now() then s.due_at else now() end,
        sync_attempts = case when s.claim_token is not null and s.due_at > now() then s.sync_attempts else 0 end
    where s.cluster_id = cluster;
    return found;
end
$$;
-- +goose StatementEnd

-- Has workers leave a cluster alone. A call that runs already is finished.
-- +goose StatementBegin
create function tenant.pause_cluster_sync(cluster uuid) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    update tenant.cluster_sync s set paused_at = coalesce(s.paused_at, now()) where s.cluster_id = cluster;
    return found;
end
$$;
-- +goose StatementEnd

-- +goose StatementBegin
create function tenant.resume_cluster_sync(cluster uuid) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    update tenant.cluster_sync s set generation = s.generation, paused_at = null where s.cluster_id = cluster;
    return found;
end
$$;
-- +goose StatementEnd

-- For how long the oldest transaction has been open, of those that the schema's
-- owner may see: until it ends, no dead row of any table goes.
-- +goose StatementBegin
create function tenant.oldest_transaction() returns interval
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select coalesce(max(clock_timestamp() - a.xact_start), '0') from pg_stat_activity a
    where a.datname = current_database() and a.backend_type = 'client backend' and a.pid <> pg_backend_pid()
$$;
-- +goose StatementEnd

revoke execute on function tenant.mark_unsynced(uuid), tenant.cluster_changed(), tenant.pool_changed(), tenant.notify_cluster_sync(),
    tenant.retry_cluster_sync(uuid), tenant.pause_cluster_sync(uuid), tenant.resume_cluster_sync(uuid), tenant.oldest_transaction() from public;
grant execute on function tenant.retry_cluster_sync(uuid), tenant.pause_cluster_sync(uuid), tenant.resume_cluster_sync(uuid)
    to fleet_api, fleet_api_all_tenants;
grant execute on function tenant.oldest_transaction() to cluster_worker;

-- Tenants see the sync of the clusters that they see.
alter table tenant.cluster_sync enable row level security;
alter table tenant.cluster_worker_leader enable row level security;
alter table tenant.installation enable row level security;
create policy visible_clusters on tenant.cluster_sync to fleet_api
    using (exists (select from tenant.resources r where r.id = cluster_id and r.kind = 'Cluster'));
create policy all_tenants on tenant.cluster_sync to fleet_api_all_tenants using (true);
create policy every_cluster on tenant.cluster_sync to cluster_worker using (true);
create policy observer on tenant.cluster_worker_leader to cluster_worker using (true);
create policy observer on tenant.installation to cluster_worker using (true);

grant select on tenant.cluster_sync to fleet_api, fleet_api_all_tenants;
grant update (generation, due_at, sync_attempts, paused_at) on tenant.cluster_sync to fleet_api, fleet_api_all_tenants;
grant select on tenant.cluster_sync to cluster_worker;
grant update (synced, sync_error, sync_attempts, sync_last_attempt, shoot_status, shoot_status_message, shoot_status_updated, error_class,
    generation, synced_generation, cluster_generation, due_at, claim_token, claimed_by, unsynced_since, shoot_name, shoot_uid, shoot_generation,
    ready_once, deletion_sent, report_due_at, report_version) on tenant.cluster_sync to cluster_worker;
grant select, insert, update on tenant.cluster_worker_leader to cluster_worker;
grant select, update (garden) on tenant.installation to cluster_worker;
grant usage on sequence tenant.cluster_sync_token to cluster_worker;
