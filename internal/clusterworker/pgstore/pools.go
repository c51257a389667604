package pgstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fleetloop/fleetloop/internal/clusterworker"
)

// readPools reads the cluster's row and its node pools as of one time: while the
// row is synced, what the pools are is what Gardener was sent.
const readPools = `select n.id::text, n.name::text, n.generation, n.deleted_time is not null
from tenant.cluster_sync s
join tenant.nodepools n on n.owner_id = s.cluster_id
where s.cluster_id = $1 and s.report_version = $2 and s.synced is not null
order by n.id`

// PoolsSent gives the node pools of a cluster, if Gardener was sent them as they
// are and nothing has happened to the cluster's sync since its row was read.
func (s *Store) PoolsSent(ctx context.Context, row *clusterworker.Row) ([]clusterworker.PoolSent, error) {
	var pools []clusterworker.PoolSent
	err := s.sendBatch(ctx, func(b *pgx.Batch) { collectRows(b.Queue(readPools, row.ClusterID, row.ReportVersion), &pools) })
	if err != nil {
		return nil, fmt.Errorf("read node pools: %w", err)
	}
	return pools, nil
}
