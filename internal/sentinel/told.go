package sentinel

import (
	"context"
	"sync"

	"github.com/fleetloop/fleetloop/internal/sentinel/flat"
	"github.com/fleetloop/fleetloop/internal/sentinel/memory"
)

// A logOnce remembers for which generation of a resource something was logged.
// It is bounded, and only ever saves a repetition: what it forgets is logged
// again. It is safe for concurrent use.
type logOnce struct {
	limit int

	mu          sync.Mutex
	generations flat.Map[int64]
}

// markLogged reports whether nothing was logged of this generation yet, and notes
// that it is now.
func (o *logOnce) markLogged(k memory.Key, generation int64) bool {
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

// resetResource has the next word on a resource logged, whatever its generation.
func (o *logOnce) resetResource(k memory.Key) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.generations.Remove(uint64(k))
}

// resourceLogs is what was logged of single resources.
type resourceLogs struct{ failed, ahead logOnce }

// newResourceLogs makes a memory of at most limit resources of each kind.
func newResourceLogs(limit int) *resourceLogs {
	return &resourceLogs{failed: logOnce{limit: limit}, ahead: logOnce{limit: limit}}
}

// A repeatedFailures counts events that failed and had failed before.
type repeatedFailures struct {
	mu     sync.Mutex
	events int
	id     string // of the last one's resource
	err    error
}

func (r *repeatedFailures) addFailure(id string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events++
	r.id, r.err = id, err
}

// takeFailures returns what was counted since the last call.
func (r *repeatedFailures) takeFailures() (events int, id string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	events, id, err = r.events, r.id, r.err
	r.events = 0
	return events, id, err
}

// logFailure logs that an event was not published. What fails again for the
// same generation is counted, and told by the next summary.
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

// logOmitted tells how many lines were left out of the log since the last call:
// failures that came again, and warnings of a kind that came often. Of these
// everything is told when the sentinel stops.
func (s *Sentinel) logOmitted(ctx context.Context, stops bool) {
	if events, id, err := s.repeatedFailures.takeFailures(); events > 0 {
		s.log.ErrorContext(ctx, "events not published repeatedly, retrying in the next poll", "events", events, "last_resource_id", id, "err", err)
	}
	for kind, lines := range s.sampler.Omitted(stops) {
		s.log.WarnContext(ctx, "similar log lines suppressed", "kind", kind, "lines", lines)
	}
}
