-- +goose Up

-- The roles of those that write the audit of executions and of those that read
-- it. Roles belong to the whole server: another database of ours may have made
-- them already.
-- +goose StatementBegin
do $$
declare
    r text;
begin
    foreach r in array array['execution_controller', 'execution_auditor'] loop
        if not exists (select from pg_roles where rolname = r) then
            begin
                execute format('create role %I nologin noinherit', r);
            exception when duplicate_object or unique_violation then
                null;
            end;
        end if;
        if not pg_has_role(current_user, r, 'member') then
            execute format('grant %I to current_user', r);
        end if;
    end loop;
end
$$;
-- +goose StatementEnd

create schema executor;

-- What happened to executions, in one chain: each row has the hash of the row
-- before it, and a hash over itself. See docs/how-to/query-the-audit.md.
--
-- The months are those of recorded_at, which never goes back from one position to
-- the next, and not those of event_time: only so is the oldest partition a
-- beginning of the chain, and can go without leaving a hole.
create table executor.execution_audit_event (
    position           bigint      not null,
    recorded_at        timestamptz not null,
    execution_uid      text        collate "C" not null,
    seq                integer     not null,
    event_time         timestamptz not null,
    type               text        collate "C" not null,
    actor_type         text        collate "C" not null,
    actor_id           text        collate "C" not null,
    action             text        collate "C" not null,
    target_api_version text        collate "C" not null,
    target_kind        text        collate "C" not null,
    target_namespace   text        collate "C" not null,
    target_name        text        collate "C" not null,
    target_uid         text        collate "C" not null,
    cluster            text        collate "C" not null,
    namespace          text        collate "C" not null,
    name               text        collate "C" not null,
    outcome            text        collate "C" not null,
    reason             text        collate "C" not null,
    policy_hash        text        collate "C" not null,
    plan_hash          text        collate "C" not null,
    correlation_id     text        collate "C" not null,
    parent             text        collate "C" not null,
    payload            jsonb       not null,
    prev_hash          bytea       not null,
    hash               bytea       not null,

    constraint execution_audit_event_pkey primary key (execution_uid, seq, recorded_at),
    constraint execution_audit_event_position_key unique (position, recorded_at)
) partition by range (recorded_at);

create index execution_audit_event_time_idx on executor.execution_audit_event using brin (event_time);
create index execution_audit_event_target_idx on executor.execution_audit_event (target_name, target_namespace, position);
create index execution_audit_event_actor_idx on executor.execution_audit_event (actor_id, position);
create index execution_audit_event_name_idx on executor.execution_audit_event (name, position);

-- One row for each execution: how it stands by what was recorded. No event is
-- recorded twice because recorded_seqs has the numbers of all that were, whichever month that
-- was in and whether or not the events are still there. So the row goes with the
-- last of its events, and not before its execution is deleted.
create table executor.execution_summary (
    execution_uid      text        collate "C" primary key,
    cluster            text        collate "C" not null,
    namespace          text        collate "C" not null,
    name               text        collate "C" not null,
    action             text        collate "C" not null,
    target_api_version text        collate "C" not null,
    target_kind        text        collate "C" not null,
    target_namespace   text        collate "C" not null,
    target_name        text        collate "C" not null,
    requested_by       text        collate "C" not null,
    correlation_id     text        collate "C" not null,
    parent             text        collate "C" not null,
    phase              text        collate "C" not null,
    outcome            text        collate "C" not null,
    reason             text        collate "C" not null,
    job_name           text        collate "C" not null,
    retries            integer     not null,
    requested_at       timestamptz,
    started_at         timestamptz,
    ended_at           timestamptz,
    deleted_at         timestamptz,
    recorded_seqs               integer[]   not null,
    last_position      bigint      not null,
    last_recorded_at   timestamptz not null
);

create index execution_summary_name_idx on executor.execution_summary (name, namespace);
create index execution_summary_position_idx on executor.execution_summary (last_position);

