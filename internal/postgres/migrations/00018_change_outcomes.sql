-- +goose Up

-- What filters and counts need of each event, so that they do not read its payload.
alter table timeline.change_event
    add column failed  boolean not null default false,
    add column dry_run boolean not null default false;
update timeline.change_event set failed = payload->>'outcome' = 'failed', dry_run = payload->>'dryRun' = 'true'
where payload->>'outcome' = 'failed' or payload->>'dryRun' = 'true';
