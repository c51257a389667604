-- +goose Up

-- Which generation was claimed last in which history of the database since the last recorded success: {"history": 7}. A
-- Shoot that a history wrote, with a generation above that one and above the last success, has changes that this database
-- does not know. The history * stands for all. Null: no claim. The columns history and known_generation are only for
-- workers of the release before, which lose track at the second failover after an edit.
alter table tenant.cluster_sync add column sent jsonb;
grant update (sent) on tenant.cluster_sync to cluster_worker;

-- +goose StatementBegin
create or replace function tenant.overwrite_shoot(cluster uuid) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    update tenant.cluster_sync s set
        generation = s.generation + 1000000,
        known_generation = s.generation + 1000000,
        history = tenant.history_id(),
        sent = jsonb_build_object('*', s.generation + 1000000),
        synced = null,
        sync_attempts = 0,
        unsynced_since = coalesce(s.unsynced_since, now()),
        due_at = now()
    where s.cluster_id = cluster;
    return found;
end
$$;
-- +goose StatementEnd
