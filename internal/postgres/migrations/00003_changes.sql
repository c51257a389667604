-- +goose Up

-- The log of changes of tenant.resources, which clients follow. It is a table
-- of its own and not an index on the revision of a resource, so that reports
-- stay updates in place. See docs/adr/0006-change-feed.md.
--
-- The order is (xact, seq). What stands behind a transaction that is still
-- running may yet be joined by changes that stand before it, so a reader stops at
-- pg_snapshot_xmin(pg_current_snapshot()).
create table tenant.resource_changes (
    xact       xid8        not null default pg_current_xact_id(),
    -- The revision that the change gave the row. A deletion takes a number of its
    -- own, and so does the arrival of a row that moved.
    seq        bigint      not null check (seq > 0),
    changed_at timestamptz not null default clock_timestamp(),
    kind       text        collate "C" not null,
    id         uuid        not null,
    tenant     text        collate "C" not null,
    -- The labels were others before, or there are none any more.
    labels_changed boolean     not null,

    constraint resource_changes_pkey primary key (xact, seq)
) with (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);

create index resource_changes_kind_idx on tenant.resource_changes (kind, xact, seq);

-- Where the log of a kind begins: behind the last change that was pruned.
create table tenant.pruned_changes (
    kind text   collate "C" primary key,
    xact xid8   not null,
    seq  bigint not null
);

-- Numbers of transactions mean something in one history of one database alone.
-- A server that was restored, upgraded or promoted counts them anew; and a dump that
-- is put back into its own database brings other tables with the text of the old.
create function tenant.history() returns text language sql stable parallel safe
    return (select c.system_identifier::text from pg_catalog.pg_control_system() c)
        || '/' || pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 1, 8) -- the timeline
        || '/' || (select d.oid::text from pg_catalog.pg_database d where d.datname = pg_catalog.current_database())
        || '/' || pg_catalog.to_regclass('tenant.change_feed')::oid::text;

-- One row. A cursor of another epoch is worth nothing.
create table tenant.change_feed (
    only_row boolean primary key default true check (only_row),
    epoch    uuid    not null,
    history  text    not null
);
insert into tenant.change_feed (epoch, history) values (gen_random_uuid(), tenant.history());

-- Every update takes a new revision, whoever makes it and whatever it says.
-- +goose StatementBegin
create function tenant.number_change() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    new.revision := nextval('tenant.resource_revision');
    return new;
end
$$;
-- +goose StatementEnd

-- Nobody but this function, which works with the rights of the schema's owner,
-- writes the log.
-- +goose StatementBegin
create function tenant.log_change() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    if tg_op = 'INSERT' then
        insert into tenant.resource_changes (seq, kind, id, tenant, labels_changed)
        values (new.revision, new.kind, new.id, new.tenant, false);
        return null;
    end if;
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

-- Row by row, because others write to the partitions by their own names, which a
-- statement's trigger would not notice.
create trigger number_change before update on tenant.resources for each row execute function tenant.number_change();
create trigger log_change after insert or update or delete on tenant.resources for each row execute function tenant.log_change();

-- Forgets the oldest changes, but no more than so many, and returns how many.
-- Only a beginning of the log is ever forgotten, and nothing that is not settled.
-- +goose StatementBegin
create function tenant.prune_changes(retention interval, most integer) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    pruned integer;
begin
    perform from tenant.change_feed for update skip locked;
    if not found then
        return 0; -- another process is at it
    end if;
    with oldest as (
        select c.xact, c.seq, c.changed_at
        from tenant.resource_changes c
        where c.xact < pg_snapshot_xmin(pg_current_snapshot())
        order by c.xact, c.seq
        limit most
    ), beginning as (
        select o.xact, o.seq, bool_and(o.changed_at < clock_timestamp() - retention) over (order by o.xact, o.seq) as old
        from oldest o
    ), gone as (
        delete from tenant.resource_changes c using beginning b
        where c.xact = b.xact and c.seq = b.seq and b.old
        returning c.kind, c.xact, c.seq
    ), noted as (
        insert into tenant.pruned_changes as p (kind, xact, seq)
        select distinct on (g.kind) g.kind, g.xact, g.seq from gone g order by g.kind, g.xact desc, g.seq desc
        on conflict (kind) do update set xact = excluded.xact, seq = excluded.seq
    )
    select count(*) into pruned from gone;
    return pruned;
end
$$;
-- +goose StatementEnd