-- The end of the chain. Whoever appends holds this row until the end of his
-- transaction, so there is one after the other.
create table executor.execution_audit_head (
    only_row    boolean     primary key default true check (only_row),
    position    bigint      not null,
    hash        bytea       not null,
    recorded_at timestamptz not null
) with (fillfactor = 50);

-- Where the chain begins: the newest row is the last event that was pruned, and
-- the first is before all events. Chains of two databases begin differently, so that
-- rows of one do not fit into the other.
create table executor.execution_audit_anchor (
    position  bigint      primary key,
    hash      bytea       not null,
    partition text        collate "C" not null,
    pruned    bigint      not null,
    pruned_at timestamptz not null
);

-- What the owner has decided.
create table executor.execution_audit_settings (
    only_row        boolean  primary key default true check (only_row),
    min_retention interval not null default '30 days' check (min_retention > '0')
);

insert into executor.execution_audit_settings default values;
insert into executor.execution_audit_anchor values (0, sha256(uuid_send(gen_random_uuid())), '', 0, clock_timestamp());
insert into executor.execution_audit_head (position, hash, recorded_at)
select a.position, a.hash, a.pruned_at from executor.execution_audit_anchor a;

-- The clock of the audit, in one place.
create function executor.audit_clock() returns timestamptz language sql volatile
    return pg_catalog.clock_timestamp();

-- The canonical encoding of a field, and of a row: each field with its length
-- before it, in the order of the columns, times in microseconds since 1970.
-- Package internal/execution/audit has the same, so that the chain can be
-- verified without trust in this.
create function executor.audit_field(field text) returns text language sql immutable parallel safe
    return pg_catalog.octet_length(field)::text || ':' || field || ',';

create function executor.audit_time(at timestamptz) returns text language sql stable parallel safe
    return executor.audit_field(((extract(epoch from at) * 1000000)::bigint)::text);

create function executor.audit_digest(e executor.execution_audit_event) returns bytea language sql stable
    return pg_catalog.sha256(pg_catalog.convert_to(
        executor.audit_field('fleetloop-audit-1')
        || executor.audit_field(pg_catalog.encode((e).prev_hash, 'hex'))
        || executor.audit_field((e).position::text)
        || executor.audit_time((e).recorded_at)
        || executor.audit_field((e).execution_uid)
        || executor.audit_field((e).seq::text)
        || executor.audit_time((e).event_time)
        || executor.audit_field((e).type)
        || executor.audit_field((e).actor_type)
        || executor.audit_field((e).actor_id)
        || executor.audit_field((e).action)
        || executor.audit_field((e).target_api_version)
        || executor.audit_field((e).target_kind)
        || executor.audit_field((e).target_namespace)
        || executor.audit_field((e).target_name)
        || executor.audit_field((e).target_uid)
        || executor.audit_field((e).cluster)
        || executor.audit_field((e).namespace)
        || executor.audit_field((e).name)
        || executor.audit_field((e).outcome)
        || executor.audit_field((e).reason)
        || executor.audit_field((e).policy_hash)
        || executor.audit_field((e).plan_hash)
        || executor.audit_field((e).correlation_id)
        || executor.audit_field((e).parent)
        || executor.audit_field((e).payload::text), 'UTF8'));

-- Grants keep everybody from it but the owner; this keeps the owner from it who
-- does not mean to. Partitions that are made later have it as well.
-- +goose StatementBegin
create function executor.reject_change() returns trigger language plpgsql as $$
begin
    raise exception 'the execution audit is append-only' using errcode = 'object_not_in_prerequisite_state';
end
$$;
-- +goose StatementEnd

create trigger append_only before update or delete on executor.execution_audit_event
    for each row execute function executor.reject_change();
create trigger append_only_truncate before truncate on executor.execution_audit_event
    for each statement execute function executor.reject_change();
