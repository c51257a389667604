-- +goose Up

-- Each tenant reads its own clusters, with their sync, by the name of the table.
create policy one_tenant on tenant.clusters for select to fleet_api
    using (tenant = current_setting('fleetloop.tenant', true));
create policy all_tenants on tenant.clusters for select to fleet_api_all_tenants using (true);
grant select on tenant.clusters to fleet_api, fleet_api_all_tenants;
