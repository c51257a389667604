// Package sampleadapter holds adapters for trying out a fleet: they do no work, and report as if
// they had. They are written with package adapter, which receives the events and sends the reports.
//
// The simulated work can be slow and can fail at random; the resource is then reported as not
// available, and a later event tries again. Reports are the only effect, so a repeated event does no
// harm.
package sampleadapter

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetloop/fleetloop/adapter"
	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
)

// The sample adapters, in the order in which they wait for each other.
const (
	Validation   = "validation"
	DNS          = "dns"
	Provisioning = "provisioning"
)

// Defaults of the zero fields of Config.
const (
	DefaultWorkers            = adapter.DefaultConcurrency
	DefaultSubscriptionPrefix = adapter.DefaultSubscriptionPrefix
)

// Config configures one adapter.
type Config struct {
	// Name is the name of the adapter in its reports.
	Name string

	// After is the adapter that must have reported the resource's generation as available before
	// this one starts. Empty means none.
	After string

	// Subscription is the queue of the adapter's cloud events. Empty means
	// DefaultSubscriptionPrefix and the name.
	Subscription string

	// Latency is the average duration of the work on one resource; it varies by half of that. Zero
	// means no delay.
	Latency time.Duration

	// FailureRate is the fraction of the work that fails, at least 0 and below 1.
	FailureRate float64

	// Seed makes random results repeatable: adapters with the same name and seed draw the same
	// numbers.
	Seed uint64

	// Workers is the maximum number of events in progress. Zero means DefaultWorkers.
	Workers int
}

// ChainedSampleConfigs returns the three sample adapters. Each equals base except for its name and the adapter
// that it waits for.
func ChainedSampleConfigs(base Config) []Config {
	list := make([]Config, 0, 3)
	after := ""
	for _, name := range []string{Validation, DNS, Provisioning} {
		cfg := base
		cfg.Name, cfg.After, cfg.Subscription = name, after, ""
		list = append(list, cfg)
		after = name
	}
	return list
}

// A consumer delivers the cloud events of a subscription, as the broker clients do.
type consumer interface {
	Consume(ctx context.Context, subscription string, handle func(context.Context, cloudevent.Event) error) error
}

// kitConsumer is a consumer in the form of package adapter.
type kitConsumer struct{ consumer }

// Consume implements adapter.Consumer.
func (c kitConsumer) Consume(ctx context.Context, subscription string, handle func(context.Context, adapter.Event) error) error {
	return c.consumer.Consume(ctx, subscription, func(ctx context.Context, e cloudevent.Event) error {
		return handle(ctx, adapter.Event{ID: e.ID, Type: e.Type, Data: e.Data, TraceParent: e.TraceParent, TraceState: e.TraceState})
	})
}

// Deps holds the dependencies of an adapter.
type Deps struct {
	Consumer consumer
	Fleet    adapter.Fleet

	// Log may be nil to log nothing.
	Log *slog.Logger

	// Registerer may be nil to register no metrics.
	Registerer prometheus.Registerer
}

// An Adapter is one running adapter. Its methods are safe for concurrent use.
type Adapter struct {
	cfg     Config
	kit     *adapter.Adapter
	log     *slog.Logger
	metrics metrics

	mu      sync.Mutex
	paused  bool
	changed chan struct{} // closed and replaced when paused changes
	stats   Stats
}

// Stats holds the results of the cloud events so far.
type Stats struct {
	// Reports is the number of reports that the fleet API stored.
	Reports uint64

	// LastReport is the time of the last stored report.
	LastReport time.Time
}

// New checks cfg and returns an adapter. It starts nothing.
func New(cfg Config, deps Deps) (*Adapter, error) {
	switch {
	case cfg.Name == "":
		return nil, errors.New("sample adapter: the name is empty")
	case cfg.After == cfg.Name:
		return nil, fmt.Errorf("sample adapter %q: it cannot depend on itself", cfg.Name)
	case cfg.FailureRate < 0 || cfg.FailureRate >= 1:
		return nil, fmt.Errorf("sample adapter %q: failure rate %g must be at least 0 and below 1", cfg.Name, cfg.FailureRate)
	case cfg.Latency < 0:
		return nil, fmt.Errorf("sample adapter %q: latency %s must not be negative", cfg.Name, cfg.Latency)
	}
	if cfg.Subscription == "" {
		cfg.Subscription = DefaultSubscriptionPrefix + cfg.Name
	}
	log := deps.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	m, err := newMetrics(deps.Registerer, cfg.Name)
	if err != nil {
		return nil, err
	}
	a := &Adapter{
		cfg:     cfg,
		log:     log.With("adapter", cfg.Name),
		metrics: m,
		changed: make(chan struct{}),
	}
	a.kit, err = adapter.New(
		adapter.Config{Name: cfg.Name, Subscription: cfg.Subscription, Concurrency: cfg.Workers, StopTimeout: -1},
		newReconciler(cfg),
		adapter.Deps{Consumer: kitConsumer{deps.Consumer}, Fleet: deps.Fleet, Log: deps.Log, Registerer: deps.Registerer, OnResult: a.noteResult},
	)
	if err != nil {
		return nil, err
	}
	return a, nil
}

