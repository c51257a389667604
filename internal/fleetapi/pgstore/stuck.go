package pgstore

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
)

// ListStuckResources reads the rows that are not ready and the clusters that are not synced, and
// merges them. Each part is read along the index with its order. A cluster that is both appears at the earlier of its two times.
// Each part reads no more rows than the limit, so a page costs the same whatever it leaves out.
func (s *Store) ListStuckResources(ctx context.Context, scope fleetapi.Scope, q fleetapi.StuckQuery) (fleetapi.StuckPage, error) {
	if q.After.ID != "" && !isUUIDText(q.After.ID) {
		return fleetapi.StuckPage{}, nil // no row follows such a row
	}
	statements := buildStuckQueries(scope, q)
	parts := make([][]stuckRow, len(statements))
	err := s.pool.RunSnapshotBatch(ctx, toPostgresScope(scope), func(b *pgx.Batch) {
		b.Queue(uncompiled)
		b.Queue(inOrderOfTime)
		if !scope.All {
			b.Queue(inOrder)
		}
		for i, c := range statements {
			queueCollect(c.queueOn(b), scanStuckRow, &parts[i])
		}
	})
	if err != nil {
		return fleetapi.StuckPage{}, wrapAndMarkUnavailable(err, "list what is stuck")
	}
	return mergeSortedStuckRows(parts, q.Limit), nil
}

// A stuckRow is a row of a part. Other is the position of the same cluster in the other part, if it is in both.
type stuckRow struct {
	fleetapi.StuckRow

	other *fleetapi.StuckPosition
}

func (r *stuckRow) sortPosition() fleetapi.StuckPosition {
	return fleetapi.StuckPosition{Since: r.Since, ID: r.ID}
}

// mergeSortedStuckRows merges the parts in order. A part that is full may have more rows, so the page ends
// where the first full part ends.
func mergeSortedStuckRows(parts [][]stuckRow, limit int) (page fleetapi.StuckPage) {
	var all []stuckRow
	for _, rows := range parts {
		if len(rows) == limit {
			if end := rows[limit-1].sortPosition(); page.Next == nil || end.Compare(*page.Next) < 0 {
				page.Next = &end
			}
		}
		all = append(all, rows...)
	}
	slices.SortFunc(all, func(a, b stuckRow) int { return a.sortPosition().Compare(b.sortPosition()) })
	for i := range all {
		at := all[i].sortPosition()
		if page.Next != nil && at.Compare(*page.Next) > 0 {
			break
		}
		isRepeated := i > 0 && all[i-1].ID == all[i].ID
		isLater := all[i].other != nil && at.Compare(*all[i].other) > 0
		if all[i].other == nil || !isLater && !isRepeated {
			page.Rows = append(page.Rows, all[i].StuckRow)
		}
	}
	return page
}

// buildStuckQueries returns one statement for the unready rows of each kind, and one for the clusters
// that are not synced.
func buildStuckQueries(scope fleetapi.Scope, q fleetapi.StuckQuery) []*sqlBuilder {
	var list []*sqlBuilder
	for _, kind := range q.Kinds {
		list = append(list, buildUnreadyQuery(scope, kind, q))
	}
	if slices.Contains(q.Kinds, v1.KindCluster) {
		list = append(list, buildUnsyncedQuery(scope, q))
	}
	return list
}

// stuckColumns are the columns of a StuckRow, from the row r, the sync s and the position since.
const stuckColumns = `r.kind, r.id, r.name, r.owner_id, (select o.name from tenant.resources o where o.id = r.owner_id and o.kind = '` + v1.KindCluster + `' limit 1),
	r.phase, r.generation, r.observed_generation, r.deleted_time is not null, r.last_transition_time,
	(select json_agg(json_build_object('adapter', a.adapter, 'observed_generation', a.observed_generation, 'conditions', a.conditions))
		from tenant.adapter_reports a where a.resource_id = r.id and a.kind = r.kind),
	s.cluster_id is not null, s.state, s.synced, s.unsynced_since, s.sync_attempts, s.sync_error, s.error_class, s.due_at, s.paused_at, s.paused_until, s.paused_by, s.pause_reason,
	s.shoot_status, s.shoot_status_message,
	(select to_json(o) from (select w.since, w.reason, w.worker as reported_by from tenant.cluster_worker_outages w
		where s.synced is null and w.until > statement_timestamp() order by w.since, w.worker limit 1) o)`

// buildUnreadyQuery returns the statement that reads rows of a kind that are not ready. The kind and
// the phase are constants, so that the planner sees the partial index.
func buildUnreadyQuery(scope fleetapi.Scope, kind string, q fleetapi.StuckQuery) *sqlBuilder {
	c := new(sqlBuilder)
	c.writeSQL(
		"select ",
		stuckColumns,
		", true from (select * from ",
		chooseResourceTable(scope),
		" where kind = '",
		kind,
		"' and phase <> '",
		string(v1.PhaseReady),
		"' and last_transition_time < statement_timestamp() - ",
		c.addArg(q.OlderThan, "interval"),
	)
	c.writeStuckKeysetCondition("last_transition_time", "id", q)
	c.writeSQL(
		" order by last_transition_time, id limit ",
		c.addArg(q.Limit, "bigint"),
		") r left join lateral (select * from ",
		c.syncsWithStateSQL(),
		" where cluster_id = r.id limit 1) s on r.kind = '",
		v1.KindCluster,
		"' order by r.last_transition_time, r.id",
	)
	return c
}

