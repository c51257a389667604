// Package poller observes the Shoots of an installation, and keeps in the
// database how far Gardener is with each.
//
// Of all workers one observes, for as long as its term lasts. It lists the
// Shoots, reads the rows, derives what each row's status is and writes what
// changed; then a watch tells it of every change, which is written within a
// tenth of a second. What a row is compared with is remembered, so that an
// event that changes nothing costs no query. Everything is listed again now
// and then, and after a watch that was lost, so that nothing rests on it. Where
// watches are not allowed the rows that were looked at longest ago are looked
// up one by one.
//
// That a Shoot is gone is believed of a live look alone, and only if the look
// began after the row had been read that it counts for. A Shoot that is not as
// it was sent is found by the list, looked at again, and sent again; one that is
// missing, or should be on its way out and is not, at once. Shoots of ours that
// no row knows are reported, and deleted only where an operator asked for it.
//
// A poller whose term is over writes nothing: it stops before its term ends by
// its own clock, and the database refuses what comes too late nevertheless.
// Gardener being slow or away delays what it tells, and nothing else.
package poller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

// Config is what an operator settles about observing. Fields that are zero mean
// their default.
type Config struct {
	PollInterval      time.Duration `key:"status_poll_interval" env:"STATUS_POLL_INTERVAL" flag:"status-poll-interval" default:"30s" validate:"gt=0" doc:"Poll interval of Shoot status where Gardener does not allow a watch."`
	BatchSize         int           `key:"status_poll_batch_size" env:"STATUS_POLL_BATCH_SIZE" flag:"status-poll-batch-size" default:"50" validate:"gte=1,lte=500" doc:"Number of Shoots checked per poll, least recently checked first."`
	PollOnly          bool          `key:"status_poll_only" env:"STATUS_POLL_ONLY" default:"false" doc:"Poll Shoots even where Gardener allows a watch."`
	ReconcileInterval time.Duration `key:"reconcile_interval" env:"RECONCILE_INTERVAL" flag:"reconcile-interval" default:"5m" validate:"gt=0" doc:"Interval of the full comparison of all Shoots with the database."`
	DeleteOrphans     bool          `key:"reconcile_delete_orphans" env:"RECONCILE_DELETE_ORPHANS" default:"false" doc:"Delete orphans: Shoots of this installation without a cluster in the database. Orphans are reported in any case."`
	OrphanAge         time.Duration `key:"reconcile_orphan_min_age" env:"RECONCILE_ORPHAN_MIN_AGE" default:"15m" validate:"gt=0" doc:"Minimum age of a Shoot to be treated as an orphan."`
	Term              time.Duration `key:"leader_lease_duration" env:"CLUSTER_WORKER_LEADER_LEASE_DURATION" default:"30s" validate:"gt=0" doc:"Lease duration of the leader, which watches the Shoots for all workers. When it dies, another takes over after this time."`
	CallTimeout       time.Duration `key:"status_call_timeout" env:"STATUS_CALL_TIMEOUT" default:"15s" validate:"gt=0" doc:"Timeout of one Shoot lookup. Listing all Shoots times out after four times this value."`

	// Owner names this process among all that ever observe; no two have one
	// name. It has no default.
	Owner string
}

func (c Config) withDefaults() (Config, error) {
	orDefault(&c.PollInterval, 30*time.Second)
	orDefault(&c.BatchSize, 50)
	orDefault(&c.ReconcileInterval, 5*time.Minute)
	orDefault(&c.OrphanAge, 15*time.Minute)
	orDefault(&c.Term, 30*time.Second)
	orDefault(&c.CallTimeout, 15*time.Second)
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

func orDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// A Viewer shows the Shoots of the installation. It is called by several
// goroutines at a time. Its errors are of type *shoot.Error, or those of shoot
// that are named here.
type Viewer interface {
	// GetShoot is a live look. Its error is shoot.ErrNotFound if there is no
	// Shoot of that name.
	GetShoot(ctx context.Context, name string) (shoot.Observed, error)
	// ListShoots lists all Shoots of the installation as they are now.
	ListShoots(ctx context.Context) (shoot.List, error)
	// WatchShoots tells of all that happens behind a resource version, in order,
	// until ctx ends, handle gives an error, or the server ends it, which is no
	// error. It gives shoot.ErrExpired if the version is too old.
	WatchShoots(ctx context.Context, resourceVersion string, handle func(shoot.Event) error) error
}

// A Remover deletes Shoots that no cluster knows.
type Remover interface {
	// DeleteShoot deletes the Shoot of that name, uid and labels.
	DeleteShoot(ctx context.Context, ref shoot.Ref) (shoot.Deletion, error)
}

// Deps are what a poller works with.
type Deps struct {
	Store  clusterworker.ObserverStore
	Viewer Viewer

	// Remover may be nil: no Shoot is deleted, whatever Config says.
	Remover Remover

	// Recorder is told of Shoots that became ready, that failed and that are
	// gone. It may be nil.
	Recorder clusterworker.Recorder

	// Wrote is called when something was written that the fleet API may want to
	// hear of. It must not block. It may be nil.
	Wrote func()

	// Log may be nil: nothing is logged.
	Log *slog.Logger

	// Registerer may be nil: nothing is measured.
	Registerer prometheus.Registerer
}

const (
	// maxBatch is how many rows are read or written by one query.
	maxBatch = 500
	// collect is how long an event waits for others. With the query that reads
	// the rows and the one that writes them it is within a tenth of a second.
	collect = 50 * time.Millisecond
	// lookers is how many Shoots are looked up at the same time.
	lookers = 8
)

// A Poller observes while it has the term. Its methods are safe for concurrent
// use.
type Poller struct {
	cfg     Config
	deps    Deps
	log     *slog.Logger
	metrics *metrics
	state   state
}

// New makes a poller. It starts nothing.
func New(cfg Config, deps Deps) (*Poller, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if deps.Store == nil || deps.Viewer == nil {
		return nil, errors.New("create status poller: store and viewer are required")
	}
	if deps.Recorder == nil {
		deps.Recorder = discard{}
	}
	if deps.Wrote == nil {
		deps.Wrote = func() {}
	}
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	m, err := newMetrics(deps.Registerer)
	if err != nil {
		return nil, err
	}
	return &Poller{cfg: cfg, deps: deps, log: deps.Log, metrics: m}, nil
}

// discard tells nobody.
type discard struct{}

func (discard) Record(context.Context, clusterworker.Change) {}
