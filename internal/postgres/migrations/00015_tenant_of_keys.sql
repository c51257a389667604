-- +goose Up

-- A key belongs to the tenant of its event. Without the tenant, the role of one
-- tenant could insert the key of another tenant's event, which was then not stored.
-- Keys from before this migration belong to no tenant: an event that is sent again
-- after it is stored a second time.
alter table timeline.change_key add column tenant text collate "C" not null default '';
alter table timeline.change_key drop constraint change_key_pkey;
alter table timeline.change_key add primary key (key, tenant);

alter table timeline.change_key enable row level security;
create policy one_tenant on timeline.change_key to fleet_api
    using (tenant = current_setting('fleetloop.tenant', true));
create policy all_tenants on timeline.change_key to fleet_api_all_tenants using (true);
