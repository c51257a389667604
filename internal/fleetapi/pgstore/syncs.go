package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
	"github.com/fleetloop/fleetloop/internal/fleetapi/pgstore/db"
	"github.com/fleetloop/fleetloop/internal/fleetapi/timeline"
	"github.com/fleetloop/fleetloop/internal/postgres"
)

// syncColumns are the columns of a sync, in the order in which scanClusterSync reads them. They include
// the state, which syncsWithStateSQL computes.
const syncColumns = `s.cluster_id, r.name, s.state, s.synced, r.deleted_time is not null, s.unsynced_since,
	s.sync_attempts, s.sync_last_attempt, coalesce(s.sync_error, ''), coalesce(s.error_class, ''), s.due_at, coalesce(s.claimed_by, ''),
	s.paused_at, s.paused_until, coalesce(s.paused_by, ''), coalesce(s.pause_reason, ''),
	s.generation, s.synced_generation,
	coalesce(s.shoot_name, ''), coalesce(s.shoot_status, ''), coalesce(s.shoot_status_message, ''), s.shoot_status_updated,
	(select to_json(o) from (select w.since, w.reason, w.worker as reported_by from tenant.cluster_worker_outages w
		where w.until > statement_timestamp() order by w.since, w.worker limit 1) o)`

// pausedSQL is the condition that a sync is paused now. A pause whose time is over counts as ended,
// also before a worker ends it.
const pausedSQL = "(s.paused_at is not null and coalesce(s.paused_until > statement_timestamp(), true))"

// syncsWithStateSQL returns the table of syncs with the state of each, as v1.SyncState describes it. An
// expired claim does not count. The clock is that of the statement: it is never behind a due time
// set earlier in the transaction.
func (c *sqlBuilder) syncsWithStateSQL() string {
	return buildSyncStateSubquery("tenant.cluster_sync", c.addArg(v1.StuckAttempts, "integer"))
}

// buildSyncStateSubquery returns the table s of the syncs of a table, with their states.
func buildSyncStateSubquery(tableSQL, stuckAttemptsSQL string) string {
	return `(select s.*, case
	when ` + pausedSQL + ` then '` + string(v1.SyncPaused) + `'
	when s.synced is not null then '` + string(v1.SyncSynced) + `'
	when s.claim_token is not null and s.due_at > statement_timestamp() then '` + string(v1.SyncRunning) + `'
	when s.sync_attempts >= ` + stuckAttemptsSQL + ` then '` + string(v1.SyncStuck) + `'
	when s.sync_attempts > 0 and s.due_at > statement_timestamp() then '` + string(v1.SyncBackingOff) + `'
	else '` + string(v1.SyncPending) + `' end as state from ` + tableSQL + ` s) s`
}

func (c *sqlBuilder) joinClustersSQL() string {
	return " join tenant.resources r on r.id = s.cluster_id and r.kind = " + c.addArg(v1.KindCluster, "text")
}

func scanClusterSync(row pgx.CollectableRow) (v1.ClusterSync, error) {
	var s v1.ClusterSync
	var due time.Time
	var outage *v1.SyncWait
	var pause v1.SyncPause
	err := row.Scan(&s.ClusterID, &s.Name, &s.State, &s.Synced, &s.Deleting, &s.UnsyncedSince,
		&s.Attempts, &s.LastAttempt, &s.Error, &s.ErrorClass, &due, &s.ClaimedBy,
		&s.PausedAt, &pause.Until, &pause.By, &pause.Reason,
		&s.Generation, &s.SyncedGeneration,
		&s.ShootName, &s.ShootStatus, &s.ShootStatusMessage, &s.ShootStatusUpdated, &outage)
	if s.State != v1.SyncSynced && s.State != v1.SyncPaused {
		s.NextAttempt = &due
	}
	if s.State == v1.SyncPaused && s.PausedAt != nil {
		pause.Since = s.PausedAt.UTC()
		s.Pause = &pause
	} else {
		s.PausedAt = nil // the pause is over
	}
	waitsForWorker := s.State == v1.SyncPending || s.State == v1.SyncBackingOff || s.State == v1.SyncStuck
	if outage != nil && waitsForWorker {
		outage.For, outage.Since = v1.WaitingForGardener, outage.Since.UTC()
		s.Waiting = outage
	}
	if s.State != v1.SyncRunning {
		s.ClaimedBy = "" // the last worker is irrelevant when none is at work
	}
	for _, t := range []*time.Time{s.Synced, s.UnsyncedSince, s.LastAttempt, s.NextAttempt, s.PausedAt, pause.Until, s.ShootStatusUpdated} {
		if t != nil {
			*t = t.UTC()
		}
	}
	return s, err
}

