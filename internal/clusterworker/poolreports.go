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
	switch {
	case isShootDeleted(row):
		return appendFinalizedCondition(r, true, "ShootDeleted", "The cluster and its machines are deleted")
	case isShootReady(row):
		return appendFinalizedCondition(r, true, "PoolDeleted", "The cluster is fully operational without the node pool")
	}
	return appendFinalizedCondition(r, false, "PoolExists", "Gardener is still removing the node pool")
}

func appendFinalizedCondition(report v1.Report, isTrue bool, reason, message string) v1.Report {
	report.Conditions = append(report.Conditions, newReportCondition(v1.ConditionFinalized, isTrue, reason, message))
	return report
}

// sendPoolReports reports on the node pools of a row that was reported on. statusIsCurrent is whether
// the row's status is known to be about the Shoot as it was last sent. Otherwise the
// Shoot may be ready with a pool that is being deleted, or without one that is being
// added.
func (b *Reporter) sendPoolReports(ctx context.Context, row Row, statusIsCurrent bool, now time.Time) error {
	if b.deps.Pools == nil || !row.Synced {
		return nil
	}
	pools, err := b.deps.Pools.ListSentPools(ctx, &row)
	if err != nil {
		return fmt.Errorf("report on the node pools of cluster %q: %w", row.ClusterID, err)
	}
	if isShootReady(&row) && !statusIsCurrent {
		row.Status, row.StatusMessage = v1.ShootProgressing, "Gardener accepted the last change; its status is not known yet"
	}
	for _, pool := range pools {
		_, err := b.deps.Fleet.Report(ctx, poolsCollection, pool.ID, BuildPoolReport(&row, pool, now))
		if httpStatusOrZero(err) == http.StatusNotFound {
			continue // the pool is gone and needs no report
		}
		if err != nil {
			return fmt.Errorf("report on node pool %q: %w", pool.ID, err)
		}
	}
	return nil
}
