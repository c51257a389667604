package status

import (
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// A Sync is what the state of a row's sync follows from.
type Sync struct {
	Paused, Synced bool
	// Claimed is whether a worker took the row. Until Due it is that worker's.
	Claimed bool
	// Due is when a worker may take it.
	Due      time.Time
	Attempts int
}

// State is the state of a sync at some time, as the API shows it: the first of
// these that holds.
func State(s Sync, now time.Time) v1.SyncState {
	later := s.Due.After(now)
	switch {
	case s.Paused:
		return v1.SyncPaused
	case s.Synced:
		return v1.SyncSynced
	case s.Claimed && later:
		return v1.SyncRunning
	case s.Attempts >= v1.StuckAttempts:
		return v1.SyncStuck
	case s.Attempts > 0 && later:
		return v1.SyncBackingOff
	default:
		return v1.SyncPending
	}
}

// SyncStates are all states of a sync.
func SyncStates() []v1.SyncState {
	return []v1.SyncState{v1.SyncPending, v1.SyncRunning, v1.SyncBackingOff, v1.SyncStuck, v1.SyncPaused, v1.SyncSynced}
}

// NextSync are the states that may follow one. Every sync begins as pending.
func NextSync(from v1.SyncState) []v1.SyncState {
	switch from {
	case v1.SyncPending:
		// A result that comes after its lease counts, if nobody else took the row.
		return []v1.SyncState{v1.SyncRunning, v1.SyncBackingOff, v1.SyncStuck, v1.SyncPaused, v1.SyncSynced}
	case v1.SyncRunning:
		// Pending again: it was edited meanwhile or given back, its lease ended,
		// or Gardener was down, which is not counted.
		return []v1.SyncState{v1.SyncPending, v1.SyncBackingOff, v1.SyncStuck, v1.SyncPaused, v1.SyncSynced}
	case v1.SyncBackingOff:
		return []v1.SyncState{v1.SyncPending, v1.SyncPaused}
	case v1.SyncStuck:
		return []v1.SyncState{v1.SyncPending, v1.SyncRunning, v1.SyncPaused, v1.SyncSynced}
	case v1.SyncPaused:
		// Whatever it is without the pause; that went on.
		return []v1.SyncState{v1.SyncPending, v1.SyncRunning, v1.SyncBackingOff, v1.SyncStuck, v1.SyncSynced}
	case v1.SyncSynced:
		return []v1.SyncState{v1.SyncPending, v1.SyncPaused}
	}
	return nil
}