func queueCollectSyncs(b *pgx.Batch, query *sqlBuilder, into *[]v1.ClusterSync) {
	queueCollect(query.queueOn(b), scanClusterSync, into)
}

// GetClusterSync returns the sync of one cluster.
func (s *Store) GetClusterSync(ctx context.Context, scope fleetapi.Scope, clusterID string) (v1.ClusterSync, error) {
	if !isUUIDText(clusterID) {
		return v1.ClusterSync{}, fleetapi.ErrNotFound
	}
	var found []v1.ClusterSync
	err := s.pool.RunBatch(ctx, toPostgresScope(scope), func(b *pgx.Batch) { queueCollectSyncs(b, buildClusterSyncQuery(clusterID), &found) })
	switch {
	case err != nil:
		return v1.ClusterSync{}, wrapAndMarkUnavailable(err, "read the sync of cluster %q", clusterID)
	case len(found) == 0:
		return v1.ClusterSync{}, fleetapi.ErrNotFound
	}
	return found[0], nil
}

func buildClusterSyncQuery(clusterID string) *sqlBuilder {
	c := new(sqlBuilder)
	c.writeSQL(
		"select ",
		syncColumns,
		" from ",
		c.syncsWithStateSQL(),
		c.joinClustersSQL(),
		" where s.cluster_id = ",
		c.addArg(clusterID, "uuid"),
	)
	return c
}

// ApplySyncAction applies an action. A retry that is not applied is rolled back.
func (s *Store) ApplySyncAction(
	ctx context.Context, scope fleetapi.Scope, clusterID string, change fleetapi.SyncChange,
) (sync v1.ClusterSync, applied bool, err error) {
	if !isUUIDText(clusterID) {
		return sync, false, fleetapi.ErrNotFound
	}
	err = s.pool.RunInTx(ctx, toPostgresScope(scope), func(ctx context.Context, tx postgres.Tx) error {
		sync, applied, err = applySyncActionInTx(ctx, tx, clusterID, &change)
		return err
	})
	switch {
	case errors.Is(err, errNotTaken):
		return sync, false, nil
	case errors.Is(err, fleetapi.ErrNotFound):
		return v1.ClusterSync{}, false, err
	case err != nil:
		return v1.ClusterSync{}, false, wrapAndMarkUnavailable(err, "%s the sync of cluster %q", change.Action, clusterID)
	}
	return sync, applied, nil
}

// errNotTaken rolls back the retry of a sync that cannot be retried now.
var errNotTaken = errors.New("not taken")

func applySyncActionInTx(
	ctx context.Context, tx postgres.Tx, clusterID string, change *fleetapi.SyncChange,
) (sync v1.ClusterSync, applied bool, err error) {
	statement, args, err := buildSyncActionStatement(clusterID, change)
	if err != nil {
		return sync, false, err
	}
	var before, after []v1.ClusterSync
	// The first statement locks the row, so each sees the result of the one before it.
	var b pgx.Batch
	b.Queue("select from tenant.cluster_sync where cluster_id = $1 for update", clusterID)
	queueCollectSyncs(&b, buildClusterSyncQuery(clusterID), &before)
	b.Queue(statement, args...)
	queueCollectSyncs(&b, buildClusterSyncQuery(clusterID), &after)
	if err := tx.RunBatch(ctx, &b); err != nil {
		return sync, false, err
	}
	if len(before) == 0 || len(after) == 0 {
		return sync, false, fleetapi.ErrNotFound
	}
	sync = after[0]
	if change.Action == fleetapi.SyncRetry {
		if sync.State != v1.SyncPending {
			return sync, false, errNotTaken
		}
		return sync, true, nil
	}
	if equalPauses(before[0].Pause, sync.Pause) {
		return sync, false, nil
	}
	return sync, true, recordSyncChangeInTimeline(ctx, tx, &sync, change)
}

func buildSyncActionStatement(clusterID string, change *fleetapi.SyncChange) (statement string, args []any, err error) {
	switch change.Action {
	case fleetapi.SyncRetry:
		return "select tenant.retry_cluster_sync($1::uuid)", []any{clusterID}, nil
	case fleetapi.SyncPause:
		return "select tenant.pause_cluster_sync($1::uuid, $2, $3, $4)",
			[]any{clusterID, nilIfZero(change.By), nilIfZero(change.Reason), nilIfZero(change.Until)}, nil
	case fleetapi.SyncResume:
		return "select tenant.resume_cluster_sync($1::uuid)", []any{clusterID}, nil
	}
	return "", nil, fmt.Errorf("unknown sync action %q", change.Action)
}

