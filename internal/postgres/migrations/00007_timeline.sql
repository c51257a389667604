-- +goose Up
create schema timeline;

-- Change events in the order in which they came.
create sequence timeline.arrival as bigint;

-- What was done to nodes and clusters. See docs/explanation/timeline.md.
--
-- There are two orders. People read by the time at which something was done; the
-- partitions are of that, so that what is old goes at once. Who follows reads in
-- the order (feed, xact, seq) in which events came, up to the oldest transaction that
-- is still running, as with tenant.resource_changes: an event that was told late
-- is new to him.
create table timeline.change_event (
    at          timestamptz not null,
    seq         bigint      not null default nextval('timeline.arrival'),
    feed        integer     not null,
    xact        xid8        not null default pg_current_xact_id(),
    recorded_at timestamptz not null default clock_timestamp(),
    -- Null is nobody's: of the installation itself, for those who see all tenants.
    tenant      text        collate "C" check (tenant <> ''),
    recorded_by text        collate "C" not null,
    cluster     text        collate "C" not null,
    node        text        collate "C" not null,
    source      text        collate "C" not null,
    -- The person if the event names one, else the source.
    actor       text        collate "C" not null,
    action      text        collate "C" not null,
    subject     text        collate "C" not null,
    session     text        collate "C" not null,
    -- json, not jsonb: kept as it is answered.
    payload     json        not null,

    constraint change_event_pkey primary key (at, seq)
) partition by range (at);

create index change_event_arrival_idx on timeline.change_event (feed, xact, seq);
create index change_event_tenant_idx on timeline.change_event (tenant, at, seq);
create index change_event_cluster_idx on timeline.change_event (cluster, at, seq);
create index change_event_actor_idx on timeline.change_event (actor, at, seq);
create index change_event_node_idx on timeline.change_event (node, at, seq) where node <> '';
create index change_event_subject_idx on timeline.change_event (subject, at, seq) where subject <> '';
create index change_event_session_idx on timeline.change_event (session, at, seq) where session <> '';

-- For what no partition is there for: what is told late, and what is told
-- after nobody has made partitions for weeks. Nothing is refused for the want of one.
create table timeline.change_event_default partition of timeline.change_event default;

-- Which events there are, whenever they were: a partition could be asked only
-- about its own time. The key is a hash of who told it, where, and its id; the
-- digest, of all that it said, tells a repeat from another event of the same id.
create table timeline.change_key (
    key    uuid        primary key,
    digest uuid        not null,
    at     timestamptz not null
);
create index change_key_at_idx on timeline.change_key (at);

-- One row. In a restored database numbers of transactions begin anew, so the
-- events there are of another feed than those that follow; see tenant.history().
create table timeline.feed (
    only_row boolean primary key default true check (only_row),
    no       integer not null,
    epoch    uuid    not null,
    history  text    not null
);
insert into timeline.feed (no, epoch, history) values (1, gen_random_uuid(), tenant.history());

-- Makes the partition of the week of a day, with what the default partition has
-- of it. Its bounds are written out, so they must not depend on how a session reads
-- times: to one "IST" is Israel's.
-- +goose StatementBegin
create function timeline.ensure_week(of_day date) returns void
language plpgsql set search_path = pg_catalog, pg_temp set datestyle = 'ISO' set timezone = 'UTC' as $$
declare
    week date := date_trunc('week', of_day)::date;
    part text := 'change_event_' || to_char(week, 'YYYY_MM_DD');
    from_at timestamptz := week::timestamp at time zone 'UTC';
    to_at   timestamptz := (week + 7)::timestamp at time zone 'UTC';
