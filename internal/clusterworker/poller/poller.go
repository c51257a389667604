// Package poller observes the Shoots of an installation, and records their status in
// the database.
//
// One worker, the leader, observes for all as long as its term lasts. It lists the
// Shoots, reads the rows, derives the status of each row and writes the changes. Then
// it watches the Shoots, and writes every change within a tenth of a second, but the mere
// progress of a creation or an update only every few seconds. It caches the rows, so that
// an event that changes nothing costs no query. It lists everything again from time to
// time, and after a watch that broke, so that correctness does not depend on the watch.
// Where watches are not allowed, it reads Shoots one by one, those first that were
// observed longest ago.
//
// A Shoot counts as deleted only after a live read that began after its row was read.
// The list finds a Shoot that differs from its last applied spec. The poller then
// confirms the drift by a live read and requeues the cluster. A Shoot that is missing,
// or that should be in deletion and is not, is requeued at once. Shoots of this
// installation that belong to no row are reported, and deleted only if the
// configuration allows it.
//
// The status of a cluster and the drift of its Shoot are pure functions of the row and
// the Shoot: DeriveStatus and DetectDrift. docs/states draws the states of a Shoot and of a sync.
//
// A poller whose term is over writes nothing: it stops before the end of its term by
// its own clock, and the database rejects later writes nevertheless. A slow or
// unavailable Gardener only delays status changes.
package poller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

// Config is the operator's configuration of the observation. Zero fields mean their
// default.
type Config struct {
	PollInterval      time.Duration `key:"status_poll_interval" env:"STATUS_POLL_INTERVAL" flag:"status-poll-interval" default:"30s" validate:"gt=0" doc:"Poll interval of Shoot status where Gardener does not allow a watch."`
	BatchSize         int           `key:"status_poll_batch_size" env:"STATUS_POLL_BATCH_SIZE" flag:"status-poll-batch-size" default:"50" validate:"gte=1,lte=500" doc:"Number of Shoots checked per poll, least recently checked first."`
	PollOnly          bool          `key:"status_poll_only" env:"STATUS_POLL_ONLY" default:"false" doc:"Poll Shoots even where Gardener allows a watch."`
	ReconcileInterval time.Duration `key:"reconcile_interval" env:"RECONCILE_INTERVAL" flag:"reconcile-interval" default:"5m" validate:"gt=0" doc:"Interval of the full comparison of all Shoots with the database."`
	DeleteOrphans     bool          `key:"reconcile_delete_orphans" env:"RECONCILE_DELETE_ORPHANS" default:"false" doc:"Delete orphans: Shoots of this installation without a cluster in the database. Orphans are reported in any case."`
	OrphanAge         time.Duration `key:"reconcile_orphan_min_age" env:"RECONCILE_ORPHAN_MIN_AGE" default:"15m" validate:"gt=0" doc:"Minimum age of a Shoot to be treated as an orphan."`
	Term              time.Duration `key:"leader_lease_duration" env:"CLUSTER_WORKER_LEADER_LEASE_DURATION" default:"30s" validate:"gt=0" doc:"Lease duration of the leader, which watches the Shoots for all workers. When it dies, another takes over after this time."`
	CallTimeout       time.Duration `key:"status_call_timeout" env:"STATUS_CALL_TIMEOUT" default:"15s" validate:"gt=0" doc:"Timeout of one Shoot lookup. Listing all Shoots times out after four times this value."`

	// Owner identifies this process and is unique among all processes that ever
	// observe. It has no default.
	Owner string
}

func (c Config) withDefaultsValidated() (Config, error) {
	c.PollInterval = cmp.Or(c.PollInterval, 30*time.Second)
	c.BatchSize = cmp.Or(c.BatchSize, 50)
	c.ReconcileInterval = cmp.Or(c.ReconcileInterval, 5*time.Minute)
	c.OrphanAge = cmp.Or(c.OrphanAge, 15*time.Minute)
	c.Term = cmp.Or(c.Term, 30*time.Second)
	c.CallTimeout = cmp.Or(c.CallTimeout, 15*time.Second)
	switch {
	case c.Owner == "":
		return c, errors.New("create status poller: owner is empty")
	case min(c.PollInterval, c.ReconcileInterval, c.OrphanAge, c.Term, c.CallTimeout) < 0:
		return c, errors.New("durations must not be negative")
	case c.BatchSize < 0 || c.BatchSize > maxBatch:
		return c, fmt.Errorf("invalid status_poll_batch_size %d: must be 1 to %d", c.BatchSize, maxBatch)
	}
	return c, nil
}

// A Viewer reads the Shoots of the installation. It is safe for concurrent use. Its
// errors are of type *shoot.Error, or the errors of package shoot that are named here.
type Viewer interface {
	// GetShoot is a live read. It returns shoot.ErrNotFound if no Shoot has that name.
	GetShoot(ctx context.Context, name string) (shoot.Observed, error)
	// ListShoots returns all current Shoots of the installation.
	ListShoots(ctx context.Context) (shoot.List, error)
	// WatchShoots reports all events after a resource version, in order. It returns
	// when ctx ends, handle returns an error, or the server ends the watch, which is no
	// error. It returns shoot.ErrExpired if the version is too old.
	WatchShoots(ctx context.Context, resourceVersion string, handle func(shoot.Event) error) error
}

// A Remover deletes Shoots without a cluster.
type Remover interface {
	// DeleteShoot deletes the Shoot with that name, uid and labels.
	DeleteShoot(ctx context.Context, ref shoot.Ref) (shoot.Deletion, error)
}

// Deps are the dependencies of a poller.
type Deps struct {
	Store  clusterworker.ObserverStore
	Viewer Viewer

	// Remover may be nil. Then no Shoot is deleted, whatever Config says.
	Remover Remover

	// Recorder receives the changes of Shoots that became ready, failed or were
	// deleted. It may be nil.
	Recorder clusterworker.Recorder

	// Wrote is called after a write that may have to be reported to the fleet API. It
	// must not block. It may be nil.
	Wrote func()

	// Log may be nil, for no logs.
	Log *slog.Logger

	// Registerer may be nil, for no metrics.
	Registerer prometheus.Registerer
}

const (
	// maxBatch is the largest number of rows in one query.
	maxBatch = 500
	// inboxDelay is how long an event waits for others. Together with the queries that
	// read and write the rows, it takes less than a tenth of a second.
	inboxDelay = 50 * time.Millisecond
	// liveReaders is the number of concurrent live reads.
	liveReaders = 8
)

// A Poller observes Shoots while it is the leader. Its methods are safe for concurrent
// use.
type Poller struct {
	cfg     Config
	deps    Deps
	log     *slog.Logger
	metrics *metrics
	state   pollerState
}

// New returns a poller. It starts nothing.
func New(cfg Config, deps Deps) (*Poller, error) {
	cfg, err := cfg.withDefaultsValidated()
	if err != nil {
		return nil, err
	}
	if deps.Store == nil || deps.Viewer == nil {
		return nil, errors.New("create status poller: store and viewer are required")
	}
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	m, err := registerMetrics(deps.Registerer)
	if err != nil {
		return nil, err
	}
	return &Poller{cfg: cfg, deps: deps, log: deps.Log, metrics: m}, nil
}
