-- name: EndExpiredPauses :exec
select tenant.end_expired_pauses(@most::integer);

-- name: ClaimDue :exec
-- Takes due rows for the time of a lease. What to do about them is read by
-- ReadClaimed, in the same transaction. Of the rows whose last try timed out it
-- takes so many at most, so that they leave room for others.
with others as materialized (
    select s.cluster_id, s.due_at from tenant.cluster_sync s
    where s.synced is null and s.paused_at is null and s.due_at <= now() and s.error_class is distinct from 'timeout'
    order by s.due_at
    limit @slots::bigint
    for update skip locked
), timed_out as materialized (
    select s.cluster_id, s.due_at from tenant.cluster_sync s
    where s.synced is null and s.paused_at is null and s.due_at <= now() and s.error_class = 'timeout'
    order by s.due_at
    limit @timed_out::bigint
    for update skip locked
), due as materialized (
    select o.cluster_id, o.due_at from others o
    union all
    select t.cluster_id, t.due_at from timed_out t
    order by due_at
    limit @slots::bigint
)
update tenant.cluster_sync s set
    due_at = now() + @lease::interval,
    claim_token = nextval('tenant.cluster_sync_token'),
    claimed_by = @owner::text,
    sync_last_attempt = now(),
    sent = coalesce(s.sent, '{}') || jsonb_build_object((select tenant.history_id()), s.generation),
    -- Rows of workers that did not know this column. Later, the poller may change shoot_uid.
    reported_shoot_uid = coalesce(s.reported_shoot_uid, case when s.synced_generation > 0 then s.shoot_uid end)
from due where s.cluster_id = due.cluster_id;

-- name: ReadClaimed :many
-- Reads what this transaction has claimed. It has to be a statement of its own: a
-- row that was locked may be newer than what the statement sees that locked it, so
-- that one could give the generation of a change together with the spec from
-- before it, and the change would be lost. Clusters reads the same columns of rows
-- without a claim.
select s.cluster_id, coalesce(s.claim_token, 0)::bigint as token, s.generation, s.sync_attempts, coalesce(s.error_class, '')::text as error_class,
    coalesce(s.unsynced_since, now())::timestamptz as unsynced_since,
    coalesce(s.shoot_name, '')::text as shoot_name, coalesce(s.shoot_uid, '')::text as shoot_uid,
    coalesce(s.reported_shoot_uid, '')::text as reported_shoot_uid, s.synced_generation, s.shoot_generation,
    (select tenant.history_id())::text as history, coalesce(s.sent, '{}')::jsonb as sent,
    c.tenant, c.name, c.generation as cluster_generation, c.spec, (c.deleted_time is not null)::boolean as deleting,
    p.ids::text[] as pool_ids, p.names::text[] as pool_names, p.specs::text[] as pool_specs
from tenant.cluster_sync s
join tenant.clusters c on c.id = s.cluster_id
cross join lateral (
    select array_agg(n.id::text order by n.name, n.id) as ids,
        array_agg(n.name::text order by n.name, n.id) as names,
        array_agg(n.spec::text order by n.name, n.id) as specs
    from tenant.nodepools n where n.owner_id = s.cluster_id and n.deleted_time is null
) p
where s.synced is null and s.paused_at is null and s.due_at = now() + @lease::interval
    and s.claimed_by = @owner::text and s.xmin = pg_current_xact_id()::xid
order by s.claim_token;

