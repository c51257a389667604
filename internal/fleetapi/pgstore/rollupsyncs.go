package pgstore

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
	"github.com/fleetloop/fleetloop/internal/postgres"
)

// buildUnsyncedCountsQuery returns the statement that counts the syncs that are not synced, by state.
// The state is that at the time of the statement. The states change as time passes, so no change could tell of them. The
// others are not read. Clusters that the counts do not include yet are left out, so that the synced
// ones are the rest. The oldest of each tenant is looked up by its time.
func buildUnsyncedCountsQuery() *sqlBuilder {
	c := new(sqlBuilder)
	c.writeSQL(`select w.tenant, w.state, w.n, w.since, o.cluster_id
	from (
		select m.tenant, s.state, count(*) as n, min(s.unsynced_since) filter (where s.synced is null) as since
		from `, buildSyncStateSubquery("(select * from tenant.all_cluster_syncs where synced is null union all "+
		"select * from tenant.all_cluster_syncs where synced is not null and paused_at is not null)", c.addArg(v1.StuckAttempts, "integer")), `
		join tenant.rollup_rows m on m.id = s.cluster_id and m.kind = '`, v1.KindCluster, `'
		group by grouping sets ((m.tenant, s.state), (s.state))
	) w left join lateral (
		select s.cluster_id from tenant.all_cluster_syncs s join tenant.rollup_rows m on m.id = s.cluster_id and m.kind = '`, v1.KindCluster, `'
		where s.synced is null and s.unsynced_since = w.since and (w.tenant is null or m.tenant = w.tenant) order by s.cluster_id limit 1
	) o on true`)
	return c
}

// saveSyncCounts replaces the counts of syncs.
const saveSyncCounts = `with counted as materialized (
	select k.* from unnest($1::text[], $2::text[], $3::bigint[], $4::timestamptz[], $5::uuid[]) as k (tenant, state, n, since, id)
), forgotten as (
	delete from tenant.rollup_syncs o where not exists (select from counted k where k.tenant is not distinct from o.tenant and k.state = o.state)
)
insert into tenant.rollup_syncs as o (tenant, state, n, oldest_since, oldest_id)
select k.tenant, k.state, k.n, k.since, k.id from counted k
on conflict on constraint rollup_syncs_key do update set n = excluded.n, oldest_since = excluded.oldest_since, oldest_id = excluded.oldest_id
	where (o.n, o.oldest_since, o.oldest_id) is distinct from (excluded.n, excluded.oldest_since, excluded.oldest_id)`

// changedSyncErrors selects the syncs whose error is not counted as it is, and outdatedSyncErrors
// those whose counted error is over. The name and the tenant are looked up only for the changed ones,
// because in most rounds all errors are counted already.
const (
	changedSyncErrors = `with changed as materialized (
		select s.cluster_id, s.sync_error, coalesce(s.unsynced_since, s.due_at) as since
		from tenant.all_cluster_syncs s
		left join tenant.rollup_reasons p on p.id = s.cluster_id and p.kind = 'Cluster' and p.source = 'sync'
		where s.synced is null and s.sync_error is not null
			and (p.id is null or p.digest <> md5(s.sync_error)::uuid or p.since <> coalesce(s.unsynced_since, p.since))
	)
	select c.cluster_id, m.tenant, r.name, c.sync_error, c.since
	from changed c
	join tenant.rollup_rows m on m.id = c.cluster_id and m.kind = 'Cluster'
	join lateral (select name from tenant.all_resources r where r.id = c.cluster_id and r.kind = 'Cluster' limit 1) r on true
	limit $1`
	outdatedSyncErrors = `select p.id from tenant.rollup_reasons p left join tenant.all_cluster_syncs s on s.cluster_id = p.id
	where p.source = 'sync' and (s.cluster_id is null or s.synced is not null or s.sync_error is null) limit $1`
)

// syncCountRows are rows of tenant.rollup_syncs, as the parameters of a statement.
type syncCountRows struct {
	tenants []*string
	states  []string
	counts  []int64
	since   []*time.Time
	ids     []*string
}