create trigger append_only before update or delete on executor.execution_audit_anchor
    for each row execute function executor.reject_change();
create trigger append_only_truncate before truncate on executor.execution_audit_anchor
    for each statement execute function executor.reject_change();
create trigger forward_only before update on executor.execution_audit_head
    for each row when (new.position <= old.position) execute function executor.reject_change();
create trigger no_delete before delete on executor.execution_audit_head
    for each row execute function executor.reject_change();
create trigger no_truncate before truncate on executor.execution_audit_head
    for each statement execute function executor.reject_change();

-- Makes the partition of a moment if it is not there. Its caller holds the head.
-- Attaching, unlike creating it in place, holds up nobody.
-- +goose StatementBegin
create function executor.ensure_audit_partition(at timestamptz) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    month timestamp := date_trunc('month', at at time zone 'UTC');
    part  text := 'execution_audit_event_' || to_char(month, 'YYYY_MM');
begin
    if to_regclass('executor.' || part) is not null then
        return;
    end if;
    execute format('create table executor.%I (like executor.execution_audit_event including constraints)', part);
    execute format('create trigger append_only_truncate before truncate on executor.%I for each statement execute function executor.reject_change()', part);
    execute format('alter table executor.execution_audit_event attach partition executor.%I for values from (%L) to (%L)',
        part, month at time zone 'UTC', (month + interval '1 month') at time zone 'UTC');
end
$$;
-- +goose StatementEnd

-- Makes the partitions of this month and of so many to come.
-- +goose StatementBegin
create function executor.create_audit_partitions(months integer) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '2s' as $$
declare
    this timestamp := date_trunc('month', executor.audit_clock() at time zone 'UTC');
begin
    perform from executor.execution_audit_head for update;
    for i in 0..least(months, 24) loop
        perform executor.ensure_audit_partition((this + make_interval(months => i)) at time zone 'UTC');
    end loop;
end
$$;
-- +goose StatementEnd

-- Appends those of some records, an array of objects with the columns of the
-- table, that were not recorded before, and gives how many that were. Position,
-- hashes and the time of recording are given here, whatever the records say.
-- +goose StatementBegin
create function executor.append_audit(records jsonb) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    head  executor.execution_audit_head;
    event executor.execution_audit_event;
    first bigint;
    at    timestamptz;
