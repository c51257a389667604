-- +goose Up

-- A function in SQL is planned in every call, and these are called in most transactions. A session plans a function in
-- PL/pgSQL once. The bodies are those of 00025_restores.sql and 00026_standby.sql.
-- +goose StatementBegin
create or replace function tenant.history() returns text language plpgsql stable parallel safe as $$
begin
    return case when pg_catalog.pg_is_in_recovery() then (select f.history from tenant.change_feed f)
        else (select c.system_identifier::text from pg_catalog.pg_control_system() c)
            || '/' || pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 1, 8) -- the timeline
            || '/' || (select d.oid::text from pg_catalog.pg_database d where d.datname = pg_catalog.current_database())
            || '/' || pg_catalog.to_regclass('tenant.change_feed')::oid::text
            || coalesce('/' || (select r.id::text from tenant.restores r order by r.seq desc limit 1), '')
        end;
end
$$;
-- +goose StatementEnd

-- +goose StatementBegin
create or replace function tenant.history_id() returns text
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
    return left(md5(tenant.history()), 16);
end
$$;
-- +goose StatementEnd
