-- +goose Up

-- The role of the web console. Roles belong to the whole server: another database of
-- ours may have made it already.
-- +goose StatementBegin
do $$
begin
    if not exists (select from pg_roles where rolname = 'fleet_console') then
        begin
            create role fleet_console nologin noinherit;
        exception when duplicate_object or unique_violation then
            null;
        end;
    end if;
    if not pg_has_role(current_user, 'fleet_console', 'member') then
        grant fleet_console to current_user;
    end if;
end
$$;
-- +goose StatementEnd

create schema console;

-- The sessions of the persons who are signed in. Neither a session's id nor a token can be
-- read from it: the first is stored as its hash, the second encrypted with a key that the
-- database does not have.
create table console.sessions (
    hash       bytea       primary key check (length(hash) = 32),
    sealed     bytea       not null,
    seen_at    timestamptz not null,
    expires_at timestamptz not null
);
create index sessions_seen_idx on console.sessions (seen_at);
create index sessions_expires_idx on console.sessions (expires_at);

grant usage on schema console to fleet_console;
grant select, insert, update, delete on console.sessions to fleet_console;
grant select on fleetloop_migrations to fleet_console;
