package poller

import (
	"slices"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// The states in this file are those that docs/states draws. Tests compare the code with them.

// ListStatusReasons returns all reasons, in the order of the rules.
func ListStatusReasons() []StatusReason {
	return []StatusReason{
		ReasonGone, ReasonUnconfirmed, ReasonNotSeen, ReasonMissing,
		ReasonDeletionFailed, ReasonDeleting, ReasonUnscheduled, ReasonOutdated, ReasonOperating, ReasonRetrying, ReasonFailed,
		ReasonMigrated, ReasonHibernated, ReasonUnhealthy, ReasonUnsettled, ReasonHealthy, ReasonStrange,
	}
}

// StatusNone is the status of a cluster whose Shoot was not requested yet.
const StatusNone v1.ShootStatus = ""

// ListShootStatuses returns all statuses including StatusNone, in the order of a cluster's
// life.
func ListShootStatuses() []v1.ShootStatus {
	return []v1.ShootStatus{StatusNone, v1.ShootPending, v1.ShootProgressing, v1.ShootReady, v1.ShootError, v1.ShootDeleting, v1.ShootDeleted}
}

// ListNextStatuses returns the statuses that may follow a status; docs/states draws them.
// Most may, as changes between two observations go unseen. But a Shoot that was seen is
// never pending again, and no status follows the deletion.
func ListNextStatuses(from v1.ShootStatus) []v1.ShootStatus {
	seen := []v1.ShootStatus{v1.ShootProgressing, v1.ShootReady, v1.ShootError, v1.ShootDeleting, v1.ShootDeleted}
	switch from {
	case StatusNone:
		return append([]v1.ShootStatus{v1.ShootPending}, seen...)
	case v1.ShootPending:
		return seen
	case v1.ShootProgressing, v1.ShootReady, v1.ShootError, v1.ShootDeleting:
		return slices.DeleteFunc(seen, func(s v1.ShootStatus) bool { return s == from })
	case v1.ShootDeleted:
		return nil
	}
	return nil
}

// IsAllowedStatusChange reports whether a status may change to another one, or stay.
func IsAllowedStatusChange(from, to v1.ShootStatus) bool {
	return from == to || slices.Contains(ListNextStatuses(from), to)
}

// SyncFacts are the fields of a row that determine the state of its sync.
type SyncFacts struct {
	Paused, Synced bool
	// Claimed is whether a worker has claimed the row, which it holds until Due.
	Claimed bool
	// Due is when a worker may claim the row.
	Due      time.Time
	Attempts int
}

// DeriveSyncState returns the state of a sync at the given time, as the API shows it. The
// first matching state wins.
func DeriveSyncState(facts SyncFacts, now time.Time) v1.SyncState {
	later := facts.Due.After(now)
	switch {
	case facts.Paused:
		return v1.SyncPaused
	case facts.Synced:
		return v1.SyncSynced
	case facts.Claimed && later:
		return v1.SyncRunning
	case facts.Attempts >= v1.StuckAttempts:
		return v1.SyncStuck
	case facts.Attempts > 0 && later:
		return v1.SyncBackingOff
	default:
		return v1.SyncPending
	}
}

// ListSyncStates returns all states of a sync.
func ListSyncStates() []v1.SyncState {
	return []v1.SyncState{v1.SyncPending, v1.SyncRunning, v1.SyncBackingOff, v1.SyncStuck, v1.SyncPaused, v1.SyncSynced}
}

// ListNextSyncStates returns the states that may follow a state; docs/states draws them.
// Every sync begins as pending.
func ListNextSyncStates(from v1.SyncState) []v1.SyncState {
	switch from {
	case v1.SyncPending:
		// A result that comes after its lease counts if no other worker has claimed the
		// row.
		return []v1.SyncState{v1.SyncRunning, v1.SyncBackingOff, v1.SyncStuck, v1.SyncPaused, v1.SyncSynced}
	case v1.SyncRunning:
		// A sync becomes pending again after an edit, a release or the end of its
		// lease. So it does in an outage of Gardener, which does not count as an
		// attempt.
		return []v1.SyncState{v1.SyncPending, v1.SyncBackingOff, v1.SyncStuck, v1.SyncPaused, v1.SyncSynced}
	case v1.SyncBackingOff:
		return []v1.SyncState{v1.SyncPending, v1.SyncPaused}
	case v1.SyncStuck:
		return []v1.SyncState{v1.SyncPending, v1.SyncRunning, v1.SyncPaused, v1.SyncSynced}
	case v1.SyncPaused:
		// The underlying state continues during the pause, so any may follow.
		return []v1.SyncState{v1.SyncPending, v1.SyncRunning, v1.SyncBackingOff, v1.SyncStuck, v1.SyncSynced}
	case v1.SyncSynced:
		return []v1.SyncState{v1.SyncPending, v1.SyncPaused}
	}
	return nil
}
