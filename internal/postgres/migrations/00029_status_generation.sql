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
