-- +goose NO TRANSACTION
-- +goose Up

-- Each statement can be run again, because a failure leaves those before it done.

-- Which generation of the Shoot its status is about. -1: that of a Shoot that was replaced. Null: none is known, as for a
-- Shoot that was absent. It counts only if it was written together with the status, because workers of the release before
-- write the status alone.
alter table tenant.cluster_sync
    add column if not exists status_generation    bigint,
    add column if not exists status_generation_at timestamptz;
grant update (status_generation, status_generation_at) on tenant.cluster_sync to cluster_worker;

-- Whether the status of a Shoot is known to be about the Shoot before its last change. A change does not invalidate any
-- other status than these.
create or replace function tenant.shoot_status_outdated(s tenant.cluster_sync) returns boolean
language sql immutable
    return coalesce((s).shoot_status in ('ready', 'error') and (s).status_generation < (s).shoot_generation
        and (s).status_generation_at = (s).shoot_status_updated, false);
revoke execute on function tenant.shoot_status_outdated(tenant.cluster_sync) from public;
grant execute on function tenant.shoot_status_outdated(tenant.cluster_sync) to fleet_api, fleet_api_all_tenants, cluster_worker;

-- What workers look for: the next lease, without the rows that wait after failures; and due rows, without those that
-- timed out. A concurrent build that failed leaves an index that is not valid.
-- +goose StatementBegin
do $$
declare
    broken regclass;
begin
    for broken in
        select i.indexrelid::regclass from pg_index i join pg_class c on c.oid = i.indexrelid
        where not i.indisvalid and c.relkind = 'i' and c.relnamespace = 'tenant'::regnamespace
            and c.relname in ('cluster_sync_leased_idx', 'cluster_sync_due_in_time_idx')
    loop
        execute format('drop index %s', broken);
    end loop;
end
$$;
-- +goose StatementEnd
create index concurrently if not exists cluster_sync_leased_idx on tenant.cluster_sync (due_at)
    where synced is null and paused_at is null and claim_token is not null;
create index concurrently if not exists cluster_sync_due_in_time_idx on tenant.cluster_sync (due_at)
    where synced is null and paused_at is null and error_class is distinct from 'timeout';
