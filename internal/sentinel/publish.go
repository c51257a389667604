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
	"github.com/fleetloop/fleetloop/internal/sentinel/payload"
	"github.com/fleetloop/fleetloop/internal/telemetry"
)

// errPublishTimeout is why an attempt to publish was given up.
var errPublishTimeout = errors.New("no confirm in time")

// A job is one event to publish.
type job struct {
	key        memoryKey
	id         string // of the resource
	generation int64
	reason     string
	eventID    string
	now        time.Time // of the decision
	raw        []byte
}

// publish makes an event and sees it to the broker, or gives it up for this
// round.
func (r *round) publish(ctx context.Context, j *job) {
	ctx, span := r.tracer.Start(ctx, "sentinel.publish", trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(
		attribute.String("cloudevents.event_id", j.eventID), attribute.String("cloudevents.event_type", r.eventType),
		attribute.String("cloudevents.event_subject", j.id)))
	defer span.End()

	begin := time.Now()
	e, err := r.event(ctx, j)
	if err == nil {
		if err = r.send(ctx, e); err != nil {
			r.metrics.brokerErrors.Inc()
		}
	}
	took := time.Since(begin)
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
		r.failed.Add(1)
		r.warn("publish", func(log *slog.Logger) {
			log.WarnContext(ctx, "event not published, left to the next round", "resource_id", j.id, "reason", j.reason,
				"event_id", j.eventID, "err", err)
		})
		return
	}
	r.memory.confirm(j.key, j.generation, r.number)
	r.published.Add(1)
	r.metrics.published.Inc()
	r.metrics.publishDuration.Observe(took.Seconds())
	level := slog.LevelInfo
	if r.cfg.LogEvents == LogEventsDebug {
		level = slog.LevelDebug
	}
	r.log.Log(ctx, level, "event published", "resource_id", j.id, "reason", j.reason, "generation", j.generation, "event_id", j.eventID)
	r.onPublished(Published{
		At: time.Now(), ResourceType: r.cfg.ResourceType, ResourceID: j.id, Generation: j.generation,
		Reason: j.reason, EventID: j.eventID, Took: took,
	})
}

// event makes the cloud event of a job.
func (r *round) event(ctx context.Context, j *job) (*cloudevent.Event, error) {
	data, problems, err := r.payload.AppendData(nil, payload.Input{
		Raw: j.raw, ID: j.id, Type: r.cfg.ResourceType, Reason: j.reason, Now: j.now,
	})
	if err != nil {
		return nil, fmt.Errorf("make payload: %w", err)
	}
	for _, p := range problems {
		r.metrics.payloadProblems.Inc()
		r.warn("payload "+p.Key, func(log *slog.Logger) {
			log.WarnContext(ctx, "payload value is empty", "resource_id", j.id, "key", p.Key, "err", p.Err)
		})
	}
	e := &cloudevent.Event{
		ID: j.eventID, Source: Source, Type: r.eventType, Subject: j.id, Time: time.Now().UTC(), Data: data,
	}
	e.TraceParent, e.TraceState = telemetry.Inject(ctx)
	return e, nil
}

// send publishes an event, again after a failure, within the bounds of the
// round. An attempt that is under way when the order to stop comes is waited
// for; another does not begin.
func (r *round) send(ctx context.Context, e *cloudevent.Event) error {
	first := true
	return backoff.Retry(ctx, r.cfg.retries(), func(ctx context.Context) error {
		if !first {
			r.metrics.retries.Inc()
		}
		first = false
		r.pulse.beat(0)
		return r.attempt(ctx, e)
	})
}

func (r *round) attempt(ctx context.Context, e *cloudevent.Event) error {
	ctx, release := outlive(ctx, r.cfg.ShutdownTimeout)
	defer release()
	ctx, cancel := context.WithTimeoutCause(ctx, r.cfg.Publish.Timeout, errPublishTimeout)
	defer cancel()
	err := r.publisher.Publish(ctx, e)
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// errStopTimeout is why a confirm is awaited no longer.
var errStopTimeout = errors.New("the time for stopping is over")

// outlive returns a context that ends some time after ctx does, and a function
// that ends it at once.
func outlive(ctx context.Context, by time.Duration) (context.Context, func()) {
	longer, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	unhook := context.AfterFunc(ctx, func() {
		_ = backoff.Sleep(longer, by) // the caller may be done earlier
		cancel(errStopTimeout)
	})
	return longer, func() {
		unhook()
		cancel(context.Canceled)
	}
}
