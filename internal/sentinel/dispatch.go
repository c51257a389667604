package sentinel

import (
	"bytes"
	"context"
	"time"

	"github.com/fleetloop/fleetloop/internal/sentinel/decision"
	"github.com/fleetloop/fleetloop/internal/sentinel/source"
	"github.com/fleetloop/fleetloop/internal/sentinel/state"
)

// dispatchEvent passes a resource to a publisher goroutine. It waits while the window is full.
func (p *decisionPass) dispatchEvent(ctx context.Context, it *source.Item, verdict decision.Verdict) error {
	j := p.newJob(it, verdict)
	entry := newDecisionEntry(it, verdict, p.now)
	entry.EventID = j.eventID
	p.record.RecordDecision(it.ID, entry)

	// The event is in flight and the next one is scheduled before the publisher starts, because the
	// publisher replaces both by the result.
	p.memory.MarkInFlight(j.key, j.generation, p.round)
	if p.index != nil {
		p.scheduleNext(it.ID, p.now.Add(verdict.Interval), j.class)
	}
	p.countDispatched(it)

	p.publishing.Add(1)
	waited, err := p.events.submitJob(ctx, p.interrupt, j, p.publishing.Done)
	if err != nil {
		p.publishing.Done()
		p.memory.MarkFailed(j.key, j.generation)
		return err
	}
	if waited {
		p.now = time.Now() // the wait may have been long
	}
	return nil
}

// newJob returns the job that publishes the event of a decision.
func (p *decisionPass) newJob(it *source.Item, verdict decision.Verdict) *job {
	id, generation := string(it.ID), it.Resource.Generation
	j := &job{
		key:         p.memory.HashID(it.ID),
		id:          id,
		generation:  generation,
		reason:      verdict.Reason,
		eventID:     decision.DeriveEventID(id, generation, verdict, p.now),
		decidedAt:   p.now,
		requestedAt: p.requestedAt,
		raw:         bytes.Clone(it.Resource.Raw), // the next item overwrites it
		index:       p.index,
		results:     p.published,
	}
	if p.index != nil {
		j.class = p.dueClassOf(&it.Resource)
	}
	return j
}

func (p *decisionPass) countDispatched(it *source.Item) {
	p.dispatched++
	p.published.dispatched.Add(1)
	if it.Resource.Ready() {
		p.published.dispatchedReady.Add(1)
	} else {
		p.published.dispatchedOthers.Add(1)
	}
}

// recordSkippedAndScheduleNext skips a resource that is not due, or is due and has to wait.
func (p *decisionPass) recordSkippedAndScheduleNext(ctx context.Context, it *source.Item, verdict decision.Verdict, due bool) {
	switch {
	case p.index != nil: // a round counts all resources that it does not read as skipped
		if !due {
			p.memory.ScheduleForget(p.memory.HashID(it.ID))
		}
		p.scheduleNext(it.ID, toMonotonicClock(verdict.Next, p.now), p.dueClassOf(&it.Resource))
	case verdict.Reason == decision.ReasonDeferred: // already counted as deferred
	case it.Resource.Ready():
		p.tally.skippedReady++
	default:
		p.tally.skippedOther++
	}

	// Most decisions are skips. They must not displace the resources that had events from the record.
	entry := newDecisionEntry(it, verdict, p.now)
	if due || verdict.Warning != decision.WarningNone {
		p.record.RecordDecision(it.ID, entry)
	} else {
		p.record.RecordDecisionIfKnown(it.ID, entry)
	}

	if p.debug {
		message := "resource skipped"
		if verdict.Reason == decision.ReasonDeferred {
			message = "resource deferred"
		}
		p.reporter.log.DebugContext(ctx, message, //nolint:sloglint // one of two constants
			"resource_id", string(it.ID), "reason", verdict.Reason.String(), "next_event", verdict.Next)
	}
}

// dueClassOf returns the class of a resource in the index.
func (p *decisionPass) dueClassOf(r *decision.Resource) state.DueClass {
	switch {
	case p.usesGenerations && r.Generation > r.ObservedGeneration:
		return state.ClassUrgent
	case r.Ready():
		return state.ClassReady
	}
	return state.ClassNotReady
}

// newDecisionEntry returns the record entry of a decision.
func newDecisionEntry(it *source.Item, verdict decision.Verdict, now time.Time) state.DecisionEntry {
	r := &it.Resource
	e := state.DecisionEntry{
		At:                 now,
		Reason:             verdict.Reason.String(),
		Published:          verdict.ShouldPublish,
		Generation:         r.Generation,
		ObservedGeneration: r.ObservedGeneration,
		Phase:              r.Phase,
		LastUpdated:        r.LastUpdated,
		Since:              verdict.Since,
		Next:               verdict.Next,
	}
	if verdict.Err != nil {
		e.Err = verdict.Err.Error()
	}
	return e
}