begin
    if to_regclass('timeline.' || part) is not null then
        return;
    end if;
    lock table timeline.change_event_default in access exclusive mode;
    execute format('create table timeline.%I (like timeline.change_event including defaults including constraints)', part);
    execute format('with moved as (delete from timeline.change_event_default d where d.at >= %L and d.at < %L returning d.*)
        insert into timeline.%I select * from moved', from_at, to_at, part);
    execute format('alter table timeline.change_event attach partition timeline.%I for values from (%L) to (%L)', part, from_at, to_at);
end
$$;
-- +goose StatementEnd

-- Drops the partitions that hold nothing younger than a retention, and gives their
-- names; makes those of this week and of four to come, and of weeks of which the
-- default partition has events. While one process is at it, others do nothing.
-- +goose StatementBegin
create function timeline.maintain_partitions(retention interval) returns setof text
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '2s' as $$
declare
    old  timestamptz := clock_timestamp() - retention;
    this date := (clock_timestamp() at time zone 'UTC')::date;
    day  date;
    part text;
    gone text[];
begin
    if not pg_try_advisory_xact_lock(hashtext('fleetloop timeline.keep')) then
        return;
    end if;
    delete from timeline.change_event_default d where d.at < old;
    gone := array(
        select c.relname::text
        from pg_inherits i join pg_class c on c.oid = i.inhrelid
        where i.inhparent = 'timeline.change_event'::regclass
            -- The case keeps to_date from the names of other relations, whatever the plan.
            and case when c.relname ~ '^change_event_\d{4}_\d\d_\d\d$' then
                (to_date(right(c.relname, 10), 'YYYY_MM_DD') + 7)::timestamp at time zone 'UTC' <= old end
        order by c.relname
    );
    -- Before partitions are made: who reads locks the table and then its partitions.
    -- To lock the default partition first, and the table for this, would be a circle.
    -- Who reads for long, such as a backup, is not waited for: all others would have to.
    if gone <> '{}' then
        begin
            lock table only timeline.change_event in access exclusive mode;
        exception when lock_not_available then
            raise warning 'weeks of old change events are being read, and go later: %', gone;
            gone := '{}';
        end;
    end if;
    foreach part in array gone loop
        execute format('drop table timeline.%I', part);
        return next part;
    end loop;
    for day in
        select this + 7 * n from generate_series(0, 4) n
        union
        select distinct date_trunc('week', d.at at time zone 'UTC')::date from timeline.change_event_default d
    loop
        perform timeline.ensure_week(day);
    end loop;
end
$$;
-- +goose StatementEnd

-- Forgets the keys of events that are older than a retention, but no more than
-- so many, and gives how many.
-- +goose StatementBegin
create function timeline.delete_expired_keys(retention interval, most integer) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    gone integer;
begin
    delete from timeline.change_key k
    where k.key in (
        select o.key from timeline.change_key o where o.at < clock_timestamp() - retention
        order by o.at limit most for update skip locked
    );
    get diagnostics gone = row_count;
    return gone;
end
$$;
-- +goose StatementEnd

-- How far the events of the feed are settled, which transactions there can have
-- been at all, and whether a settled event, whoever's it is, stands behind a
-- position.
-- +goose StatementBegin
create function timeline.bounds(after_xact xid8, after_seq bigint,
    out epoch uuid, out current boolean, out settled xid8, out known xid8, out more boolean)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan as $$
declare
    of_feed integer;
begin
    select f.no, f.epoch, f.history = tenant.history() into of_feed, epoch, current from timeline.feed f;
    settled := pg_snapshot_xmin(pg_current_snapshot());
    known := pg_snapshot_xmax(pg_current_snapshot());
    perform from timeline.change_event e
    where e.feed = of_feed and (e.xact, e.seq) > (after_xact, after_seq) and e.xact < settled limit 1;
    more := found;
end
$$;
-- +goose StatementEnd

-- The last settled event of the feed, whoever's it is. What stands between it and
-- the oldest running transaction was undone or told nothing, and is no place to name:
-- a server that crashes may give such numbers to others.
-- +goose StatementBegin
create function timeline.horizon(out epoch uuid, out current boolean, out xact xid8, out seq bigint)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan as $$
declare
    of_feed integer;
begin
    select f.no, f.epoch, f.history = tenant.history() into of_feed, epoch, current from timeline.feed f;
    select e.xact, e.seq into xact, seq
    from timeline.change_event e
    where e.feed = of_feed and e.xact < pg_snapshot_xmin(pg_current_snapshot())
    order by e.feed desc, e.xact desc, e.seq desc limit 1;
    xact := coalesce(xact, '0');
    seq := coalesce(seq, 0);
end
$$;
-- +goose StatementEnd

-- Begins another feed if the database has another history than this one.
-- Nobody is in the midst of telling an event then, so that each is of one feed or of
-- the other by where its transaction stands.
-- +goose StatementBegin
create function timeline.renew_feed() returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '2s' as $$
begin
    lock table timeline.change_event in share mode;
    update timeline.feed f set no = f.no + 1, epoch = gen_random_uuid(), history = tenant.history()
    where f.history <> tenant.history();
end
$$;
-- +goose StatementEnd

select timeline.ensure_week((now() at time zone 'UTC')::date), timeline.ensure_week((now() at time zone 'UTC')::date + 7);

revoke execute on all functions in schema timeline from public;
grant usage on schema timeline to fleet_api, fleet_api_all_tenants;
grant usage on sequence timeline.arrival to fleet_api, fleet_api_all_tenants;
grant execute on function timeline.maintain_partitions(interval), timeline.delete_expired_keys(interval, integer), timeline.bounds(xid8, bigint),
    timeline.horizon(), timeline.renew_feed() to fleet_api, fleet_api_all_tenants;

alter table timeline.change_event enable row level security;
create policy one_tenant on timeline.change_event to fleet_api
    using (tenant = current_setting('fleetloop.tenant', true));
create policy all_tenants on timeline.change_event to fleet_api_all_tenants using (true);
-- Nobody changes an event, and only the keeper removes one.
grant select, insert on timeline.change_event to fleet_api, fleet_api_all_tenants;
grant select, insert on timeline.change_key to fleet_api, fleet_api_all_tenants;
grant select on timeline.feed to fleet_api, fleet_api_all_tenants;
