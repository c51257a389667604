-- +goose Up

-- Tenants see the sync of the clusters that they see. For EXISTS, the server could read all clusters of the tenant instead
-- of the one with the key, because it took a tenant to have few.
alter policy visible_clusters on tenant.cluster_sync
    using ((select r.tenant from tenant.clusters r where r.id = cluster_id) is not null);
