package pgstore

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/clusterworker/pgstore/db"
)

// readClusters returns the statement that selects the columns of ReadClaimed from all rows.
func readClusters() string {
	columns, _, _ := strings.Cut(db.ReadClaimed, "\nwhere ")
	return columns + "\nwhere s.cluster_id > $1 order by s.cluster_id limit $2"
}

// Clusters returns up to limit clusters after the given id, in the order of ids. They
// have the form of claims, but are not claimed. The empty id is before the first.
func (s *Store) Clusters(ctx context.Context, after string, limit int) ([]clusterworker.Claim, error) {
	if after == "" {
		after = firstID
	}
	var rows []db.ReadClaimedRow
	if err := s.db.sendBatch(ctx, "read clusters", func(b *pgx.Batch) { collectRows(b.Queue(readClusters(), after, int64(limit)), &rows) }); err != nil {
		return nil, err
	}
	claims := make([]clusterworker.Claim, len(rows))
	for i := range rows {
		claims[i] = claimOf(&rows[i])
	}
	return claims, nil
}
