package poller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

// reconcileAllRowsWithList compares all rows with a list of all Shoots. The list is older than
// the rows: the Shoot of a cluster that is created meanwhile is not in it, but every
// Shoot in it had the time to get its row. For Shoots that were observed during the
// list, the list may be older than the stored state.
func (s *leaderSession) reconcileAllRowsWithList(ctx context.Context, list *shoot.List, maybeStaleInList map[shootKey]bool) error {
	began := time.Now()
	byName := make(map[string]*shoot.Observed, len(list.Shoots))
	for i := range list.Shoots {
		byName[list.Shoots[i].Name] = &list.Shoots[i]
	}
	clusters := map[string]bool{} // all clusters that were read
	err := s.poller.forEachPageOfRows(ctx, func(rows []clusterworker.Row) error {
		var batch pendingWrites
		for i := range rows {
			row := &rows[i]
			clusters[row.ClusterID] = true
			observed := observation{
				shoot:      byName[row.ShootName],
				checkDrift: true,
				mayBeStale: maybeStaleInList[shootKey{row.ClusterID, row.ShootName}],
			}
			s.writer.queueRowWritesAndLiveRead(&batch, row, observed, true)
			if shootIfOwnedByRow(row, s.installation, observed.shoot) != nil {
				delete(byName, row.ShootName)
			}
		}
		return s.writer.writeBatch(ctx, &batch)
	})
	if err != nil {
		return err
	}
	s.cache.removeAllExcept(clusters)
	candidates := OrphanCandidates{Listed: len(list.Shoots), Clusters: len(clusters)}
	if err := s.recheckOrCleanShootsWithoutRow(ctx, slices.Collect(maps.Values(byName)), candidates); err != nil {
		return err
	}
	counts := s.cache.countRowsByStatus()
	s.poller.metrics.setShootCounts(counts)
	s.poller.state.updateStats(func(now *Stats) { now.LastList, now.Shoots = time.Now(), counts })
	s.poller.log.InfoContext(ctx, "shoots compared with database", "shoots", len(list.Shoots), "rows", len(clusters), "took", time.Since(began).Round(time.Millisecond))
	return nil
}

// recheckOrCleanShootsWithoutRow handles Shoots without a row among those read. It requests a live
// read if the row is new or its status is deleted. The others are orphans.
func (s *leaderSession) recheckOrCleanShootsWithoutRow(ctx context.Context, shoots []*shoot.Observed, candidates OrphanCandidates) error {
	for part := range slices.Chunk(shoots, maxBatch) {
		rows, err := s.poller.readRowsByClusterID(ctx, listClusterIDs(part))
		if err != nil {
			return err
		}
		candidates.Clusters += len(rows)
		recheck := map[shootKey]observation{}
		for _, observed := range part {
			row, ok := rows[observed.Cluster]
			switch {
			case !ok:
				candidates.Orphans = append(candidates.Orphans, *observed)
			case row.ShootName == observed.Name:
				recheck[shootKey{observed.Cluster, observed.Name}] = observation{shoot: observed, checkDrift: true, mayBeStale: true}
			default:
				candidates.Strays = append(candidates.Strays, *observed)
			}
		}
		s.inbox.putBackObservations(recheck)
	}
	s.orphans.reportOrphansAndStartDeletion(ctx, candidates)
	return nil
}

func listClusterIDs(shoots []*shoot.Observed) (ids []string) {
	for _, observed := range shoots {
		if isClusterID(observed.Cluster) {
			ids = append(ids, observed.Cluster)
		}
	}
	return ids
}

// insertMissingRows creates rows for clusters without one. Rows are missing after a restore, or a
// load without the triggers that create them. Without a row no worker knows of a cluster.
func (s *leaderSession) insertMissingRows(ctx context.Context) {
	for {
		queryCtx, cancel := withReadTimeout(ctx)
		ids, err := s.poller.deps.Store.AddMissingRows(queryCtx, maxBatch)
		cancel()
		if err != nil {
			s.countAndLogDatabaseFailure(ctx, "add missing sync rows", err)
			return // retried before the next list
		}
		if len(ids) > 0 {
			s.poller.metrics.missing.Add(float64(len(ids)))
			s.poller.log.WarnContext(ctx, "missing sync rows added", "clusters", len(ids), "first_cluster_id", ids[0])
		}
		if len(ids) < maxBatch {
			return
		}
	}
}

// evictDeletedRowsFromCache removes deleted rows from the cache, which no other step does without
// lists. The other entries stay useful until their Shoots are polled again.
func (s *leaderSession) evictDeletedRowsFromCache(ctx context.Context) {
	existing := map[string]bool{}
	err := s.poller.forEachPageOfRows(ctx, func(rows []clusterworker.Row) error {
		for i := range rows {
			existing[rows[i].ClusterID] = true
		}
		return nil
	})
	if err != nil {
		s.countAndLogDatabaseFailure(ctx, "read cluster ids", err)
		return // retried at the next list attempt
	}
	s.cache.removeAllExcept(existing)
}

// forEachPageOfRows calls handle for all rows, a page at a time.
func (p *Poller) forEachPageOfRows(ctx context.Context, handle func(rows []clusterworker.Row) error) error {
	for after := ""; ; {
		queryCtx, cancel := withReadTimeout(ctx)
		rows, err := p.deps.Store.ListRows(queryCtx, after, maxBatch)
		cancel()
		if err != nil {
			return fmt.Errorf("read sync rows: %w", err)
		}
		if err := handle(rows); err != nil || len(rows) < maxBatch {
			return err
		}
		after = rows[len(rows)-1].ClusterID
	}
}

// readRowsByClusterID reads the existing rows of the given clusters.
func (p *Poller) readRowsByClusterID(ctx context.Context, clusterIDs []string) (map[string]*clusterworker.Row, error) {
	if len(clusterIDs) == 0 {
		return nil, nil
	}
	ctx, cancel := withReadTimeout(ctx)
	defer cancel()
	list, err := p.deps.Store.ListRowsOfClusters(ctx, clusterIDs)
	if err != nil {
		return nil, fmt.Errorf("read sync rows of %d clusters: %w", len(clusterIDs), err)
	}
	rows := make(map[string]*clusterworker.Row, len(list))
	for i := range list {
		rows[list[i].ClusterID] = &list[i]
	}
	return rows, nil
}
