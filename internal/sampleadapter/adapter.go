// Package sampleadapter holds adapters for trying out a fleet: they do no work, and report as if
// they had, exactly as the adapter status contract requires.
//
// On every cloud event an adapter reads the resource and the reports of the others, and reports the
// time of the observation, whatever the result: also if its precondition is not met, and also if no
// work is left. The simulated work can be slow and can fail at random; the resource is then
// reported as not available, and a later event tries again. Reports are the only effect, so a
// repeated event does no harm.
//
// An event is acknowledged after the report is stored, and is redelivered otherwise.
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

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
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
	DefaultWorkers            = 8
	DefaultSubscriptionPrefix = "adapter-"
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

// SampleConfigs returns the three sample adapters. Each equals base except for its name and the adapter
// that it waits for.
func SampleConfigs(base Config) []Config {
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

// A consumer delivers the cloud events of a subscription, any number concurrently. Consume returns
// when ctx has ended and the last handle has returned. An event whose handle returned an error is
// redelivered later.
type consumer interface {
	Consume(ctx context.Context, subscription string, handle func(context.Context, cloudevent.Event) error) error
}

// A fleet is the part of the fleet API that an adapter uses. An unsuccessful response is an error
// with the method StatusCode.
type fleet interface {
	Get(ctx context.Context, collection, id string) (v1.Resource, error)
	Statuses(ctx context.Context, collection, id string) ([]v1.AdapterStatus, error)
	Report(ctx context.Context, collection, id string, report v1.Report) (stored bool, err error)
}

// Deps holds the dependencies of an adapter.
type Deps struct {
	Consumer consumer
	Fleet    fleet

	// Log may be nil to log nothing.
	Log *slog.Logger

	// Registerer may be nil to register no metrics.
	Registerer prometheus.Registerer
}

// An Adapter is one running adapter. Its methods are safe for concurrent use.
type Adapter struct {
	cfg     Config
	deps    Deps
	log     *slog.Logger
	metrics metrics
	slots   chan struct{}

	mu      sync.Mutex
	chance  *rand.Rand
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
	case cfg.Latency < 0 || cfg.Workers < 0:
		return nil, fmt.Errorf("sample adapter %q: latency %s and %d workers must not be negative", cfg.Name, cfg.Latency, cfg.Workers)
	}
	if cfg.Subscription == "" {
		cfg.Subscription = DefaultSubscriptionPrefix + cfg.Name
	}
	if cfg.Workers == 0 {
		cfg.Workers = DefaultWorkers
	}
	log := deps.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	m, err := newMetrics(deps.Registerer, cfg.Name)
	if err != nil {
		return nil, err
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(cfg.Name))
	return &Adapter{
		cfg:     cfg,
		deps:    deps,
		log:     log.With("adapter", cfg.Name),
		metrics: m,
		slots:   make(chan struct{}, cfg.Workers),
		chance:  rand.New(rand.NewPCG(cfg.Seed, h.Sum64())), //nolint:gosec // a play of failures, to be repeated by its seed
		changed: make(chan struct{}),
	}, nil
}

// Name returns the name of the adapter.
func (a *Adapter) Name() string { return a.cfg.Name }

// Stats returns the results of the cloud events so far.
func (a *Adapter) Stats() Stats {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stats
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
		if err := a.consumeUntil(ctx, changed); err != nil {
			return fmt.Errorf("consume %q: %w", a.cfg.Subscription, err)
		}
	}
	return nil
}

// consumeUntil handles events until ctx ends, stop is closed or the consumer fails.
func (a *Adapter) consumeUntil(ctx context.Context, stop <-chan struct{}) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- a.deps.Consumer.Consume(ctx, a.cfg.Subscription, a.handleInSlot) }()
	select {
	case <-stop:
		cancel()
		<-done // the error is irrelevant, because the consumer was stopped
		return nil
	case err := <-done:
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			return errors.New("stopped unexpectedly")
		}
		return err
	}
}

func (a *Adapter) handleInSlot(ctx context.Context, e cloudevent.Event) error {
	select {
	case a.slots <- struct{}{}:
		defer func() { <-a.slots }()
		return a.handleEvent(ctx, e)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// simulateWork simulates the work on one resource and reports whether it succeeded.
func (a *Adapter) simulateWork(ctx context.Context) (ok bool, err error) {
	a.mu.Lock()
	stretch, luck := 0.5+a.chance.Float64(), a.chance.Float64()
	a.mu.Unlock()
	if err := backoff.Sleep(ctx, time.Duration(stretch*float64(a.cfg.Latency))); err != nil {
		return false, err
	}
	return luck >= a.cfg.FailureRate, nil
}
