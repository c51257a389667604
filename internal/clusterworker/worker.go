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

	// Installation returns the id of the database, which is in the labels of its
	// Shoots. It is called until it returns one, before the first claim.
	Installation func(context.Context) (string, error)

	// Owner is the name of the worker in the rows that it claims. It is unique among
	// the workers of a database.
	Owner string

	// Waker signals changes. Without it the worker polls the database often.
	Waker Waker
	// Recorder receives the changes.
	Recorder Recorder
	// Tallier counts the rows for the metrics.
	Tallier ClusterCounter
	// Outages records an outage of Gardener for users.
	Outages OutageStore

	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// storeTimeout limits one request to the database.
const storeTimeout = 10 * time.Second

// Errors of the worker. Most are causes of contexts that ended.
var (
	errStoreTimeout   = errors.New("database request timed out")
	errCallTimeout    = timeoutError("Gardener did not respond in time")
	errLeaseOver      = errors.New("lease expired and could not be renewed")
	errNoInstallation = errors.New("installation id not read yet")
	errStopTimeout    = errors.New("shutdown timeout exceeded")
)

// A Worker syncs clusters to Gardener. Create it with New and call Run once.
type Worker struct {
	cfg      Config
	store    Store
	garden   Garden
	maker    Maker
	recorder Recorder
	waker    Waker
	owner    string
	log      *slog.Logger
	metrics  *metrics

	askInstallation func(context.Context) (string, error)
	installation    string // set before the first call

	floor    *callLimiter
	leases   *leaseKeeper
	outages  *outageReporter
	breaker  *circuitBreaker
	alarms   *alarms
	throttle throttle
	woken    lastNotification
	db       *databaseHealth
	sampler  *telemetry.Sampler

	// outcomes receives one outcome per claim. Its capacity covers every possible
	// claim.
	outcomes chan outcome
	nudges   chan struct{} // capacity 1: wakes the claimer after a change
	ended    chan struct{} // closed when no more outcomes can come

	claims                 claimHealth
	claimPulse, writePulse heartbeat
	counts                 counts
	running                atomic.Bool
}

// New validates cfg and starts nothing.
func New(cfg Config, deps Deps) (*Worker, error) {
	cfg, err := cfg.withDefaultsValidated()
	if err != nil {
		return nil, fmt.Errorf("create cluster-worker: %w", err)
	}
	if deps.Store == nil || deps.Garden == nil || deps.Maker == nil || deps.Installation == nil || deps.Owner == "" {
		return nil, errors.New("create cluster-worker: store, garden, maker, installation and owner are required")
	}
	deps = deps.withDefaults()
	if cfg.Listen == ListenOff {
		deps.Waker = nil
	}
	w := &Worker{
		cfg: cfg, store: deps.Store, garden: deps.Garden, maker: deps.Maker, recorder: deps.Recorder,
		waker: deps.Waker, owner: deps.Owner, log: deps.Log, askInstallation: deps.Installation,
		floor: newCallLimiter(cfg.Slots), alarms: newAlarms(), sampler: telemetry.NewSampler(),
		nudges: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	w.outcomes = make(chan outcome, w.floor.limit)
	w.leases = &leaseKeeper{worker: w, held: map[string]*heldLease{}}
	w.outages = &outageReporter{worker: w, store: deps.Outages, changed: make(chan struct{}, 1)}
	w.breaker = newCircuitBreaker(w.probeGardener, w.recordOutageChange)
	if w.metrics, err = registerMetrics(deps.Registerer, w); err != nil {
		return nil, err
	}
	w.db = &databaseHealth{log: w.log, began: w.metrics.dbOutages.Inc}
	if deps.Tallier != nil {
		if err := deps.Registerer.Register(newClusterCountCollector(deps.Tallier, w.metrics.tallyFails)); err != nil {
			return nil, fmt.Errorf("register cluster count metrics: %w", err)
		}
	}
	return w, nil
}

func (d Deps) withDefaults() Deps {
	if d.Log == nil {
		d.Log = slog.New(slog.DiscardHandler)
	}
	if d.Registerer == nil {
		d.Registerer = prometheus.NewRegistry()
	}
	if d.Recorder == nil {
		d.Recorder = nobody{}
	}
	return d
}

// nobody is a Recorder that discards changes.
type nobody struct{}

// Record does nothing.
func (nobody) Record(context.Context, Change) {}

// Run claims rows and syncs them until ctx ends. Then it lets running calls end,
// cancels those that take too long, writes all outcomes, and releases unfinished
// claims, all within StopTimeout. An error means that a call ignored its deadline and
// still runs.
func (w *Worker) Run(ctx context.Context) error {
	if !w.running.CompareAndSwap(false, true) {
		return errors.New("run cluster-worker: Run was called before")
	}
	w.log.InfoContext(ctx, "cluster-worker started", "owner", w.owner, "max_concurrent_syncs", w.cfg.Slots, "lease_duration", w.cfg.Lease,
		"call_timeout", w.cfg.CallTimeout, "poll_interval", w.cfg.PollInterval, "listen", w.waker != nil)
	// Calls end first, then the wait for them, then writing.
	hard, release := withGracePeriod(ctx, w.cfg.StopTimeout)
	defer release()
	calls, releaseCalls := withGracePeriod(ctx, w.cfg.StopTimeout-w.cfg.stopTimeReservedForWrites())
	defer releaseCalls()
	patience, releasePatience := withGracePeriod(ctx, w.cfg.StopTimeout-w.cfg.stopTimeReservedForWrites()/2)
	defer releasePatience()

	var loops sync.WaitGroup
	loops.Go(func() { w.breaker.runProbesWhileOpen(ctx) })
	loops.Go(func() { w.writeOutcomesUntilDone(hard) })
	loops.Go(func() { w.leases.renewLeasesUntilDone(hard) })
	loops.Go(func() { w.outages.writeOutageUntilDone(ctx) })
	newClaimer(w).claimUntilDone(ctx, calls, hard)
	left := w.waitForOutcomesOfAllCalls(patience)
	close(w.ended)
	loops.Wait()
	w.log.InfoContext(ctx, "cluster-worker stopped", "released", w.counts.released.Load())
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
		_, under, _ := w.floor.countCallsAndClaims()
		if under == 0 {
			return 0
		}
		select {
		case <-ctx.Done():
			return under
		case <-w.nudges:
		}
	}
}

// wakeClaimer wakes the claimer.
func (w *Worker) wakeClaimer() {
	select {
	case w.nudges <- struct{}{}:
	default:
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

// A throttle records until when Gardener asked the worker to wait.
type throttle struct {
	mu    sync.Mutex
	until time.Time
}

// extendWaitUntil moves the end of the wait to until if that is later.
func (t *throttle) extendWaitUntil(until time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if until.After(t.until) {
		t.until = until
	}
}

func (t *throttle) waitEnd() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.until
}

// A lastNotification is the time of the last notification.
type lastNotification struct{ at atomic.Pointer[time.Time] }

func (l *lastNotification) recordNotification(now time.Time) { l.at.Store(&now) }

// wakeSlack is how long after a notification a change may come without one.
const wakeSlack = 2 * burstInterval

// mayHaveMissedNotification reports whether a row may have changed since its claim without a
// later event that wakes the claimer. A claimed row that changes is due when its result
// is written, and that sends no notification.
func (l *lastNotification) mayHaveMissedNotification(claimedAt, now time.Time) bool {
	at := l.at.Load()
	return at != nil && at.Add(wakeSlack).After(claimedAt) && now.After(at.Add(burst-burstInterval))
}
