-- name: AppendAudit :one
select executor.append_audit(@records::jsonb)::integer;

-- name: CreateAuditPartitions :exec
select executor.create_audit_partitions(@months::integer);

-- name: ExpiredAuditPartitions :many
select executor.expired_audit_partitions(@retention::interval)::text;

-- name: PruneAudit :many
select executor.prune_audit(@retention::interval)::text;

-- name: AuditEnds :one
-- Where the chain begins and ends by what was noted, and the last position that
-- there is. They are of one moment, and no partition goes before the end of the
-- transaction, which has locked them all with this.
select a.position as begin_position, a.hash as begin_hash, h.position as end_position, h.hash as end_hash,
    coalesce((select max(e.position) from executor.execution_audit_event e), a.position)::bigint as last_position
from executor.execution_audit_head h
cross join lateral (
    select n.position, n.hash from executor.execution_audit_anchor n order by n.position desc limit 1
) a;

-- name: ReadAudit :many
-- The chain in its order, behind a place. Two events of one position, of which one
-- does not belong there, are both read.
select * from executor.execution_audit_event e
where (e.position, e.recorded_at) > (@position::bigint, @recorded_at::timestamptz)
order by e.position, e.recorded_at
limit @most::bigint;

-- name: ReadAuditPosition :many
-- The events of one position.
select * from executor.execution_audit_event e
where e.position = @position::bigint
order by e.recorded_at;

-- name: SummaryWithoutEvent :many
-- The first execution whose last event is not where it was recorded.
select s.execution_uid, s.last_position from executor.execution_summary s
where s.last_position > @begin_position::bigint
    and not exists (
        select from executor.execution_audit_event e
        where e.position = s.last_position and e.execution_uid = s.execution_uid)
order by s.last_position
limit 1;

-- name: ListAudit :many
-- Events from the newest. An execution is named, or meant by its UID.
select * from executor.execution_audit_event e
where e.position < @before::bigint
    and (@execution::text = '' or e.execution_uid = @execution::text
        or e.name = @execution_name::text and (@execution_namespace::text = '' or e.namespace = @execution_namespace::text))
    and (@target_name::text = '' or e.target_name = @target_name::text
        and (@target_namespace::text = '' or e.target_namespace = @target_namespace::text)
        and (@target_kind::text = '' or lower(e.target_kind) = lower(@target_kind::text))
        and (@target_in::text = '' or e.target_namespace = @target_in::text or lower(e.target_kind) = lower(@target_in::text)))
    and (@actor::text = '' or e.actor_id = @actor::text)
    and (@cluster::text = '' or e.cluster = @cluster::text)
    and e.event_time >= @since::timestamptz
order by e.position desc
limit @most::bigint;

-- name: GetSummary :many
select * from executor.execution_summary s where s.execution_uid = @execution_uid::text;

-- name: OpenExecutions :many
-- Executions that have neither ended nor been deleted, in the order of their UIDs.
select * from executor.execution_summary s
where s.execution_uid > @after::text and s.cluster = @cluster::text and s.namespace = @namespace::text
    and s.ended_at is null and s.deleted_at is null
order by s.execution_uid
limit @most::bigint;