// equalPauses reports whether two pauses, nil for none, are the same.
func equalPauses(a, b *v1.SyncPause) bool {
	if a == nil || b == nil {
		return a == b
	}
	sameEnd := a.Until == b.Until || a.Until != nil && b.Until != nil && a.Until.Equal(*b.Until)
	return sameEnd && a.By == b.By && a.Reason == b.Reason && a.Since.Equal(b.Since)
}

func recordSyncChangeInTimeline(ctx context.Context, tx postgres.Tx, sync *v1.ClusterSync, applied *fleetapi.SyncChange) error {
	change := timeline.SyncPauseChange{
		ID: sync.ClusterID, Cluster: sync.Name, Action: timeline.ActionSyncResumed, Who: applied.By, Reason: applied.Reason, Until: applied.Until,
	}
	if applied.Action == fleetapi.SyncPause {
		change.Action = timeline.ActionSyncPaused
	}
	// The time is that after the lock, so that the events of a cluster are in order.
	const of = "select tenant, clock_timestamp() from tenant.resources where id = $1 and kind = $2"
	if err := tx.QueryRow(ctx, of, sync.ClusterID, v1.KindCluster).Scan(&change.Tenant, &change.At); err != nil {
		return fmt.Errorf("read the tenant: %w", err)
	}
	event, err := change.BuildEvent()
	if err != nil {
		return err
	}
	return insertTimelineEvents(ctx, tx, []timeline.Event{event})
}

// HasClusterWorker reports whether a cluster-worker is registered.
func (s *Store) HasClusterWorker(ctx context.Context) (registered bool, err error) {
	err = s.pool.RunBatch(ctx, toPostgresScope(fleetapi.Scope{}), func(b *pgx.Batch) {
		queueScanRow(b.Queue(db.HasClusterWorker), &registered)
	})
	if err != nil {
		return false, wrapAndMarkUnavailable(err, "read whether a cluster-worker is registered")
	}
	return registered, nil
}

// ListClustersWithUnsavedSync returns the clusters whose sync changed after their status was saved.
func (s *Store) ListClustersWithUnsavedSync(ctx context.Context, afterID string, limit int) (ids []string, err error) {
	afterID = cmp.Or(afterID, uuid.Nil.String())
	err = s.pool.RunBatch(ctx, toPostgresScope(fleetapi.Scope{All: true}), func(b *pgx.Batch) {
		queueCollectValues(b.Queue(db.UnsettledSyncs, afterID, limit), &ids)
	})
	if err != nil {
		return nil, wrapAndMarkUnavailable(err, "list clusters with a changed sync state")
	}
	return ids, nil
}

// ListClusterSyncs returns a page. It combines the syncs with work, which have partial indexes, with the
// rest, so that a million synced clusters do not slow it down.
func (s *Store) ListClusterSyncs(ctx context.Context, scope fleetapi.Scope, query fleetapi.SyncQuery) ([]v1.ClusterSync, error) {
	q := syncQuery{query}
	if q.After.ID != "" && !isUUIDText(q.After.ID) {
		return nil, nil // no row follows such a row
	}
	var dated, undated []v1.ClusterSync
	err := s.pool.RunSnapshotBatch(ctx, toPostgresScope(scope), func(b *pgx.Batch) {
		b.Queue(uncompiled)
		if q.includesAnyState(v1.SyncSynced, v1.SyncPaused) {
			queueCollectSyncs(b, q.buildSyncedOrPausedQuery(), &undated)
		}
		if !q.includesUnsynced() && !q.includesAnyState(v1.SyncPaused) {
			return
		}
		queueCollectSyncs(b, q.buildUndatedUnsyncedQuery(), &undated)
		if q.startsAfterDatedSyncs() {
			return
		}
		if q.includesUnsynced() {
			b.Queue(inOrderOfTime)
		}
		queueCollectSyncs(b, q.buildDatedUnsyncedQuery(), &dated)
	})
	if err != nil {
		return nil, wrapAndMarkUnavailable(err, "list the syncs of clusters")
	}
	slices.SortFunc(undated, func(a, b v1.ClusterSync) int { return strings.Compare(a.ClusterID, b.ClusterID) })
	list := append(dated, undated...)
	return list[:min(q.Limit, len(list))], nil
}

// uncompiled disables just-in-time compilation. Row-level security makes the statements look so
// expensive that the server would compile them, for longer than they run.
const uncompiled = "select set_config('jit', 'off', true)"

