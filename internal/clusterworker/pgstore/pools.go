package pgstore

import (
	"context"

	"github.com/fleetloop/fleetloop/internal/clusterworker"
)

// readPools reads the cluster's row and its node pools at one point in time. While the
// row is synced, Gardener has received the node pools as they are.
const readPools = `select n.id::text, n.name::text, n.generation, n.deleted_time is not null
from tenant.cluster_sync s
join tenant.nodepools n on n.owner_id = s.cluster_id
where s.cluster_id = $1 and s.report_version = $2 and s.synced is not null
order by n.id`

// ListSentPools returns the node pools of a cluster. It returns none if Gardener has not
// received their current state, or the row has changed since it was read.
func (s *Store) ListSentPools(ctx context.Context, row *clusterworker.Row) ([]clusterworker.PoolSent, error) {
	return queryStructs[clusterworker.PoolSent](ctx, s.db, "read node pools", readPools, row.ClusterID, row.ReportVersion)
}
