-- +goose Up

-- Strings that the owner stores with the resource and that selectors do not see, such as the fields that "fleetloop apply"
-- has set. The default of the existing rows is kept in the catalogue; no row is written.
alter table tenant.resources add column annotations jsonb not null default '{}';

-- The columns of a view are those at its creation.
create or replace view tenant.all_resources as select * from tenant.resources;
