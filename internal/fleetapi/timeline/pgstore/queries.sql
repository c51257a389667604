-- name: Bounds :one
select epoch::uuid, current::boolean, settled::xid8, known::xid8, more::boolean
from timeline.bounds(@xact::xid8, @seq::bigint);

-- name: Horizon :one
select epoch::uuid, current::boolean, xact::xid8, seq::bigint from timeline.horizon();

-- name: Renew :exec
select timeline.renew_feed();

-- name: Keep :many
select keep::text from timeline.maintain_partitions(@retention::interval) as keep;

-- name: OverdueWeeks :one
select count(*)::integer
from pg_catalog.pg_inherits i join pg_catalog.pg_class c on c.oid = i.inhrelid
where i.inhparent = 'timeline.change_event'::regclass
    and case when c.relname ~ '^change_event_\d{4}_\d\d_\d\d$' then
        (to_date(right(c.relname, 10), 'YYYY_MM_DD') + 7)::timestamp at time zone 'UTC' <= clock_timestamp() - @retention::interval end;

-- name: ForgetKeys :one
select timeline.delete_expired_keys(@retention, @most);

-- name: UnknownClusters :many
select n.name::text from unnest(@names::text[]) as n (name)
where not exists (select from tenant.resources r where r.kind = 'Cluster' and r.name = n.name)
order by n.name;

-- name: ForgetFields :one
select timeline.delete_expired_fields(@retention, @most);
