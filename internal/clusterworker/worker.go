package clusterworker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/telemetry"
)

// A Waker signals when rows may have become due.
type Waker interface {
	// NotificationChannel returns a channel that receives a value after each notification; several
	// may be merged. It also receives one whenever listening starts again, for missed
	// notifications.
	NotificationChannel() <-chan struct{}
	// Ready returns why the worker does not listen at present. It does not block.
	Ready() error
}

// Deps are the dependencies of a worker. Store, Garden, Maker, Installation and Owner
// are required; the others may be nil.
type Deps struct {
	Store  Store
	Garden Garden
	Maker  Maker

	// Installation is the id of the database, which is in the labels of its Shoots.
	Installation string

	// Owner is the name of the worker in the rows that it claims. It is unique among
	// the workers of a database.
	Owner string

	// Waker signals changes. Without it the worker polls the database often.
	Waker Waker
	// Recorder receives the changes.
	Recorder Recorder
	// ClusterCounter counts the rows for the metrics.
	ClusterCounter ClusterCounter
	// Outages records an outage of Gardener for users.
	Outages OutageStore

	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// storeTimeout limits one request to the database.
const storeTimeout = 10 * time.Second

// Errors of the worker. They are causes of contexts that ended.
var (
	errStoreTimeout = errors.New("database request timed out")
	errCallTimeout  = timeoutError("Gardener did not respond in time")
	errLeaseOver    = errors.New("lease expired and could not be renewed")
	errStopTimeout  = errors.New("shutdown timeout exceeded")
)

// A Worker syncs clusters to Gardener. Create it with New and call Run once.
type Worker struct {
	cfg     Config
	deps    Deps
	log     *slog.Logger
	metrics *metrics

	limiter  *callLimiter
	leases   *leaseKeeper
	outages  *outageReporter
	breaker  *circuitBreaker
	alarms   *alarms
	throttle throttle
	notified lastNotification
	sampler  *telemetry.Sampler

	// outcomes receives one outcome per claim. Its capacity covers every possible
	// claim.
	outcomes chan outcome
	wakeups  chan struct{} // capacity 1: wakes the claimer after a change
	ended    chan struct{} // closed when no more outcomes can come

	claims                 claimHealth
	db                     *databaseHealth
	claimPulse, writePulse heartbeat
	released               int // claims released at shutdown, set by the writer
	running                atomic.Bool
}

// New validates cfg and starts nothing.
func New(cfg Config, deps Deps) (*Worker, error) {
	cfg, err := cfg.withDefaultsValidated()
	if err != nil {
		return nil, fmt.Errorf("create cluster-worker: %w", err)
	}
	if deps.Store == nil || deps.Garden == nil || deps.Maker == nil || deps.Installation == "" || deps.Owner == "" {
		return nil, errors.New("create cluster-worker: store, garden, maker, installation and owner are required")
	}
	if cfg.Listen == ListenOff {
		deps.Waker = nil
	}
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	if deps.Registerer == nil {
		deps.Registerer = prometheus.NewRegistry()
	}
	w := &Worker{
		cfg:     cfg,
		deps:    deps,
		log:     deps.Log,
		limiter: newCallLimiter(cfg.Slots),
		alarms:  newAlarms(),
		sampler: telemetry.NewSampler(),
		wakeups: make(chan struct{}, 1),
		ended:   make(chan struct{}),
	}
	w.outcomes = make(chan outcome, w.limiter.maxClaims)
	w.leases = &leaseKeeper{worker: w, held: map[string]*heldLease{}}
	w.outages = &outageReporter{worker: w, changed: make(chan struct{}, 1)}
	w.breaker = newCircuitBreaker(w.probeGardener, w.recordOutageChange)
	if w.metrics, err = registerMetrics(deps.Registerer, w); err != nil {
		return nil, err
	}
	w.db = &databaseHealth{log: w.log, onOutageStart: w.metrics.dbOutages.Inc}
	if deps.ClusterCounter == nil {
		return w, nil
	}
	if err := deps.Registerer.Register(newClusterCountCollector(deps.ClusterCounter, w.metrics.countErrors)); err != nil {
		return nil, fmt.Errorf("register cluster count metrics: %w", err)
	}
	return w, nil
}

// Run claims rows and syncs them until ctx ends. Then it lets running calls end,
// cancels those that take too long, writes all outcomes, and releases unfinished
// claims, all within StopTimeout. An error means that a call ignored its deadline and
// still runs.
func (w *Worker) Run(ctx context.Context) error {
	if !w.running.CompareAndSwap(false, true) {
		return errors.New("run cluster-worker: Run was called before")
	}
	w.log.InfoContext(ctx, "cluster-worker started", "owner", w.deps.Owner, "max_concurrent_syncs", w.cfg.Slots, "lease_duration", w.cfg.Lease,
		"call_timeout", w.cfg.CallTimeout, "poll_interval", w.cfg.PollInterval, "listen", w.deps.Waker != nil)
	writeCtx, releaseWrites := withGracePeriod(ctx, w.cfg.StopTimeout)
	defer releaseWrites()
	// The wait for outcomes ends after the calls and before the writes.
	waitCtx, releaseWait := withGracePeriod(ctx, w.cfg.StopTimeout-w.cfg.stopTimeReservedForWrites()/2)
	defer releaseWait()

	var loops sync.WaitGroup
	loops.Go(func() { w.breaker.runProbesWhileOpen(ctx) })
	loops.Go(func() { w.writeOutcomesUntilDone(writeCtx) })
	loops.Go(func() { w.leases.renewLeasesUntilDone(writeCtx) })
	loops.Go(func() { w.outages.writeOutageUntilDone(ctx) })
	newClaimer(w).claimUntilDone(ctx)
	left := w.waitForOutcomesOfAllCalls(waitCtx)
	close(w.ended)
	loops.Wait()
	w.log.InfoContext(ctx, "cluster-worker stopped", "released", w.released)
	if left > 0 {
		return fmt.Errorf("stop cluster-worker: %d calls to Gardener did not return before the deadline", left)
	}
	return nil
}

// waitForOutcomesOfAllCalls waits until the outcome of every claim is known, and returns how many are
// unknown when ctx ends. Those keep their leases: another worker could call Gardener
// for a released row at the same time.
func (w *Worker) waitForOutcomesOfAllCalls(ctx context.Context) (unfinished int) {
	for {
		unfinished := w.limiter.counts().withoutOutcome
		if unfinished == 0 {
			return 0
		}
		select {
		case <-ctx.Done():
			return unfinished
		case <-w.wakeups:
		}
	}
}

// wakeClaimer wakes the claimer.
func (w *Worker) wakeClaimer() {
	select {
	case w.wakeups <- struct{}{}:
	default: // it will wake up anyway
	}
}

// withGracePeriod returns a context that ends the given time after ctx, and a function
// that releases it.
func withGracePeriod(ctx context.Context, grace time.Duration) (graceCtx context.Context, release func()) {
	longer, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	unhook := context.AfterFunc(ctx, func() {
		_ = backoff.Sleep(longer, grace) // the holder may release it earlier
		cancel(errStopTimeout)
	})
	return longer, func() {
		unhook()
		cancel(context.Canceled)
	}
}
