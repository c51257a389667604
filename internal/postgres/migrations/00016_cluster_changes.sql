-- +goose Up

-- What sinks of change events have still to be told of Shoots: a row for each
-- change and sink, written by the statement that makes the change, and removed when
-- the sink has taken it. The cluster may be gone by then. due_at is also the lease of
-- whoever is sending it.
create table tenant.cluster_change_events (
    seq        bigint      generated always as identity primary key,
    sink       text        collate "C" not null,
    cluster_id uuid        not null,
    change     text        not null,
    created_at timestamptz not null default now(),
    due_at     timestamptz not null default now(),
    failures   integer     not null default 0
);
create index cluster_change_events_order_idx on tenant.cluster_change_events (sink, cluster_id, seq);
create index cluster_change_events_created_idx on tenant.cluster_change_events (created_at);

alter table tenant.cluster_change_events enable row level security;
create policy workers on tenant.cluster_change_events to cluster_worker using (true);
grant select, insert, update, delete on tenant.cluster_change_events to cluster_worker;
