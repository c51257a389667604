-- +goose Up

-- What is added is noted statement by statement: with thousands of rows in each,
-- as loads have them, triggers row by row took longer than all the rest. A
-- statement's trigger fires for the table that the statement names, so there is one
-- on the table and on each of its partitions, and for each statement one of them
-- fires. Changes and deletions are still noted row by row: they are not made by the
-- thousand.
--
-- The strongest lock first, and in the order of those who write: to drop a trigger
-- locks the partitions before the table.
lock table tenant.resources in access exclusive mode;
drop trigger log_change on tenant.resources;
drop trigger cluster_added on tenant.clusters;
drop trigger pool_added on tenant.nodepools;

-- A row that went to another partition would arrive there by no insert that a
-- statement's trigger can see. Nothing changes the kind of a resource: its reports
-- and its children refer to it.
-- +goose StatementBegin
create or replace function tenant.number_change() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    if new.kind <> old.kind then
        raise exception 'resource % is of kind %, which does not change', old.id, old.kind using errcode = 'check_violation';
    end if;
    new.revision := nextval('tenant.resource_revision');
    return new;
end
$$;
-- +goose StatementEnd

-- +goose StatementBegin
create or replace function tenant.log_change() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    if tg_op = 'DELETE' then
        insert into tenant.resource_changes (seq, kind, id, tenant, labels_changed)
        values (nextval('tenant.resource_revision'), old.kind, old.id, old.tenant, true);
        return null;
    end if;
    if (old.id, old.tenant) = (new.id, new.tenant) then
        insert into tenant.resource_changes (seq, kind, id, tenant, labels_changed)
        values (new.revision, new.kind, new.id, new.tenant, old.labels <> new.labels);
        return null;
    end if;
    -- It leaves before it comes: whoever sees both places has it in the end.
    insert into tenant.resource_changes (seq, kind, id, tenant, labels_changed)
    values (new.revision, old.kind, old.id, old.tenant, true);
    insert into tenant.resource_changes (seq, kind, id, tenant, labels_changed)
    values (nextval('tenant.resource_revision'), new.kind, new.id, new.tenant, old.labels <> new.labels);
    return null;
end
$$;
-- +goose StatementEnd

-- +goose StatementBegin
create function tenant.log_added() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    insert into tenant.resource_changes (seq, kind, id, tenant, labels_changed)
    select a.revision, a.kind, a.id, a.tenant, false from added a;
    return null;
end
$$;
-- +goose StatementEnd

-- A cluster that was not there has no sync yet, because that refers to it. The
-- first one has a notification prepared, which will do for all.
-- +goose StatementBegin
create function tenant.clusters_added() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan as $$
declare
    one uuid;
begin
    select a.id into one from added a where a.kind = 'Cluster' limit 1;
    if not found then
        return null;
    end if;
    perform tenant.mark_unsynced(one);
    insert into tenant.cluster_sync (cluster_id) select a.id from added a where a.kind = 'Cluster' and a.id <> one;
    return null;
end
$$;
-- +goose StatementEnd

-- Once for each cluster, however many pools it was given, and in their order, so
-- that two who add pools to the same clusters never wait for each other in a circle.
-- +goose StatementBegin
create function tenant.pools_added() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    cluster uuid;
begin
    for cluster in
        select c.id from tenant.clusters c
        where c.id in (select a.owner_id from added a where a.kind = 'NodePool' and a.deleted_time is null)
        order by c.id
    loop
        perform tenant.mark_unsynced(cluster);
    end loop;
    return null;
end
$$;
-- +goose StatementEnd

create trigger log_change after update or delete on tenant.resources for each row execute function tenant.log_change();

create trigger log_added after insert on tenant.resources referencing new table as added for each statement execute function tenant.log_added();
create trigger log_added after insert on tenant.clusters referencing new table as added for each statement execute function tenant.log_added();
create trigger log_added after insert on tenant.nodepools referencing new table as added for each statement execute function tenant.log_added();
create trigger log_added after insert on tenant.manifests referencing new table as added for each statement execute function tenant.log_added();
create trigger log_added after insert on tenant.workloads referencing new table as added for each statement execute function tenant.log_added();

create trigger clusters_added after insert on tenant.resources referencing new table as added for each statement execute function tenant.clusters_added();
create trigger clusters_added after insert on tenant.clusters referencing new table as added for each statement execute function tenant.clusters_added();

create trigger pools_added after insert on tenant.resources referencing new table as added for each statement execute function tenant.pools_added();
create trigger pools_added after insert on tenant.nodepools referencing new table as added for each statement execute function tenant.pools_added();

revoke execute on function tenant.log_added(), tenant.clusters_added(), tenant.pools_added() from public;
