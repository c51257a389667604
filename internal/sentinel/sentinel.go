// Package sentinel polls one collection of the fleet API, decides which of its
// resources are due, and publishes a cloud event for each.
//
// A round reads the list page by page, decides about each resource, and
// publishes, all at the same time and within bounds: one page is read ahead,
// and a window of events waits for confirms. An event counts as published when
// the broker confirmed it. One that is not confirmed is tried again within the
// round, then logged, counted, and left to the next; the others do not wait
// for it.
//
// Nothing has to be kept. A sentinel that is killed at any point starts over,
// and what it says twice has the same event id (decision.EventID). What it
// remembers of resources that were announced and not answered only keeps it
// from repeating itself every round.
//
// It starts while the API or the broker is down, says so in Ready, and never
// gives up. What a resource holds can not stop it: what can not be read is
// logged, counted and passed over.
//
// The functions that the sentinel's specification names are here under these:
// Load is settings.Load into Config, LoadBrokerConfig is Load in package bus,
// BuildLabelSelector is Config.Selector, ParseMessageData is payload.New,
// FetchResources is the pager's walk, Evaluate is Decide in package decision,
// PublishEvent is the round's publish, and Run and Start are Sentinel.Run.
package sentinel

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
	"github.com/fleetloop/fleetloop/internal/selector"
	"github.com/fleetloop/fleetloop/internal/sentinel/decision"
	"github.com/fleetloop/fleetloop/internal/sentinel/payload"
	"github.com/fleetloop/fleetloop/internal/sentinel/scan"
)

// Source is the source of every cloud event.
const Source = "hyperfleet-sentinel"

// A publisher brings events to a broker. Publish returns nil if and only if
// the broker has the event; it is called by many goroutines at a time.
type publisher interface {
	Publish(ctx context.Context, e *cloudevent.Event) error
	InFlight() int
	Ready() error
}

// A decider says whether a resource is due.
type decider interface {
	Decide(r *decision.Resource, now time.Time) decision.Verdict
}

// Deps are what a sentinel works with. Lister and Publisher are needed; what
// else is nil is done without.
type Deps struct {
	Lister    lister
	Publisher publisher

	// BrokerType is the label of the metric of broker errors: gcp-pubsub,
	// rabbitmq or nats.
	BrokerType string

	Log        *slog.Logger
	Registerer prometheus.Registerer
	Tracer     trace.Tracer

	// OnPublished is called for each event that was confirmed, by many
	// goroutines at a time. It must not block.
	OnPublished func(Published)
}

// Published is a confirmed event.
type Published struct {
	At           time.Time
	ResourceType string
	ResourceID   string
	Generation   int64
	Reason       string
	EventID      string

	// Took is the time from the first attempt to the confirm.
	Took time.Duration
}

// A Sentinel watches one collection. Make it with New and call Run once.
type Sentinel struct {
	cfg       Config
	selector  selector.Selector
	shard     string // the selector as text
	eventType string

	profile     decider
	generations bool // the profile looks at them: one not given counts as 0
	payload     *payload.Builder
	pager       *pager
	scanner     *scan.Scanner
	publisher   publisher
	log         *slog.Logger
	tracer      trace.Tracer
	onPublished func(Published)

	metrics *metrics
	memory  *memory
	sampler *sampler
	pulse   pulse
	apiErr  atomic.Pointer[error]

	rounds uint32
	start  beginning
}

// New validates cfg, compiles what it holds, and starts nothing. Locate places
// the errors.
func New(cfg Config, deps Deps) (*Sentinel, error) {
	var errs []error
	cfg, err := cfg.withDefaults()
	errs = append(errs, err)
	sel, err := cfg.Selector()
	errs = append(errs, err)
	profile, err := cfg.decider()
	errs = append(errs, err)
	data, err := payload.New(cfg.MessageData, payload.Keys(cfg.PayloadKeys))
	errs = append(errs, err)
	if deps.Lister == nil || deps.Publisher == nil {
		errs = append(errs, errors.New("make sentinel: it needs a lister and a publisher"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	deps = deps.withDefaults()
	m, err := newMetrics(deps.Registerer, sel.String(), cfg.ResourceType, deps.BrokerType, deps.Publisher.InFlight)
	if err != nil {
		return nil, err
	}
	kind, _ := singular(cfg.ResourceType)
	s := &Sentinel{
		cfg:         cfg,
		selector:    sel,
		shard:       sel.String(),
		eventType:   "com.redhat.hyperfleet." + kind + ".reconcile",
		profile:     profile,
		generations: cfg.Decision.Profile == ProfileGenerationThenAge || cfg.Decision.Profile == "",
		payload:     data,
		pager: &pager{
			lister: deps.Lister, collection: cfg.ResourceType, labels: sel.String(),
			size: cfg.HyperfleetAPI.PageSize, timeout: cfg.HyperfleetAPI.Timeout,
		},
		scanner:     scan.New(!sel.Empty()),
		publisher:   deps.Publisher,
		log:         deps.Log.With("resource_type", cfg.ResourceType, "selector", sel.String()),
		tracer:      deps.Tracer,
		onPublished: deps.OnPublished,
		metrics:     m,
		memory:      newMemory(cfg.MemoryLimit),
		sampler:     newSampler(),
	}
	// A step is a page or an attempt to publish. A dependency that hangs ends
	// by its timeout; what takes much longer than both is us.
	s.pulse.allowance = max(time.Minute, 3*(cfg.HyperfleetAPI.Timeout+cfg.Publish.Timeout+cfg.Publish.MaxBackoff))
	notListed := errNotListed
	s.apiErr.Store(&notListed)
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
	return d
}

// Run polls until ctx ends, and then returns nil. It waits for the confirms of
// events that are under way, no longer than the shutdown timeout.
func (s *Sentinel) Run(ctx context.Context) error {
	s.log.InfoContext(ctx, "sentinel started", "poll_interval", s.cfg.PollInterval,
		"max_age_not_ready", s.cfg.MaxAgeNotReady, "max_age_ready", s.cfg.MaxAgeReady, "profile", s.cfg.Decision.Profile)
	s.pulse.beat(0)
	defer s.pulse.stop()
	for ctx.Err() == nil {
		begin := time.Now()
		err := s.poll(ctx)
		wait := s.pause(ctx, time.Since(begin), err)
		s.pulse.beat(wait)
		_ = backoff.Sleep(ctx, wait) // it ends early with ctx, as the loop does
	}
	s.log.InfoContext(ctx, "sentinel stopped")
	return nil
}

// pause is how long to wait after a round. Rounds begin at the poll interval;
// one that overran is followed at once. After an error the whole interval is
// waited, or longer if the server asked for it.
func (s *Sentinel) pause(ctx context.Context, took time.Duration, err error) time.Duration {
	if err != nil {
		after, _ := backoff.RetryAfter(err)
		return max(s.cfg.PollInterval, min(after, backoff.MaxRetryAfter))
	}
	if took > s.cfg.PollInterval && ctx.Err() == nil {
		s.metrics.overruns.Inc()
		s.warn("overrun", func(log *slog.Logger) {
			log.WarnContext(ctx, "round took longer than the poll interval", "took", took, "poll_interval", s.cfg.PollInterval)
		})
	}
	return max(0, s.cfg.PollInterval-took)
}

// warn logs by way of the sampler.
func (s *Sentinel) warn(kind string, line func(*slog.Logger)) {
	omitted, ok := s.sampler.allow(kind)
	if !ok {
		return
	}
	log := s.log
	if omitted > 0 {
		log = log.With("omitted_before", omitted)
	}
	line(log)
}
