package fleetapi

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/fleetapi/rest"
)

// adapterGardener is the adapter name of the cluster-worker.
const adapterGardener = "gardener"

const (
	// unsettledEvery is the interval of the search for clusters whose sync has changed.
	unsettledEvery = time.Second
	// unsettledBatch is the number of clusters read at a time.
	unsettledBatch = 100
)

// ErrShootExists means that the row of a cluster cannot be removed, because its Shoot is not confirmed gone.
var ErrShootExists = errors.New("the deletion of the cluster's Shoot is not confirmed")

// A ShootState is the recorded state of the Shoot of a locked cluster. The zero value is that of an
// installation without a cluster-worker.
type ShootState struct {
	// Guarded reports whether a cluster-worker is registered: the row of the cluster stays until
	// its Shoot is confirmed gone.
	Guarded bool
	// Gone reports whether a cluster-worker has confirmed that the Shoot does not exist and will
	// not be created. It is true only while the cluster is being deleted.
	Gone bool
	// Synced reports whether Gardener has the current spec of the cluster.
	Synced bool
	// StatusOutdated reports whether the status ready or error of the Shoot is about the Shoot before its last change.
	StatusOutdated bool
	// Attempts is the number of consecutive failures of the sync.
	Attempts int
	// Generation is the cluster's generation at the last attempt, 0 before the first one.
	Generation int64
	// Version rises with every change that affects the status of the cluster.
	Version int64
	// Unsaved reports whether the saved status of the cluster does not include this Version.
	Unsaved bool
}

// deletionWaitsForShoot reports whether new rows of a kind are guarded by their Shoot.
func (rs *resourceService) deletionWaitsForShoot(ctx context.Context, k *kind) (waits bool, err error) {
	if !k.synced {
		return false, nil
	}
	return rs.store.HasClusterWorker(ctx)
}

// listRequiredAdapters returns the required adapters of a row. A registered cluster-worker counts as the
// adapter gardener, whatever is configured.
func (k *kind) listRequiredAdapters(row *Locked) []string {
	if !row.Shoot.Guarded || slices.Contains(k.required, adapterGardener) {
		return k.required
	}
	return append(slices.Clone(k.required), adapterGardener)
}

// listReportsWithShoot returns the reports on a row. While a cluster is being deleted, the database, not the
// adapter gardener, decides whether the Shoot is gone. Before that, the sync stands in for the
// adapter if the worker does not report to the API.
func (l *Locked) listReportsWithShoot(previous v1.Status) []v1.AdapterStatus {
	isFromGardener := func(r v1.AdapterStatus) bool { return r.Adapter == adapterGardener }
	deleting := l.Record.IsBeingDeleted()
	workerReports := slices.ContainsFunc(l.Reports, isFromGardener)
	neverSynced := l.Shoot.Generation == 0
	if !l.Shoot.Guarded || !deleting && (workerReports || neverSynced) {
		return l.Reports
	}
	return append(slices.DeleteFunc(slices.Clone(l.Reports), isFromGardener), l.buildShootReport(previous))
}

// buildShootReport returns the report of the adapter gardener that corresponds to the sync.
func (l *Locked) buildShootReport(previous v1.Status) v1.AdapterStatus {
	sync, shown, deleting := l.Shoot, l.Record.Status, l.Record.IsBeingDeleted()
	report := v1.AdapterStatus{Adapter: adapterGardener, ObservedGeneration: sync.Generation, CreatedTime: l.Now, LastReportTime: l.Now}
	if deleting {
		report.ObservedGeneration = l.Record.Generation // the absence of the Shoot concerns the deletion
	}
	syncFails := shown.SyncError != "" && sync.Attempts > 0
	healthy := !syncFails && (shown.ShootStatus != v1.ShootError || sync.StatusOutdated)
	available := v1.AdapterCondition{ReportCondition: l.buildShootAvailability(), LastTransitionTime: l.Now}
	if p, ok := findCondition(previous, FormatSuccessfulConditionType(adapterGardener)); ok {
		report.CreatedTime = p.CreatedTime
		if p.Status == available.Status {
			available.LastTransitionTime = p.LastTransitionTime
		}
	}
	report.Conditions = []v1.AdapterCondition{
		available,
		{ReportCondition: v1.ReportCondition{Type: v1.ConditionHealth, Status: toConditionStatus(healthy)}},
		{ReportCondition: v1.ReportCondition{Type: v1.ConditionFinalized, Status: toConditionStatus(sync.Gone)}},
	}
	return report
}

// buildShootAvailability returns the condition Available that corresponds to the sync.
func (l *Locked) buildShootAvailability() v1.ReportCondition {
	shown, deleting := l.Record.Status, l.Record.IsBeingDeleted()
	ready := l.Shoot.Synced && !l.Shoot.StatusOutdated && shown.ShootStatus == v1.ShootReady && !deleting
	available := v1.ReportCondition{Type: v1.ConditionAvailable, Status: toConditionStatus(ready)}
	switch {
	case l.Shoot.Gone:
		available.Reason, available.Message = "ShootDeleted", "The deletion of the Shoot is confirmed"
		return available
	case ready:
		available.Reason, available.Message = "ShootReady", "The cluster is fully operational"
		return available
	case deleting:
		available.Reason, available.Message = "ShootExists", "The deletion of the Shoot is not confirmed; a cluster-worker must confirm it"
	default:
		available.Reason, available.Message = "ShootNotReady", "The Shoot is not ready for the current spec of the cluster"
	}
	if detail := cmp.Or(shown.SyncError, shown.ShootMessage); detail != "" {
		available.Message += ": " + detail
	}
	return available
}

func toConditionStatus(isTrue bool) v1.ConditionStatus {
	if isTrue {
		return v1.ConditionTrue
	}
	return v1.ConditionFalse
}

// RunClusterStatusUpdates updates the status of clusters from the sync of their Shoots until ctx ends. It also removes
// deleted clusters that waited only for their Shoot. It retries while the database is unavailable.
func (a *API) RunClusterStatusUpdates(ctx context.Context) error {
	failing := false
	for backoff.Sleep(ctx, unsettledEvery) == nil {
		err := a.recomputeStatusesAfterSync(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil && !failing:
			a.log.WarnContext(ctx, "updating the status of clusters from their sync failed, retrying", "err", err)
		case err == nil && failing:
			a.log.InfoContext(ctx, "updating the status of clusters from their sync works again")
		}
		failing = err != nil
	}
	return nil
}

// recomputeStatusesAfterSync computes the status of all clusters whose sync has changed. A failing cluster does
// not hold up the others.
func (a *API) recomputeStatusesAfterSync(ctx context.Context) error {
	k := a.kinds[v1.KindCluster]
	var failures error
	for after := ""; ; {
		ids, err := a.store.ListClustersWithUnsavedSync(ctx, after, unsettledBatch)
		if err != nil {
			return errors.Join(failures, err)
		}
		for _, id := range ids {
			err := a.runWithRowLocked(
				ctx,
				rowTarget{scope: Scope{All: true}, kind: k, id: id},
				func(ctx context.Context, tx Tx, t *lockedTarget) error {
					if !t.Shoot.Unsaved {
						return nil // another process was faster
					}
					return a.recomputeAndSaveOrRemove(ctx, tx, k, t, nil)
				},
			)
			if p, ok := errors.AsType[*rest.Error](err); !ok || p.Code != rest.CodeNotFound {
				failures = errors.Join(failures, err)
			}
			after = id
		}
		if len(ids) < unsettledBatch || ctx.Err() != nil {
			return failures
		}
	}
}
