package poller

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

// reconcileAllRowsWithList compares all rows with a list of all Shoots. The list is older than
// the rows: the Shoot of a cluster that is created meanwhile is not in it, but every
// Shoot in it had the time to get its row. For Shoots that were observed during the
// list, the list may be older than the stored state.
func (s *leaderSession) reconcileAllRowsWithList(ctx context.Context, list *shoot.List, observedDuringList map[shootKey]bool) error {
	began := time.Now()
	byName := make(map[string]*shoot.Observed, len(list.Shoots))
	for i := range list.Shoots {
		byName[list.Shoots[i].Name] = &list.Shoots[i]
	}
	clusters := map[string]bool{} // all clusters that were read
	claimed := map[string]bool{}  // names of Shoots that belong to a row
	err := s.poller.forEachPageOfRows(ctx, func(rows []clusterworker.Row) error {
		var b pendingWrites
		for i := range rows {
			row := &rows[i]
			o := byName[row.ShootName]
			clusters[row.ClusterID] = true
			if shootIfOwnedByRow(row, s.installation, o) != nil {
				claimed[row.ShootName] = true
			}
			s.writer.queueRowWritesAndLiveRead(&b, row, observation{shoot: o, thorough: true, doubtful: observedDuringList[shootKey{row.ClusterID, row.ShootName}]}, true)
		}
		return s.writer.writeBatch(ctx, &b)
	})
	if err != nil {
		return err
	}
	s.book.removeAllExcept(clusters)
	var strangers []shoot.Observed
	for i := range list.Shoots {
		if !claimed[list.Shoots[i].Name] {
			strangers = append(strangers, list.Shoots[i])
		}
	}
	if err := s.recheckOrCleanShootsWithoutRow(ctx, strangers, OrphanCandidates{Listed: len(list.Shoots), Clusters: len(clusters)}); err != nil {
		return err
	}
	counts := s.book.countRowsByStatus()
	s.poller.metrics.setShootCounts(counts)
	s.poller.state.updateStats(func(now *Stats) { now.LastList, now.Shoots = time.Now(), counts })
	s.poller.log.InfoContext(ctx, "shoots compared with database", "shoots", len(list.Shoots), "rows", len(clusters), "took", time.Since(began).Round(time.Millisecond))
	return nil
}

// insertMissingRows creates rows for clusters without one. Rows are missing after a restore, or a
// load without the triggers that create them. Without a row no worker knows of a cluster.
func (s *leaderSession) insertMissingRows(ctx context.Context) {
	for {
		qctx, cancel := withReadTimeout(ctx)
		ids, err := s.poller.deps.Store.AddMissingRows(qctx, maxBatch)
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
	there := map[string]bool{}
	err := s.poller.forEachPageOfRows(ctx, func(rows []clusterworker.Row) error {
		for i := range rows {
			there[rows[i].ClusterID] = true
		}
		return nil
	})
	if err != nil {
		s.countAndLogDatabaseFailure(ctx, "read cluster ids", err)
		return // retried at the next list attempt
	}
	s.book.removeAllExcept(there)
}

// recheckOrCleanShootsWithoutRow handles Shoots without a row among those read. It requests a live
// read if the row is new or its status is deleted. The others are orphans.
func (s *leaderSession) recheckOrCleanShootsWithoutRow(ctx context.Context, shoots []shoot.Observed, candidates OrphanCandidates) error {
	for part := range slices.Chunk(shoots, maxBatch) {
		ids := make([]string, 0, len(part))
		for i := range part {
			if isClusterID(part[i].Cluster) {
				ids = append(ids, part[i].Cluster)
			}
		}
		rows, err := s.poller.readRowsByClusterID(ctx, ids)
		if err != nil {
			return err
		}
		known := map[shootKey]observation{}
		for i := range part {
			o := &part[i]
			row, ok := rows[o.Cluster]
			switch {
			case !ok:
				candidates.Orphans = append(candidates.Orphans, *o)
			case row.ShootName == o.Name:
				known[shootKey{o.Cluster, o.Name}] = observation{shoot: o, thorough: true, doubtful: true}
			default:
				candidates.Strays = append(candidates.Strays, *o)
			}
		}
		candidates.Clusters += len(rows)
		s.inbox.putBackObservations(known)
	}
	s.orphans.reportAndDeleteOrphans(ctx, candidates)
	return nil
}

// forEachPageOfRows calls handle for all rows, a page at a time.
func (p *Poller) forEachPageOfRows(ctx context.Context, handle func(rows []clusterworker.Row) error) error {
	for after := ""; ; {
		qctx, cancel := withReadTimeout(ctx)
		rows, err := p.deps.Store.ListRows(qctx, after, maxBatch)
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
