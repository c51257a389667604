-- +goose Up

-- The UID of the Shoot whose creation was reported last by a change event. It differs from the UID of the Shoot that
-- exists if the result of that Shoot's creation was lost. Null: no creation was reported or, if a success is recorded, that
-- of shoot_uid, and the next claim notes it. No row is written here, so that workers of the release before can go on.
alter table tenant.cluster_sync add column reported_shoot_uid text collate "C";
grant update (reported_shoot_uid) on tenant.cluster_sync to cluster_worker;
