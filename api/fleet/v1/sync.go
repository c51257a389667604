package v1

import "time"

// A ShootStatus is how far Gardener is with a cluster. The empty status is
// that of a cluster whose Shoot has not been asked for yet.
type ShootStatus string

// The states of a Shoot.
const (
	// ShootPending: asked for, not seen in Gardener yet.
	ShootPending ShootStatus = "pending"
	// ShootProgressing: Gardener is creating or changing it.
	ShootProgressing ShootStatus = "progressing"
	// ShootReady: it is fully operational.
	ShootReady ShootStatus = "ready"
	// ShootError: Gardener failed; the message says at what.
	ShootError ShootStatus = "error"
	// ShootDeleting: Gardener is deleting it.
	ShootDeleting ShootStatus = "deleting"
	// ShootDeleted: it is confirmed to be gone.
	ShootDeleted ShootStatus = "deleted"
)

// A SyncState says where the sync of a cluster to Gardener stands. It follows
// from the times and counts beside it.
type SyncState string

// The states of a sync.
const (
	// SyncPending: it waits for a worker, now.
	SyncPending SyncState = "pending"
	// SyncRunning: a worker is at it.
	SyncRunning SyncState = "running"
	// SyncBackingOff: it failed and waits for its next try.
	SyncBackingOff SyncState = "backing_off"
	// SyncStuck: it failed so often that somebody should look. It is tried
	// on nevertheless.
	SyncStuck SyncState = "stuck"
	// SyncPaused: somebody asked to leave it alone.
	SyncPaused SyncState = "paused"
	// SyncSynced: Gardener has it as it should be.
	SyncSynced SyncState = "synced"
)

// StuckAttempts is how many failures in a row make a sync stuck: by then an hour has
// passed since the first.
const StuckAttempts = 8

// A ClusterSync is how the sync of one cluster to Gardener stands.
type ClusterSync struct {
	ClusterID string    `json:"cluster_id"`
	Name      string    `json:"name"`
	State     SyncState `json:"state"`

	// Synced is when the cluster was last brought to Gardener as it is now;
	// nil while that is still to be done.
	Synced *time.Time `json:"synced"`
	// Deleting is whether what is to be brought there is the deletion.
	Deleting bool `json:"deleting"`
	// UnsyncedSince is since when there is something to do, nil if there is not.
	UnsyncedSince *time.Time `json:"unsynced_since,omitempty"`

	Attempts    int        `json:"sync_attempts"`
	LastAttempt *time.Time `json:"sync_last_attempt,omitempty"`
	Error       string     `json:"sync_error,omitempty"`
	ErrorClass  string     `json:"error_class,omitempty"`
	// NextAttempt is when a worker may take it, nil if it is synced or paused.
	NextAttempt *time.Time `json:"next_attempt,omitempty"`
	// Waiting is what a cluster waits for besides its time and a worker, nil if it
	// is for nothing.
	Waiting *SyncWait `json:"waiting,omitempty"`
	// ClaimedBy is the worker that is at it.
	ClaimedBy string     `json:"claimed_by,omitempty"`
	PausedAt  *time.Time `json:"paused_at,omitempty"`
	// Pause is who paused the sync and why, nil if it is not paused.
	Pause *SyncPause `json:"pause,omitempty"`

	Generation       int64 `json:"generation"`
	SyncedGeneration int64 `json:"synced_generation"`

	ShootName          string      `json:"shoot_name,omitempty"`
	ShootStatus        ShootStatus `json:"shoot_status,omitempty"`
	ShootStatusMessage string      `json:"shoot_status_message,omitempty"`
	ShootStatusUpdated *time.Time  `json:"shoot_status_updated,omitempty"`
}

// A SyncPause is a pause of a sync.
type SyncPause struct {
	// By is the author. It is empty if the pause was made in the database.
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
	Since  time.Time `json:"since"`
	// Until is the time at which the pause ends automatically; nil means never.
	Until *time.Time `json:"until,omitempty"`
}

// A SyncControl is the optional body of a request to retry, pause or resume a sync.
type SyncControl struct {
	Reason string `json:"reason,omitempty"`
	// Until is the time at which a pause ends automatically. Other actions have none.
	Until *time.Time `json:"until,omitempty"`
}

// MaxBulkSyncs is the maximum number of clusters in a BulkSyncControl.
const MaxBulkSyncs = 500

// A BulkSyncControl is the body of a request to retry, pause or resume the syncs of
// several clusters.
type BulkSyncControl struct {
	IDs []string `json:"ids"`
	SyncControl
}

// A BulkSyncResult is the result of a BulkSyncControl.
type BulkSyncResult struct {
	// Changed is the number of syncs that changed. A sync that was already as asked for
	// neither changed nor failed.
	Changed int               `json:"changed"`
	Failed  []BulkSyncFailure `json:"failed"`
}

// A BulkSyncFailure is why one sync was not changed. Code is that of a Problem.
type BulkSyncFailure struct {
	ID     string `json:"id"`
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

// A SyncWait is why no worker takes a cluster that is due.
type SyncWait struct {
	// For is what is waited for: "gardener", which does not answer.
	For string `json:"for"`
	// Since is since when that is so, as a worker saw it, and Reason what it saw.
	Since  time.Time `json:"since"`
	Reason string    `json:"reason"`
	// Worker is the one that saw it.
	ReportedBy string `json:"reported_by"`
}

// WaitingForGardener is that Gardener does not answer.
const WaitingForGardener = "gardener"

// A ClusterSyncList is one page of them: what waits longest comes first, and
// what has nothing to do last.
type ClusterSyncList struct {
	Items []ClusterSync `json:"items"`
	// Continue is the token of the next page, empty at its end.
	Continue string `json:"continue,omitempty"`
}

// SyncStates are all states of a sync.
func SyncStates() []SyncState {
	return []SyncState{SyncPending, SyncRunning, SyncBackingOff, SyncStuck, SyncPaused, SyncSynced}
}
