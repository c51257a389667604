package pgstore

import (
	"context"
	"strings"

	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/clusterworker/pgstore/db"
)

// buildListClustersSQL returns the statement that selects the columns of ReadClaimed from all rows.
func buildListClustersSQL() string {
	columns, _, _ := strings.Cut(db.ReadClaimed, "\nwhere ")
	return columns + "\nwhere s.cluster_id > $1 order by s.cluster_id limit $2"
}

// ListClusters returns up to limit clusters after the given id, in the order of ids. They
// have the form of claims, but are not claimed. The empty id is before the first.
func (s *Store) ListClusters(ctx context.Context, afterClusterID string, limit int) ([]clusterworker.Claim, error) {
	if afterClusterID == "" {
		afterClusterID = firstID
	}
	rows, err := queryStructs[db.ReadClaimedRow](ctx, s.db, "read clusters", buildListClustersSQL(), afterClusterID, int64(limit))
	if err != nil {
		return nil, err
	}
	claims := make([]clusterworker.Claim, len(rows))
	for i := range rows {
		claims[i] = toClaim(&rows[i])
	}
	return claims, nil
}
