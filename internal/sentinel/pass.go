package sentinel

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetloop/fleetloop/internal/sentinel/decision"
	"github.com/fleetloop/fleetloop/internal/sentinel/source"
	"github.com/fleetloop/fleetloop/internal/sentinel/state"
)

// A decisionPass decides resources as they are read. It reads a whole list, changes, or resources
// that were looked up because they are due. Several passes may run concurrently. A pass belongs to
// one goroutine; only the counters of its publishers are shared.
type decisionPass struct {
	cfg       *Config
	shard     Shard
	labels    *labelFilter
	profile   Decider
	memory    *state.Memory
	budget    *state.Budget
	record    *state.DecisionRecord
	events    *eventPublisher
	metrics   *metrics
	reporter  *reporter
	heartbeat *heartbeat

	number      uint32
	scanner     *source.Scanner
	generations bool // the profile uses generations: a missing one counts as 0
	debug       bool

	// index is nil if every round reads every resource. Otherwise keep stores in it when a resource
	// is due next.
	index *state.DueIndex
	keep  func(id []byte, due time.Time, class state.DueClass)

	// cut is closed when the pass must end. It is nil if the pass must not be interrupted.
	cut <-chan struct{}

	// newest says that no other pass reads newer data than this one.
	newest bool

	// allowUnselected says that resources outside the selector are expected and not logged.
	allowUnselected bool

	// began is the start of the round whose budget pays for the events. A round has one budget,
	// however long it takes. Zero means now.
	began time.Time

	// trustFilter says that the server selected the resources without labels on the current page.
	// served counts the resources so far, and labelled says that one of them had the labels field.
	trustFilter bool
	served      int
	labelled    bool

	now       time.Time
	asked     time.Time // when the data being read was requested
	resources int
	ready     int
	oldest    time.Duration // longest wait of a generation for its adapters
	tally     tally
	again     int // dispatched resources that this pass will read again

	lastError *lastError // of the requests of this pass

	publishing sync.WaitGroup
	dispatched int
	urgent     int                // dispatched because of a changed generation
	deferred   state.OverdueCount // due, but left to a later round
	score      *publishResults
}

// publishResults counts the results of dispatched resources.
type publishResults struct {
	dispatched, published, failed atomic.Int64

	ready, others atomic.Int64 // dispatched, by phase
}

func (s *Sentinel) newDecisionPass(ctx context.Context) *decisionPass {
	return &decisionPass{
		cfg: &s.cfg, shard: s.shard, labels: &s.labels, profile: s.profile, memory: s.memory, budget: s.budget, record: s.record,
		events: s.events, metrics: s.metrics, reporter: s.reporter, heartbeat: &s.heartbeat,
		number: s.rounds.Load(), scanner: source.NewScanner(!s.selector.Empty()), generations: s.cfg.usesGenerations(),
		debug: s.log.Enabled(ctx, slog.LevelDebug), now: time.Now(), score: new(publishResults), lastError: &s.listing,
	}
}

// decideAndDispatchPage decides the resources of a page.
func (p *decisionPass) decideAndDispatchPage(ctx context.Context, pg source.Page) (source.Envelope, error) {
	p.heartbeat.recordProgress(0)
	if pg.Unchanged {
		p.resources += pg.Items
		return source.Envelope{}, nil
	}
	p.now, p.asked = time.Now(), pg.Asked
	before, ready, deferred := p.resources, p.ready, p.deferred
	p.trustFilter = p.labels.trustsServerFilter(pg.Body, pg.Rest == nil, pg.Filtered || p.allowUnselected)
	if pg.Rest != nil {
		pg.Rest = progress{ReadCloser: pg.Rest, pass: p}
	}
	env, err := pg.ScanItems(p.scanner, func(it *source.Item) error { return p.decideAndDispatch(ctx, it) })
	p.metrics.addAndResetTally(&p.tally)
	if err != nil {
		p.resources, p.ready, p.deferred = before, ready, deferred // the page will be read again
		return env, err
	}
	p.lastError.store(nil)
	p.served += env.Items
	return env, nil
}

// A progress is the body of a page that arrives slowly. Each read of it counts as progress and
// updates the time of the pass.
type progress struct {
	io.ReadCloser
	pass *decisionPass
}

// Read reads a part of the body.
func (r progress) Read(b []byte) (int, error) {
	n, err := r.ReadCloser.Read(b)
	r.pass.heartbeat.recordProgress(0)
	r.pass.now = time.Now()
	return n, err
}

