package sentinel

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/fleetloop/fleetloop/internal/sentinel/decision"
	"github.com/fleetloop/fleetloop/internal/sentinel/source"
	"github.com/fleetloop/fleetloop/internal/sentinel/state"
	"github.com/fleetloop/fleetloop/internal/telemetry"
)

// A logOnce remembers for which generation of a resource a message was logged. It is bounded: a
// forgotten resource is logged again. It is safe for concurrent use.
type logOnce struct {
	limit int

	mu          sync.Mutex
	generations state.FlatMap[int64]
}

// markLogged reports whether this generation is logged for the first time, and remembers it.
func (o *logOnce) markLogged(key state.ResourceKey, generation int64) (first bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if logged := o.generations.Get(uint64(key)); logged != nil {
		first = *logged != generation
		*logged = generation
		return first
	}
	if o.generations.Len() >= o.limit {
		o.generations.EvictOneNear(uint64(key))
	}
	*o.generations.InsertZero(uint64(key)) = generation
	return true
}

// forgetResource forgets a resource, so that the next message about it is logged.
func (o *logOnce) forgetResource(key state.ResourceKey) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.generations.RemoveKey(uint64(key))
}

// resourceLogs remembers which messages about single resources were logged.
type resourceLogs struct {
	failed logOnce // an event was not published
	ahead  logOnce // the observed generation is ahead of the generation
}

// newResourceLogs returns a memory of at most limit resources for each kind of message.
func newResourceLogs(limit int) *resourceLogs {
	return &resourceLogs{failed: logOnce{limit: limit}, ahead: logOnce{limit: limit}}
}

// A repeatedFailures counts events that failed again for the same generation.
type repeatedFailures struct {
	mu     sync.Mutex
	events int
	id     string // the resource of the last failure
	err    error
}

func (r *repeatedFailures) countFailure(resourceID string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events++
	r.id, r.err = resourceID, err
}

// takeAndResetCount returns the failures since the last call.
func (r *repeatedFailures) takeAndResetCount() (events int, lastResourceID string, lastErr error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	events, lastResourceID, lastErr = r.events, r.id, r.err
	r.events = 0
	return events, lastResourceID, lastErr
}

// A reporter writes the log lines of a sentinel that can repeat, and counts what they report.
type reporter struct {
	log      *slog.Logger
	metrics  *metrics
	sampler  *telemetry.Sampler
	logged   *resourceLogs
	failures repeatedFailures
}

// newReporter returns a reporter that remembers messages about at most limit resources.
func newReporter(log *slog.Logger, m *metrics, limit int) *reporter {
	return &reporter{log: log, metrics: m, sampler: telemetry.NewSampler(), logged: newResourceLogs(limit)}
}

// warnSampled logs a warning through the sampler, which limits repeated warnings of one kind.
func (r *reporter) warnSampled(kind string, logLine func(*slog.Logger)) {
	omitted, ok := r.sampler.AllowLogLine(kind)
	if !ok {
		return
	}
	log := r.log
	if omitted > 0 {
		log = log.With("omitted_before", omitted)
	}
	logLine(log)
}

// countAndStoreAPIError counts and stores an API error.
func (r *reporter) countAndStoreAPIError(last *lastError, err error) {
	r.metrics.apiErrors.Inc()
	last.store(err)
}

// reportIfPollOverran counts and logs a poll that took longer than the poll interval.
func (r *reporter) reportIfPollOverran(ctx context.Context, took, interval time.Duration) {
	if took <= interval || ctx.Err() != nil {
		return
	}
	r.metrics.overruns.Inc()
	r.warnSampled("overrun", func(log *slog.Logger) {
		log.WarnContext(ctx, "poll took longer than the poll interval", "took", took, "poll_interval", interval)
	})
}

// logFault logs that a resource is malformed.
func (r *reporter) logFault(ctx context.Context, it *source.Item) {
	r.warnSampled("fault "+it.Fault.String(), func(log *slog.Logger) {
		if it.Fault == source.FaultStatus {
			log.WarnContext(ctx, "resource has no status.phase and no known condition, treated as not ready",
				"resource_id", string(it.ID), "reason", it.Fault.String(), "field", it.Field)
			return
		}
		log.WarnContext(ctx, "resource is malformed", "resource_id", string(it.ID), "reason", it.Fault.String(),
			"field", it.Field, "skipped", it.Fault.Skips())
	})
}

// logDecisionError logs that the expression of a decision failed.
func (r *reporter) logDecisionError(ctx context.Context, it *source.Item, err error) {
	r.warnSampled("decision", func(log *slog.Logger) {
		log.WarnContext(ctx, "decision expression failed, resource treated as due",
			"resource_id", string(it.ID), "err", err)
	})
}

// logDecisionWarning logs the warning of a decision. An observed generation ahead of the resource's
// own is logged once for each generation.
func (r *reporter) logDecisionWarning(
	ctx context.Context, it *source.Item, key state.ResourceKey, warning decision.Warning,
) {
	logLine := func(log *slog.Logger) {
		log.WarnContext(ctx, warning.String(), //nolint:sloglint // the words of a closed set, as the specification has them
			"resource_id", string(it.ID),
			"generation", it.Resource.Generation,
			"observed_generation", it.Resource.ObservedGeneration)
	}
	if warning != decision.WarningObservedAhead {
		r.warnSampled(warning.String(), logLine)
		return
	}
	if r.logged.ahead.markLogged(key, it.Resource.Generation) {
		logLine(r.log)
	}
}

// logOrCountPublishFailure logs that an event was not published. A repeated failure for the same
// generation is counted and reported in the next summary.
func (r *reporter) logOrCountPublishFailure(ctx context.Context, j *job, err error) {
	line := []any{"resource_id", j.id, "reason", j.reason.String(), "event_id", j.eventID, "err", err}
	switch {
	case ctx.Err() != nil:
		r.log.WarnContext(ctx, "event not published, sentinel is stopping", line...)
	case r.logged.failed.markLogged(j.key, j.generation):
		r.log.ErrorContext(ctx, "event not published, retrying in the next poll", line...)
	default:
		r.failures.countFailure(j.id, err)
	}
}

// logSuppressedCounts logs how many lines were suppressed since the last call: repeated failures, and
// frequent warnings of one kind. When the sentinel stops, it reports all of them.
func (r *reporter) logSuppressedCounts(ctx context.Context, stopping bool) {
	if events, id, err := r.failures.takeAndResetCount(); events > 0 {
		r.log.ErrorContext(ctx, "events not published repeatedly, retrying in the next poll",
			"events", events, "last_resource_id", id, "err", err)
	}
	for kind, lines := range r.sampler.TakeOmitted(stopping) {
		r.log.WarnContext(ctx, "similar log lines suppressed", "kind", kind, "lines", lines)
	}
}