-- Begins a new epoch if the database has another history than the feed. The
-- log of the other history goes first, no more than so many changes at a time;
-- the answer is whether that is done. (Emptying the table at once would wait for all writers,
-- and have all readers wait.)
-- +goose StatementBegin
create function tenant.renew_change_feed(most integer) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    gone integer;
begin
    perform from tenant.change_feed for update;
    if (select f.history = tenant.history() from tenant.change_feed f) then
        return true;
    end if;
    delete from tenant.resource_changes c
    using (select r.xact, r.seq from tenant.resource_changes r limit most) old
    where c.xact = old.xact and c.seq = old.seq;
    get diagnostics gone = row_count;
    if gone = most then
        return false;
    end if;
    delete from tenant.pruned_changes;
    -- Clients may have revisions that the other history gave since it parted from
    -- this one. Here they would come to stand for something else.
    perform setval('tenant.resource_revision', nextval('tenant.resource_revision') + (1::bigint << 40));
    update tenant.change_feed set epoch = gen_random_uuid(), history = tenant.history();
    return true;
end
$$;
-- +goose StatementEnd

-- The two below are functions because their plans are then kept, which with
-- other statements would be wrong: making them takes several times as long as running
-- them, and they run with every page and every poll. Being stable, they see
-- what the statement sees that calls them.

-- The newest visible change of a kind, for whichever tenant, and the
-- transactions before it that are still running. It is found at once, however
-- long a tenant has been quiet, and tells nothing else.
-- +goose StatementBegin
create function tenant.feed_state(of_kind text, out epoch uuid, out current boolean, out xact xid8, out seq bigint, out pending xid8[])
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan as $$
begin
    select f.epoch, f.history = tenant.history() into epoch, current from tenant.change_feed f;
    select c.xact, c.seq into xact, seq
    from tenant.resource_changes c where c.kind = of_kind order by c.kind desc, c.xact desc, c.seq desc limit 1;
    if not found then
        select p.xact, p.seq into xact, seq from tenant.pruned_changes p where p.kind = of_kind;
    end if;
    xact := coalesce(xact, '0');
    seq := coalesce(seq, 0);
    pending := array(select r.running from pg_snapshot_xip(pg_current_snapshot()) as r (running) where r.running < xact order by r.running);
end
$$;
-- +goose StatementEnd

-- How far back the changes of a kind, or of all kinds (''), are kept, how far
-- they are settled and which was the last of those, which transactions there can
-- have been at all, and whether any settled change, whoever's it is, stands behind
-- a position.
-- +goose StatementBegin
create function tenant.feed_bounds(of_kind text, after_xact xid8, after_seq bigint,
    out epoch uuid, out current boolean, out pruned_xact xid8, out pruned_seq bigint,
    out settled xid8, out last_xact xid8, out last_seq bigint, out known xid8, out more boolean)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan as $$
begin
    select f.epoch, f.history = tenant.history() into epoch, current from tenant.change_feed f;
    select p.xact, p.seq into pruned_xact, pruned_seq
    from tenant.pruned_changes p where of_kind = '' or p.kind = of_kind order by p.xact desc, p.seq desc limit 1;
    pruned_xact := coalesce(pruned_xact, '0');
    pruned_seq := coalesce(pruned_seq, 0);
    settled := pg_snapshot_xmin(pg_current_snapshot());
    known := pg_snapshot_xmax(pg_current_snapshot());
    select c.xact, c.seq into last_xact, last_seq
    from tenant.resource_changes c where c.xact < settled order by c.xact desc, c.seq desc limit 1;
    if not found then
        select p.xact, p.seq into last_xact, last_seq from tenant.pruned_changes p order by p.xact desc, p.seq desc limit 1;
    end if;
    last_xact := coalesce(last_xact, '0');
    last_seq := coalesce(last_seq, 0);
    if of_kind = '' then
        perform from tenant.resource_changes c
        where (c.xact, c.seq) > (after_xact, after_seq) and c.xact < settled order by c.xact, c.seq limit 1;
    else
        perform from tenant.resource_changes c
        where c.kind = of_kind and (c.xact, c.seq) > (after_xact, after_seq) and c.xact < settled order by c.kind, c.xact, c.seq limit 1;
    end if;
    more := found;
end
$$;
-- +goose StatementEnd

revoke execute on function tenant.number_change(), tenant.log_change(), tenant.prune_changes(interval, integer), tenant.renew_change_feed(integer),
    tenant.feed_state(text), tenant.feed_bounds(text, xid8, bigint) from public;
grant execute on function tenant.prune_changes(interval, integer), tenant.renew_change_feed(integer),
    tenant.feed_state(text), tenant.feed_bounds(text, xid8, bigint) to fleet_api, fleet_api_all_tenants;

alter table tenant.resource_changes enable row level security;
alter table tenant.pruned_changes enable row level security;
alter table tenant.change_feed enable row level security;
create policy one_tenant on tenant.resource_changes for select to fleet_api
    using (tenant = current_setting('fleetloop.tenant', true));
create policy all_tenants on tenant.resource_changes for select to fleet_api_all_tenants using (true);
grant select on tenant.resource_changes to fleet_api, fleet_api_all_tenants;
