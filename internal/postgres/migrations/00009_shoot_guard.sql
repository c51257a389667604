-- +goose Up

-- A cluster that has a Shoot, or may have one, keeps its row. The database decides
-- it, so that it holds whatever the API is configured with, and whether or not a
-- cluster-worker runs. See docs/adr/0023-database-guard-for-shoots.md.

-- The strongest lock first, and in the order of those who write.
lock table tenant.clusters in access exclusive mode;
lock table tenant.cluster_sync in access exclusive mode;

-- Null: no cluster-worker has been registered, and deletion needs none. An
-- installation whose garden is known has had a worker.
alter table tenant.installation add column worker_since timestamptz;
update tenant.installation set worker_since = now() where garden is not null;

-- The report_version that the status of the cluster includes.
alter table tenant.cluster_sync add column status_report_version bigint not null default 0;

-- Whether a cluster-worker is registered.
-- +goose StatementBegin
create function tenant.has_cluster_worker() returns boolean
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select exists (select from tenant.installation i where i.worker_since is not null)
$$;
-- +goose StatementEnd

-- Whether a cluster-worker has confirmed that a cluster that is to go has no
-- Shoot. It is final: the deletion was sent after every earlier call, and a cluster
-- that is being deleted never comes back.
create function tenant.shoot_confirmed_gone(s tenant.cluster_sync, deleting boolean) returns boolean
language sql immutable
    return coalesce(deleting and (s).deletion_sent and (s).shoot_status = 'deleted', false);

-- Refuses to delete the row of a cluster whose Shoot is not confirmed gone. A
-- cluster without a sync row counts as one that may have a Shoot: the row was lost, or
-- was never made because triggers were off.
-- +goose StatementBegin
create function tenant.guard_shoot() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    s tenant.cluster_sync;
begin
    -- The lock first: a claim that came before it was made by a worker that is seen
    -- to be registered by the next statement.
    select * into s from tenant.cluster_sync c where c.cluster_id = old.id for update;
    if tenant.has_cluster_worker() and not tenant.shoot_confirmed_gone(s, old.deleted_time is not null) then
        raise exception 'cluster "%" (%) cannot be deleted: its Shoot is not confirmed deleted', old.name, old.id
            using errcode = 'restrict_violation', constraint = 'clusters_shoot_guard', schema = 'tenant', table = 'clusters',
                hint = 'Delete the cluster through the fleet API and let a cluster-worker run. "cluster-worker unregister" removes the guard.';
    end if;
    return old;
end
$$;
-- +goose StatementEnd

-- Refuses to empty the table while the guard holds any row of it.
-- +goose StatementBegin
create function tenant.guard_shoots() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    if tenant.has_cluster_worker() and tenant.count_guarded_clusters() > 0 then
        raise exception 'tenant.clusters cannot be truncated: % clusters have a Shoot whose deletion is not confirmed', tenant.count_guarded_clusters()
            using errcode = 'restrict_violation', constraint = 'clusters_shoot_guard', schema = 'tenant', table = 'clusters',
                hint = '"cluster-worker unregister" removes the guard.';
    end if;
    return null;
end
$$;
-- +goose StatementEnd

-- The clusters whose Shoot is not confirmed gone.
-- +goose StatementBegin
create function tenant.count_guarded_clusters() returns bigint
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select count(*) from tenant.clusters c left join tenant.cluster_sync s on s.cluster_id = c.id
    where not tenant.shoot_confirmed_gone(s, c.deleted_time is not null)
$$;
-- +goose StatementEnd

create trigger guard_shoot before delete on tenant.clusters for each row execute function tenant.guard_shoot();
create trigger guard_shoots before truncate on tenant.clusters for each statement execute function tenant.guard_shoots();

-- Records that this installation has a cluster-worker, and since when.
-- +goose StatementBegin
create function tenant.register_cluster_worker() returns timestamptz
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    since timestamptz;
begin
    select i.worker_since into since from tenant.installation i;
    if since is null then
        update tenant.installation i set worker_since = coalesce(i.worker_since, now()) returning i.worker_since into since;
    end if;
    return since;
end
$$;
-- +goose StatementEnd

-- Removes that record, unless a worker observes the Shoots or, without abandon, a
-- cluster has a Shoot that is not confirmed gone. It says which of these it was.
-- +goose StatementBegin
create function tenant.unregister_cluster_worker(abandon boolean, out removed boolean, out running text, out guarded bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    select t.holder into running from tenant.cluster_worker_leader t where t.until > now();
    guarded := tenant.count_guarded_clusters();
    removed := running is null and (abandon or guarded = 0);
    if removed then
        update tenant.installation set worker_since = null;
        -- The API looks again at what waited for the worker alone.
        update tenant.cluster_sync s set status_report_version = -1 from tenant.clusters c where c.id = s.cluster_id and c.deleted_time is not null;
    end if;
end
$$;
-- +goose StatementEnd

-- The status of a Shoot is shown with its cluster, so a change of it is one of the
-- cluster to those who follow changes. The row of the cluster is not touched: its
-- writers would wait for the worker, and the worker for them.
-- +goose StatementBegin
create function tenant.log_shoot_status() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    insert into tenant.resource_changes (seq, kind, id, tenant, labels_changed)
    select nextval('tenant.resource_revision'), 'Cluster', c.id, c.tenant, false from tenant.clusters c where c.id = new.cluster_id;
    return null;
end
$$;
-- +goose StatementEnd

create trigger log_shoot_status after update on tenant.cluster_sync
    for each row when (old.shoot_status is distinct from new.shoot_status
        or old.shoot_status_message is distinct from new.shoot_status_message
        or old.sync_error is distinct from new.sync_error)
    execute function tenant.log_shoot_status();

revoke execute on function tenant.has_cluster_worker(), tenant.shoot_confirmed_gone(tenant.cluster_sync, boolean), tenant.guard_shoot(),
    tenant.guard_shoots(), tenant.count_guarded_clusters(), tenant.register_cluster_worker(), tenant.unregister_cluster_worker(boolean),
    tenant.log_shoot_status() from public;
grant execute on function tenant.has_cluster_worker(), tenant.shoot_confirmed_gone(tenant.cluster_sync, boolean)
    to fleet_api, fleet_api_all_tenants, cluster_worker;
grant execute on function tenant.register_cluster_worker(), tenant.unregister_cluster_worker(boolean) to cluster_worker;
-- The API notes which sync the status of a cluster includes.
grant update (status_report_version) on tenant.cluster_sync to fleet_api, fleet_api_all_tenants;
