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

// A Waker tells when rows may have become due.
type Waker interface {
	// Wakes gives a value after each notification; several may be one. It gives
	// one, too, whenever listening begins anew, for what was missed.
	Wakes() <-chan struct{}
	// Ready reports why nobody listens just now. It does not block.
	Ready() error
}

// Deps are what a worker works with. Store, Garden, Maker, Installation and
// Owner are needed; what else is nil is done without.
type Deps struct {
	Store  Store
	Garden Garden
	Maker  Maker

	// Installation gives the id of the database, which is on the labels of our
	// Shoots. It is asked until it gives one, before the first claim.
	Installation func(context.Context) (string, error)

	// Owner is how the worker calls itself in the rows that it claims. No other
	// worker of the same database has the same.
	Owner string

	// Waker tells of changes. Without it the database is asked often.
	Waker Waker
	// Recorder is told what was done.
	Recorder Recorder
	// Tallier counts the rows for the metrics.
	Tallier Tallier
	// Outages tells users of an outage of Gardener.
	Outages OutageStore

	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// storeTimeout bounds one request to the database.
const storeTimeout = 10 * time.Second

// What can go wrong besides what others say. Most are causes of contexts that ended.
var (
	errStoreTimeout   = errors.New("database request timed out")
	errCallTimeout    = timeoutError("Gardener did not respond in time")
	errLeaseOver      = errors.New("lease expired and could not be renewed")
	errNoInstallation = errors.New("installation id not read yet")
	errStopTimeout    = errors.New("shutdown timeout exceeded")
)

// A Worker brings clusters to Gardener. Make it with New and call Run once.
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
	breaker  *breaker
	alarms   *alarms
	throttle throttle
	woken    lastWake
	db       *dbWatch
	sampler  *telemetry.Sampler

	// outcomes takes one of each claim. It has room for all that there can be.
	outcomes chan outcome
	nudges   chan struct{} // of capacity 1: something changed that the claimer looks at
	ended    chan struct{} // closed when there will be no more outcomes

	claims                 claimHealth
	claimPulse, writePulse heartbeat
	counts                 counts
	running                atomic.Bool
}

// New validates cfg and starts nothing.
func New(cfg Config, deps Deps) (*Worker, error) {
	cfg, err := cfg.withDefaults()
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
		floor: newFloor(cfg.Slots), alarms: newAlarms(), sampler: telemetry.NewSampler(),
		nudges: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	w.outcomes = make(chan outcome, w.floor.limit)
	w.leases = &leaseKeeper{worker: w, held: map[string]*heldLease{}}
	w.outages = &outageReporter{worker: w, store: deps.Outages, changed: make(chan struct{}, 1)}
	w.breaker = newBreaker(w.probeGardener, w.breakerChanged)
	if w.metrics, err = newMetrics(deps.Registerer, w); err != nil {
		return nil, err
	}
	w.db = &dbWatch{log: w.log, began: w.metrics.dbOutages.Inc}
	if deps.Tallier != nil {
		if err := deps.Registerer.Register(newTallyCollector(deps.Tallier, w.metrics.tallyFails)); err != nil {
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

// nobody is told of changes.
type nobody struct{}

// Record does nothing.
func (nobody) Record(context.Context, Change) {}

// Run claims rows and works on them until ctx ends. Then it lets running calls end, cuts
// off those that take too long, writes what became of all, and gives back what
// was not finished, all within the time to stop. An error means that a call
// heeded no deadline, and still runs.
func (w *Worker) Run(ctx context.Context) error {
	if !w.running.CompareAndSwap(false, true) {
		return errors.New("run cluster-worker: Run was called before")
	}
	w.log.InfoContext(ctx, "cluster-worker started", "owner", w.owner, "max_concurrent_syncs", w.cfg.Slots, "lease_duration", w.cfg.Lease,
		"call_timeout", w.cfg.CallTimeout, "poll_interval", w.cfg.PollInterval, "listen", w.waker != nil)
	// Calls end first, then nobody waits for them any longer, then writing ends.
	hard, release := withGracePeriod(ctx, w.cfg.StopTimeout)
	defer release()
	calls, releaseCalls := withGracePeriod(ctx, w.cfg.StopTimeout-w.cfg.writeReserve())
	defer releaseCalls()
	patience, releasePatience := withGracePeriod(ctx, w.cfg.StopTimeout-w.cfg.writeReserve()/2)
	defer releasePatience()

	var loops sync.WaitGroup
	loops.Go(func() { w.breaker.Run(ctx) })
	loops.Go(func() { w.writeOutcomes(hard) })
	loops.Go(func() { w.leases.renewUntilDone(hard) })
	loops.Go(func() { w.outages.reportUntilDone(ctx) })
	newClaimer(w).runClaims(ctx, calls, hard)
	left := w.awaitCalls(patience)
	close(w.ended)
	loops.Wait()
	w.log.InfoContext(ctx, "cluster-worker stopped", "released", w.counts.released.Load())
	if left > 0 {
		return fmt.Errorf("stop cluster-worker: %d calls to Gardener did not return before the deadline", left)
	}
	return nil
}

// awaitCalls waits until the outcome of every claim is known, and gives how
// many are not when ctx ends. Those keep their leases: a row that was given
// back could be called for by another worker at the same time.
func (w *Worker) awaitCalls(ctx context.Context) int {
	for {
		_, under, _ := w.floor.currentLoad()
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

// wakeClaimer has the claimer look again.
func (w *Worker) wakeClaimer() {
	select {
	case w.nudges <- struct{}{}:
	default:
	}
}

// withGracePeriod gives a context that ends some time after ctx does. What it holds is
// released by the func.
func withGracePeriod(ctx context.Context, by time.Duration) (context.Context, func()) {
	longer, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	unhook := context.AfterFunc(ctx, func() {
		_ = backoff.Sleep(longer, by) // whoever has it may be done earlier
		cancel(errStopTimeout)
	})
	return longer, func() {
		unhook()
		cancel(context.Canceled)
	}
}

// A throttle is until when Gardener asked us to wait.
type throttle struct {
	mu    sync.Mutex
	until time.Time
}

// extendUntil has it be no earlier than until.
func (t *throttle) extendUntil(until time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if until.After(t.until) {
		t.until = until
	}
}

func (t *throttle) notBefore() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.until
}

// A lastWake is when the last notification came.
type lastWake struct{ at atomic.Pointer[time.Time] }

func (l *lastWake) setTime(now time.Time) { l.at.Store(&now) }

// wakeSlack is by how much a change may follow a notification that it has none
// of its own.
const wakeSlack = 2 * burstInterval

// missedNotification reports whether a row may have changed since it was claimed without
// anything to come that would have us look at it: a claimed row that changes
// is due when its result is written, and that notifies nobody.
func (l *lastWake) missedNotification(claimed, now time.Time) bool {
	at := l.at.Load()
	return at != nil && at.Add(wakeSlack).After(claimed) && now.After(at.Add(burst-burstInterval))
}
