-- +goose Up
-- A server that leaves migrating to others has to know when they are done.
grant select on fleetloop_migrations to fleet_api, fleet_api_all_tenants;
