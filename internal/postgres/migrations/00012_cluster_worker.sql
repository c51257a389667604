-- +goose Up

-- Workers that get no answer from Gardener just now, and since when: why clusters wait.
-- A note that is not renewed ends by itself.
create table tenant.cluster_worker_outages (
    worker text        primary key,
    since  timestamptz not null,
    reason text        not null,
    until  timestamptz not null
);
alter table tenant.cluster_worker_outages enable row level security;
create policy workers on tenant.cluster_worker_outages to cluster_worker using (true);
create policy readers on tenant.cluster_worker_outages for select to fleet_api, fleet_api_all_tenants using (true);
grant select, insert, update, delete on tenant.cluster_worker_outages to cluster_worker;
grant select on tenant.cluster_worker_outages to fleet_api, fleet_api_all_tenants;

-- Rows whose last try timed out, which workers look for apart from the others.
create index cluster_sync_timed_out_idx on tenant.cluster_sync (due_at) where synced is null and paused_at is null and error_class = 'timeout';

-- Makes the sync rows of clusters that have none, which the triggers would have made:
-- a table that was restored without them, or loaded with triggers off. The generation
-- is higher than any that was counted before, so that Gardener takes what is sent.
-- A cluster that somebody is changing is left for the next time.
-- +goose StatementBegin
create function tenant.add_missing_cluster_syncs(most integer) returns setof uuid
language sql security definer set search_path = pg_catalog, pg_temp as $$
    with missing as materialized (
        select c.id from tenant.clusters c
        where not exists (select from tenant.cluster_sync s where s.cluster_id = c.id)
        order by c.id limit most
        for no key update skip locked
    )
    insert into tenant.cluster_sync (cluster_id, generation)
    select m.id, extract(epoch from now())::bigint from missing m
    on conflict (cluster_id) do nothing
    returning cluster_id
$$;
-- +goose StatementEnd

-- Moves the next try of a row whose attempts, or their time, somebody sets by hand, as
-- the backoff has it: 30 s * 2^attempts after the last one, 15 minutes at most. What a
-- worker is at keeps its lease, and what is due already keeps its place.
-- +goose StatementBegin
create function tenant.reschedule_cluster_sync() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    new.due_at := case
        when new.sync_attempts <= 0 then least(new.due_at, now())
        else case when isfinite(new.sync_last_attempt) then new.sync_last_attempt else now() end
            + least(interval '30 seconds' * power(2, least(new.sync_attempts, 5)), interval '15 minutes') end;
    return new;
end
$$;
-- +goose StatementEnd

-- Statements of ours set the time of the next try themselves.
create trigger reschedule_cluster_sync before update of sync_attempts, sync_last_attempt on tenant.cluster_sync
    for each row when (new.synced is null and new.due_at = old.due_at
        and (new.sync_attempts <> old.sync_attempts or new.sync_last_attempt is distinct from old.sync_last_attempt)
        and (new.claim_token is null or new.due_at <= now()))
    execute function tenant.reschedule_cluster_sync();

-- Which transaction sent the last notification. One that is rolled back takes its
-- notification with it, so nobody relies on it before it is committed.
create sequence tenant.cluster_sync_notifier as bigint minvalue 0;

-- +goose StatementBegin
create or replace function tenant.notify_cluster_sync() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    at bigint := extract(epoch from clock_timestamp()) * 1000000;
begin
    if current_setting('fleetloop.cluster_sync', true) = 'sent' then
        return null;
    end if;
    -- Mostly this is all there is to do, so it is no statement, which would be planned.
    if at - pg_sequence_last_value('tenant.cluster_sync_notified') between 0 and 49999 then
        if pg_xact_status(pg_sequence_last_value('tenant.cluster_sync_notifier')::text::xid8) = 'committed' then
            return null;
        end if;
        -- The one that was to speak for us has not committed, and may never. It stays
        -- the one to be asked, so that those that follow it wait for no other.
    else
        perform setval('tenant.cluster_sync_notifier', pg_current_xact_id()::text::bigint);
        perform setval('tenant.cluster_sync_notified', at);
    end if;
    perform set_config('fleetloop.cluster_sync', 'sent', true);
    perform pg_notify('cluster_sync', '');
    return null;
end
$$;
-- +goose StatementEnd

revoke execute on function tenant.add_missing_cluster_syncs(integer), tenant.reschedule_cluster_sync() from public;
grant execute on function tenant.add_missing_cluster_syncs(integer) to cluster_worker;
