package clusterworker

import (
	"context"
	"errors"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// A Row is what the database knows of a cluster and its Shoot.
type Row struct {
	ClusterID string
	Tenant    string
	Name      string

	// Generation and SyncedGeneration are the row's; ClusterGeneration is that of
	// the cluster that was last tried, 0 before the first try.
	Generation        int64
	SyncedGeneration  int64
	ClusterGeneration int64

	Synced bool
	// Deleting is whether the cluster is to go, and DeletionSent whether Gardener
	// was told so and took it.
	Deleting, DeletionSent bool

	SyncError  string
	ErrorClass ErrorClass
	Attempts   int

	ShootName       string
	ShootUID        string // empty until one was seen
	ShootGeneration int64  // the Shoot's own, after it was last applied
	ReadyOnce       bool   // it was ready at some time

	Status        v1.ShootStatus
	StatusMessage string
	StatusUpdated *time.Time

	// ReportVersion rises with every change that the fleet API should hear of.
	ReportVersion int64
}

// A StatusChange is what was observed of a Shoot.
type StatusChange struct {
	ClusterID string
	// WasStatus is what the row had; a row that has another by now, or another
	// wish than WasDeleting, is left alone.
	WasStatus   v1.ShootStatus
	WasDeleting bool

	Status   v1.ShootStatus
	Message  string
	ShootUID string // empty leaves it as it is

	// Change is what sinks of change events are told of it, nil if nothing. It is
	// kept for them in the same write.
	Change *Change
}

// A Term is the time during which one worker observes for all.
type Term struct {
	// Held is whether we are the one.
	Held bool
	// Fence is higher than that of every earlier term.
	Fence int64
	// Until is when the term ends, by our clock and on the safe side.
	Until time.Time
}

// ErrFenced means that the term is over: another worker observes.
var ErrFenced = errors.New("another worker is the leader")

// An ObserverStore keeps what is observed.
type ObserverStore interface {
	TermStore
	RowStore
	StatusStore
}

// A TermStore says who observes.
type TermStore interface {
	// Lead begins a term, or goes on with ours. Without an error and without
	// Held another worker has one.
	Lead(ctx context.Context, owner string, ttl time.Duration) (Term, error)
	// Resign ends a term early.
	Resign(ctx context.Context, fence int64) error
}

// A RowStore gives what the database knows.
type RowStore interface {
	// Installation is the id of this database, as the Shoots' labels have it.
	Installation(ctx context.Context) (string, error)

	// AddMissing makes the rows of up to limit clusters that have none, due at once,
	// and gives the ids of those clusters.
	AddMissing(ctx context.Context, limit int) (clusterIDs []string, err error)
	// Rows gives up to limit rows whose Shoot is not deleted, behind one id in
	// the order of ids; "" is before the first.
	Rows(ctx context.Context, after string, limit int) ([]Row, error)
	// RowsOf gives the rows of some clusters, of those that are there.
	RowsOf(ctx context.Context, clusterIDs []string) ([]Row, error)
	// StalestRows gives up to limit rows with a ShootName whose Shoot is not
	// deleted, those first that were looked at longest ago.
	StalestRows(ctx context.Context, limit int) ([]Row, error)
}

// A StatusStore takes what was observed.
type StatusStore interface {
	// SaveStatus writes changes and gives the ids of those that it wrote. It
	// writes nothing and gives ErrFenced when the term is over.
	SaveStatus(ctx context.Context, fence int64, changes []StatusChange) (saved []string, err error)
	// Touch notes that rows were looked at and were as before.
	Touch(ctx context.Context, fence int64, clusterIDs []string) error
	// Requeue makes synced rows due again, and gives the ids of those that were.
	Requeue(ctx context.Context, fence int64, clusterIDs []string) (requeued []string, err error)
}

// A ReportStore says which clusters the fleet API should hear of.
type ReportStore interface {
	// DueReports gives up to limit rows whose report is due.
	DueReports(ctx context.Context, limit int) ([]Row, error)
	// Reported notes reports that were made, or that can not be made.
	Reported(ctx context.Context, reports []Reported) error
}

// A PoolStore says which node pools Gardener has.
type PoolStore interface {
	// PoolsSent gives the node pools of a row's cluster, those that are to go
	// among them, if Gardener was sent them as they are and the row's
	// ReportVersion is still that.
	PoolsSent(ctx context.Context, row *Row) ([]PoolSent, error)
}

// A PoolSent is a node pool that Gardener knows as it is: also that it is to go.
type PoolSent struct {
	ID, Name   string
	Generation int64
	Deleting   bool
}

// Reported is a report that was made.
type Reported struct {
	ClusterID string
	// Version is the row's ReportVersion that it was about. If that has risen
	// since, another report stays due.
	Version int64
	// Next is when the next one is due if nothing changes.
	Next time.Duration
}

// A Tally is how many rows there are in which state.
type Tally struct {
	Due, Leased, BackingOff, Stuck, Paused, Synced int64
	// OldestDue is for how long the row has been due that has been for longest.
	OldestDue time.Duration
	// DeadRows are the table's, and OldestTransaction is for how long the oldest
	// open transaction of the database has been open: both slow down claims.
	DeadRows          int64
	OldestTransaction time.Duration
}
