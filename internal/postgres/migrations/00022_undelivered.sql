-- +goose Up

-- Deliveries that fail or were given up are few, and are counted by tenant.
create index cluster_change_events_failing_idx on tenant.cluster_change_events (tenant) where failures > 0;
create index cluster_change_deliveries_given_up_idx on tenant.cluster_change_deliveries (tenant, finished_at) where state in ('rejected', 'expired');
