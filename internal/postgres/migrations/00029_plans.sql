-- +goose Up

-- Tenants see the sync of the clusters that they see. For EXISTS, the server could read all clusters of the tenant instead
-- of the one with the key, because it took a tenant to have few.
alter policy visible_clusters on tenant.cluster_sync
    using ((select r.tenant from tenant.clusters r where r.id = cluster_id) is not null);

-- They run with every change of a row, and would be planned each time.
alter function tenant.log_change() set plan_cache_mode = force_generic_plan;
alter function tenant.log_shoot_status() set plan_cache_mode = force_generic_plan;