-- name: Complete :many
-- Writes results of claims that still stand, except for rows that another client
-- has locked. The generation is compared with that of the locked row, so a change
-- that came in between keeps the row due. News is what the API can show.
with result as (
    select unnest(@ids::uuid[]) as cluster_id,
        unnest(@tokens::bigint[]) as token,
        unnest(@generations::bigint[]) as generation,
        unnest(@cluster_generations::bigint[]) as cluster_generation,
        unnest(@failed::boolean[]) as failed,
        unnest(@errors::text[]) as error,
        unnest(@classes::text[]) as class,
        unnest(@spend::boolean[]) as spend,
        unnest(@delays::bigint[]) * interval '1 microsecond' as delay,
        unnest(@deleting::boolean[]) as deleting,
        unnest(@absent::boolean[]) as absent,
        unnest(@shoot_uids::text[]) as shoot_uid,
        unnest(@shoot_generations::bigint[]) as shoot_generation,
        unnest(@changes::text[]) as change
), mine as materialized (
    select r.*, s.generation = r.generation as current,
        s.cluster_generation <> r.cluster_generation
            or s.sync_error is distinct from case when r.failed then r.error end
            or s.error_class is distinct from case when r.failed then r.class end
            or not r.failed and (s.synced_generation <> r.generation
                or not r.deleting and s.shoot_generation <> r.shoot_generation -- the status is outdated
                or r.deleting and not s.deletion_sent
                or r.absent and s.shoot_status is distinct from 'deleted') as news
    from result r
    join tenant.cluster_sync s on s.cluster_id = r.cluster_id and s.claim_token = r.token
    for update of s skip locked
), done as (
    update tenant.cluster_sync s set
        synced = case when not r.failed and r.current then now() end,
        synced_generation = case when r.failed then s.synced_generation else r.generation end,
        cluster_generation = r.cluster_generation,
        sync_error = case when r.failed then r.error end,
        error_class = case when r.failed then r.class end,
        sync_attempts = case
            when not r.failed then 0
            when r.spend and r.current then least(s.sync_attempts, 1000000) + 1
            else s.sync_attempts end,
        -- What is still to be done came up after the claim.
        unsynced_since = case
            when r.failed then s.unsynced_since
            when not r.current then s.sync_last_attempt end,
        due_at = now() + case when r.failed and r.current then r.delay else interval '0' end,
        claim_token = null,
        claimed_by = null,
        sent = case when r.failed then s.sent end,
        deletion_sent = s.deletion_sent or (r.deleting and not r.failed),
        shoot_uid = case when r.failed or r.shoot_uid = '' then s.shoot_uid else r.shoot_uid end,
        reported_shoot_uid = case when r.failed or r.shoot_uid = '' then s.reported_shoot_uid else r.shoot_uid end,
        shoot_generation = case when r.failed or r.deleting then s.shoot_generation else r.shoot_generation end,
        status_generation = case
            when r.failed or r.shoot_uid = '' or s.shoot_uid = r.shoot_uid then s.status_generation
            else -1 end,
        shoot_status = case
            when r.failed then s.shoot_status
            when r.absent then 'deleted'
            -- A Shoot that Gardener still has is not gone, whatever was seen before.
            when r.deleting and coalesce(s.shoot_status, 'deleted') = 'deleted' then 'deleting'
            when r.deleting then s.shoot_status
            when s.shoot_status = 'deleted' then 'pending'
            else coalesce(s.shoot_status, 'pending') end,
        shoot_status_message = case when r.absent and not r.failed then null else s.shoot_status_message end,
        shoot_status_updated = case when r.absent and not r.failed then now() else s.shoot_status_updated end,
        report_due_at = case when r.news then now() else s.report_due_at end,
        report_version = s.report_version + r.news::int
    from mine r
    where s.cluster_id = r.cluster_id
    returning r.token, r.cluster_id, r.change
), told as (
    insert into tenant.cluster_change_events (sink, sink_type, cluster_id, tenant, event_id, change)
    select k.sink, k.type, d.cluster_id, d.change::json->>'tenant', d.change::json->>'id', d.change
    from done d cross join (select unnest(@sinks::text[]) as sink, unnest(@sink_types::text[]) as type) k where d.change <> ''
)
select d.token::bigint as token from done d;

