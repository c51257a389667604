-- +goose NO TRANSACTION
-- +goose Up

-- Each statement can be run again, because a failure leaves those before it done.

-- What filters and counts need of each event, so that they do not read its payload.
alter table timeline.change_event
    add column if not exists failed  boolean not null default false,
    add column if not exists dry_run boolean not null default false;
update timeline.change_event set failed = payload->>'outcome' = 'failed', dry_run = payload->>'dryRun' = 'true'
where payload->>'outcome' = 'failed' or payload->>'dryRun' = 'true';

-- Who paused a sync, why, and until when. Null: until somebody resumes it.
alter table tenant.cluster_sync
    add column if not exists paused_until timestamptz,
    add column if not exists paused_by    text,
    add column if not exists pause_reason text;
grant update (paused_until, paused_by, pause_reason) on tenant.cluster_sync to fleet_api, fleet_api_all_tenants;

-- What the counter of syncs reads, now with the end of a pause.
create or replace view tenant.all_cluster_syncs as
    select cluster_id, synced, sync_error, sync_attempts, due_at, claim_token, unsynced_since, paused_at, paused_until from tenant.cluster_sync;

-- The pauses that end by themselves. A concurrent build that failed leaves an index
-- that is not valid.
-- +goose StatementBegin
do $$
begin
    if exists (select from pg_index i where i.indexrelid = to_regclass('tenant.cluster_sync_pause_end_idx') and not i.indisvalid) then
        drop index tenant.cluster_sync_pause_end_idx;
    end if;
end
$$;
-- +goose StatementEnd
create index concurrently if not exists cluster_sync_pause_end_idx on tenant.cluster_sync (paused_until)
    where paused_at is not null and paused_until is not null;