// inOrderOfTime makes the list of waiting syncs use the index with its order until the page is
// full. The planner estimates every state as rare, and would otherwise collect and sort all waiting
// syncs. The few paused ones have a separate index, and must be sorted.
const inOrderOfTime = "select set_config('enable_sort', 'off', true)"

// A syncQuery builds the statements that read a page.
type syncQuery struct{ fleetapi.SyncQuery }

func (q syncQuery) includesAnyState(states ...v1.SyncState) bool {
	return len(q.States) == 0 || slices.ContainsFunc(states, func(s v1.SyncState) bool { return slices.Contains(q.States, s) })
}

// includesUnsynced reports whether the query includes syncs that wait for a worker or have one.
func (q syncQuery) includesUnsynced() bool {
	return q.includesAnyState(v1.SyncPending, v1.SyncRunning, v1.SyncBackingOff, v1.SyncStuck)
}

// startsAfterDatedSyncs reports whether the page begins after all syncs that wait since a known time.
func (q syncQuery) startsAfterDatedSyncs() bool { return q.After.ID != "" && q.After.Since.IsZero() }

// buildDatedUnsyncedQuery returns the statement that reads the syncs with work since a known time.
func (q syncQuery) buildDatedUnsyncedQuery() *sqlBuilder {
	c := new(sqlBuilder)
	page := c.syncsWithStateSQL() + " where s.synced is null and s.unsynced_since is not null" + q.stateConditionSQL(c)
	if q.After.ID != "" {
		page += " and (s.unsynced_since, s.cluster_id) > (" + c.addArg(q.After.Since, "timestamptz") + ", " + c.addArg(q.After.ID, "uuid") + ")"
	}
	c.writeSyncPageSelect(page, q.Limit)
	return c
}

// buildUndatedUnsyncedQuery returns the statement that reads syncs with work since an unknown time, because
// they were marked by hand.
func (q syncQuery) buildUndatedUnsyncedQuery() *sqlBuilder {
	c := new(sqlBuilder)
	page := c.syncsWithStateSQL() + " where s.synced is null and s.unsynced_since is null" + q.stateConditionSQL(c)
	if q.startsAfterDatedSyncs() {
		page += " and s.cluster_id > " + c.addArg(q.After.ID, "uuid")
	}
	c.writeSyncPageSelect(page, q.Limit)
	return c
}

// stateConditionSQL returns the condition that a sync with work is in one of the wanted states. Where
// possible it avoids the computed state, so that the planner understands it.
func (q syncQuery) stateConditionSQL(into *sqlBuilder) string {
	all := true
	for _, state := range []v1.SyncState{v1.SyncPending, v1.SyncRunning, v1.SyncBackingOff, v1.SyncStuck} {
		all = all && q.includesAnyState(state)
	}
	switch {
	case all && q.includesAnyState(v1.SyncPaused):
		return ""
	case all:
		return " and not " + pausedSQL
	case !q.includesUnsynced():
		return " and s.paused_at is not null and " + pausedSQL
	}
	return " and s.state = any(" + into.addArg(q.States, "text[]") + ")"
}

// writeSyncPageSelect selects syncs along the index of those with work, and joins only the clusters of the page.
func (c *sqlBuilder) writeSyncPageSelect(fromSQL string, limit int) {
	const order = " order by s.unsynced_since, s.cluster_id"
	c.writeSQL("select ", syncColumns, " from (select s.* from ", fromSQL, order, " limit ", c.addArg(limit, "bigint"), ") s", c.joinClustersSQL(), order)
}

// buildSyncedOrPausedQuery returns the statement that reads the syncs without work. Those of a tenant are found
// through its clusters.
func (q syncQuery) buildSyncedOrPausedQuery() *sqlBuilder {
	c := new(sqlBuilder)
	c.writeSQL("select ", syncColumns, " from ", c.syncsWithStateSQL(), c.joinClustersSQL(), " where s.synced is not null")
	switch {
	case !q.includesAnyState(v1.SyncSynced):
		c.writeSQL(" and s.paused_at is not null and " + pausedSQL)
	case !q.includesAnyState(v1.SyncPaused):
		c.writeSQL(" and not " + pausedSQL)
	}
	if q.startsAfterDatedSyncs() {
		after := c.addArg(q.After.ID, "uuid")
		c.writeSQL(" and s.cluster_id > ", after, " and r.id > ", after)
	}
	c.writeSQL(" order by s.cluster_id limit ", c.addArg(q.Limit, "bigint"))
	return c
}
