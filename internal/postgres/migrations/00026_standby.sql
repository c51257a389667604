-- +goose Up

-- A standby answers lists. See docs/adr/0037-reads-from-a-standby.md.

-- A server in recovery cannot tell its timeline. There, the history is that of the replayed change feed, and
-- tenant.require_replay checks that the feed is the primary's.
-- Its body is text, because a dump may replace the table of the feed.
create or replace function tenant.history() returns text language sql stable parallel safe as $$
    select case when pg_catalog.pg_is_in_recovery() then (select f.history from tenant.change_feed f)
        else (select c.system_identifier::text from pg_catalog.pg_control_system() c)
            || '/' || pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 1, 8) -- the timeline
            || '/' || (select d.oid::text from pg_catalog.pg_database d where d.datname = pg_catalog.current_database())
            || '/' || pg_catalog.to_regclass('tenant.change_feed')::oid::text
            || coalesce('/' || (select r.id::text from tenant.restores r order by r.seq desc limit 1), '')
        end
$$;

-- In recovery, pg_snapshot_xip is empty although transactions are running: the snapshot tells only the oldest one. There,
-- pending is that one, 0, and the number of visible changes after it. Visible changes are never fewer in a later
-- snapshot, so two snapshots with one newest change and one pending contain the same changes, as on the primary.
-- +goose StatementBegin
create or replace function tenant.feed_state(of_kind text, out epoch uuid, out current boolean, out xact xid8, out seq bigint, out pending xid8[])
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan as $$
declare
    oldest xid8;
begin
    select f.epoch, f.history = tenant.history() into epoch, current from tenant.change_feed f;
    select c.xact, c.seq into xact, seq
    from tenant.resource_changes c where c.kind = of_kind order by c.kind desc, c.xact desc, c.seq desc limit 1;
    if not found then
        select p.xact, p.seq into xact, seq from tenant.pruned_changes p where p.kind = of_kind;
    end if;
    xact := coalesce(xact, '0');
    seq := coalesce(seq, 0);
    if not pg_is_in_recovery() then
        pending := array(select r.running from pg_snapshot_xip(pg_current_snapshot()) as r (running) where r.running < xact order by r.running);
        return;
    end if;
    oldest := pg_snapshot_xmin(pg_current_snapshot());
    pending := '{}';
    if oldest < xact then
        pending := array[oldest, '0'::xid8, (select count(*)::text::xid8 from tenant.resource_changes c where c.kind = of_kind and c.xact > oldest)];
    end if;
end
$$;
-- +goose StatementEnd

-- The history of a primary and its position in the log. renewed is false if the feed still belongs to another history.
-- +goose StatementBegin
create function tenant.wal_position(out epoch uuid, out renewed boolean, out timeline bigint, out flushed pg_lsn, out inserted pg_lsn)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
    select f.epoch, f.history = tenant.history() into epoch, renewed from tenant.change_feed f;
    flushed := pg_current_wal_flush_lsn();
    inserted := pg_current_wal_insert_lsn();
    timeline := ('x' || substr(pg_walfile_name(inserted), 1, 8))::bit(32)::bigint;
end
$$;
-- +goose StatementEnd

-- Waits until a standby has replayed a position of the primary with an epoch and a timeline, and returns the replayed
-- position. It fails if the server is not such a standby, or not in time. The epoch is new after each promotion of a
-- primary; the timeline finds a standby that follows another server, which was promoted beside the primary.
-- +goose StatementBegin
create function tenant.require_replay(of_epoch uuid, of_timeline bigint, wanted pg_lsn, patience interval) returns pg_lsn
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    give_up timestamptz := clock_timestamp() + patience;
    replayed pg_lsn;
begin
    loop
        if not pg_is_in_recovery() then
            raise exception 'the server is not a standby';
        end if;
        replayed := coalesce(pg_last_wal_replay_lsn(), '0/0');
        exit when replayed >= wanted;
        if clock_timestamp() >= give_up then
            raise exception 'the standby is behind the primary: it has replayed % and not yet %', replayed, wanted;
        end if;
        perform pg_sleep(0.002);
    end loop;
    if (select f.epoch from tenant.change_feed f) is distinct from of_epoch or (select c.timeline_id from pg_control_checkpoint() c) > of_timeline then
        raise exception 'the standby follows another server than the primary';
    end if;
    return replayed;
end
$$;
-- +goose StatementEnd

revoke execute on function tenant.wal_position(), tenant.require_replay(uuid, bigint, pg_lsn, interval) from public;
grant execute on function tenant.wal_position(), tenant.require_replay(uuid, bigint, pg_lsn, interval) to fleet_api;
