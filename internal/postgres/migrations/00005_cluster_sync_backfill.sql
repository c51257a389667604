-- +goose NO TRANSACTION
-- +goose Up

-- The clusters that were there before the triggers, a few at a time. It waits
-- for nobody: a cluster that somebody is changing is left for the next round.
-- +goose StatementBegin
do $$
declare
    last    uuid := '00000000-0000-0000-0000-000000000000';
    skipped boolean := false;
    batch   uuid[];
    free    uuid[];
begin
    loop
        batch := array(
            select c.id from tenant.clusters c
            where c.id > last and not exists (select from tenant.cluster_sync s where s.cluster_id = c.id)
            order by c.id limit 200);
        if batch = '{}' then
            exit when not skipped;
            last := '00000000-0000-0000-0000-000000000000';
            skipped := false;
            perform pg_sleep(0.05);
            continue;
        end if;
        -- Locked, so that none is deleted before its row refers to it.
        free := array(select c.id from tenant.clusters c where c.id = any (batch) order by c.id for no key update skip locked);
        insert into tenant.cluster_sync (cluster_id) select f.id from unnest(free) as f (id)
        on conflict (cluster_id) do nothing;
        skipped := skipped or cardinality(free) < cardinality(batch);
        last := batch[cardinality(batch)];
        commit;
    end loop;
end
$$;
-- +goose StatementEnd
