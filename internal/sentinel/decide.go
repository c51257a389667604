package sentinel

import (
	"context"
	"log/slog"
	"time"

	"github.com/fleetloop/fleetloop/internal/sentinel/decision"
	"github.com/fleetloop/fleetloop/internal/sentinel/source"
	"github.com/fleetloop/fleetloop/internal/sentinel/state"
)

// decideAndDispatch decides one resource, and dispatches its event or skips it.
func (p *decisionPass) decideAndDispatch(ctx context.Context, it *source.Item) error {
	if !p.acceptOrDropResource(ctx, it) {
		return nil
	}
	verdict := p.countAndDecideResource(ctx, it)
	due := verdict.ShouldPublish // a resource that is due may have to wait all the same
	if due {
		key := p.memory.HashID(it.ID)
		remembered := p.memory.RecallPublishState(key, it.Resource.Generation, p.requestedAt, p.round)
		if remembered.Claimed && p.index == nil {
			p.uncountDuplicate()
			return nil
		}
		verdict = p.suppressRepeat(it, verdict, remembered)
		verdict = p.spendBudgetOrDefer(it, verdict)
	}
	p.tally.decisions[verdict.Reason]++
	if verdict.ShouldPublish {
		return p.dispatchEvent(ctx, it, verdict)
	}
	p.recordSkippedAndScheduleNext(ctx, it, verdict, due)
	return nil
}

// acceptOrDropResource reports whether a resource is to be decided: it is readable, belongs to the
// shard, and is selected. A resource of another shard or outside the selection is forgotten.
func (p *decisionPass) acceptOrDropResource(ctx context.Context, it *source.Item) (accepted bool) {
	if it.HasLabels && !p.list.labelled {
		p.list.labelled = true
		p.labels.served.Store(true)
	}
	if len(it.ID) > 0 && !p.shard.Owns(it.ID) {
		dropUnowned(p.shard, p.memory, p.index, it.ID)
		return false
	}
	if it.Fault != source.FaultNone {
		p.tally.faults[it.Fault]++
		p.reporter.logFault(ctx, it)
		if it.Fault.Skips() {
			return false
		}
	}
	if !p.labels.matchesOrTrusted(ctx, it, p.trustsServer) {
		p.forgetOrCountUnselected(ctx, it)
		return false
	}
	return true
}

// countAndDecideResource counts a resource and applies the rules of the profile to it.
func (p *decisionPass) countAndDecideResource(ctx context.Context, it *source.Item) decision.Verdict {
	p.list.resources++
	if it.Resource.Ready() {
		p.list.ready++
	}
	p.fillEarlyAndFirstSeen(it)
	p.recordOrClearUnobserved(it)
	verdict := p.profile.Decide(&it.Resource, p.now)
	if verdict.Err != nil {
		p.reporter.logDecisionError(ctx, it, verdict.Err)
	}
	if verdict.Warning != decision.WarningNone {
		p.tally.warnings[verdict.Warning]++
		p.reporter.logDecisionWarning(ctx, it, p.memory.HashID(it.ID), verdict.Warning)
	}
	return verdict
}

// dropUnowned drops a resource that belongs to another sentinel now. The index may be nil.
func dropUnowned(shard Shard, memory *state.Memory, index *state.DueIndex, id []byte) {
	memory.ScheduleForgetIfWaiting(memory.HashID(id))
	if index == nil {
		return
	}
	index.RemoveResource(id)
	if shard.Owns(id) {
		// The resource has just come back. The index may have got it between Owns and Acquire.
		index.PutNewest(id, time.Now(), state.ClassNotReady)
	}
}

// forgetOrCountUnselected skips a resource that does not match the selector. Only the pass with the
// newest data forgets it: another pass may have read it before it matched.
func (p *decisionPass) forgetOrCountUnselected(ctx context.Context, it *source.Item) {
	if p.readsNewest {
		p.forgetResource(it.ID)
	}
	if p.allowUnselected {
		return
	}
	p.tally.unselected++
	p.reporter.warnSampled("selector", func(log *slog.Logger) {
		log.WarnContext(ctx, "api returned a resource that does not match the selector", "resource_id", string(it.ID))
	})
}