func buildUnsyncedQuery(scope fleetapi.Scope, q fleetapi.StuckQuery) *sqlBuilder {
	c := new(sqlBuilder)
	c.writeSQL("select ", stuckColumns, ", false from (select * from ", c.syncsWithStateSQL(),
		" where synced is null and unsynced_since < statement_timestamp() - ", c.addArg(q.OlderThan, "interval"))
	c.writeStuckKeysetCondition("unsynced_since", "cluster_id", q)
	c.writeSQL(
		" order by unsynced_since, cluster_id limit ",
		c.addArg(q.Limit, "bigint"),
		") s join lateral (select * from ",
		chooseResourceTable(scope),
		" where id = s.cluster_id and kind = '",
		v1.KindCluster,
		"' limit 1) r on true order by s.unsynced_since, s.cluster_id",
	)
	return c
}

func (c *sqlBuilder) writeStuckKeysetCondition(sinceColumn, idColumn string, q fleetapi.StuckQuery) {
	if q.After.ID != "" {
		c.writeSQL(" and (", sinceColumn, ", ", idColumn, ") > (", c.addArg(q.After.Since, "timestamptz"), ", ", c.addArg(q.After.ID, "uuid"), ")")
	}
}

// A stuckSyncColumns holds the columns of a sync, null for a row without one.
type stuckSyncColumns struct {
	exists                bool
	state                 *v1.SyncState
	synced, unsyncedSince *time.Time
	attempts              *int
	syncError, errorClass *string
	due                   *time.Time
	pausedAt, pausedUntil *time.Time
	pausedBy, pauseReason *string
	shootStatus           *v1.ShootStatus
	shootMessage          *string
	outage                *v1.SyncWait
}

// scanStuckRow scans stuckColumns, and whether the row is from the part of the rows that are not ready.
func scanStuckRow(row pgx.CollectableRow) (r stuckRow, err error) {
	var owner, ownerName *string
	var reports json.RawMessage
	var sync stuckSyncColumns
	var isUnreadyPart bool
	err = row.Scan(&r.Kind, &r.ID, &r.Name, &owner, &ownerName, &r.Phase, &r.Generation, &r.ObservedGeneration, &r.Deleting, &r.Since, &reports,
		&sync.exists, &sync.state, &sync.synced, &sync.unsyncedSince, &sync.attempts, &sync.syncError, &sync.errorClass, &sync.due,
		&sync.pausedAt, &sync.pausedUntil, &sync.pausedBy, &sync.pauseReason, &sync.shootStatus, &sync.shootMessage, &sync.outage, &isUnreadyPart)
	if err != nil {
		return r, err
	}
	r.OwnerID, r.OwnerName, r.Since = derefOrZero(owner), derefOrZero(ownerName), r.Since.UTC()
	if reports != nil {
		if err := json.Unmarshal(reports, &r.Reports); err != nil {
			return r, fmt.Errorf("read the reports on %s %q: %w", r.Kind, r.ID, err)
		}
	}
	if !sync.exists {
		return r, nil
	}
	r.Sync = sync.buildSync()
	if sync.synced != nil || sync.unsyncedSince == nil {
		return r, nil
	}
	// The row may be in both parts: since it is not ready, and since it is not synced.
	other := fleetapi.StuckPosition{Since: sync.unsyncedSince.UTC(), ID: r.ID}
	if !isUnreadyPart {
		r.Since, other.Since = other.Since, r.Since
	}
	if r.Phase != v1.PhaseReady {
		r.other = &other
	}
	return r, nil
}

func (s *stuckSyncColumns) buildSync() *v1.ClusterSync {
	sync := &v1.ClusterSync{
		State:              derefOrZero(s.state),
		Synced:             s.synced,
		UnsyncedSince:      s.unsyncedSince,
		Attempts:           derefOrZero(s.attempts),
		Error:              derefOrZero(s.syncError),
		ErrorClass:         derefOrZero(s.errorClass),
		ShootStatus:        derefOrZero(s.shootStatus),
		ShootStatusMessage: derefOrZero(s.shootMessage),
	}
	if sync.State == v1.SyncPaused && s.pausedAt != nil { // otherwise the pause is over
		sync.PausedAt = s.pausedAt
		sync.Pause = &v1.SyncPause{Since: s.pausedAt.UTC(), By: derefOrZero(s.pausedBy), Reason: derefOrZero(s.pauseReason), Until: s.pausedUntil}
	}
	if sync.Synced == nil && sync.PausedAt == nil {
		sync.NextAttempt = inUTC(s.due)
	}
	if sync.State != v1.SyncRunning && sync.State != v1.SyncPaused {
		sync.Waiting = s.outage
	}
	return sync
}

// derefOrZero returns the value, or its zero value for null.
func derefOrZero[T any](pointer *T) T {
	var zero T
	if pointer == nil {
		return zero
	}
	return *pointer
}
