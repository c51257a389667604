package poller

import (
	"context"
	"fmt"
	"time"

	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

// compareWithList compares all rows with a list of all Shoots. The list is older than
// the rows: the Shoot of a cluster that is created meanwhile is not in it, but every
// Shoot in it had the time to get its row. For Shoots that were observed during the
// list, the list may be older than the stored state.
func (s *session) compareWithList(ctx context.Context, list *shoot.List, observedDuringList map[key]bool) error {
	began := time.Now()
	byName := make(map[string]*shoot.Observed, len(list.Shoots))
	for i := range list.Shoots {
		byName[list.Shoots[i].Name] = &list.Shoots[i]
	}
	clusters := map[string]bool{} // all clusters that were read
	claimed := map[string]bool{}  // names of Shoots that belong to a row
	for after := ""; ; {
		rows, err := s.readPage(ctx, after)
		if err != nil {
			return fmt.Errorf("read sync rows: %w", err)
		}
		var b batch
		for i := range rows {
			row := &rows[i]
			o := byName[row.ShootName]
			clusters[row.ClusterID] = true
			if ownShoot(row, s.installation, o) != nil {
				claimed[row.ShootName] = true
			}
			s.addToBatch(&b, row, observation{shoot: o, thorough: true, doubtful: observedDuringList[key{row.ClusterID, row.ShootName}]}, true)
		}
		if err := s.commitBatch(ctx, &b); err != nil {
			return err
		}
		if len(rows) < maxBatch {
			break
		}
		after = rows[len(rows)-1].ClusterID
	}
	s.book.retainOnly(clusters)
	var strangers []shoot.Observed
	for i := range list.Shoots {
		if !claimed[list.Shoots[i].Name] {
			strangers = append(strangers, list.Shoots[i])
		}
	}
	if err := s.handleShootsWithoutRow(ctx, strangers, Census{Listed: len(list.Shoots), Clusters: len(clusters)}); err != nil {
		return err
	}
	counts := s.book.countByStatus()
	s.metrics.setCounts(counts)
	s.state.noteListed(time.Now(), counts)
	s.log.InfoContext(ctx, "shoots compared with database", "shoots", len(list.Shoots), "rows", len(clusters), "took", time.Since(began).Round(time.Millisecond))
	return nil
}

// addMissingRows creates rows for clusters without one, for example after a restore or a
// load without the triggers that create them. Without a row no worker knows of a
// cluster.
func (s *session) addMissingRows(ctx context.Context) {
	for {
		ids, err := s.addMissingBatch(ctx)
		if err != nil {
			if ctx.Err() == nil {
				s.noteDatabaseFailure(ctx, "add missing sync rows", err)
			}
			return // retried before the next list
		}
		if len(ids) > 0 {
			s.metrics.missing.Add(float64(len(ids)))
			s.log.WarnContext(ctx, "missing sync rows added", "clusters", len(ids), "first_cluster_id", ids[0])
		}
		if len(ids) < maxBatch {
			return
		}
	}
}

func (s *session) addMissingBatch(ctx context.Context) ([]string, error) {
	ctx, cancel := queryTime(ctx)
	defer cancel()
	return s.deps.Store.AddMissingRows(ctx, maxBatch)
}

// forgetDeletedRows removes deleted rows from the cache, which no other step does without
// lists. The other entries stay useful until their Shoots are polled again.
func (s *session) forgetDeletedRows(ctx context.Context) {
	there := map[string]bool{}
	for after := ""; ; {
		rows, err := s.readPage(ctx, after)
		if err != nil {
			if ctx.Err() == nil {
				s.noteDatabaseFailure(ctx, "read cluster ids", err)
			}
			return // retried at the next list attempt
		}
		for i := range rows {
			there[rows[i].ClusterID] = true
		}
		if len(rows) < maxBatch {
			break
		}
		after = rows[len(rows)-1].ClusterID
	}
	s.book.retainOnly(there)
}

func (s *session) readPage(ctx context.Context, after string) ([]clusterworker.Row, error) {
	ctx, cancel := queryTime(ctx)
	defer cancel()
	return s.deps.Store.Rows(ctx, after, maxBatch)
}

// handleShootsWithoutRow handles Shoots without a row among those read. It requests a live
// read if the row is new or its status is deleted. The others are orphans.
func (s *session) handleShootsWithoutRow(ctx context.Context, strangers []shoot.Observed, census Census) error {
	census.Installation, census.Before = s.installation, s.orphans
	census.Now, census.MinAge, census.Delete = time.Now(), s.cfg.OrphanAge, s.cfg.DeleteOrphans
	for len(strangers) > 0 {
		part := strangers[:min(len(strangers), maxBatch)]
		strangers = strangers[len(part):]
		ids := make([]string, 0, len(part))
		for i := range part {
			if isID(part[i].Cluster) {
				ids = append(ids, part[i].Cluster)
			}
		}
		rows := map[string]*clusterworker.Row{}
		if len(ids) > 0 {
			var err error
			if rows, err = s.rowsOf(ctx, ids); err != nil {
				return err
			}
		}
		known := map[key]observation{}
		for i := range part {
			o := &part[i]
			row, ok := rows[o.Cluster]
			switch {
			case !ok:
				census.Orphans = append(census.Orphans, *o)
			case row.ShootName == o.Name:
				known[key{o.Cluster, o.Name}] = observation{shoot: o, thorough: true, doubtful: true}
			default:
				census.Strays = append(census.Strays, *o)
			}
		}
		census.Clusters += len(rows)
		s.inbox.putBack(known)
	}
	s.reportAndDeleteOrphans(ctx, census)
	return nil
}