// Name returns the name of the adapter.
func (a *Adapter) Name() string { return a.cfg.Name }

// Stats returns the results of the cloud events so far.
func (a *Adapter) Stats() Stats {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stats
}

func (a *Adapter) noteResult(r adapter.Result) {
	a.metrics.countResult(r)
	if r.Outcome != adapter.OutcomeReported {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stats.Reports++
	a.stats.LastReport = time.Now()
}

// Pause stops the adapter like a crash: events in progress remain unacknowledged and unreported. It
// lasts until Resume.
func (a *Adapter) Pause() { a.setPaused(true) }

// Resume resumes a paused adapter.
func (a *Adapter) Resume() { a.setPaused(false) }

// Paused reports whether the adapter is paused.
func (a *Adapter) Paused() bool {
	paused, _ := a.pausedState()
	return paused
}

func (a *Adapter) setPaused(paused bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.paused == paused {
		return
	}
	a.paused = paused
	close(a.changed)
	a.changed = make(chan struct{})
	a.metrics.setPaused(paused)
}

// pausedState also returns a channel that is closed when the state changes.
func (a *Adapter) pausedState() (paused bool, changed <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.paused, a.changed
}

// Run handles cloud events until ctx ends and those in progress have finished. It returns early
// only with an error of the consumer.
func (a *Adapter) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		paused, changed := a.pausedState()
		if paused {
			a.log.InfoContext(ctx, "paused")
			select {
			case <-changed:
				a.log.InfoContext(ctx, "resumed")
			case <-ctx.Done():
			}
			continue
		}
		if err := a.runUntil(ctx, changed); err != nil {
			return err
		}
	}
	return nil
}

// runUntil handles events until ctx ends, stop is closed or the consumer fails.
func (a *Adapter) runUntil(ctx context.Context, stop <-chan struct{}) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- a.kit.Run(ctx) }()
	select {
	case <-stop:
		cancel()
		return <-done
	case err := <-done:
		return err
	}
}

// A reconciler simulates the work of one adapter.
type reconciler struct {
	cfg Config

	mu     sync.Mutex
	chance *rand.Rand
}

func newReconciler(cfg Config) *reconciler {
	h := fnv.New64a()
	_, _ = h.Write([]byte(cfg.Name))
	return &reconciler{
		cfg:    cfg,
		chance: rand.New(rand.NewPCG(cfg.Seed, h.Sum64())), //nolint:gosec // a play of failures, to be repeated by its seed
	}
}

// Reconcile implements adapter.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, resource adapter.Resource) (adapter.Report, error) {
	result := outcomeAvailable
	switch decideStep(r.cfg, resource) {
	case stepWait:
		return newReport(r.cfg, outcomeWaiting), nil
	case stepConfirm:
		return newReport(r.cfg, outcomeAvailable), nil
	case stepConfirmFinal:
		return newReport(r.cfg, outcomeFinalized), nil
	case stepWork:
	case stepFinalize:
		result = outcomeFinalized
	}
	ok, err := r.simulateWork(ctx)
	if err != nil {
		return adapter.Report{}, err
	}
	if !ok {
		result = outcomeTransient
	}
	return newReport(r.cfg, result), nil
}

// simulateWork simulates the work on one resource and reports whether it succeeded.
func (r *reconciler) simulateWork(ctx context.Context) (succeeded bool, err error) {
	r.mu.Lock()
	stretch, luck := 0.5+r.chance.Float64(), r.chance.Float64()
	r.mu.Unlock()
	if err := backoff.Sleep(ctx, time.Duration(stretch*float64(r.cfg.Latency))); err != nil {
		return false, err
	}
	return luck >= r.cfg.FailureRate, nil
}
