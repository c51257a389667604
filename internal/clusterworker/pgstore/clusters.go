package pgstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/clusterworker/pgstore/db"
)

// readClusters selects the columns of ReadClaimed.
const readClusters = `select s.cluster_id, coalesce(s.claim_token, 0), s.generation, s.sync_attempts, coalesce(s.error_class, '')::text, coalesce(s.unsynced_since, now()),
    coalesce(s.shoot_name, '')::text, coalesce(s.shoot_uid, '')::text,
    c.tenant::text, c.name::text, c.generation, c.spec, c.deleted_time is not null,
    p.ids, p.names, p.specs
from tenant.cluster_sync s
join tenant.clusters c on c.id = s.cluster_id
cross join lateral (
    select array_agg(n.id::text order by n.name, n.id) as ids,
        array_agg(n.name::text order by n.name, n.id) as names,
        array_agg(n.spec::text order by n.name, n.id) as specs
    from tenant.nodepools n where n.owner_id = s.cluster_id and n.deleted_time is null
) p
where s.cluster_id > $1 order by s.cluster_id limit $2`

// Clusters returns up to limit clusters after the given id, in the order of ids. They
// have the form of claims, but are not claimed. The empty id is before the first.
func (s *Store) Clusters(ctx context.Context, after string, limit int) ([]clusterworker.Claim, error) {
	if after == "" {
		after = firstID
	}
	var rows []db.ReadClaimedRow
	if err := s.sendBatch(ctx, func(b *pgx.Batch) { collectRows(b.Queue(readClusters, after, int64(limit)), &rows) }); err != nil {
		return nil, fmt.Errorf("read clusters: %w", err)
	}
	claims := make([]clusterworker.Claim, len(rows))
	for i := range rows {
		claims[i] = claimOf(&rows[i])
	}
	return claims, nil
}