begin
    -- Mostly all of them are new or none is; who has nothing new waits for nobody.
    perform from jsonb_to_recordset(records) as n (execution_uid text, seq integer)
    left join executor.execution_summary s on s.execution_uid = n.execution_uid
    where s.execution_uid is null or n.seq <> all (s.recorded_seqs);
    if not found then
        return 0;
    end if;

    perform from jsonb_to_recordset(records) as n (execution_uid text, type text)
    where coalesce(n.execution_uid, '') = '' or n.type = 'pruned';
    if found then
        raise exception 'events must have an execution_uid, and only prune_audit can add events of type pruned' using errcode = 'check_violation';
    end if;

    select * into strict head from executor.execution_audit_head for update;
    first := head.position;
    at := greatest(executor.audit_clock(), head.recorded_at);
    perform executor.ensure_audit_partition(at);
    for event in
        select distinct on (n.execution_uid, n.seq) n.*
        from jsonb_populate_recordset(null::executor.execution_audit_event, records) n
        left join executor.execution_summary s on s.execution_uid = n.execution_uid
        where s.execution_uid is null or n.seq <> all (s.recorded_seqs)
        order by n.execution_uid, n.seq
    loop
        event.position := head.position + 1;
        event.recorded_at := at;
        event.prev_hash := head.hash;
        event.hash := executor.audit_digest(event);
        insert into executor.execution_audit_event select event.*;
        head.position := event.position;
        head.hash := event.hash;
    end loop;
    if head.position = first then
        return 0; -- another has recorded them meanwhile
    end if;

    insert into executor.execution_summary as s
    select e.execution_uid, max(e.cluster), max(e.namespace), max(e.name), max(e.action),
        max(e.target_api_version), max(e.target_kind), max(e.target_namespace), max(e.target_name),
        coalesce(max(e.actor_id) filter (where e.type = 'requested'), ''), max(e.correlation_id), max(e.parent),
        coalesce((array_agg(p.phase order by e.seq desc) filter (where p.phase <> ''))[1], ''),
        coalesce((array_agg(e.outcome order by e.seq desc) filter (where e.type in ('result', 'finalized', 'failed') and e.outcome <> ''))[1], ''),
        coalesce((array_agg(e.reason order by e.seq desc) filter (where e.type in ('result', 'finalized', 'failed') and e.reason <> ''))[1], ''),
        coalesce(max(e.payload ->> 'jobName') filter (where e.type = 'result'), ''),
        coalesce(max((e.payload -> 'retries')::integer) filter (where e.type = 'result'), 0),
        max(e.event_time) filter (where e.type = 'requested'),
        max(e.event_time) filter (where e.type = 'started'),
        max(e.event_time) filter (where e.type in ('finalized', 'failed')),
        max(e.event_time) filter (where e.type = 'deleted'),
        array_agg(e.seq order by e.seq), max(e.position), at
    from executor.execution_audit_event e
    cross join lateral (select case e.type
        when 'validated' then 'validated' when 'approval_requested' then 'waiting_approval' when 'started' then 'executing'
        when 'rollback_available' then 'rollback_ready' when 'finalized' then 'completed' when 'failed' then 'failed' else '' end) p (phase)
    where e.recorded_at = at and e.position > first
    group by e.execution_uid
    on conflict (execution_uid) do update set
        target_api_version = coalesce(nullif(excluded.target_api_version, ''), s.target_api_version),
        target_kind = coalesce(nullif(excluded.target_kind, ''), s.target_kind),
        target_namespace = coalesce(nullif(excluded.target_namespace, ''), s.target_namespace),
        target_name = coalesce(nullif(excluded.target_name, ''), s.target_name),
        requested_by = coalesce(nullif(excluded.requested_by, ''), s.requested_by),
        phase = coalesce(nullif(excluded.phase, ''), s.phase),
        outcome = coalesce(nullif(excluded.outcome, ''), s.outcome),
        reason = coalesce(nullif(excluded.reason, ''), s.reason),
        job_name = coalesce(nullif(excluded.job_name, ''), s.job_name),
        retries = greatest(excluded.retries, s.retries),
        requested_at = coalesce(excluded.requested_at, s.requested_at),
        started_at = coalesce(excluded.started_at, s.started_at),
        ended_at = coalesce(excluded.ended_at, s.ended_at),
        deleted_at = coalesce(excluded.deleted_at, s.deleted_at),
        recorded_seqs = s.recorded_seqs || excluded.recorded_seqs,
        last_position = excluded.last_position,
        last_recorded_at = excluded.last_recorded_at;

    update executor.execution_audit_head set position = head.position, hash = head.hash, recorded_at = at;
    return head.position - first;
end
$$;
-- +goose StatementEnd

-- The partitions that hold nothing younger than a retention, from the oldest.
-- +goose StatementBegin
create function executor.expired_audit_partitions(retention interval) returns setof text
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select c.relname::text
    from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'executor.execution_audit_event'::regclass
        -- The case keeps to_date from the names of other relations, whatever the plan.
        and case when c.relname ~ '^execution_audit_event_\d{4}_\d\d$' then
            (to_date(right(c.relname, 7), 'YYYY_MM') + interval '1 month') at time zone 'UTC' <= executor.audit_clock() - retention end
    order by c.relname
$$;
-- +goose StatementEnd

