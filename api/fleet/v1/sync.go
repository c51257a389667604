package v1

import "time"

// A ShootStatus is the state of a cluster's Shoot in Gardener. It is empty until the Shoot has been requested.
type ShootStatus string

// The states of a Shoot.
const (
	// ShootPending means that the Shoot is requested, and not seen in Gardener yet.
	ShootPending ShootStatus = "pending"
	// ShootProgressing means that Gardener is creating or changing the Shoot.
	ShootProgressing ShootStatus = "progressing"
	// ShootReady means that the Shoot is fully operational.
	ShootReady ShootStatus = "ready"
	// ShootError means that Gardener failed. The message says at what.
	ShootError ShootStatus = "error"
	// ShootDeleting means that Gardener is deleting the Shoot.
	ShootDeleting ShootStatus = "deleting"
	// ShootDeleted means that the deletion of the Shoot is confirmed.
	ShootDeleted ShootStatus = "deleted"
)

// A SyncState is the state of the sync of a cluster to Gardener. It follows from the times and counts of the sync.
type SyncState string

// The states of a sync.
const (
	// SyncPending means that the sync waits for a worker.
	SyncPending SyncState = "pending"
	// SyncRunning means that a worker is syncing the cluster.
	SyncRunning SyncState = "running"
	// SyncBackingOff means that the sync failed and waits for its next attempt.
	SyncBackingOff SyncState = "backing_off"
	// SyncStuck means that the sync failed so often that somebody should look. It is still retried.
	SyncStuck SyncState = "stuck"
	// SyncPaused means that somebody paused the sync.
	SyncPaused SyncState = "paused"
	// SyncSynced means that Gardener has the current spec of the cluster.
	SyncSynced SyncState = "synced"
)

// StuckAttempts is the number of consecutive failures after which a sync is stuck: an hour after the first.
const StuckAttempts = 8

// A ClusterSync is the sync of one cluster to Gardener.
type ClusterSync struct {
	ClusterID string    `json:"cluster_id"`
	Name      string    `json:"name"`
	State     SyncState `json:"state"`

	// Synced is the time at which Gardener got the current spec of the cluster, nil before that.
	Synced *time.Time `json:"synced"`
	// Deleting reports whether the deletion of the cluster is to be synced.
	Deleting bool `json:"deleting"`
	// UnsyncedSince is the time since which the sync has work, nil if it has none.
	UnsyncedSince *time.Time `json:"unsynced_since,omitempty"`

	Attempts    int        `json:"sync_attempts"`
	LastAttempt *time.Time `json:"sync_last_attempt,omitempty"`
	Error       string     `json:"sync_error,omitempty"`
	ErrorClass  string     `json:"error_class,omitempty"`
	// NextAttempt is the time from which a worker may sync the cluster, nil if it is synced or paused.
	NextAttempt *time.Time `json:"next_attempt,omitempty"`
	// Waiting is what prevents workers from syncing a cluster that is due, nil for nothing.
	Waiting *SyncWait `json:"waiting,omitempty"`
	// ClaimedBy is the worker that is syncing the cluster.
	ClaimedBy string     `json:"claimed_by,omitempty"`
	PausedAt  *time.Time `json:"paused_at,omitempty"`
	// Pause is nil if the sync is not paused.
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

// A BulkSyncFailure says why one sync was not changed. Code is that of a Problem.
type BulkSyncFailure struct {
	ID     string `json:"id"`
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

// A SyncWait is the reason why no worker syncs a cluster that is due.
type SyncWait struct {
	// For is WaitingForGardener.
	For string `json:"for"`
	// Since and Reason are what a worker observed.
	Since  time.Time `json:"since"`
	Reason string    `json:"reason"`
	// ReportedBy is the worker that reported it.
	ReportedBy string `json:"reported_by"`
}

// WaitingForGardener means that Gardener does not answer.
const WaitingForGardener = "gardener"

// A ClusterSyncList is one page of syncs: those with work, the longest wait first, and then the others.
type ClusterSyncList struct {
	Items []ClusterSync `json:"items"`
	// Continue is the token of the next page, empty on the last one.
	Continue string `json:"continue,omitempty"`
}

// SyncStates returns all states of a sync.
func SyncStates() []SyncState {
	return []SyncState{SyncPending, SyncRunning, SyncBackingOff, SyncStuck, SyncPaused, SyncSynced}
}