// updateSyncCountsAndReasons counts the states of the syncs, and their errors.
func (r *RollupCounter) updateSyncCountsAndReasons(
	ctx context.Context,
	tx postgres.Tx,
	position *rollupPosition,
) (hasMore bool, err error) {
	if position.recountKind != nil {
		return false, nil
	}
	var at time.Time
	if err := tx.QueryRow(ctx, "select statement_timestamp()").Scan(&at); err != nil {
		return false, fmt.Errorf("read the clock: %w", err)
	}
	counts, err := readUnsyncedCounts(ctx, tx)
	if err != nil {
		return false, err
	}
	keys, errs, hasMore, err := readChangedSyncErrors(ctx, tx)
	if err != nil {
		return false, err
	}
	// The change feed waits from the first write until the commit, so all of them are sent with the commit.
	nameFailure(tx.Queue(saveSyncCounts, counts.tenants, counts.states, counts.counts, counts.since, counts.ids), "save the counts of syncs")
	if len(keys.ids) > 0 {
		args := append([]any{keys.kinds, keys.ids}, errs.listStatementArgs()...)
		nameFailure(tx.Queue(buildReplaceReasonsSQL(syncReasons), args...), "count the errors of syncs")
	}
	if hasMore {
		return true, nil
	}
	nameFailure(tx.Queue("update tenant.rollup set syncs_as_of = $1", at), "save the age of the counts of syncs")
	r.deleteZeroCountsIfDue(tx)
	return false, nil
}

func readUnsyncedCounts(ctx context.Context, tx postgres.Tx) (counts syncCountRows, err error) {
	type countRow struct {
		Tenant   *string
		State    string
		Count    int64
		Since    *time.Time
		OldestID *string
	}
	query := buildUnsyncedCountsQuery()
	rows, err := collectRows(ctx, tx, pgx.RowToStructByPos[countRow], query.sql.String(), query.args...)
	if err != nil {
		return counts, fmt.Errorf("count the states of syncs: %w", err)
	}
	for _, row := range rows {
		counts.tenants, counts.states = append(counts.tenants, row.Tenant), append(counts.states, row.State)
		counts.counts = append(counts.counts, row.Count)
		counts.since, counts.ids = append(counts.since, row.Since), append(counts.ids, row.OldestID)
	}
	return counts, nil
}

// readChangedSyncErrors returns the reasons of syncs whose counted error differs. changedRows are the
// keys of all syncs whose counted error must be replaced. hasMore means that others remain.
func readChangedSyncErrors(ctx context.Context, tx postgres.Tx) (changedRows rowKeys, reasons reasonRows, hasMore bool, err error) {
	type errorRow struct {
		ID, Tenant, Name, Message string
		Since                     time.Time
	}
	changed, err := collectRows(ctx, tx, pgx.RowToStructByPos[errorRow], changedSyncErrors, rollBatch)
	if err != nil {
		return changedRows, reasons, false, fmt.Errorf("read the errors of syncs: %w", err)
	}
	for i := range changed {
		row := &changed[i]
		changedRows.add(v1.KindCluster, row.ID)
		reasons.addReason(reasonRow{
			key: fleetapi.Key{Kind: v1.KindCluster, ID: row.ID}, tenant: row.Tenant, source: v1.ReasonSourceSync, since: row.Since,
			reason: cmp.Or(fleetapi.NormalizeMessage(row.Message, row.Name, row.Tenant), "no message"), message: &row.Message,
		})
	}
	outdatedIDs, err := collectRows(ctx, tx, pgx.RowTo[string], outdatedSyncErrors, rollBatch)
	if err != nil {
		return changedRows, reasons, false, fmt.Errorf("read the errors of syncs that are over: %w", err)
	}
	for _, id := range outdatedIDs {
		changedRows.add(v1.KindCluster, id)
	}
	return changedRows, reasons, max(len(changed), len(outdatedIDs)) == rollBatch, nil
}