// resetCounts discards the counts because the list starts from the beginning.
func (p *decisionPass) resetCounts() {
	p.resources, p.ready, p.oldest, p.deferred, p.again = 0, 0, 0, state.OverdueCount{}, p.dispatched
	p.served, p.labelled = 0, false
}

// decideAndDispatch decides one resource, and publishes or skips it.
func (p *decisionPass) decideAndDispatch(ctx context.Context, it *source.Item) error {
	if !p.acceptOrDropResource(ctx, it) {
		return nil
	}
	v := p.countAndDecideResource(ctx, it)
	due := v.ShouldPublish
	if due {
		was := p.memory.RecallPublishState(p.memory.HashID(it.ID), it.Resource.Generation, p.asked, p.number)
		if was.Claimed && p.index == nil {
			p.uncountDuplicate()
			return nil
		}
		v = p.spendBudgetOrDefer(it, p.suppressRepeat(it, v, was))
	}
	p.tally.decisions[v.Reason]++
	if v.ShouldPublish {
		return p.dispatchEvent(ctx, it, v)
	}
	p.recordSkipped(ctx, it, v, due)
	return nil
}

// acceptOrDropResource reports whether a resource is to be decided: it is readable, belongs to the
// shard, and is selected.
func (p *decisionPass) acceptOrDropResource(ctx context.Context, it *source.Item) (accepted bool) {
	if it.HasLabels && !p.labelled {
		p.labelled = true
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
	if !p.labels.matchesOrTrusted(ctx, it, p.trustFilter) {
		p.forgetOrCountUnselected(ctx, it)
		return false
	}
	return true
}

// countAndDecideResource counts a resource and applies the rules of the profile to it.
func (p *decisionPass) countAndDecideResource(ctx context.Context, it *source.Item) decision.Verdict {
	p.resources++
	if it.Resource.Ready() {
		p.ready++
	}
	p.fillTimesAndRecordUnobserved(it)
	v := p.profile.Decide(&it.Resource, p.now)
	if v.Err != nil {
		p.reporter.logDecisionError(ctx, it, v.Err)
	}
	if v.Warning != decision.WarningNone {
		p.tally.warnings[v.Warning]++
		p.reporter.logDecisionWarning(ctx, it, p.memory.HashID(it.ID), v.Warning)
	}
	return v
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
	if p.newest {
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
	if p.again > 0 {
		p.again--
		return
	}
	p.resources--
	p.tally.duplicates++
}

// fillTimesAndRecordUnobserved adds what the API does not report about a resource from the memory.
func (p *decisionPass) fillTimesAndRecordUnobserved(it *source.Item) {
	res := &it.Resource
	if p.cfg.Jitter > 0 {
		res.Early = p.cfg.ComputeEarlyFraction(it.ID)
	}
	if res.Ready() && res.Created.IsZero() && (res.LastUpdated.IsZero() || res.LastTransition.IsZero()) {
		res.FirstSeen = p.memory.RecordFirstSeen(p.memory.HashID(it.ID), p.now)
	}
	if res.Generation <= res.ObservedGeneration || res.ObservedGeneration == 0 && !p.generations {
		if p.index != nil {
			p.memory.ClearUnobserved(p.memory.HashID(it.ID))
		}
		return // observed, or the API does not report it
	}
	since := p.now
	for _, t := range []time.Time{res.Created, res.LastUpdated, res.Updated} {
		if !t.IsZero() && t.Before(p.now) {
			since = t // the last of these is the most exact
		}
	}
	since = p.memory.RecordUnobservedSince(p.memory.HashID(it.ID), res.ObservedGeneration, toMonotonicClock(since, p.now))
	p.oldest = max(p.oldest, p.now.Sub(since))
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
func (p *decisionPass) suppressRepeat(it *source.Item, v decision.Verdict, remembered state.PublishState) decision.Verdict {
	if remembered.InFlight {
		// Do not wait for the whole interval: the attempt may fail just now, and this decision may
		// be stored after the failure.
		v.ShouldPublish, v.Reason, v.Next = false, decision.ReasonAnnounced, p.now.Add(min(v.Interval, p.cfg.PollInterval))
		return v
	}
	return v.DelayRepeat(&it.Resource, remembered.Last, p.now)
}

// spendBudgetOrDefer defers a resource when the budget is spent. A changed generation is not deferred.
func (p *decisionPass) spendBudgetOrDefer(it *source.Item, v decision.Verdict) decision.Verdict {
	if !v.ShouldPublish {
		return v
	}
	urgent := v.Reason == decision.ReasonGenerationChanged
	at := p.now
	if !p.began.IsZero() {
		at = p.began
	}
	if urgent && p.budget.TryTakeUrgent(at) {
		p.urgent++
		return v
	}
	if !urgent && p.budget.TryTakeNonUrgent(at) {
		return v
	}
	v.ShouldPublish, v.Reason = false, decision.ReasonDeferred
	if it.Resource.Ready() {
		p.deferred.Ready++
	} else {
		p.deferred.NotReady++
	}
	return v
}

// countOverdueAsDeferred counts resources that are due and were not looked up because the budget is
// spent.
func (p *decisionPass) countOverdueAsDeferred(overdue state.OverdueCount) {
	p.deferred.Ready += overdue.Ready
	p.deferred.NotReady += overdue.NotReady
	p.tally.decisions[decision.ReasonDeferred] += overdue.Total()
	p.metrics.addAndResetTally(&p.tally)
}

// dueClassOf returns the class of a resource in the index.
func (p *decisionPass) dueClassOf(r *decision.Resource) state.DueClass {
	switch {
	case p.generations && r.Generation > r.ObservedGeneration:
		return state.ClassUrgent
	case r.Ready():
		return state.ClassReady
	}
	return state.ClassNotReady
}

// recordSkipped skips a resource that is not due, or is due and has to wait.
func (p *decisionPass) recordSkipped(ctx context.Context, it *source.Item, v decision.Verdict, due bool) {
	switch {
	case p.index != nil: // a round counts all resources that it does not read as skipped
		if !due {
			p.memory.ScheduleForget(p.memory.HashID(it.ID))
		}
		p.keep(it.ID, toMonotonicClock(v.Next, p.now), p.dueClassOf(&it.Resource))
	case v.Reason == decision.ReasonDeferred: // already counted as deferred
	case it.Resource.Ready():
		p.tally.skippedReady++
	default:
		p.tally.skippedOther++
	}
	note := p.record.RecordDecisionIfKnown
	if due || v.Warning != decision.WarningNone {
		note = p.record.RecordDecision
	}
	note(it.ID, newDecisionEntry(it, v, p.now))
	if p.debug {
		message := "resource skipped"
		if v.Reason == decision.ReasonDeferred {
			message = "resource deferred"
		}
		p.reporter.log.DebugContext(ctx, message, //nolint:sloglint // one of two constants
			"resource_id", string(it.ID), "reason", v.Reason.String(), "next_event", v.Next)
	}
}

// newDecisionEntry returns the record entry of a decision.
func newDecisionEntry(it *source.Item, v decision.Verdict, now time.Time) state.DecisionEntry {
	r := &it.Resource
	e := state.DecisionEntry{
		At: now, Reason: v.Reason.String(), Published: v.ShouldPublish,
		Generation: r.Generation, ObservedGeneration: r.ObservedGeneration, Phase: r.Phase,
		LastUpdated: r.LastUpdated, Since: v.Since, Next: v.Next,
	}
	if v.Err != nil {
		e.Err = v.Err.Error()
	}
	return e
}

// dispatchEvent passes a resource to a publisher goroutine. It waits while the window is full.
func (p *decisionPass) dispatchEvent(ctx context.Context, it *source.Item, v decision.Verdict) error {
	j := &job{
		key: p.memory.HashID(it.ID), id: string(it.ID), generation: it.Resource.Generation,
		reason: v.Reason, now: p.now, asked: p.asked, raw: bytes.Clone(it.Resource.Raw),
		index: p.index, score: p.score,
	}
	j.eventID = decision.DeriveEventID(j.id, j.generation, v, p.now)
	e := newDecisionEntry(it, v, p.now)
	e.EventID = j.eventID
	p.record.RecordDecision(it.ID, e)
	p.memory.MarkInFlight(j.key, j.generation, p.number)
	if p.index != nil {
		j.class = p.dueClassOf(&it.Resource)
		p.keep(it.ID, p.now.Add(v.Interval), j.class)
	}
	p.dispatched++
	p.score.dispatched.Add(1)
	if it.Resource.Ready() {
		p.score.ready.Add(1)
	} else {
		p.score.others.Add(1)
	}
	p.publishing.Add(1)
	waited, err := p.events.submitJob(ctx, p.cut, j, p.publishing.Done)
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

// awaitPublishing waits until all events of the pass are published or failed. It returns false if
// interrupt is closed first.
func (p *decisionPass) awaitPublishing(interrupt <-chan struct{}) (finished bool) {
	if interrupt == nil {
		p.publishing.Wait()
		return true
	}
	done := make(chan struct{})
	p.events.pool.wg.Go(func() {
		p.publishing.Wait()
		close(done)
	})
	select {
	case <-done:
		return true
	case <-interrupt:
		return false
	}
}
