package clusterworker

import (
	"context"
	"errors"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// A Row is the database's record of a cluster and its Shoot.
type Row struct {
	ClusterID string
	Tenant    string
	Name      string

	// Generation and SyncedGeneration are those of the row. ClusterGeneration is that
	// of the cluster at the last try, 0 before the first try.
	Generation        int64
	SyncedGeneration  int64
	ClusterGeneration int64

	Synced bool
	// Deleting is whether the cluster is being deleted. DeletionSent is whether
	// Gardener accepted the deletion.
	Deleting, DeletionSent bool

	SyncError  string
	ErrorClass ErrorClass
	Attempts   int

	ShootName       string
	ShootUID        string // empty until a Shoot was seen
	ShootGeneration int64  // the Shoot's metadata.generation after the last apply
	ReadyOnce       bool   // the Shoot was ready at least once

	Status        v1.ShootStatus
	StatusMessage string
	StatusUpdated *time.Time
	// StatusGeneration is the Shoot's metadata.generation that Status is about, 0 if it is
	// not known, and -1 if Status is about a Shoot that was replaced.
	StatusGeneration int64

	// ReportVersion rises with every change that is reported to the fleet API.
	ReportVersion int64
}

// IsStatusOutdated reports whether the status is known to be about the Shoot before its last
// change. A change does not invalidate any other status than ready and error.
func (r *Row) IsStatusOutdated() bool {
	return r.StatusGeneration != 0 && r.StatusGeneration < r.ShootGeneration &&
		(r.Status == v1.ShootReady || r.Status == v1.ShootError)
}

// A StatusChange is an observed change of a Shoot.
type StatusChange struct {
	ClusterID string
	// WasStatus is the earlier status of the row. A row whose status has changed since,
	// or whose deletion differs from WasDeleting, is not written.
	WasStatus   v1.ShootStatus
	WasDeleting bool

	Status   v1.ShootStatus
	Message  string
	ShootUID string // empty keeps the stored value
	// Generation is the Shoot's metadata.generation, 0 if the Shoot was absent.
	Generation int64

	// Change is the change event for the sinks, nil without an event. It is stored
	// in the same write.
	Change *Change
}

// An UnchangedStatus is an observation that leaves the status of a row as it is.
type UnchangedStatus struct {
	ClusterID string
	// ShootUID is that of the row. A row with another Shoot by now is not written.
	ShootUID string
	// Generation is the Shoot's metadata.generation, 0 if the Shoot was absent.
	Generation int64
}

// A Term is the time during which one worker, the leader, observes for all.
type Term struct {
	// Held is whether this worker is the leader.
	Held bool
	// Fence is higher than the fence of every earlier term.
	Fence int64
	// Until is when the term ends, by the local clock and on the safe side.
	Until time.Time
}

// ErrFenced means that the term is over and another worker observes.
var ErrFenced = errors.New("another worker is the leader")

// An ObserverStore stores observations and the leader's term.
type ObserverStore interface {
	TermStore
	RowStore
	StatusStore
	HistoryStore
}

// A HistoryStore identifies the history of the database.
type HistoryStore interface {
	// GetHistoryID returns the id of the present history, which began at the last restore
	// or promotion.
	GetHistoryID(ctx context.Context) (string, error)
}

// A TermStore elects the worker that observes.
type TermStore interface {
	// AcquireOrExtendTerm begins a term, or extends the worker's current one. If it returns no error
	// and a term without Held, another worker leads.
	AcquireOrExtendTerm(ctx context.Context, owner string, ttl time.Duration) (Term, error)
	// ReleaseTerm ends a term early.
	ReleaseTerm(ctx context.Context, fence int64) error
}

// A RowStore reads rows.
type RowStore interface {
	// GetInstallationID returns the id of this database, as in the labels of Shoots.
	GetInstallationID(ctx context.Context) (string, error)

	// AddMissingRows creates rows, due at once, for up to limit clusters without one, and
	// returns the ids of those clusters.
	AddMissingRows(ctx context.Context, limit int) (clusterIDs []string, err error)
	// ListRows returns up to limit rows whose Shoot is not deleted, in the order of ids and
	// after the given id. The empty id is before the first.
	ListRows(ctx context.Context, afterClusterID string, limit int) ([]Row, error)
	// ListRowsOfClusters returns the existing rows of the given clusters.
	ListRowsOfClusters(ctx context.Context, clusterIDs []string) ([]Row, error)
	// ListStalestRows returns up to limit rows with a ShootName whose Shoot is not deleted,
	// in the order of their last observation, oldest first.
	ListStalestRows(ctx context.Context, limit int) ([]Row, error)
}

// A StatusStore stores observations.
type StatusStore interface {
	// SaveStatus writes changes and returns the ids of those that it wrote. It skips rows
	// that have changed, that are locked, or whose first claim is not completed. If the
	// term is over, it writes nothing and returns ErrFenced.
	SaveStatus(ctx context.Context, fence int64, changes []StatusChange) (saved []string, err error)
	// RecordUnchanged records observations without a change, and returns the ids of the rows
	// that it wrote. It skips locked rows.
	RecordUnchanged(ctx context.Context, fence int64, observed []UnchangedStatus) (recorded []string, err error)
	// RequeueSynced makes synced rows due again, and returns the ids of those that it
	// changed. It skips locked rows.
	RequeueSynced(ctx context.Context, fence int64, clusterIDs []string) (requeued []string, err error)
}

// A ReportStore tracks the clusters that have to be reported to the fleet API.
type ReportStore interface {
	// ListDueReports returns up to limit rows whose report is due.
	ListDueReports(ctx context.Context, limit int) ([]Row, error)
	// RecordReports records reports that were made, or that cannot be made.
	RecordReports(ctx context.Context, reports []Reported) error
}

// A PoolStore tracks the node pools that Gardener has received.
type PoolStore interface {
	// ListSentPools returns the node pools of a row's cluster, including those being
	// deleted. It returns none unless Gardener has received their current state and the
	// row's ReportVersion is unchanged.
	ListSentPools(ctx context.Context, row *Row) ([]PoolSent, error)
}

// A PoolSent is a node pool whose current state, deletion included, Gardener has
// received.
type PoolSent struct {
	ID, Name   string
	Generation int64
	Deleting   bool
}

// Reported is a report that was made.
type Reported struct {
	ClusterID string
	// Version is the row's ReportVersion at the time of the report. If it has risen
	// since, another report stays due.
	Version int64
	// Next is the delay of the next report if nothing changes.
	Next time.Duration
}

// ClusterCounts is the number of rows by state.
type ClusterCounts struct {
	Due, Leased, BackingOff, Stuck, Paused, Synced int64
	// OldestDue is how long the row that has waited longest has been due.
	OldestDue time.Duration
	// DeadRows is the number of dead rows in the table. OldestTransaction is the age of
	// the oldest open transaction in the database. Both slow down claims.
	DeadRows          int64
	OldestTransaction time.Duration
}
