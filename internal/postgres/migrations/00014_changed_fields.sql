-- +goose Up

-- The paths of the fields that an event says were changed, and of what those
-- fields are within. Events that name no fields have none.
alter table timeline.change_event add column fields text[] collate "C" not null default '{}';

-- Finds events by a changed field. An index on the array would not do: GIN gives
-- no order, and its operators are not leakproof, so that row-level security keeps
-- tenants' queries from it. The rows of an event that is gone go by age.
create table timeline.changed_field (
    field  text        collate "C" not null,
    at     timestamptz not null,
    seq    bigint      not null,
    tenant text        collate "C",

    primary key (field, at, seq)
);
create index changed_field_at_idx on timeline.changed_field (at);

-- Removes the fields of events that are older than a retention, at most so many,
-- and returns how many it removed. It is for the role that serves all tenants.
-- +goose StatementBegin
create function timeline.delete_expired_fields(retention interval, most integer) returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    gone integer;
begin
    delete from timeline.changed_field f
    where (f.field, f.at, f.seq) in (
        select o.field, o.at, o.seq from timeline.changed_field o where o.at < clock_timestamp() - retention
        order by o.at limit most for update skip locked
    );
    get diagnostics gone = row_count;
    return gone;
end
$$;
-- +goose StatementEnd

revoke execute on function timeline.delete_expired_fields(interval, integer) from public;
grant execute on function timeline.delete_expired_fields(interval, integer) to fleet_api_all_tenants;

alter table timeline.changed_field enable row level security;
create policy one_tenant on timeline.changed_field to fleet_api
    using (tenant = current_setting('fleetloop.tenant', true));
create policy all_tenants on timeline.changed_field to fleet_api_all_tenants using (true);
grant select, insert on timeline.changed_field to fleet_api, fleet_api_all_tenants;
