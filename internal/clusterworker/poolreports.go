package clusterworker

import (
	"context"
	"fmt"
	"net/http"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// BuildPoolReport returns the report on a node pool whose current state Gardener has
// received, given the row of its cluster. A pool is as ready as its cluster's Shoot. A
// pool in deletion is finalized when the Shoot is ready without it, or gone itself. It
// is a pure function.
func BuildPoolReport(row *Row, pool PoolSent, now time.Time) v1.Report {
	now = now.UTC()
	r := v1.Report{
		Adapter: ReportAdapter, ObservedGeneration: pool.Generation, ObservedTime: &now,
		Conditions: []v1.ReportCondition{buildAvailableCondition(row), buildAppliedCondition(row), buildHealthCondition(row)},
		Data:       encodeShootDetails(row),
	}
	if !pool.Deleting {
		return r
	}
	r.Conditions[0] = newReportCondition(v1.ConditionAvailable, false, "PoolDeleting", "The node pool is being deleted")
	r.Conditions = append(r.Conditions, buildPoolFinalizedCondition(row))
	return r
}

func buildPoolFinalizedCondition(row *Row) v1.ReportCondition {
	switch {
	case isShootDeleted(row):
		return newReportCondition(v1.ConditionFinalized, true, "ShootDeleted", "The cluster and its machines are deleted")
	case isShootReady(row):
		return newReportCondition(v1.ConditionFinalized, true, "PoolDeleted", "The cluster is fully operational without the node pool")
	default:
		return newReportCondition(v1.ConditionFinalized, false, "PoolExists", "Gardener is still removing the node pool")
	}
}

// sendAllPoolReports reports on the node pools of a row that was reported on. statusIsCurrent is whether
// the row's status is known to be about the Shoot as it was last sent. Otherwise the
// Shoot may be ready with a pool that is being deleted, or without one that is being
// added.
func (r *Reporter) sendAllPoolReports(ctx context.Context, row Row, statusIsCurrent bool, now time.Time) error {
	if r.deps.Pools == nil || !row.Synced {
		return nil
	}
	pools, err := r.deps.Pools.ListSentPools(ctx, &row)
	if err != nil {
		return fmt.Errorf("report on the node pools of cluster %q: %w", row.ClusterID, err)
	}
	if row.IsStatusOutdated() || isShootReady(&row) && !statusIsCurrent {
		markStatusOutdated(&row)
	}
	for _, pool := range pools {
		_, err := r.deps.Fleet.Report(ctx, poolsCollection, pool.ID, BuildPoolReport(&row, pool, now))
		if httpStatusOrZero(err) == http.StatusNotFound {
			continue // the pool is gone and needs no report
		}
		if err != nil {
			return fmt.Errorf("report on node pool %q: %w", pool.ID, err)
		}
	}
	return nil
}
