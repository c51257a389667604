-- +goose Up

-- Deliveries that fail or were given up are few, and are read in order, of a tenant or of all.
create index cluster_change_events_failing_idx on tenant.cluster_change_events (first_attempt_at) where failures > 0;
create index cluster_change_events_failing_tenant_idx on tenant.cluster_change_events (tenant, first_attempt_at) where failures > 0;
create index cluster_change_deliveries_given_up_idx on tenant.cluster_change_deliveries (finished_at) where state in ('rejected', 'expired');
create index cluster_change_deliveries_given_up_tenant_idx on tenant.cluster_change_deliveries (tenant, finished_at) where state in ('rejected', 'expired');
