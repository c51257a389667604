// Package sentinel watches one collection of the fleet API, decides which resources are due, and
// publishes a CloudEvent for each of them.
//
// A resource is decided in one of three cases: a sweep lists everything; the change feed reports
// that the resource changed; or the schedule index says that the resource is due, and a poll looks
// it up. An API without a change feed is swept in every round. With a feed, full sweeps still run
// at an interval, so that a missed change is found.
//
// Reading, deciding and publishing run concurrently and within bounds: one page is read ahead, and
// a window of events waits for confirmations. An event counts as published when the broker has
// confirmed it. An unconfirmed event is retried within the round, then logged, counted and left to
// the next round. Other events do not wait for it.
//
// The sentinel stores nothing. A sentinel that is killed starts again, and an event that it
// publishes twice has the same id (decision.DeriveEventID). Its memory of announced resources only
// prevents a repeat in every round.
//
// The sentinel starts while the API or the broker is down, reports that in Ready, and keeps
// retrying. A malformed resource is logged, counted and skipped.
//
// The functions that the sentinel's specification names are here under these names: Load is
// settings.Load into Config, LoadBrokerConfig is in package sentinelapp, BuildLabelSelector is
// Config.BuildLabelSelector, ParseMessageData is payload.New, FetchResources is in package source,
// Evaluate is Decide in package decision, PublishEvent is a method of eventPublisher, and Run and
// Start are Sentinel.Run.
package sentinel

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
	"github.com/fleetloop/fleetloop/internal/selector"
	"github.com/fleetloop/fleetloop/internal/sentinel/payload"
	"github.com/fleetloop/fleetloop/internal/sentinel/source"
	"github.com/fleetloop/fleetloop/internal/sentinel/state"
)

// Source is the source of every cloud event.
const Source = "hyperfleet-sentinel"

// A publisher publishes events to a broker. Publish returns nil if and only if the broker has the
// event. It is safe for concurrent use.
type publisher interface {
	Publish(ctx context.Context, e *cloudevent.Event) error
	InFlight() int
	Ready() error
}

// An api reads the fleet API, including features that an API may lack. The responses show whether
// it has them.
type api interface {
	source.Lister
	// Watch calls handle for each event of a watch, until the watch ends. The error wraps
	// errors.ErrUnsupported if the API has no watches.
	Watch(ctx context.Context, collection string, q url.Values, handle func(v1.WatchEvent) error) error
}

// Deps holds the dependencies of a sentinel. API and Publisher are required; all others may be nil.
type Deps struct {
	API       api
	Publisher publisher

	// BrokerType is the label of the metric of broker errors, such as rabbitmq.
	BrokerType string

	Log        *slog.Logger
	Registerer prometheus.Registerer
	Tracer     trace.Tracer

	// OnPublished is called for each confirmed event, by several goroutines concurrently. It must
	// not block.
	OnPublished func(Published)

	// OnRound is called after each round, complete or not. It must not block.
	OnRound func(Stats)

	// Shard says which of the selected resources belong to this sentinel; nil means all. Part names
	// the shard in the label shard of the metrics, behind the selector, if it stays the same as
	// long as the sentinel runs; empty adds nothing.
	Shard Shard
	Part  string

	// Predecessor is a sentinel that this one continues; see New. Its Run has returned or was never
	// called. Its Registerer must be the same, or wrap it with the same labels.
	Predecessor *Sentinel
}

// Published is a confirmed event.
type Published struct {
	At           time.Time
	ResourceType string
	ResourceID   string
	Generation   int64
	Reason       string
	EventID      string

	// Took is the time from the first attempt to the confirmation.
	Took time.Duration
}