-- name: RecordCreation :one
-- Records the creation of a Shoot in a row that stays claimed, with its change event. It
-- writes nothing if the claim is lost, if another client has locked the row, or if the
-- creation is recorded, as after a request whose answer was lost.
with mine as materialized (
    select s.cluster_id from tenant.cluster_sync s
    where s.cluster_id = @id::uuid and s.claim_token = @token::bigint
    for update of s skip locked
), recorded as (
    update tenant.cluster_sync s set
        shoot_uid = @shoot_uid::text,
        reported_shoot_uid = @shoot_uid::text,
        status_generation = case when s.shoot_uid = @shoot_uid::text then s.status_generation else -1 end
    from mine where s.cluster_id = mine.cluster_id and s.reported_shoot_uid is distinct from @shoot_uid::text
    returning s.cluster_id
), told as (
    insert into tenant.cluster_change_events (sink, sink_type, cluster_id, tenant, event_id, change)
    select k.sink, k.type, r.cluster_id, e.change::json->>'tenant', e.change::json->>'id', e.change
    from recorded r cross join (select @change::text as change) e
    cross join (select unnest(@sinks::text[]) as sink, unnest(@sink_types::text[]) as type) k
)
select exists (select from mine) as stands;

-- name: CountClaimed :one
-- How many of some claims still stand.
with claimed as (
    select unnest(@ids::uuid[]) as cluster_id, unnest(@tokens::bigint[]) as token
)
select count(*) from claimed c
join tenant.cluster_sync s on s.cluster_id = c.cluster_id and s.claim_token = c.token;

-- name: Name :many
-- Gives claimed rows the names of their Shoots, unless they are taken, and
-- returns the ids of the rows that have the names that were asked for.
with naming as materialized (
    select unnest(@ids::uuid[]) as cluster_id, unnest(@tokens::bigint[]) as token, unnest(@shoot_names::text[]) as shoot_name
), free as materialized (
    select s.cluster_id, n.shoot_name
    from naming n
    join tenant.cluster_sync s on s.cluster_id = n.cluster_id and s.claim_token = n.token
    where s.shoot_name is null
        and not exists (select from tenant.cluster_sync o where o.shoot_name = n.shoot_name)
        and not exists (select from naming e where e.shoot_name = n.shoot_name and e.cluster_id < n.cluster_id)
    for update of s skip locked
), named as (
    update tenant.cluster_sync s set shoot_name = f.shoot_name
    from free f where s.cluster_id = f.cluster_id
    returning s.cluster_id
)
select named.cluster_id::uuid as cluster_id from named
union all
select s.cluster_id from naming n
join tenant.cluster_sync s on s.cluster_id = n.cluster_id and s.claim_token = n.token and s.shoot_name = n.shoot_name;

-- name: NamesOf :many
-- For rows and the names that were asked for: whether the row is still claimed and has no name, and whether another row
-- has that name. A row that could have been named but was not is locked by another client.
with naming as (
    select unnest(@ids::uuid[]) as cluster_id, unnest(@tokens::bigint[]) as token, unnest(@shoot_names::text[]) as shoot_name
)
select n.cluster_id::uuid as cluster_id, coalesce(s.claim_token = n.token and s.shoot_name is null, false)::boolean as nameless,
    exists (select from tenant.cluster_sync o where o.shoot_name = n.shoot_name) as taken
from naming n
left join tenant.cluster_sync s on s.cluster_id = n.cluster_id;

-- name: Release :exec
-- Gives claimed rows back, and tells the other workers: it names the generation.
with claimed as (
    select unnest(@ids::uuid[]) as cluster_id, unnest(@tokens::bigint[]) as token
), mine as materialized (
    select s.cluster_id
    from claimed c
    join tenant.cluster_sync s on s.cluster_id = c.cluster_id and s.claim_token = c.token
    for update of s skip locked
)
update tenant.cluster_sync s set generation = s.generation, due_at = now(), claim_token = null, claimed_by = null
from mine where s.cluster_id = mine.cluster_id;

-- name: Renew :many
-- Has claims that still stand end a whole lease from now. Rows that another client has
-- locked are left for the next time.
with claimed as (
    select unnest(@ids::uuid[]) as cluster_id, unnest(@tokens::bigint[]) as token
), mine as materialized (
    select s.cluster_id
    from claimed c
    join tenant.cluster_sync s on s.cluster_id = c.cluster_id and s.claim_token = c.token
    for update of s skip locked
)
update tenant.cluster_sync s set due_at = now() + @lease::interval
from mine where s.cluster_id = mine.cluster_id
returning s.cluster_id;

