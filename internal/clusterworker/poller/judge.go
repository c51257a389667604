package poller

import (
	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/clusterworker/status"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

// A Drift is how a Shoot is not as it was sent. The set is closed, so that it
// can be a metric's label.
type Drift string

// The drifts.
const (
	DriftNone Drift = ""
	// DriftMissing is a Shoot that is not there and should be.
	DriftMissing Drift = "missing"
	// DriftUndeleted is one whose deletion Gardener took, and that is there
	// without being deleted.
	DriftUndeleted Drift = "not_deleted"
	// DriftBehind is one that bears an older generation than was sent last.
	DriftBehind Drift = "stale_generation"
	// DriftChanged is one that somebody else has changed.
	DriftChanged Drift = "changed"
)

func allDrifts() []Drift { return []Drift{DriftMissing, DriftUndeleted, DriftBehind, DriftChanged} }

// DriftOf says how a Shoot, nil if there is none, is not as the row says that
// it was sent. A row that is not synced is about to be sent anyhow.
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
		return DriftNone // nothing can be sent to it until it is gone
	case o.SentGeneration < row.SyncedGeneration:
		return DriftBehind
	case row.ShootGeneration != 0 && o.Generation != row.ShootGeneration:
		return DriftChanged
	}
	return DriftNone
}

// isUrgent is whether a drift is to be mended at once. What somebody else has
// changed is sent again with the next list at the earliest: two who change it
// in turns would otherwise do so as fast as they can.
func (d Drift) isUrgent() bool { return d == DriftMissing || d == DriftUndeleted }

// A judgement is what follows from a sighting for a row.
type judgement struct {
	// change is what is to be written, nil if the row is as it should be.
	change *clusterworker.StatusChange
	drift  Drift
	// look is whether a live look has to confirm it first: of the drift, and
	// of the change if the Shoot was not there.
	look bool
}

// classifyRow says what follows from a sighting for a row, as it was read after that.
// It is pure.
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
	// A Shoot that is there is believed; that there is none, or not as it was
	// sent, may be because the sighting is older than the row.
	doubtful := o == nil || s.doubtful
	j.look = j.drift != DriftNone || doubtful && j.change != nil
	j.drift = DriftNone
	if doubtful {
		j.change = nil
	}
	return j
}

// changeOf is what a Shoot, nil if it is confirmed that there is none, changes
// of a row; nil if that is nothing.
func changeOf(row *clusterworker.Row, o *shoot.Observed) *clusterworker.StatusChange {
	if row.Status == v1.ShootDeleted {
		return nil // nothing follows that; should there be a Shoot it drifts
	}
	v := status.Derive(o, status.Known{
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

// everSeen reports whether the row's Shoot was there at some time.
func everSeen(row *clusterworker.Row) bool {
	return row.ShootUID != "" || row.ReadyOnce || row.Status != "" && row.Status != v1.ShootPending
}

// isConfirmedBy reports whether a sighting is a live look that counts for the row:
// the row, as it was read before the look and after it, is the same in what the
// look is about. Otherwise a Shoot that was made during the look would be
// missing, and one that was deleted before its cluster was made again deleted
// for good.
func isConfirmedBy(s *observation, row *clusterworker.Row) bool {
	a := s.asked
	return a != nil && a.ShootName == row.ShootName && a.Generation == row.Generation && a.Synced == row.Synced &&
		a.SyncedGeneration == row.SyncedGeneration && a.ShootGeneration == row.ShootGeneration &&
		a.Deleting == row.Deleting && a.DeletionSent == row.DeletionSent
}

// ownShoot gives the Shoot if it is the row's, and nil if another has its name. One
// that was seen before stays the row's, whatever became of its labels.
func ownShoot(row *clusterworker.Row, installation string, o *shoot.Observed) *shoot.Observed {
	switch {
	case o == nil || o.Name != row.ShootName:
		return nil
	case o.Cluster == row.ClusterID && o.Installation == installation, row.ShootUID != "" && o.UID == row.ShootUID:
		return o
	}
	return nil
}

// neverAsked reports whether Gardener was not asked for the row's Shoot yet, or
// never took it: that there is none says nothing.
func neverAsked(row *clusterworker.Row) bool {
	return row.ShootName == "" || row.SyncedGeneration == 0 && row.ShootUID == "" && row.Status == ""
}
