package sentinel

import (
	"context"
	"sync"

	"github.com/fleetloop/fleetloop/internal/sentinel/state"
)

// A logOnce remembers for which generation of a resource a message was logged. It is bounded: a
// forgotten resource is logged again. It is safe for concurrent use.
type logOnce struct {
	limit int

	mu          sync.Mutex
	generations state.FlatMap[int64]
}

// markLogged reports whether this generation is logged for the first time, and remembers it.
func (o *logOnce) markLogged(k state.ResourceKey, generation int64) (first bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if told := o.generations.Get(uint64(k)); told != nil {
		again := *told == generation
		*told = generation
		return !again
	}
	if o.generations.Len() >= o.limit {
		o.generations.RemoveNear(uint64(k))
	}
	*o.generations.Add(uint64(k)) = generation
	return true
}

// resetResource forgets a resource, so that the next message about it is logged.
func (o *logOnce) resetResource(k state.ResourceKey) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.generations.Remove(uint64(k))
}

// resourceLogs remembers which messages about single resources were logged.
type resourceLogs struct{ failed, ahead logOnce }

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

func (r *repeatedFailures) addFailure(id string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events++
	r.id, r.err = id, err
}

// takeFailures returns the failures since the last call.
func (r *repeatedFailures) takeFailures() (events int, id string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	events, id, err = r.events, r.id, r.err
	r.events = 0
	return events, id, err
}

// logFailure logs that an event was not published. A repeated failure for the same generation is
// counted and reported in the next summary.
func (p *pass) logFailure(ctx context.Context, j *job, err error) {
	line := []any{"resource_id", j.id, "reason", j.reason.String(), "event_id", j.eventID, "err", err}
	switch {
	case ctx.Err() != nil:
		p.log.WarnContext(ctx, "event not published, sentinel is stopping", line...)
	case p.resourceLogs.failed.markLogged(j.key, j.generation):
		p.log.ErrorContext(ctx, "event not published, retrying in the next poll", line...)
	default:
		p.repeatedFailures.addFailure(j.id, err)
	}
}

// logOmitted logs how many lines were suppressed since the last call: repeated failures, and
// frequent warnings of one kind. When the sentinel stops, it reports all of them.
func (s *Sentinel) logOmitted(ctx context.Context, stopping bool) {
	if events, id, err := s.repeatedFailures.takeFailures(); events > 0 {
		s.log.ErrorContext(ctx, "events not published repeatedly, retrying in the next poll", "events", events, "last_resource_id", id, "err", err)
	}
	for kind, lines := range s.sampler.TakeOmitted(stopping) {
		s.log.WarnContext(ctx, "similar log lines suppressed", "kind", kind, "lines", lines)
	}
}