-- name: NextLease :many
-- How long it takes until the first lease of another owner ends, or the first pause.
select e.ends_in::interval as ends_in from (
    (
        select s.due_at - now() as ends_in from tenant.cluster_sync s
        where s.synced is null and s.paused_at is null and s.due_at > now() and s.claim_token is not null and s.claimed_by <> @owner::text
        order by s.due_at
        limit 1
    ) union all (
        select s.paused_until - now() from tenant.cluster_sync s
        where s.paused_at is not null and s.paused_until is not null and s.paused_until > now()
        order by s.paused_until
        limit 1
    )
) e
order by e.ends_in
limit 1;

-- name: SetOutage :exec
insert into tenant.cluster_worker_outages as o (worker, since, reason, until)
values (@owner::text, now() - @lasted::interval, @reason::text, now() + @ttl::interval)
on conflict (worker) do update set since = excluded.since, reason = excluded.reason, until = excluded.until;

-- name: EndOutage :exec
-- Removes the note of a worker, and those that are over.
delete from tenant.cluster_worker_outages o where o.worker = @owner::text or o.until <= now();

-- name: AddMissing :many
select a.id::uuid as id from tenant.add_missing_cluster_syncs(@most::integer) as a (id);

-- name: Lead :many
-- Begins a term of observing, or goes on with that of the same holder.
insert into tenant.cluster_worker_leader as t (fence, holder, until)
values (1, @holder, now() + @ttl::interval)
on conflict (only_row) do update set
    fence = case when t.holder = excluded.holder and t.until > now() then t.fence else t.fence + 1 end,
    holder = excluded.holder,
    until = excluded.until
where t.until <= now() or t.holder = excluded.holder
returning fence;

-- name: Resign :exec
update tenant.cluster_worker_leader t set until = now() where t.fence = @fence and t.until > now();

-- name: Installation :one
select i.id from tenant.installation i;

-- name: HistoryID :one
select tenant.history_id()::text as id;

-- name: Rows :many
select sqlc.embed(s), c.tenant, c.name, (c.deleted_time is not null)::boolean as deleting
from tenant.cluster_sync s
join tenant.clusters c on c.id = s.cluster_id
where s.cluster_id > @after::uuid and s.shoot_status is distinct from 'deleted'
order by s.cluster_id
limit @most::bigint;

-- name: RowsOf :many
select sqlc.embed(s), c.tenant, c.name, (c.deleted_time is not null)::boolean as deleting
from tenant.cluster_sync s
join tenant.clusters c on c.id = s.cluster_id
where s.cluster_id = any(@ids::uuid[])
order by s.cluster_id;

-- name: StalestRows :many
select sqlc.embed(s), c.tenant, c.name, (c.deleted_time is not null)::boolean as deleting
from tenant.cluster_sync s
join tenant.clusters c on c.id = s.cluster_id
where s.shoot_name is not null and s.shoot_status is distinct from 'deleted'
order by s.shoot_status_updated nulls first, s.cluster_id
limit @most::bigint;

-- name: DueReports :many
select sqlc.embed(s), c.tenant, c.name, (c.deleted_time is not null)::boolean as deleting
from tenant.cluster_sync s
join tenant.clusters c on c.id = s.cluster_id
where s.report_due_at <= now()
order by s.report_due_at
limit @most::bigint;

