package sentinel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
	"github.com/fleetloop/fleetloop/internal/sentinel/decision"
	"github.com/fleetloop/fleetloop/internal/sentinel/payload"
	"github.com/fleetloop/fleetloop/internal/sentinel/state"
	"github.com/fleetloop/fleetloop/internal/telemetry"
)

// errPublishTimeout is the error of an attempt to publish that got no confirmation in time.
var errPublishTimeout = errors.New("no confirmation from the broker in time")

// A job is one event to publish.
type job struct {
	key         state.ResourceKey
	id          string // id of the resource
	generation  int64
	reason      decision.Reason
	eventID     string
	decidedAt   time.Time
	requestedAt time.Time // when the resource was requested from the API
	raw         []byte    // the resource as the API returned it

	index *state.DueIndex // nil if every round reads every resource
	class state.DueClass  // used if there is an index

	results *publishResults // counts the result
}

// An eventPublisher builds the events of a sentinel and publishes them, several at a time. It is
// safe for concurrent use.
type eventPublisher struct {
	cfg         *Config
	eventType   string
	payload     *payload.Builder
	publisher   publisher
	pool        *publisherPool
	shard       Shard
	memory      *state.Memory
	record      *state.DecisionRecord
	tracer      trace.Tracer
	metrics     *metrics
	counts      *counts
	reporter    *reporter
	heartbeat   *heartbeat
	panics      *panicRelay
	onPublished func(Published)
}

func newEventPublisher(s *Sentinel, data *payload.Builder, onPublished func(Published)) *eventPublisher {
	kind, _ := singularOf(s.cfg.ResourceType)
	return &eventPublisher{
		cfg:         &s.cfg,
		eventType:   "com.redhat.hyperfleet." + kind + ".reconcile",
		payload:     data,
		publisher:   s.publisher,
		pool:        newPublisherPool(s.cfg.Publish.Window),
		shard:       s.shard,
		memory:      s.memory,
		record:      s.record,
		tracer:      s.tracer,
		metrics:     s.metrics,
		counts:      &s.counts,
		reporter:    s.reporter,
		heartbeat:   &s.heartbeat,
		panics:      &s.panics,
		onPublished: onPublished,
	}
}

// submitJob publishes the event of a job in another goroutine, which calls done at the end. It waits
// while the window is full; waited reports whether it had to. On an error, done is not called.
func (p *eventPublisher) submitJob(ctx context.Context, interrupt <-chan struct{}, j *job, done func()) (waited bool, err error) {
	return p.pool.submitWork(ctx, interrupt, func() {
		defer done()
		defer p.panics.recoverAndCancel()
		p.PublishEvent(ctx, j)
	})
}

// PublishEvent builds an event, publishes it and records the result. An event that fails is left to
// the next round.
func (p *eventPublisher) PublishEvent(ctx context.Context, j *job) {
	ctx, span := p.tracer.Start(ctx, "sentinel.publish",
		trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithAttributes(
			attribute.String("cloudevents.event_id", j.eventID),
			attribute.String("cloudevents.event_type", p.eventType),
			attribute.String("cloudevents.event_subject", j.id),
		),
	)
	defer span.End()

	begin := time.Now()
	err := p.buildAndPublish(ctx, j)
	switch {
	case errors.Is(err, errNotOurs):
		p.dropUnownedJob(j)
	case err != nil:
		span.SetStatus(codes.Error, err.Error())
		p.recordFailed(ctx, j, err)
	default:
		p.recordPublished(ctx, j, time.Since(begin))
	}
}

// buildAndPublish builds the event of a job and publishes it. It counts a failure of the broker.
func (p *eventPublisher) buildAndPublish(ctx context.Context, j *job) error {
	event, err := p.buildEvent(ctx, j)
	if err != nil {
		return err
	}
	err = p.publishIfOwnedWithRetries(ctx, event, j.id)
	if err != nil && !errors.Is(err, errNotOurs) {
		p.metrics.brokerErrors.Inc()
	}
	return err
}

// recordFailed records that an event was not published, so that the next round tries it again.
func (p *eventPublisher) recordFailed(ctx context.Context, j *job, err error) {
	j.results.failed.Add(1)
	p.record.RecordFailed(j.id, j.eventID, time.Now(), err)
	p.memory.MarkFailed(j.key, j.generation)
	if j.index != nil {
		// The resource stays overdue until it is published, counted from now. An event that always
		// fails must not precede all others, nor be tried twice in one round.
		j.index.MergeLookupResult([]byte(j.id), time.Now().Add(1), j.class, time.Time{})
	}
	p.reporter.logOrCountPublishFailure(ctx, j, err)
}

