-- +goose NO TRANSACTION
-- +goose Up

-- The order by the time of the last change. Without an index a list reads and sorts the
-- whole table. Only writes of users change the time; a report stays an update in place.

-- An index that could not be finished is left invalid, and is made anew.
-- +goose StatementBegin
do $$
declare
    broken regclass;
begin
    for broken in
        select i.indexrelid::regclass from pg_index i join pg_class c on c.oid = i.indexrelid
        where not i.indisvalid and c.relkind = 'i' and c.relnamespace = 'tenant'::regnamespace
            and c.relname ~ '^clusters_(tenant_)?updated_idx$'
    loop
        execute format('drop index %s', broken);
    end loop;
end
$$;
-- +goose StatementEnd

create index concurrently if not exists clusters_updated_idx on tenant.clusters (updated_time, id);
create index concurrently if not exists clusters_tenant_updated_idx on tenant.clusters (tenant, updated_time, id);
