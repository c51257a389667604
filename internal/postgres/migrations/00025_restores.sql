-- +goose Up

-- Whoever restores a database adds a row, because the database cannot notice every way
-- itself, such as a snapshot of its files. The newest is part of the history, see below.
create table tenant.restores (
    seq bigint      generated always as identity primary key,
    id  uuid        not null default gen_random_uuid(),
    at  timestamptz not null default now()
);
alter table tenant.restores enable row level security;

create or replace function tenant.history() returns text language sql stable parallel safe
    return (select c.system_identifier::text from pg_catalog.pg_control_system() c)
        || '/' || pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 1, 8) -- the timeline
        || '/' || (select d.oid::text from pg_catalog.pg_database d where d.datname = pg_catalog.current_database())
        || '/' || pg_catalog.to_regclass('tenant.change_feed')::oid::text
        || coalesce('/' || (select r.id::text from tenant.restores r order by r.seq desc limit 1), '');

-- The history as the annotations of Shoots have it.
-- +goose StatementBegin
create function tenant.history_id() returns text
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select left(md5(tenant.history()), 16)
$$;
-- +goose StatementEnd

-- Generations mean something in one history only: after a restore, the next edit
-- gets a generation that another edit has had. In which history the row was changed
-- last, and which generation it had when that history began. A worker does not replace
-- a Shoot of another history with a higher generation.
alter table tenant.cluster_sync add column history text collate "C", add column known_generation bigint not null default 0;

-- +goose StatementBegin
create or replace function tenant.mark_unsynced(cluster uuid) returns void
language plpgsql set plan_cache_mode = force_generic_plan as $$
declare
    -- Reading it costs more than all the rest, and it is the same during a transaction.
    present text := coalesce(nullif(current_setting('fleetloop.history', true), ''), set_config('fleetloop.history', tenant.history_id(), true));
begin
    insert into tenant.cluster_sync as s (cluster_id) values (cluster)
    on conflict (cluster_id) do update set
        generation = s.generation + 1,
        known_generation = case when s.history = present then s.known_generation else s.generation end,
        history = present,
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

-- Has the Shoot of a cluster replaced with what this database has, although it has
-- changes that the database does not know. Only the owner of the schema may.
-- +goose StatementBegin
create function tenant.overwrite_shoot(cluster uuid) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    update tenant.cluster_sync s set
        generation = s.generation + 1000000,
        known_generation = s.generation + 1000000,
        history = tenant.history_id(),
        synced = null,
        sync_attempts = 0,
        unsynced_since = coalesce(s.unsynced_since, now()),
        due_at = now()
    where s.cluster_id = cluster;
    return found;
end
$$;
-- +goose StatementEnd

revoke execute on function tenant.history_id(), tenant.overwrite_shoot(uuid) from public;
grant execute on function tenant.history_id() to cluster_worker;