-- name: SaveStatus :one
-- Writes what was observed, while the term lasts; it can not end before this
-- transaction does. Rows that another client has locked are left for the next time,
-- and so are rows whose first claim is not completed, because its change comes first.
-- Progress since the last report is no news for the status of the cluster, and is reported after five seconds.
with term as materialized (
    select t.fence from tenant.cluster_worker_leader t where t.fence = @fence and t.until > clock_timestamp() for share
), observed as (
    select unnest(@ids::uuid[]) as cluster_id,
        unnest(@was_statuses::text[]) as was_status,
        unnest(@was_deleting::boolean[]) as was_deleting,
        unnest(@statuses::text[]) as status,
        unnest(@messages::text[]) as message,
        unnest(@shoot_uids::text[]) as shoot_uid,
        unnest(@status_generations::bigint[]) as status_generation,
        unnest(@changes::text[]) as change
), mine as materialized (
    select o.*, o.status = 'progressing' and o.was_status = 'progressing' and o.shoot_uid = '' and o.change = '' and s.report_due_at > now() as progress
    from observed o
    join tenant.cluster_sync s on s.cluster_id = o.cluster_id
    join tenant.clusters c on c.id = o.cluster_id
    where exists (select from term)
        and coalesce(s.shoot_status, '') = o.was_status and (c.deleted_time is not null) = o.was_deleting
        and not (s.claim_token is not null and s.cluster_generation = 0 and (s.paused_at is null or s.due_at > now()))
    for update of s skip locked
), saved as (
    update tenant.cluster_sync s set
        shoot_status = nullif(o.status, ''),
        shoot_status_message = nullif(o.message, ''),
        shoot_status_updated = now(),
        status_generation = nullif(o.status_generation, 0),
        status_generation_at = now(),
        shoot_uid = coalesce(nullif(o.shoot_uid, ''), s.shoot_uid),
        ready_once = s.ready_once or o.status = 'ready',
        report_due_at = case when o.progress then least(s.report_due_at, now() + interval '5 seconds') else now() end,
        report_version = s.report_version + (not o.progress)::integer
    from mine o where s.cluster_id = o.cluster_id
    returning s.cluster_id, o.change
), told as (
    insert into tenant.cluster_change_events (sink, sink_type, cluster_id, tenant, event_id, change)
    select k.sink, k.type, w.cluster_id, w.change::json->>'tenant', w.change::json->>'id', w.change
    from saved w cross join (select unnest(@sinks::text[]) as sink, unnest(@sink_types::text[]) as type) k where w.change <> ''
)
select exists (select from term) as held, array(select saved.cluster_id::text from saved)::text[] as saved;

-- name: Touch :one
-- Records observations that leave the status as it is. A status that is no longer outdated is news. Rows that another
-- client has locked are left for the next time, and so are rows with another Shoot by now.
with term as materialized (
    select t.fence from tenant.cluster_worker_leader t where t.fence = @fence and t.until > clock_timestamp() for share
), observed as (
    select unnest(@ids::uuid[]) as cluster_id,
        unnest(@shoot_uids::text[]) as shoot_uid,
        unnest(@status_generations::bigint[]) as status_generation
), mine as materialized (
    select o.*, tenant.shoot_status_outdated(s) and o.status_generation >= s.shoot_generation as news
    from observed o
    join tenant.cluster_sync s on s.cluster_id = o.cluster_id
    where exists (select from term) and coalesce(s.shoot_uid, '') = o.shoot_uid
    for update of s skip locked
), touched as (
    update tenant.cluster_sync s set
        shoot_status_updated = now(),
        status_generation = nullif(o.status_generation, 0),
        status_generation_at = now(),
        report_due_at = case when o.news then now() else s.report_due_at end,
        report_version = s.report_version + o.news::integer
    from mine o where s.cluster_id = o.cluster_id
    returning s.cluster_id
)
select exists (select from term) as held, array(select touched.cluster_id::text from touched)::text[] as touched;

-- name: Requeue :one
-- Makes synced rows due. It names the generation, so that workers are notified.
with term as materialized (
    select t.fence from tenant.cluster_worker_leader t where t.fence = @fence and t.until > clock_timestamp() for share
), mine as materialized (
    select s.cluster_id from tenant.cluster_sync s
    where s.cluster_id = any(@ids::uuid[]) and s.synced is not null and exists (select from term)
    for update skip locked
), requeued as (
    update tenant.cluster_sync s set
        generation = s.generation, synced = null, unsynced_since = now(), due_at = now(), sync_attempts = 0
    from mine where s.cluster_id = mine.cluster_id
    returning s.cluster_id
)
select exists (select from term) as held, array(select requeued.cluster_id::text from requeued)::text[] as requeued;