// recordPublished records, counts and logs that the broker has confirmed an event.
func (p *eventPublisher) recordPublished(ctx context.Context, j *job, took time.Duration) {
	p.memory.MarkConfirmedUnlessOvertaken(j.key, j.generation, j.requestedAt)
	p.reporter.logged.failed.forgetResource(j.key)
	p.record.RecordConfirmed(j.id, j.eventID, time.Now())

	j.results.published.Add(1)
	p.metrics.published.Inc()
	p.counts.countPublished()
	p.metrics.publishedBy[j.reason].Inc()
	p.metrics.publishDuration.Observe(took.Seconds())

	level := slog.LevelInfo
	if p.cfg.LogEvents == LogEventsDebug {
		level = slog.LevelDebug
	}
	p.reporter.log.Log(ctx, level, "event published",
		"resource_id", j.id, "reason", j.reason.String(), "generation", j.generation, "event_id", j.eventID)
	p.onPublished(Published{
		At:           time.Now(),
		ResourceType: p.cfg.ResourceType,
		ResourceID:   j.id,
		Generation:   j.generation,
		Reason:       j.reason.String(),
		EventID:      j.eventID,
		Took:         took,
	})
}

// dropUnownedJob drops an event about a resource that belongs to another sentinel now.
func (p *eventPublisher) dropUnownedJob(j *job) {
	p.record.RecordFailed(j.id, j.eventID, time.Now(), errNotOurs)
	p.memory.MarkFailed(j.key, j.generation)
	dropUnowned(p.shard, p.memory, j.index, []byte(j.id))
}

// buildEvent returns the CloudEvent of a job.
func (p *eventPublisher) buildEvent(ctx context.Context, j *job) (*cloudevent.Event, error) {
	data, problems, err := p.payload.AppendPayload(nil, payload.Input{
		Raw:    j.raw,
		ID:     j.id,
		Type:   p.cfg.ResourceType,
		Reason: j.reason.String(),
		Now:    j.decidedAt,
	})
	if err != nil {
		return nil, fmt.Errorf("build payload: %w", err)
	}
	for _, problem := range problems {
		p.metrics.payloadProblems.Inc()
		p.reporter.warnSampled("payload "+problem.Key, func(log *slog.Logger) {
			log.WarnContext(ctx, "message_data field is empty", "resource_id", j.id, "key", problem.Key, "err", problem.Err)
		})
	}
	traceParent, traceState := telemetry.FormatTraceContext(ctx)
	return &cloudevent.Event{
		ID:          j.eventID,
		Source:      Source,
		Type:        p.eventType,
		Subject:     j.id,
		Time:        time.Now().UTC(),
		Data:        data,
		TraceParent: traceParent,
		TraceState:  traceState,
	}, nil
}

// publishIfOwnedWithRetries publishes an event, with the retries that the configuration allows. When ctx
// ends, it waits for the current attempt and starts no other. It returns errNotOurs if the resource
// belongs to another sentinel before one of the attempts.
func (p *eventPublisher) publishIfOwnedWithRetries(ctx context.Context, event *cloudevent.Event, resourceID string) error {
	attempts := 0
	return backoff.Retry(ctx, p.cfg.publishRetryPolicy(), func(ctx context.Context) error {
		release, owned := p.shard.Acquire([]byte(resourceID))
		if !owned {
			return backoff.Permanent(errNotOurs)
		}
		defer release()
		attempts++
		if attempts > 1 {
			p.metrics.retries.Inc()
		}
		p.heartbeat.recordProgress(0)
		return p.publishOnce(ctx, event)
	})
}

// publishOnce publishes an event, and waits for the confirmation until the timeout of one attempt.
// When ctx ends, it still waits for the shutdown timeout.
func (p *eventPublisher) publishOnce(ctx context.Context, event *cloudevent.Event) error {
	ctx, release := withGracePeriod(ctx, p.cfg.ShutdownTimeout)
	defer release()
	ctx, cancel := context.WithTimeoutCause(ctx, p.cfg.Publish.Timeout, errPublishTimeout)
	defer cancel()
	err := p.publisher.Publish(ctx, event)
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// errStopTimeout is the cause when the shutdown timeout ends the wait for a confirmation.
var errStopTimeout = errors.New("shutdown timeout exceeded")

// withGracePeriod returns a context that ends a given time after ctx ends, and a function that ends
// it at once.
func withGracePeriod(ctx context.Context, grace time.Duration) (graced context.Context, release func()) {
	longer, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	unhook := context.AfterFunc(ctx, func() {
		_ = backoff.Sleep(longer, grace) // the caller may finish earlier
		cancel(errStopTimeout)
	})
	return longer, func() {
		unhook()
		cancel(context.Canceled)
	}
}