-- Drops the partitions that hold nothing younger than a retention, notes where
-- the chain begins then, and appends that it did so: the rest of the chain
-- vouches for its beginning. Gives the partitions.
-- +goose StatementBegin
create function executor.prune_audit(retention interval) returns setof text
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '2s' as $$
declare
    least  interval;
    head   executor.execution_audit_head;
    anchor executor.execution_audit_anchor;
    event  executor.execution_audit_event;
    part   text;
    begun  record;
    ended  record;
begin
    select p.min_retention into strict least from executor.execution_audit_settings p;
    if retention is null or retention < least then
        raise exception 'the audit must be retained for at least %, but a retention of % was requested', least, retention using
            errcode = 'insufficient_privilege', hint = 'the owner of the schema can change min_retention in executor.execution_audit_settings';
    end if;
    select * into strict head from executor.execution_audit_head for update;
    for part in select executor.expired_audit_partitions(retention) loop
        select * into strict anchor from executor.execution_audit_anchor a order by a.position desc limit 1;
        execute format('select e.position, e.prev_hash from executor.%I e order by e.position limit 1', part) into begun;
        execute format('select e.position, e.hash from executor.%I e order by e.position desc limit 1', part) into ended;
        if begun.position is not null and (begun.position <> anchor.position + 1 or begun.prev_hash <> anchor.hash) then
            raise exception 'the audit chain does not start where the last pruning ended, at position %', anchor.position using
                errcode = 'data_corrupted', hint = 'run fleetloop audit verify';
        end if;
        execute format('drop table executor.%I', part);
        return next part;
        continue when begun.position is null;

        insert into executor.execution_audit_anchor values
            (ended.position, ended.hash, part, ended.position - anchor.position, executor.audit_clock());
        event.position := head.position + 1;
        event.recorded_at := greatest(executor.audit_clock(), head.recorded_at);
        event.execution_uid := '';
        event.seq := (select count(*) - 1 from executor.execution_audit_anchor);
        event.event_time := event.recorded_at;
        event.type := 'pruned';
        event.actor_type := 'database';
        event.actor_id := session_user;
        event.action := '';
        event.target_api_version := '';
        event.target_kind := '';
        event.target_namespace := '';
        event.target_name := '';
        event.target_uid := '';
        event.cluster := '';
        event.namespace := '';
        event.name := '';
        event.outcome := '';
        event.reason := '';
        event.policy_hash := '';
        event.plan_hash := '';
        event.correlation_id := '';
        event.parent := '';
        event.payload := jsonb_build_object('through', ended.position, 'hash', encode(ended.hash, 'hex'),
            'partition', part, 'events', ended.position - anchor.position);
        event.prev_hash := head.hash;
        event.hash := executor.audit_digest(event);
        perform executor.ensure_audit_partition(event.recorded_at);
        insert into executor.execution_audit_event select event.*;
        head.position := event.position;
        head.hash := event.hash;
        update executor.execution_audit_head set position = event.position, hash = event.hash, recorded_at = event.recorded_at;
    end loop;

    select * into strict anchor from executor.execution_audit_anchor a order by a.position desc limit 1;
    delete from executor.execution_summary s
    where s.last_position <= anchor.position
        and (s.deleted_at is not null or s.last_recorded_at < executor.audit_clock() - 4 * retention);
end
$$;
-- +goose StatementEnd

select executor.create_audit_partitions(2);

revoke execute on all functions in schema executor from public;
grant usage on schema executor to execution_controller, execution_auditor;
grant select on executor.execution_audit_event, executor.execution_summary, executor.execution_audit_head,
    executor.execution_audit_anchor, executor.execution_audit_settings, fleetloop_migrations to execution_controller, execution_auditor;
-- Inserting is appending, and nothing else: a row that could be inserted as it
-- is could have any position and any hash.
grant execute on function executor.append_audit(jsonb), executor.create_audit_partitions(integer),
    executor.expired_audit_partitions(interval), executor.prune_audit(interval) to execution_controller;