-- name: Reported :exec
with report as (
    select unnest(@ids::uuid[]) as cluster_id,
        unnest(@versions::bigint[]) as version,
        unnest(@nexts::bigint[]) * interval '1 microsecond' as next
), mine as materialized (
    select r.* from report r
    join tenant.cluster_sync s on s.cluster_id = r.cluster_id and s.report_version = r.version
    for update of s skip locked
)
update tenant.cluster_sync s set report_due_at = now() + r.next
from mine r where s.cluster_id = r.cluster_id;

-- name: Tally :one
select
    count(*) filter (where t.state = 'due') as due,
    count(*) filter (where t.state = 'leased') as leased,
    count(*) filter (where t.state = 'backing off') as backing_off,
    count(*) filter (where t.state = 'stuck') as stuck,
    count(*) filter (where t.state = 'paused') as paused,
    count(*) filter (where t.state = 'synced') as synced,
    coalesce(now() - min(t.due_at) filter (where t.state = 'due'), '0')::interval as oldest_due,
    coalesce(pg_stat_get_dead_tuples('tenant.cluster_sync'::regclass), 0)::bigint as dead_rows,
    coalesce(tenant.oldest_transaction(), '0')::interval as oldest_transaction
from (
    select s.due_at, case
        when s.paused_at is not null and coalesce(s.paused_until > now(), true) then 'paused'
        when s.synced is not null then 'synced'
        when s.claim_token is not null and s.due_at > now() then 'leased'
        when s.sync_attempts >= @stuck::integer then 'stuck'
        when s.due_at > now() then 'backing off'
        else 'due' end as state
    from tenant.cluster_sync s
) t;

-- name: ClaimChanges :many
-- Takes changes for a sink that are due, of each cluster the oldest alone: a later
-- one waits until that is gone, so the sink hears of them in order. It goes from one
-- cluster to the next along an index, and reads none of those that wait behind the
-- oldest. It begins before a cluster, and ends when it has enough, so that a claim
-- that finds enough does not read a large backlog. It goes downwards, because the ids
-- of new clusters are higher: otherwise older clusters could wait for ever behind
-- them. That a row is due is asked again of the one that is locked: another worker
-- may have claimed it meanwhile.
with recursive waiting as (
    (
        select c.cluster_id from tenant.cluster_change_events c
        where c.sink = @sink::text and c.cluster_id < @before::uuid
        order by c.cluster_id desc, c.seq desc
        limit 1
    )
    union all
    select n.cluster_id
    from waiting w
    cross join lateral (
        select c.cluster_id from tenant.cluster_change_events c
        where c.sink = @sink::text and c.cluster_id < w.cluster_id
        order by c.cluster_id desc, c.seq desc
        limit 1
    ) n
), due as materialized (
    select l.seq from waiting w
    cross join lateral (
        select e.seq, e.due_at from tenant.cluster_change_events e
        where e.sink = @sink::text and e.cluster_id = w.cluster_id
        order by e.cluster_id, e.seq
        limit 1
    ) o
    cross join lateral (
        select c.seq from tenant.cluster_change_events c where c.seq = o.seq and c.due_at <= now()
        for update skip locked
    ) l
    where o.due_at <= now()
    limit @most::bigint
)
update tenant.cluster_change_events c set due_at = now() + @lease::interval
from due where c.seq = due.seq
returning c.seq, c.cluster_id, c.change, c.failures, c.created_at;

-- name: RenewChanges :exec
update tenant.cluster_change_events c set due_at = now() + @lease::interval where c.seq = any(@seqs::bigint[]);