// forgetResource removes a resource that is gone or is not selected.
func (p *decisionPass) forgetResource(id []byte) {
	p.index.RemoveResource(id)
	p.memory.ForgetResource(p.memory.HashID(id))
}

// uncountDuplicate corrects the count of a resource that was read twice. If the walk started again,
// the first count has been discarded already.
func (p *decisionPass) uncountDuplicate() {
	if p.dispatchedTwice > 0 {
		p.dispatchedTwice--
		return
	}
	p.list.resources--
	p.tally.duplicates++
}

// fillEarlyAndFirstSeen adds to a resource what the API does not report: by how much it is due
// early and, if it is ready and has no usable time, when it was first seen.
func (p *decisionPass) fillEarlyAndFirstSeen(it *source.Item) {
	res := &it.Resource
	if p.cfg.Jitter > 0 {
		res.Early = p.cfg.ComputeEarlyFraction(it.ID)
	}
	if res.Ready() && res.Created.IsZero() && (res.LastUpdated.IsZero() || res.LastTransition.IsZero()) {
		res.FirstSeen = p.memory.RecordFirstSeen(p.memory.HashID(it.ID), p.now)
	}
}

// recordOrClearUnobserved records since when the generation of a resource has waited for its
// adapters.
func (p *decisionPass) recordOrClearUnobserved(it *source.Item) {
	res := &it.Resource
	observed := res.Generation <= res.ObservedGeneration
	notReported := res.ObservedGeneration == 0 && !p.usesGenerations
	if observed || notReported {
		if p.index != nil {
			p.memory.ClearUnobserved(p.memory.HashID(it.ID))
		}
		return
	}
	since := p.now
	for _, t := range []time.Time{res.Created, res.LastUpdated, res.Updated} {
		if !t.IsZero() && t.Before(p.now) {
			since = t // the last of these is the most exact
		}
	}
	since = toMonotonicClock(since, p.now)
	since = p.memory.RecordUnobservedSince(p.memory.HashID(it.ID), res.ObservedGeneration, since)
	p.list.longestWait = max(p.list.longestWait, p.now.Sub(since))
}

// toMonotonicClock converts a time from the API to the local monotonic clock. A stored wall-clock time
// would shift when the clock is set, and the resource would be due at the wrong time.
func toMonotonicClock(t, now time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return now.Add(t.Sub(now))
}

// suppressRepeat holds back an event that was published and may still be answered, or that is in
// flight.
func (p *decisionPass) suppressRepeat(
	it *source.Item, verdict decision.Verdict, remembered state.PublishState,
) decision.Verdict {
	if !remembered.InFlight {
		return verdict.DelayRepeat(&it.Resource, remembered.Last, p.now)
	}
	verdict.ShouldPublish, verdict.Reason = false, decision.ReasonAnnounced
	// Do not wait for the whole interval: the attempt may fail just now, and this decision may be
	// stored after the failure.
	verdict.Next = p.now.Add(min(verdict.Interval, p.cfg.PollInterval))
	return verdict
}

// spendBudgetOrDefer defers a resource when the budget is spent. A changed generation is urgent: it
// is deferred only when the maximum rate of all events is reached.
func (p *decisionPass) spendBudgetOrDefer(it *source.Item, verdict decision.Verdict) decision.Verdict {
	if !verdict.ShouldPublish {
		return verdict
	}
	spentAt := p.roundBegan
	if spentAt.IsZero() {
		spentAt = p.now
	}
	if verdict.Reason == decision.ReasonGenerationChanged {
		if p.budget.TryTakeUrgent(spentAt) {
			p.dispatchedUrgent++
			return verdict
		}
	} else if p.budget.TryTakeNonUrgent(spentAt) {
		return verdict
	}

	verdict.ShouldPublish, verdict.Reason = false, decision.ReasonDeferred
	if it.Resource.Ready() {
		p.deferred.Ready++
	} else {
		p.deferred.NotReady++
	}
	return verdict
}

// countOverdueAsDeferred counts resources that are due and were not looked up because the budget is
// spent.
func (p *decisionPass) countOverdueAsDeferred(overdue state.OverdueCount) {
	p.deferred.Ready += overdue.Ready
	p.deferred.NotReady += overdue.NotReady
	p.tally.decisions[decision.ReasonDeferred] += overdue.Total()
	p.metrics.addAndResetTally(&p.tally)
}
