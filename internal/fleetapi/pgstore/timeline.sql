-- name: TimelineBounds :one
select epoch::uuid, current::boolean, settled::xid8, known::xid8, more::boolean
from timeline.bounds(@xact::xid8, @seq::bigint);

-- name: TimelineHorizon :one
select epoch::uuid, current::boolean, xact::xid8, seq::bigint from timeline.horizon();

-- name: RenewTimeline :exec
select timeline.renew_feed();

-- name: MaintainPartitions :many
select keep::text from timeline.maintain_partitions(@retention::interval) as keep;

-- name: CountExpiredPartitions :one
select count(*)::integer
from pg_catalog.pg_inherits i join pg_catalog.pg_class c on c.oid = i.inhrelid
where i.inhparent = 'timeline.change_event'::regclass
    and case when c.relname ~ '^change_event_\d{4}_\d\d_\d\d$' then
        (to_date(right(c.relname, 10), 'YYYY_MM_DD') + 7)::timestamp at time zone 'UTC' <= clock_timestamp() - @retention::interval end;

-- name: DeleteExpiredKeys :one
select timeline.delete_expired_keys(@retention, @most);

-- name: ListUnknownClusters :many
select n.name::text from unnest(@names::text[]) as n (name)
where not exists (select from tenant.resources r where r.kind = 'Cluster' and r.name = n.name)
order by n.name;

-- name: DeleteExpiredFields :one
select timeline.delete_expired_fields(@retention, @most);

-- name: DeleteExpiredDeliveries :one
select tenant.delete_expired_deliveries(@retention, @most);

-- name: ListDeliveries :many
-- A pending row stands before what was recorded of the same event and sink: it was
-- queued again. Until a failed one is due, due_at is as the failure set it.
with pending as (
    select distinct on (c.sink) c.sink, c.sink_type, c.attempts, c.first_attempt_at, c.last_attempt_at,
        case when c.retry_at = c.due_at and c.due_at > now() then c.retry_at end as next_attempt_at, c.error, c.http_status
    from tenant.cluster_change_events c
    where c.event_id = @event_id::text
    order by c.sink, c.seq
), finished as (
    select d.sink, d.sink_type, d.state, d.attempts, d.first_attempt_at, d.last_attempt_at, d.finished_at, d.error, d.http_status
    from tenant.cluster_change_deliveries d
    where d.event_id = @event_id::text
)
select coalesce(p.sink, f.sink)::text as sink, coalesce(p.sink_type, f.sink_type)::text as sink_type,
    (case when p.sink is not null then 'pending' else f.state end)::text as state,
    (coalesce(p.attempts, 0) + coalesce(f.attempts, 0))::integer as attempts,
    coalesce(f.first_attempt_at, p.first_attempt_at)::timestamptz as first_attempt_at,
    coalesce(p.last_attempt_at, f.last_attempt_at)::timestamptz as last_attempt_at,
    p.next_attempt_at::timestamptz as next_attempt_at,
    (case when p.sink is null then f.finished_at end)::timestamptz as finished_at,
    coalesce(p.error, f.error)::text as error, coalesce(p.http_status, f.http_status)::integer as http_status
from pending p full join finished f on f.sink = p.sink
order by 1;

-- name: ListUndelivered :many
-- The deliveries that were given up since a time, the newest first, and then those that
-- failed and are tried again, the longest first. A delivery that was given up and is
-- queued again is among the latter, if at all.
(
    select d.event_id, d.sink, d.sink_type, d.state, d.attempts, d.first_attempt_at, d.last_attempt_at,
        null::timestamptz as next_attempt_at, d.finished_at::timestamptz as finished_at, d.error, d.http_status, d.change
    from tenant.cluster_change_deliveries d
    where d.state in ('rejected', 'expired') and d.finished_at > now() - @since::interval
        and not exists (select from tenant.cluster_change_events c where c.event_id = d.event_id and c.sink = d.sink)
    order by d.finished_at desc
    limit @most
)
union all
(
    select c.event_id::text, c.sink, c.sink_type, 'pending', c.attempts, c.first_attempt_at, c.last_attempt_at,
        (case when c.retry_at = c.due_at and c.due_at > now() then c.retry_at end)::timestamptz, null, c.error, c.http_status, c.change
    from tenant.cluster_change_events c
    where c.failures > 0 and c.event_id <> ''
    order by c.first_attempt_at
    limit @most
);

-- name: LockResend :exec
-- Requests for one event come one after the other, so that each sees what the one
-- before it queued.
select pg_advisory_xact_lock(hashtextextended('fleetloop resend ' || @event_id::text, 0));

-- name: CanResend :one
select exists (
    select from tenant.cluster_change_events c where c.event_id = @event_id::text and (@sink::text = '' or c.sink = @sink::text)
    union all
    select from tenant.cluster_change_deliveries d
    where d.event_id = @event_id::text and (@sink::text = '' or d.sink = @sink::text) and d.state <> 'skipped'
);

-- name: RequeueChange :many
-- Queues an event again for the sinks for which it is not pending.
insert into tenant.cluster_change_events (event_id, sink, tenant, sink_type, cluster_id, change)
select d.event_id, d.sink, d.tenant, d.sink_type, d.cluster_id, d.change
from tenant.cluster_change_deliveries d
where d.event_id = @event_id::text and d.state <> 'skipped'
    and case when @sink::text = '' then d.state <> 'delivered' else d.sink = @sink::text end
    and not exists (select from tenant.cluster_change_events c where c.event_id = d.event_id and c.sink = d.sink)
order by d.sink
returning sink, tenant, change;
