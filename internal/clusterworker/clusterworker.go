// Package clusterworker brings clusters to Gardener: what the fleet API keeps in
// PostgreSQL becomes the Shoot that it should be, and goes when it should go.
//
// Every cluster has one row that says what is still to be done. A worker claims as
// many due rows as it has free slots, for the time of a lease; calls Gardener
// outside of any transaction and under a timeout; and writes what became of it
// against its claim and against the generation that it sent. So an edit made
// during a call is neither blocked nor lost, a worker that dies or hangs only
// costs the rest of its lease, and one that comes back too late changes nothing.
//
// Nothing is ever given up. A row that fails is tried again with the specified
// backoff; while Gardener is down nothing is tried, and nothing is held against
// any row.
package clusterworker

import (
	"context"
	"encoding/json"
	"time"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

// A Claim is a row that is ours until its lease ends.
type Claim struct {
	ClusterID string
	// Token is the fence: whoever has a lower one than the row's has lost it.
	Token int64
	// Until is when the lease ends, by our clock and on the safe side.
	Until time.Time

	// Generation is that of the row: it rises with every change of the cluster
	// or its node pools.
	Generation int64
	// ClusterGeneration is that of the cluster in the fleet API.
	ClusterGeneration int64
	// Attempts is how many tries have failed since the last success or change.
	Attempts int
	// LastClass is what was wrong at the last try, empty if nothing was.
	LastClass ErrorClass
	// UnsyncedSince is since when the row waits.
	UnsyncedSince time.Time

	Tenant string
	Name   string
	Spec   json.RawMessage
	// Deleting is whether the cluster is to go. That wins over whatever else
	// has changed.
	Deleting bool
	Pools    []Pool

	// ShootName is empty until one was chosen; it never changes afterwards.
	ShootName string
	// ShootUID is empty until a Shoot was seen.
	ShootUID string
}

// A Pool is a node pool that is not being deleted.
type Pool struct {
	ID   string          `json:"id"`
	Name string          `json:"name"`
	Spec json.RawMessage `json:"spec"`
}

// A Result is what became of a claim.
type Result struct {
	ClusterID         string
	Token             int64
	Generation        int64
	ClusterGeneration int64

	// Err is what went wrong, nil if nothing did.
	Err   error
	Class ErrorClass
	// Spend is whether the failure counts as an attempt.
	Spend bool
	// Delay is when to try again after a failure.
	Delay time.Duration

	// Deleting is whether it was the deletion that was asked for, and Absent
	// whether a live look found that there is no Shoot any more.
	Deleting, Absent bool
	Applied          shoot.Applied

	// Change is what sinks of change events are told of it, nil if nothing. It is
	// kept for them in the same write.
	Change *Change
}

// An ErrorClass says what is wrong with a row: one of shoot.Classes, or one of
// those below. The set is closed, so that it can be a metric's label.
type ErrorClass string

// What can be wrong with a row besides what Gardener says.
const (
	// ClassTimeout is a call that took too long, of a Gardener that answers
	// others. Claims of such rows are limited, see Room.
	ClassTimeout ErrorClass = "timeout"
	// ClassBadSpec is a spec that no Shoot can be made of.
	ClassBadSpec ErrorClass = "invalid_spec"
	// ClassPanic is a fault of ours.
	ClassPanic ErrorClass = "panic"
)

// A Store keeps the rows. An error of it is one of the database.
type Store interface {
	// Claim takes due rows for the time of a lease, as many as there is room for.
	// A row that can not be read is among them, with what could be read.
	Claim(ctx context.Context, owner string, room Room, lease time.Duration) ([]Claim, error)
	// Name gives rows that have none the names of their Shoots, and says which
	// of the names are taken by another row.
	Name(ctx context.Context, names []Naming) (taken []Naming, err error)
	// Complete writes results, and gives the ids of those that lost their claim,
	// about which nothing was written.
	Complete(ctx context.Context, results []Result) (lost []string, err error)
	// Release gives rows back untouched, due at once.
	Release(ctx context.Context, claims []Claim) error
	LeaseStore
}

// Room is how many rows may be claimed.
type Room struct {
	// Slots is how many in all.
	Slots int
	// TimedOut is how many of them may be rows whose last try timed out.
	TimedOut int
}

// A LeaseStore keeps the leases of claimed rows.
type LeaseStore interface {
	// Renew has claims end a whole lease from now, and gives the ids of those that
	// it did that to. A claim that was lost is not among them.
	Renew(ctx context.Context, claims []Claim, lease time.Duration) (renewed []string, err error)
	// NextLease gives the time until the first lease of another owner ends. ok is
	// false if no other owner has one.
	NextLease(ctx context.Context, owner string) (in time.Duration, ok bool, err error)
}

// An Outage is a time in which a worker gets no answer from Gardener. The zero value
// is none.
type Outage struct {
	Since  time.Time
	Reason string
}

// An OutageStore tells users why their clusters wait.
type OutageStore interface {
	// SetOutage notes the outage that a worker sees, for some time; the zero Outage
	// removes the note.
	SetOutage(ctx context.Context, owner string, o Outage, ttl time.Duration) error
}

// A Naming is a name for a claim's Shoot.
type Naming struct {
	ClusterID string
	Token     int64
	ShootName string
}

// A Garden is where Shoots are kept. Its errors are of type *shoot.Error. It
// is called by many goroutines at a time.
type Garden interface {
	// ApplyShoot makes the Shoot what the manifest says, whether it is there or
	// not. seen is whether it was ever seen.
	ApplyShoot(ctx context.Context, m shoot.Manifest, seen bool) (shoot.Applied, error)
	// DeleteShoot asks for its deletion. One that is not there is no error.
	DeleteShoot(ctx context.Context, ref shoot.Ref) (shoot.Deletion, error)
	// Probe asks for as little as possible.
	Probe(ctx context.Context) error
}

// A Maker makes the Shoot that a cluster should be. Its error is the cluster's
// fault.
type Maker interface {
	// Make makes the manifest. It is pure.
	Make(c Claim) (shoot.Manifest, error)
	// Name is the nth choice for the name of a cluster's Shoot, from 0.
	Name(c Claim, n int) string
}

// An Action is what was done to a Shoot, as a change event names it.
type Action string

// The actions of the cluster-worker.
const (
	ShootCreated Action = "shoot-created"
	ShootUpdated Action = "shoot-updated"
	ShootDeleted Action = "shoot-deleted"
	ShootReady   Action = "shoot-ready"
	ShootFailed  Action = "shoot-failed"
)

// A Change is something that was done or observed.
type Change struct {
	At        time.Time `json:"at"`
	Action    Action    `json:"action"`
	ClusterID string    `json:"clusterID"`
	Cluster   string    `json:"cluster"` // its name
	Tenant    string    `json:"tenant"`
	Shoot     string    `json:"shoot"` // its name
	// Generation is that of the cluster, as the fleet API counts.
	Generation int64 `json:"generation"`
	// Message says more, "" if there is no more to say.
	Message string `json:"message,omitempty"`
}

// A Recorder is told of changes. Record never blocks.
type Recorder interface {
	Record(ctx context.Context, c Change)
}