-- name: PutOffChanges :exec
-- Records failures and makes the changes due again. A failure may be one before the
-- request, such as a full queue, which is no attempt.
with failed as (
    select unnest(@seqs::bigint[]) as seq, unnest(@delays::bigint[]) * interval '1 microsecond' as delay,
        unnest(@attempts::integer[]) as attempts, unnest(@errors::text[]) as error, unnest(@statuses::integer[]) as http_status
)
update tenant.cluster_change_events c set
    due_at = now() + f.delay,
    retry_at = now() + f.delay,
    failures = c.failures + 1,
    attempts = c.attempts + f.attempts,
    first_attempt_at = case when f.attempts > 0 then coalesce(c.first_attempt_at, now()) else c.first_attempt_at end,
    last_attempt_at = case when f.attempts > 0 then now() else c.last_attempt_at end,
    error = f.error,
    http_status = f.http_status
from failed f where c.seq = f.seq;

-- name: FinishChanges :exec
-- Removes changes and records their deliveries. A change that another worker has
-- finished is left alone. An error is that of the last attempt, or of the reason for
-- which there was none.
with finished as (
    select unnest(@seqs::bigint[]) as seq, unnest(@states::text[]) as state,
        unnest(@attempts::integer[]) as attempts, unnest(@errors::text[]) as error, unnest(@statuses::integer[]) as http_status
), gone as (
    delete from tenant.cluster_change_events c using finished f where c.seq = f.seq
    returning c.*
)
insert into tenant.cluster_change_deliveries as d
    (event_id, sink, tenant, sink_type, state, attempts, first_attempt_at, last_attempt_at, error, http_status, happened_at,
    cluster_id, change)
select distinct on (g.event_id, g.sink) g.event_id, g.sink, g.tenant, g.sink_type, f.state, g.attempts + f.attempts,
    case when f.attempts > 0 then coalesce(g.first_attempt_at, now()) else g.first_attempt_at end,
    case when f.attempts > 0 then now() else g.last_attempt_at end,
    case when f.attempts > 0 or f.error <> '' then f.error else g.error end,
    case when f.attempts > 0 or f.error <> '' then f.http_status else g.http_status end,
    (g.change::json->>'at')::timestamptz, g.cluster_id, g.change
from gone g join finished f on f.seq = g.seq
where g.event_id <> '' and g.tenant <> ''
order by g.event_id, g.sink, g.seq desc
on conflict (event_id, sink) do update set
    sink_type = excluded.sink_type, state = excluded.state, attempts = d.attempts + excluded.attempts,
    first_attempt_at = coalesce(d.first_attempt_at, excluded.first_attempt_at),
    last_attempt_at = coalesce(excluded.last_attempt_at, d.last_attempt_at),
    finished_at = now(), error = excluded.error, http_status = excluded.http_status;

-- name: ExpireChanges :one
-- Gives up some of what is too old, whether or not its sink is still configured, and
-- says how many. Rows that are being sent or removed are left alone.
with old as materialized (
    select c.seq from tenant.cluster_change_events c
    where c.created_at < now() - @age::interval and c.due_at <= now()
    order by c.created_at
    limit @most::bigint
    for update skip locked
), gone as (
    delete from tenant.cluster_change_events c using old where c.seq = old.seq
    returning c.*
), recorded as (
    insert into tenant.cluster_change_deliveries as d
        (event_id, sink, tenant, sink_type, state, attempts, first_attempt_at, last_attempt_at, error, http_status, happened_at,
        cluster_id, change)
    select distinct on (g.event_id, g.sink) g.event_id, g.sink, g.tenant, g.sink_type, 'expired', g.attempts, g.first_attempt_at, g.last_attempt_at,
        g.error, g.http_status, (g.change::json->>'at')::timestamptz, g.cluster_id, g.change
    from gone g where g.event_id <> '' and g.tenant <> ''
    order by g.event_id, g.sink, g.seq desc
    on conflict (event_id, sink) do update set
        sink_type = excluded.sink_type, state = excluded.state, attempts = d.attempts + excluded.attempts,
        first_attempt_at = coalesce(d.first_attempt_at, excluded.first_attempt_at),
        last_attempt_at = coalesce(excluded.last_attempt_at, d.last_attempt_at),
        finished_at = now(), error = excluded.error, http_status = excluded.http_status
)
select count(*) from gone;
