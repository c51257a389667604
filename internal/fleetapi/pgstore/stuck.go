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
	var parts [][]stuckRow
	err := s.pool.RunSnapshotBatch(ctx, toPostgresScope(scope), func(b *pgx.Batch) {
		b.Queue(uncompiled)
		b.Queue(inOrderOfTime)
		if !scope.All {
			b.Queue(inOrder)
		}
		statements := buildStuckQueries(scope, q)
		parts = make([][]stuckRow, len(statements))
		for i, c := range statements {
			b.Queue(c.sql.String(), c.args...).Query(func(rows pgx.Rows) error {
				var err error
				parts[i], err = pgx.AppendRows(parts[i], rows, scanStuckRow)
				return err
			})
		}
	})
	if err != nil {
		return fleetapi.StuckPage{}, wrapAndMarkUnavailable(err, "list what is stuck")
	}
	return mergeSortedStuckRows(parts, q.Limit), nil
}

// A stuckRow is a row of a part. Other is the position of the same cluster in the other part, if it
// is in both.
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
		if all[i].other == nil || at.Compare(*all[i].other) <= 0 && (i == 0 || all[i-1].ID != all[i].ID) {
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
	c.writeSQL("select ", stuckColumns, ", true from (select * from ", chooseResourceTable(scope),
		" where kind = '", kind, "' and phase <> '", string(v1.PhaseReady), "' and last_transition_time < statement_timestamp() - ", c.addArg(q.OlderThan, "interval"))
	c.writeStuckKeysetCondition("last_transition_time", "id", q)
	c.writeSQL(" order by last_transition_time, id limit ", c.addArg(q.Limit, "bigint"), ") r left join lateral (select * from ", c.syncsWithStateSQL(),
		" where cluster_id = r.id limit 1) s on r.kind = '", v1.KindCluster, "' order by r.last_transition_time, r.id")
	return c
}

// buildUnsyncedQuery returns the statement that reads clusters that are not synced.
func buildUnsyncedQuery(scope fleetapi.Scope, q fleetapi.StuckQuery) *sqlBuilder {
	c := new(sqlBuilder)
	c.writeSQL("select ", stuckColumns, ", false from (select * from ", c.syncsWithStateSQL(),
		" where synced is null and unsynced_since < statement_timestamp() - ", c.addArg(q.OlderThan, "interval"))
	c.writeStuckKeysetCondition("unsynced_since", "cluster_id", q)
	c.writeSQL(" order by unsynced_since, cluster_id limit ", c.addArg(q.Limit, "bigint"), ") s join lateral (select * from ", chooseResourceTable(scope),
		" where id = s.cluster_id and kind = '", v1.KindCluster, "' limit 1) r on true order by s.unsynced_since, s.cluster_id")
	return c
}

func (c *sqlBuilder) writeStuckKeysetCondition(sinceColumn, idColumn string, q fleetapi.StuckQuery) {
	if q.After.ID != "" {
		c.writeSQL(" and (", sinceColumn, ", ", idColumn, ") > (", c.addArg(q.After.Since, "timestamptz"), ", ", c.addArg(q.After.ID, "uuid"), ")")
	}
}

func scanStuckRow(row pgx.CollectableRow) (r stuckRow, err error) {
	var owner, ownerName, state, syncError, class, pausedBy, pauseReason, shootStatus, shootMessage *string
	var pausedAt, pausedUntil *time.Time
	var transition time.Time
	var due *time.Time
	var attempts *int
	var reports json.RawMessage
	var isSync, unready bool
	var waiting *v1.SyncWait
	sync := &v1.ClusterSync{}
	err = row.Scan(&r.Kind, &r.ID, &r.Name, &owner, &ownerName, &r.Phase, &r.Generation, &r.ObservedGeneration, &r.Deleting, &transition, &reports,
		&isSync, &state, &sync.Synced, &sync.UnsyncedSince, &attempts, &syncError, &class, &due, &pausedAt, &pausedUntil, &pausedBy, &pauseReason, &shootStatus, &shootMessage, &waiting, &unready)
	if err != nil {
		return r, err
	}
	r.OwnerID, r.OwnerName = derefOrZero(owner), derefOrZero(ownerName)
	if reports != nil {
		if err := json.Unmarshal(reports, &r.Reports); err != nil {
			return r, fmt.Errorf("read the reports on %s %q: %w", r.Kind, r.ID, err)
		}
	}
	r.Since = transition.UTC()
	if !isSync {
		return r, nil
	}
	sync.State, sync.Attempts, sync.Error, sync.ErrorClass = v1.SyncState(derefOrZero(state)), derefOrZero(attempts), derefOrZero(syncError), derefOrZero(class)
	sync.ShootStatus, sync.ShootStatusMessage = v1.ShootStatus(derefOrZero(shootStatus)), derefOrZero(shootMessage)
	if sync.State == v1.SyncPaused && pausedAt != nil { // otherwise the pause is over
		sync.PausedAt = pausedAt
		sync.Pause = &v1.SyncPause{Since: pausedAt.UTC(), By: derefOrZero(pausedBy), Reason: derefOrZero(pauseReason), Until: pausedUntil}
	}
	if sync.Synced == nil && sync.PausedAt == nil && due != nil {
		next := due.UTC()
		sync.NextAttempt = &next
	}
	if sync.State != v1.SyncRunning && sync.State != v1.SyncPaused {
		sync.Waiting = waiting
	}
	r.Sync = sync
	if sync.Synced == nil && sync.UnsyncedSince != nil {
		since := sync.UnsyncedSince.UTC()
		other := fleetapi.StuckPosition{Since: since, ID: r.ID}
		if !unready {
			other.Since, r.Since = r.Since, since
		}
		if r.Phase != v1.PhaseReady {
			r.other = &other
		}
	}
	return r, nil
}

// derefOrZero returns the value, or its zero value for null.
func derefOrZero[T any](pointer *T) T {
	var zero T
	if pointer == nil {
		return zero
	}
	return *pointer
}
