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
	// DriftChanged is a Shoot that another client has changed.
	DriftChanged Drift = "changed"
)

func allDrifts() []Drift { return []Drift{DriftMissing, DriftUndeleted, DriftBehind, DriftChanged} }

// DriftOf returns how a Shoot, nil if absent, differs from the spec that the row
// records as sent. A row that is not synced does not drift, as it is about to be sent
// anyway.
func DriftOf(row *clusterworker.Row, o *shoot.Observed) Drift {
	switch {
	case !row.Synced || row.ShootName == "":
		return DriftNone
	case row.Deleting && o != nil && !o.Deleting:
		return DriftUndeleted
	case row.Deleting:
		return DriftNone
	case o == nil:
		return DriftMissing
	case o.Deleting:
		return DriftNone // a Shoot in deletion accepts no changes
	case o.SentGeneration < row.SyncedGeneration:
		return DriftBehind
	case row.ShootGeneration != 0 && o.Generation != row.ShootGeneration:
		return DriftChanged
	}
	return DriftNone
}

// isUrgent reports whether a drift is repaired at once. A Shoot that another client has
// changed is sent again after the next list at the earliest. Otherwise two clients that
// overwrite each other would do so as fast as they can.
func (d Drift) isUrgent() bool { return d == DriftMissing || d == DriftUndeleted }

// A judgement is the consequence of an observation for a row.
type judgement struct {
	// change is the change to write, nil if the row is up to date.
	change *clusterworker.StatusChange
	drift  Drift
	// look is whether a live read has to confirm the drift, or the change if the Shoot
	// was absent, first.
	look bool
}

// classifyRow returns the consequence of an observation for a row that was read after
// it. It is a pure function.
func classifyRow(row *clusterworker.Row, installation string, s *observation) judgement {
	o := ownShoot(row, installation, s.shoot)
	if o == nil && neverAsked(row) {
		return judgement{}
	}
	j := judgement{change: changeOf(row, o), drift: DriftOf(row, o)}
	if !s.thorough && !j.drift.isUrgent() {
		j.drift = DriftNone
	}
	if isConfirmedBy(s, row) {
		return j
	}
	// An observed Shoot is trusted. Its absence or drift may be due to an observation
	// that is older than the row.
	doubtful := o == nil || s.doubtful
	j.look = j.drift != DriftNone || doubtful && j.change != nil
	j.drift = DriftNone
	if doubtful {
		j.change = nil
	}
	return j
}

// changeOf returns how a Shoot, nil if confirmed absent, changes a row. It returns nil
// if nothing changes.
func changeOf(row *clusterworker.Row, o *shoot.Observed) *clusterworker.StatusChange {
	if row.Status == v1.ShootDeleted {
		return nil // deleted is final; a Shoot that still exists is a drift
	}
	v := DeriveStatus(o, RowFacts{
		DeletionWanted: row.Deleting, DeletionSent: row.DeletionSent,
		EverSeen: everSeen(row), EverReady: row.ReadyOnce, Confirmed: o == nil,
	})
	uid := ""
	if o != nil && o.UID != row.ShootUID {
		uid = o.UID
	}
	if v.Status == row.Status && v.Message == row.StatusMessage && uid == "" {
		return nil
	}
	return &clusterworker.StatusChange{
		ClusterID: row.ClusterID, WasStatus: row.Status, WasDeleting: row.Deleting,
		Status: v.Status, Message: v.Message, ShootUID: uid,
	}
}

// everSeen reports whether the row's Shoot existed at some time.
func everSeen(row *clusterworker.Row) bool {
	return row.ShootUID != "" || row.ReadyOnce || row.Status != "" && row.Status != v1.ShootPending
}

// isConfirmedBy reports whether an observation is a live read that is valid for the
// row. The row as read before the live read and the row as read after it must agree in
// the fields below. Otherwise a Shoot that was created during the live read would be
// missing. A Shoot that was deleted before its cluster was created again would be
// deleted for good.
func isConfirmedBy(s *observation, row *clusterworker.Row) bool {
	a := s.asked
	return a != nil && a.ShootName == row.ShootName && a.Generation == row.Generation && a.Synced == row.Synced &&
		a.SyncedGeneration == row.SyncedGeneration && a.ShootGeneration == row.ShootGeneration &&
		a.Deleting == row.Deleting && a.DeletionSent == row.DeletionSent
}

// ownShoot returns the Shoot if it belongs to the row, and nil if another one has its
// name. A Shoot that was seen before keeps belonging to the row, whatever its labels.
func ownShoot(row *clusterworker.Row, installation string, o *shoot.Observed) *shoot.Observed {
	switch {
	case o == nil || o.Name != row.ShootName:
		return nil
	case o.Cluster == row.ClusterID && o.Installation == installation, row.ShootUID != "" && o.UID == row.ShootUID:
		return o
	}
	return nil
}

// neverAsked reports whether the row's Shoot was not yet sent to Gardener, or never
// accepted. Its absence then means nothing.
func neverAsked(row *clusterworker.Row) bool {
	return row.ShootName == "" || row.SyncedGeneration == 0 && row.ShootUID == "" && row.Status == ""
}
