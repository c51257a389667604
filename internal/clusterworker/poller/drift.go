package poller

import (
	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

// A Drift is how a Shoot differs from its last applied spec. The set is closed, so that
// it can be a metric label.
type Drift string

// Kinds of drift.
const (
	DriftNone Drift = ""
	// DriftMissing is a Shoot that should exist and does not.
	DriftMissing Drift = "missing"
	// DriftUndeleted is a Shoot whose deletion Gardener accepted and which is not being
	// deleted.
	DriftUndeleted Drift = "not_deleted"
	// DriftBehind is a Shoot with an older generation than was sent last.
	DriftBehind Drift = "stale_generation"
	// DriftAhead is a Shoot with a newer generation than was sent last. The database was
	// restored to an older point. The next sync reports the conflict and changes nothing.
	DriftAhead Drift = "newer_generation"
	// DriftChanged is a Shoot that another client has changed.
	DriftChanged Drift = "changed"
)

func listDriftKinds() []Drift {
	return []Drift{DriftMissing, DriftUndeleted, DriftBehind, DriftAhead, DriftChanged}
}

// DetectDrift returns how a Shoot, nil if absent, differs from the spec that the row
// records as sent. A row that is not synced does not drift, as it is about to be sent
// anyway.
func DetectDrift(row *clusterworker.Row, observed *shoot.Observed) Drift {
	switch {
	case !row.Synced || row.ShootName == "":
		return DriftNone
	case row.Deleting && observed != nil && !observed.Deleting:
		return DriftUndeleted
	case row.Deleting:
		return DriftNone
	case observed == nil:
		return DriftMissing
	case observed.Deleting:
		return DriftNone // a Shoot in deletion accepts no changes
	case observed.SentGeneration < row.SyncedGeneration:
		return DriftBehind
	case observed.SentGeneration > row.SyncedGeneration:
		return DriftAhead
	case row.ShootGeneration != 0 && observed.Generation != row.ShootGeneration:
		return DriftChanged
	}
	return DriftNone
}

// isUrgent reports whether a drift is repaired at once. A Shoot that another client has
// changed is sent again after the next list at the earliest. Otherwise two clients that
// overwrite each other would do so as fast as they can.
func (d Drift) isUrgent() bool { return d == DriftMissing || d == DriftUndeleted }

// A rowDecision is the consequence of an observation for a row.
type rowDecision struct {
	// change is the change to write, nil if the row is up to date.
	change *clusterworker.StatusChange
	drift  Drift
	// needsLiveRead is whether a live read has to confirm the drift, or the change if the Shoot
	// was absent, first.
	needsLiveRead bool
}

// decideRowAction returns the consequence of an observation for a row that was read after
// it. It is a pure function.
func decideRowAction(row *clusterworker.Row, installationID string, observed *observation) rowDecision {
	ownShoot := shootIfOwnedByRow(row, installationID, observed.shoot)
	if ownShoot == nil && wasNeverApplied(row) {
		return rowDecision{}
	}
	change, drift := newStatusChangeOrNil(row, ownShoot), DetectDrift(row, ownShoot)
	if !observed.checkDrift && !drift.isUrgent() {
		drift = DriftNone
	}
	if isLiveReadStillValid(observed, row) {
		return rowDecision{change: change, drift: drift}
	}
	// An observed Shoot is trusted. Its absence or drift may be due to an observation
	// that is older than the row.
	mayBeOutdated := ownShoot == nil || observed.mayBeStale
	if mayBeOutdated {
		return rowDecision{needsLiveRead: change != nil || drift != DriftNone}
	}
	return rowDecision{change: change, needsLiveRead: drift != DriftNone}
}

// newStatusChangeOrNil returns how a Shoot, nil if confirmed absent, changes a row. It returns nil
// if nothing changes.
func newStatusChangeOrNil(row *clusterworker.Row, observed *shoot.Observed) *clusterworker.StatusChange {
	if row.Status == v1.ShootDeleted {
		return nil // deleted is final; a Shoot that still exists is a drift
	}
	derived := DeriveStatus(observed, RowFacts{
		DeletionWanted: row.Deleting, DeletionSent: row.DeletionSent,
		EverSeen: wasShootEverSeen(row), EverReady: row.ReadyOnce, Confirmed: observed == nil,
	})
	newUID, generation := "", int64(0)
	if observed != nil {
		generation = observed.Generation
		if observed.UID != row.ShootUID {
			newUID = observed.UID
		}
	}
	if derived.Status == row.Status && derived.Message == row.StatusMessage && newUID == "" {
		return nil
	}
	return &clusterworker.StatusChange{
		ClusterID: row.ClusterID, WasStatus: row.Status, WasDeleting: row.Deleting,
		Status: derived.Status, Message: derived.Message, ShootUID: newUID, Generation: generation,
	}
}

// wasShootEverSeen reports whether the row's Shoot existed at some time.
func wasShootEverSeen(row *clusterworker.Row) bool {
	return row.ShootUID != "" || row.ReadyOnce || row.Status != "" && row.Status != v1.ShootPending
}

// isLiveReadStillValid reports whether an observation is a live read that is valid for the
// row. The row as read before the live read and the row as read after it must agree in
// the fields below. Otherwise a Shoot that was created during the live read would be
// missing. A Shoot that was deleted before its cluster was created again would be
// deleted for good.
func isLiveReadStillValid(observed *observation, row *clusterworker.Row) bool {
	before := observed.readFor
	return before != nil &&
		before.ShootName == row.ShootName &&
		before.Generation == row.Generation &&
		before.Synced == row.Synced &&
		before.SyncedGeneration == row.SyncedGeneration &&
		before.ShootGeneration == row.ShootGeneration &&
		before.Deleting == row.Deleting &&
		before.DeletionSent == row.DeletionSent
}

// shootIfOwnedByRow returns the Shoot if it belongs to the row, and nil if another one has its
// name. A Shoot that was seen before keeps belonging to the row, whatever its labels.
func shootIfOwnedByRow(row *clusterworker.Row, installationID string, observed *shoot.Observed) *shoot.Observed {
	if observed == nil || observed.Name != row.ShootName {
		return nil
	}
	hasLabels := observed.Cluster == row.ClusterID && observed.Installation == installationID
	wasSeenBefore := row.ShootUID != "" && observed.UID == row.ShootUID
	if hasLabels || wasSeenBefore {
		return observed
	}
	return nil
}

// wasNeverApplied reports whether the row's Shoot was not yet sent to Gardener, or never
// accepted. Its absence then means nothing.
func wasNeverApplied(row *clusterworker.Row) bool {
	return row.ShootName == "" || row.SyncedGeneration == 0 && row.ShootUID == "" && row.Status == ""
}
