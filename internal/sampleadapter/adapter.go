// Package sampleadapter holds adapters to try a fleet with: they do no work,
// and report as if they had, to the letter of the adapter status contract.
//
// On every cloud event an adapter reads the resource and the reports of the
// others, and reports itself with the time of the look, whatever it found:
// also when its precondition is not met, and also when there is nothing left
// to do. A look can be slow and can fail, by chance; the resource is then
// reported as not available, and a later event finds it again. Reports are
// the only effect, so an event that comes twice does no harm.
//
// An event is acknowledged once the report is in, and comes back otherwise.
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

// What a zero field of Config means.
const (
	DefaultWorkers            = 8
	DefaultSubscriptionPrefix = "adapter-"
)

// Config is one adapter.
type Config struct {
	// Name is how the adapter calls itself in its reports.
	Name string

	// After is the adapter that must have reported the resource's generation
	// as available before this one begins. Empty means none.
	After string

	// Subscription is where the adapter's cloud events queue up. Empty means
	// DefaultSubscriptionPrefix and the name.
	Subscription string

	// Latency is how long the work on one resource takes on average; it
	// varies by half of that. Zero means no time at all.
	Latency time.Duration

	// FailureRate is the share of the work that fails, at least 0 and below 1.
	FailureRate float64

	// Seed makes chance repeatable: adapters of one name and seed draw the
	// same numbers.
	Seed uint64

	// Workers bounds how many events are handled at the same time. Zero means
	// DefaultWorkers.
	Workers int
}

// Samples gives the three sample adapters, each like base but for its name and
// what it waits for.
func Samples(base Config) []Config {
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

// A consumer hands out the cloud events of a subscription, as many at a time
// as it likes. Consume returns when ctx ended and the last handle returned. An
// event whose handle gave an error is handed out again later.
type consumer interface {
	Consume(ctx context.Context, subscription string, handle func(context.Context, cloudevent.Event) error) error
}

// A fleet is what the fleet API offers an adapter. An answer that is not a
// success is an error with the method StatusCode.
type fleet interface {
	Get(ctx context.Context, collection, id string) (v1.Resource, error)
	Statuses(ctx context.Context, collection, id string) ([]v1.AdapterStatus, error)
	Report(ctx context.Context, collection, id string, report v1.Report) (stored bool, err error)
}

// Deps are what an adapter works with.
type Deps struct {
	Consumer consumer
	Fleet    fleet

	// Log may be nil: nothing is logged.
	Log *slog.Logger

	// Registerer may be nil: nothing is measured.
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

// Stats are what became of the cloud events so far.
type Stats struct {
	// Reports is how many reports the fleet API stored.
	Reports uint64

	// LastReport is when it stored the last one.
	LastReport time.Time
}

// New checks cfg and gives an adapter. It starts nothing.
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

// Name is how the adapter calls itself.
func (a *Adapter) Name() string { return a.cfg.Name }

// Stats gives what became of the cloud events so far.
func (a *Adapter) Stats() Stats {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stats
}

// Pause stops the adapter as if it had died: events under way are left
// unacknowledged and unreported. It lasts until Resume.
func (a *Adapter) Pause() { a.setPaused(true) }

// Resume lets a paused adapter go on.
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

// pausedState also gives what will be closed when it is no longer true.
func (a *Adapter) pausedState() (paused bool, changed <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.paused, a.changed
}

// Run handles cloud events until ctx ends and those under way have come to an
// end. It returns early only with an error of the consumer.
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

// consumeUntil handles events until ctx ends, stop is closed or the consumer
// gives up.
func (a *Adapter) consumeUntil(ctx context.Context, stop <-chan struct{}) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- a.deps.Consumer.Consume(ctx, a.cfg.Subscription, a.handleWithTimeout) }()
	select {
	case <-stop:
		cancel()
		<-done // whatever it says, it was told to stop
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

func (a *Adapter) handleWithTimeout(ctx context.Context, e cloudevent.Event) error {
	select {
	case a.slots <- struct{}{}:
		defer func() { <-a.slots }()
		return a.handleEvent(ctx, e)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// simulateWork plays the work on one resource and reports whether it succeeded.
func (a *Adapter) simulateWork(ctx context.Context) (ok bool, err error) {
	a.mu.Lock()
	stretch, luck := 0.5+a.chance.Float64(), a.chance.Float64()
	a.mu.Unlock()
	if err := backoff.Sleep(ctx, time.Duration(stretch*float64(a.cfg.Latency))); err != nil {
		return false, err
	}
	return luck >= a.cfg.FailureRate, nil
}
