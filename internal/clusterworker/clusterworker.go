// Package clusterworker syncs clusters to Gardener: it applies the Shoot of each
// cluster that the fleet API keeps in PostgreSQL, and deletes it with the cluster.
//
// Every cluster has one row that records the work still to do. A worker claims as many
// due rows as it has free slots, for the time of a lease. It calls Gardener outside of
// any transaction and under a timeout. It then writes the result against its claim and
// against the generation that it sent. So an edit during a call is neither blocked nor
// lost. A worker that dies or hangs costs only the rest of its lease, and one that
// returns too late changes nothing.
//
// The worker never gives up a row. A row that fails is retried with the specified
// backoff. While Gardener is down, the worker tries nothing and counts no failure
// against any row.
//
// A Reporter reports the results to the fleet API, and an Outbox delivers change events about them.
package clusterworker

import (
	"context"
	"encoding/json"
	"time"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

// A Claim is a row that belongs to this worker until its lease ends.
type Claim struct {
	ClusterID string
	// Token is the fencing token. A worker whose token is lower than the row's has lost
	// the row.
	Token int64
	// Until is when the lease ends, by the local clock and on the safe side.
	Until time.Time

	// Generation is the row's generation. It rises with every change of the cluster or
	// its node pools.
	Generation int64
	// ClusterGeneration is the generation of the cluster in the fleet API.
	ClusterGeneration int64
	// Attempts is the number of failed tries since the last success or change.
	Attempts int
	// LastClass is the error class of the last try, empty after a success.
	LastClass ErrorClass
	// UnsyncedSince is when the row began to wait.
	UnsyncedSince time.Time

	Tenant string
	Name   string
	Spec   json.RawMessage
	// Deleting is whether the cluster is being deleted, which overrides every other
	// change.
	Deleting bool
	Pools    []Pool

	// ShootName is empty until a name is chosen, and never changes afterwards.
	ShootName string
	// ShootUID is empty until a Shoot has been seen.
	ShootUID string
	// ReportedShootUID is the UID of the Shoot whose creation was reported last by a change event. Only results and
	// RecordCreation change it, so it differs from the UID of a Shoot if the result of its creation was lost.
	ReportedShootUID string
	// SyncedGeneration is the row's generation of the last recorded success, and
	// ShootGeneration the Shoot's metadata.generation after it.
	SyncedGeneration, ShootGeneration int64

	// History is the id of the database's present history, which began at its last
	// restore or promotion.
	History string
	// Sent holds the row's generation at its last claim in each history of the database, since the last recorded
	// success. The history shoot.AnyHistory stands for all.
	Sent map[string]int64
}

// A Pool is a node pool that is not being deleted.
type Pool struct {
	ID   string          `json:"id"`
	Name string          `json:"name"`
	Spec json.RawMessage `json:"spec"`
}

// A Result is the result of a claim.
type Result struct {
	ClusterID         string
	Token             int64
	Generation        int64
	ClusterGeneration int64

	// Err is the error of the try, nil after a success.
	Err   error
	Class ErrorClass
	// CountsAttempt is whether the failure counts as an attempt.
	CountsAttempt bool
	// Delay is the wait before the next try after a failure.
	Delay time.Duration

	// Deleting is whether the deletion was requested. Absent is whether a live read
	// found that the Shoot no longer exists.
	Deleting, Absent bool
	Applied          shoot.Applied

	// Change is the change event for the sinks, nil without an event. It is stored
	// in the same write.
	Change *Change
}

// An ErrorClass is the kind of a row's error: one of shoot.Classes, or one of those
// below. The set is closed, so that it can be a metric label.
type ErrorClass string

// Error classes in addition to those of Gardener.
const (
	// ClassTimeout is a call that took too long while Gardener answered others. Claims
	// of such rows are limited, see ClaimLimits.
	ClassTimeout ErrorClass = "timeout"
	// ClassBadSpec is a spec from which no Shoot can be built.
	ClassBadSpec ErrorClass = "invalid_spec"
	// ClassPanic is a panic in the cluster-worker.
	ClassPanic ErrorClass = "panic"
)

// A Store keeps the rows. Its errors are errors of the database.
type Store interface {
	// ClaimRows leases due rows, as many as limits allow. A row that cannot be read is
	// among them, with the fields that could be read.
	ClaimRows(ctx context.Context, owner string, limits ClaimLimits, lease time.Duration) (claims []Claim, err error)
	// StoreNames stores the names of Shoots for rows without one, and returns the names that
	// another row has taken. It skips rows that are locked, and rows whose claim is lost.
	StoreNames(ctx context.Context, names []ProposedName) (taken, skipped []ProposedName, err error)
	// ReleaseClaims returns rows unchanged and due at once.
	ReleaseClaims(ctx context.Context, claims []Claim) error
	ResultStore
	LeaseStore
}

// A ResultStore keeps the results of claimed rows.
type ResultStore interface {
	// WriteResults writes results, and returns the ids of clusters whose claim was lost. It
	// writes nothing for those.
	WriteResults(ctx context.Context, results []Result) (lostClusterIDs []string, err error)
	// RecordCreation records the ReportedShootUID of a claim, also as its ShootUID, with the change event of the
	// creation. The row stays claimed. stands is false if the claim was lost, and nothing is written then.
	RecordCreation(ctx context.Context, claim Claim, change Change) (stands bool, err error)
}

// ClaimLimits is how many rows may be claimed.
type ClaimLimits struct {
	// Slots is the limit of all rows.
	Slots int
	// TimedOut is the limit of rows whose last try timed out.
	TimedOut int
}

// A LeaseStore keeps the leases of claimed rows.
type LeaseStore interface {
	// RenewLeases extends claims to a whole lease from now, and returns the ids of the
	// renewed ones. Lost claims are not among them.
	RenewLeases(ctx context.Context, claims []Claim, lease time.Duration) (renewedClusterIDs []string, err error)
	// FindNextLeaseEndOfOthers returns the time until the first lease of another owner ends, or the
	// first pause. found is false if there is neither.
	FindNextLeaseEndOfOthers(ctx context.Context, owner string) (untilEnd time.Duration, found bool, err error)
}

// An Outage is a time in which a worker gets no answer from Gardener. The zero value
// means no outage.
type Outage struct {
	Since  time.Time
	Reason string
}

// An OutageStore records why the clusters of users wait.
type OutageStore interface {
	// RecordOrClearOutage records the outage that a worker sees for the time ttl. The zero Outage
	// removes the record.
	RecordOrClearOutage(ctx context.Context, owner string, outage Outage, ttl time.Duration) error
}

// A ProposedName is the proposed name of a claim's Shoot.
type ProposedName struct {
	ClusterID string
	Token     int64
	ShootName string
}

// A Garden stores Shoots. Its errors are of type *shoot.Error. It is safe for
// concurrent use.
type Garden interface {
	// ApplyShoot creates or updates the Shoot to match the manifest. seen is whether
	// the Shoot was ever seen.
	ApplyShoot(ctx context.Context, m shoot.Manifest, seen bool) (shoot.Applied, error)
	// DeleteShoot requests the deletion of a Shoot. An absent Shoot is no error.
	DeleteShoot(ctx context.Context, ref shoot.Ref) (shoot.Deletion, error)
	// GetShoot is a live read. It returns shoot.ErrNotFound if no Shoot has that name.
	GetShoot(ctx context.Context, name string) (shoot.Observed, error)
	// Probe sends the smallest possible request.
	Probe(ctx context.Context) error
}

// A Maker builds the Shoot of a cluster. Its errors are the cluster's fault.
type Maker interface {
	// BuildManifest builds the manifest. It is a pure function.
	BuildManifest(claim Claim) (manifest shoot.Manifest, err error)
	// DeriveShootName returns the nth choice for the name of a cluster's Shoot, from 0.
	DeriveShootName(claim Claim, choiceIndex int) string
}

// An Action is the kind of change to a Shoot, as a change event names it.
type Action string

// The actions of the cluster-worker.
const (
	ShootCreated Action = "shoot-created"
	ShootUpdated Action = "shoot-updated"
	ShootDeleted Action = "shoot-deleted"
	ShootReady   Action = "shoot-ready"
	ShootFailed  Action = "shoot-failed"
)

// A Change is an action that was done or observed.
type Change struct {
	// ID is the id of the change event, which the store sets.
	ID string `json:"id,omitempty"`

	At        time.Time `json:"at"`
	Action    Action    `json:"action"`
	ClusterID string    `json:"clusterID"`
	Cluster   string    `json:"cluster"` // name of the cluster
	Tenant    string    `json:"tenant"`
	Shoot     string    `json:"shoot"` // name of the Shoot
	// ShootUID is the UID of a Shoot that was created or deleted, empty for other actions.
	ShootUID string `json:"shootUID,omitempty"`
	// Generation is the generation of the cluster in the fleet API.
	Generation int64 `json:"generation"`
	// Message has further details, empty if there are none.
	Message string `json:"message,omitempty"`
}

// A Recorder receives changes. Record never blocks.
type Recorder interface {
	Record(ctx context.Context, change Change)
}
