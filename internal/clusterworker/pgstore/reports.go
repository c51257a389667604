package pgstore

import (
	"context"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/clusterworker/pgstore/db"
)

// ListDueReports returns rows whose report is due.
func (s *Store) ListDueReports(ctx context.Context, limit int) ([]clusterworker.Row, error) {
	return s.db.querySyncRows(ctx, db.DueReports, int64(limit))
}

// RecordReports records reports. The report of a row that another transaction has locked is
// repeated.
func (s *Store) RecordReports(ctx context.Context, reports []clusterworker.Reported) error {
	n := len(reports)
	ids, versions, nexts := make([]string, n), make([]int64, n), make([]int64, n)
	for i, r := range reports {
		ids[i], versions[i], nexts[i] = r.ClusterID, r.Version, min(max(r.Next, 0), maxDelay).Microseconds()
	}
	return s.db.execStatement(ctx, "record reports", db.Reported, ids, versions, nexts)
}

// CountClusters counts the rows by their state. It reads the whole table.
func (s *Store) CountClusters(ctx context.Context) (clusterworker.ClusterCounts, error) {
	var t clusterworker.ClusterCounts
	into := []any{&t.Due, &t.Leased, &t.BackingOff, &t.Stuck, &t.Paused, &t.Synced, &t.OldestDue, &t.DeadRows, &t.OldestTransaction}
	err := s.db.queryRow(ctx, "count clusters by sync state", into, db.Tally, int32(v1.StuckAttempts))
	return t, err
}