// A Sentinel watches one collection. Create it with New, call Run once, and call Close if it has no
// successor.
type Sentinel struct {
	cfg      Config
	selector selector.Selector
	shard    Shard
	part     string

	profile   Decider
	api       api
	walker    *source.Walker // for sweeps
	publisher publisher
	log       *slog.Logger
	tracer    trace.Tracer
	onRound   func(Stats)

	metrics   *metrics
	reporter  *reporter
	counts    counts
	memory    *state.Memory
	record    *state.DecisionRecord
	labels    labelFilter
	events    *eventPublisher
	panics    panicRelay
	heartbeat heartbeat

	listing lastError // of the lists
	feeding lastError // of the feed of a follower
	looking lastError // of the lookups of a follower's rounds

	budget     *state.Budget
	population population // the count of the last sweep

	rounds            atomic.Uint32 // rounds or full sweeps
	start             sweepStart    // of the next sweep
	feedDisabledUntil time.Time     // until then the sentinel does not use the change feed

	running, closed atomic.Bool
}

// New validates cfg and compiles its expressions. It starts nothing. Locate places the errors.
//
// With a predecessor, the new sentinel continues where that one stopped, with the same
// configuration or another. inheritState says what is taken over. On an error the predecessor stays
// complete.
func New(cfg Config, deps Deps) (*Sentinel, error) {
	// Report all mistakes of the configuration at once.
	var errs []error
	cfg, err := cfg.withDefaultsValidated()
	errs = append(errs, err)
	sel, err := cfg.BuildLabelSelector()
	errs = append(errs, err)
	profile, err := cfg.NewDecider()
	errs = append(errs, err)
	data, err := payload.New(cfg.MessageData, payload.Keys(cfg.PayloadKeys))
	errs = append(errs, err)
	if deps.API == nil || deps.Publisher == nil {
		errs = append(errs, errors.New("create sentinel: an API and a publisher are required"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	deps = deps.withDefaults()
	if p := deps.Predecessor; p != nil && (p.running.Load() || p.closed.Load()) {
		return nil, errors.New("create sentinel: the predecessor is still running or already closed")
	}

	requestInterval := time.Duration(float64(time.Second) / cfg.HyperfleetAPI.RequestsPerSecond)
	s := &Sentinel{
		cfg:       cfg,
		selector:  sel,
		shard:     deps.Shard,
		part:      deps.Part,
		profile:   profile,
		api:       rateLimitedAPI{api: deps.API, limiter: &requestRateLimiter{interval: requestInterval}},
		publisher: deps.Publisher,
		log:       deps.Log.With("resource_type", cfg.ResourceType, "selector", sel.String()),
		tracer:    deps.Tracer,
		onRound:   deps.OnRound,
		memory:    state.NewMemory(cfg.MemoryLimit),
		record:    state.NewDecisionRecord(cfg.DecisionsLimit),
	}
	s.walker = newWalker(s)
	s.labels = labelFilter{selector: sel, log: s.log}
	s.listing.store(errNotListed)
	// A step is a page or an attempt to publish. A dependency that hangs ends with its timeout, so
	// a step that takes much longer than both timeouts is a fault of the sentinel.
	longestStep := cfg.HyperfleetAPI.Timeout + cfg.Publish.Timeout + cfg.Publish.MaxBackoff
	s.heartbeat.allowance = max(time.Minute, 3*longestStep)

	// From here on the sentinel takes over from its predecessor.
	if s.metrics, err = takeOverOrRegisterMetrics(s, deps); err != nil {
		return nil, err
	}
	s.reporter = newReporter(s.log, s.metrics, cfg.MemoryLimit)
	s.inheritState(deps.Predecessor)
	s.budget = newBudgetContinuing(&cfg, s.budget)
	s.events = newEventPublisher(s, data, deps.OnPublished)
	s.setSteadyRate(s.population.ready, s.population.others)
	s.setMode(ModeSweep)
	return s, nil
}

func (d Deps) withDefaults() Deps {
	if d.Log == nil {
		d.Log = slog.New(slog.DiscardHandler)
	}
	if d.Registerer == nil {
		d.Registerer = prometheus.NewRegistry()
	}
	if d.Tracer == nil {
		d.Tracer = noop.NewTracerProvider().Tracer("")
	}
	if d.OnPublished == nil {
		d.OnPublished = func(Published) {}
	}
	if d.OnRound == nil {
		d.OnRound = func(Stats) {}
	}
	if d.Shard == nil {
		d.Shard = noSharding{}
	}
	return d
}

func newWalker(s *Sentinel) *source.Walker {
	return source.NewWalker(source.WalkerConfig{
		Collection: s.cfg.ResourceType,
		Selector:   s.selector,
		PageSize:   s.cfg.HyperfleetAPI.PageSize,
		Timeout:    s.cfg.HyperfleetAPI.Timeout,
		Flavour:    s.cfg.HyperfleetAPI.Flavour,
		Log:        s.log,
	}, s.api)
}

// newBudgetContinuing creates a budget for a period slightly shorter than the poll interval. A
// round may spend the whole budget at once. It is charged at its start, so the next round has the
// whole budget again. Events that the old budget counted still count; old may be nil.
func newBudgetContinuing(c *Config, previous *state.Budget) *state.Budget {
	cfg := state.BudgetConfig{
		Factor: c.Publish.CatchUpFactor,
		Floor:  c.Publish.CatchUpFloor,
		Burst:  c.PollInterval * 99 / 100,
		Max:    c.Publish.MaxPerSecond,
	}
	if previous != nil {
		return previous.CopyWithConfig(cfg, time.Now())
	}
	return state.NewBudget(cfg, time.Now())
}

// Decisions returns the latest decisions about single resources.
func (s *Sentinel) Decisions() *state.DecisionRecord { return s.record }

// DescribeWatch describes what the sentinel watches: the collection, then the selector and the shard if
// there are any.
func (s *Sentinel) DescribeWatch() string {
	parts := []string{s.cfg.ResourceType}
	for _, optional := range []string{s.selector.String(), s.part} {
		if optional != "" {
			parts = append(parts, optional)
		}
	}
	return strings.Join(parts, " ")
}

// Close unregisters the sentinel's metrics, unless a successor has taken them over. Call it after
// Run has returned, on a sentinel without a successor.
func (s *Sentinel) Close() {
	if s.closed.CompareAndSwap(false, true) {
		s.metrics.unregisterAll()
	}
}

// Run watches until ctx ends, and then returns nil. It waits for outstanding confirmations, but not
// longer than the shutdown timeout. A panic in one of its goroutines becomes a panic of Run.
func (s *Sentinel) Run(ctx context.Context) error {
	s.running.Store(true)
	defer s.running.Store(false)
	ctx = s.panics.withCancelOnPanic(ctx)
	defer s.panics.cancelAndRepanic()
	s.log.InfoContext(ctx, "sentinel started",
		"poll_interval", s.cfg.PollInterval,
		"max_age_not_ready", s.cfg.MaxAgeNotReady,
		"max_age_ready", s.cfg.MaxAgeReady,
		"profile", s.cfg.Decision.Profile)
	s.heartbeat.recordProgress(0)
	defer s.heartbeat.clearDeadline()
	defer func() {
		s.events.pool.closeAndWait()
		s.reporter.logSuppressedCounts(ctx, true)
	}()

	epoch := shardEpoch{shard: s.shard}
	for ctx.Err() == nil {
		begin := time.Now()
		err := s.runSweepRound(ctx, epoch.beginList())
		if offer, ok := errors.AsType[offerError](err); ok {
			s.runFollowerUntilFeedEnds(ctx, offer.mode)
			continue
		}
		if errors.Is(err, errShardChanged) {
			epoch.recordInterrupted()
			continue
		}
		took := time.Since(begin)
		if err == nil {
			s.reporter.reportIfPollOverran(ctx, took, s.cfg.PollInterval)
		}
		wait := s.cfg.delayUntilNextPoll(took, err)
		s.heartbeat.recordProgress(wait)
		epoch.sleepOrUntilChange(ctx, wait)
	}
	s.log.InfoContext(ctx, "sentinel stopped")
	return nil
}
