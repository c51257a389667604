// Package bridge tells the fleet API how far Gardener is with each cluster, as
// the adapter "gardener".
//
// Whatever changes of a row is reported at once, and everything again now and
// then, so that a cluster that nobody reports on is one whose worker is gone. A
// report says no more than is known: a cluster whose last change Gardener has
// not been seen to pick up is not ready, whatever it was before.
//
// Only the worker that observes reports. Reports are the only effect, so one
// that is made twice does no harm, and one that comes too late is recognised by
// its time. A fleet API that is away is tried again; what one report is refused
// for holds up no other.
package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
)

// Config is what an operator settles about reports. Fields that are zero mean
// their default.
type Config struct {
	Timeout  time.Duration `key:"report_timeout" env:"CLUSTER_WORKER_REPORT_TIMEOUT" default:"10s" validate:"gt=0" doc:"Timeout of one report to the fleet API."`
	InFlight int           `key:"max_concurrent_reports" env:"CLUSTER_WORKER_MAX_CONCURRENT_REPORTS" default:"8" validate:"gte=1,lte=100" doc:"Maximum number of reports sent to the fleet API concurrently."`
}

func (c Config) withDefaults() (Config, error) {
	if c.Timeout == 0 {
		c.Timeout = 10 * time.Second
	}
	if c.InFlight == 0 {
		c.InFlight = 8
	}
	if c.Timeout < 0 || c.InFlight < 0 {
		return c, fmt.Errorf("report_timeout %s and max_concurrent_reports %d must not be negative", c.Timeout, c.InFlight)
	}
	return c, nil
}

// A Fleet takes reports. An answer that is not a success is an error with the
// method StatusCode.
type Fleet interface {
	// Report is not stored if it comes too late, or too early, to count.
	Report(ctx context.Context, collection, id string, report v1.Report) (stored bool, err error)
}

// An Observer is what observes the Shoots in this process.
type Observer interface {
	// Leads is whether this process observes for all.
	Leads() bool
	// Current is whether a row's status is about the Shoot as it was sent last;
	// not known if this process has not seen it yet.
	Current(row *clusterworker.Row) (current, known bool)
}

// Deps are what a bridge works with.
type Deps struct {
	Store    clusterworker.ReportStore
	Fleet    Fleet
	Observer Observer

	// Pools says which node pools Gardener has, to report on them as well. It may
	// be nil: only clusters are reported on.
	Pools clusterworker.PoolStore

	// Log may be nil: nothing is logged.
	Log *slog.Logger

	// Registerer may be nil: nothing is measured.
	Registerer prometheus.Registerer
}

const (
	collection      = "clusters"
	poolsCollection = "nodepools"
	// batch is how many reports are read, and noted, by one query.
	batch = 100

	// nextReady is when a ready cluster is reported again, and nextOthers when
	// any other.
	nextReady  = 10 * time.Minute
	nextOthers = 30 * time.Second
	// nextUnseen is when to look again at what has not been observed yet.
	nextUnseen = 2 * time.Second
	// nextFailed is when to try again what the fleet API failed with. That is
	// longer than the longest wait after a failure, so that others come between.
	nextFailed = 15 * time.Second

	// idle is how often to look for due reports without having been nudged.
	idle = 5 * time.Second
	// gather is how long a nudge waits for others.
	gather = 50 * time.Millisecond
	// patience is how long a ready cluster waits, after this process has begun
	// to observe, to be seen. After that Gardener is away for longer, and what
	// the row says is the best that is known.
	patience = time.Minute
	// queryTimeout bounds a query.
	queryTimeout = 10 * time.Second
)

// A Bridge reports. Its methods are safe for concurrent use.
type Bridge struct {
	cfg     Config
	deps    Deps
	log     *slog.Logger
	metrics *metrics
	nudged  chan struct{} // of capacity 1

	leadsSince time.Time // zero while this process does not observe
}

// New makes a bridge. It starts nothing.
func New(cfg Config, deps Deps) (*Bridge, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if deps.Store == nil || deps.Fleet == nil || deps.Observer == nil {
		return nil, errors.New("create fleet API reporter: store, fleet client and observer are required")
	}
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	m, err := newMetrics(deps.Registerer)
	if err != nil {
		return nil, err
	}
	return &Bridge{cfg: cfg, deps: deps, log: deps.Log, metrics: m, nudged: make(chan struct{}, 1)}, nil
}

// Nudge says that reports may have fallen due. It never blocks; many are as
// one.
func (b *Bridge) Nudge() {
	select {
	case b.nudged <- struct{}{}:
	default:
	}
}

// Run reports whenever this process observes, until ctx ends. A fleet API or a
// database that is away is tried again.
func (b *Bridge) Run(ctx context.Context) error {
	policy := backoff.Policy{Initial: time.Second, Max: 10 * time.Second}
	for failures := 0; ctx.Err() == nil; {
		if !b.isLeading() {
			b.waitForWake(ctx, idle)
			continue
		}
		more, answered, err := b.reportDueRows(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			if failures == 0 {
				b.log.WarnContext(ctx, "report to fleet API failed, retrying", "err", err)
			}
			after, _ := backoff.RetryAfter(err)
			_ = backoff.Sleep(ctx, max(policy.Delay(failures), min(after, backoff.MaxRetryAfter)))
			failures++
		case answered && failures > 0:
			b.log.InfoContext(ctx, "fleet API accepts reports again", "failures", failures)
			failures = 0
		case !more:
			b.waitForWake(ctx, idle)
		}
	}
	return nil
}

// isLeading reports whether this process observes, and keeps since when.
func (b *Bridge) isLeading() bool {
	switch leads := b.deps.Observer.Leads(); {
	case !leads:
		b.leadsSince = time.Time{}
	case b.leadsSince.IsZero():
		b.leadsSince = time.Now()
	}
	return !b.leadsSince.IsZero()
}

// waitForWake waits until it is nudged, at most for a while.
func (b *Bridge) waitForWake(ctx context.Context, most time.Duration) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-b.nudged:
		_ = backoff.Sleep(ctx, gather)
		select {
		case <-b.nudged: // it came while others were gathered
		default:
		}
	}
}
