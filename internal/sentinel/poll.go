package sentinel

import (
	"context"
	"errors"
	"time"

	"github.com/fleetloop/fleetloop/internal/sentinel/source"
	"github.com/fleetloop/fleetloop/internal/sentinel/state"
)

// runPolls looks up the resources that are due, at each poll interval, or at once when the index
// has become complete or the feed has started.
func (f *follower) runPolls(ctx context.Context) {
	for ctx.Err() == nil {
		begin := time.Now()
		err := f.pollOnce(ctx)
		took := time.Since(begin)
		if err == nil {
			f.sentinel.reporter.reportIfPollOverran(ctx, took, f.sentinel.cfg.PollInterval)
		}
		wait := f.sentinel.cfg.delayUntilNextPoll(took, err)
		f.sentinel.heartbeat.recordProgress(wait)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-f.wake:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// pollOnce runs one round: it decides the changed pages if there is no feed, looks up what is due,
// and reports the result. It returns the error of its own requests.
func (f *follower) pollOnce(ctx context.Context) error {
	begin := time.Now()
	ctx, span := f.sentinel.tracer.Start(ctx, "sentinel.round")
	defer span.End()
	ready, resources := f.index.CountReady(), f.index.Len()
	complete := f.complete.Load()
	if complete {
		f.sentinel.setSteadyRate(ready, resources-ready)
	}

	var err error
	if f.mode == ModeETag && f.fullSweeps.Load() > 0 {
		resources, err = f.fetchAndDecideChangedPages(ctx)
	}
	p := f.newDecisionPass(ctx)
	p.lastError, p.roundBegan = &f.sentinel.looking, begin
	if err == nil {
		if p.debug {
			f.logNotDue(ctx, begin)
		}
		err = f.lookUpAndDecideOverdue(ctx, p)
	}
	p.publishing.Wait()

	if err == nil {
		f.sentinel.looking.store(nil)
	} else if ctx.Err() == nil {
		f.sentinel.reporter.countAndStoreAPIError(&f.sentinel.looking, err)
	}
	f.countSkipped(ready, resources-ready, p.deferred)
	if f.mode != ModeETag {
		resources = f.index.Len()
	}
	longestWait := f.sentinel.memory.PurgeExpiredAndGetLongestWait(time.Now())
	f.sentinel.metrics.memoryEntries.Set(float64(f.sentinel.memory.Len()))
	f.sentinel.metrics.indexBytes.Set(float64(f.index.EstimateMemoryBytes()))

	// A round fails if the feed fails; that error is already counted and logged. Resources that are
	// due by age are looked up all the same.
	roundErr := err
	if err == nil && complete {
		roundErr = f.sentinel.feeding.load()
	}
	feedHasJustStarted := errors.Is(roundErr, errNotFollowed) // there is nothing to report yet
	if !feedHasJustStarted && (complete || roundErr != nil) {
		f.sentinel.reportRoundAndResetCounters(ctx, f.published, roundResult{
			resources:   resources,
			longestWait: longestWait,
			deferred:    p.deferred,
			took:        time.Since(begin),
			err:         roundErr,
		})
	}
	return err
}

// countSkipped counts the resources that were neither dispatched since the last round nor deferred
// in this one. It resets the counts of dispatched resources.
func (f *follower) countSkipped(ready, others int, deferred state.OverdueCount) {
	skippedReady := ready - int(f.published.dispatchedReady.Swap(0)) - deferred.Ready
	skippedOthers := others - int(f.published.dispatchedOthers.Swap(0)) - deferred.NotReady
	addIfPositive(f.sentinel.metrics.skippedReady, skippedReady)
	addIfPositive(f.sentinel.metrics.skippedOthers, skippedOthers)
}

// logNotDue logs each resource that a poll skips without a lookup, as a sweep logs the resources
// that it decides.
func (f *follower) logNotDue(ctx context.Context, now time.Time) {
	for id, due := range f.index.ListNotDue(now) {
		f.sentinel.log.DebugContext(ctx, "resource skipped",
			"resource_id", id, "reason", "not due according to the schedule index", "next_event", due)
	}
}

// fetchAndDecideChangedPages reads the pages of the list that have changed, and counts the resources on all
// pages. The index cannot count them: it does not know yet which resources are gone.
func (f *follower) fetchAndDecideChangedPages(ctx context.Context) (resources int, err error) {
	if f.pages == nil || f.paging.hasShardChanged() {
		f.paging.beginList()
		f.etags, f.pages = newWalker(f.sentinel), map[source.Place]int{}
	}
	p := f.newDecisionPass(ctx)
	p.scheduleNext, p.lastError = f.index.PutNewest, &f.sentinel.looking
	current := make(map[source.Place]int, len(f.pages)) // without the places that no longer exist
	_, err = f.etags.FetchResourcesIfChanged(ctx, func(page source.Page) (source.Envelope, error) {
		if page.First {
			p.resetCounts()
		}
		if page.Unchanged {
			page.Items = f.pages[page.At]
		}
		before := p.list.resources
		envelope, err := p.decideAndDispatchPage(ctx, page)
		if err == nil {
			onPage := p.list.resources - before
			current[page.At], f.pages[page.At] = onPage, onPage
		}
		return envelope, err
	})
	if err == nil {
		f.pages = current
	}
	return p.list.resources, err
}

// lookupChunk is how many resources one request asks for.
const lookupChunk = 100

// lookUpAndDecideOverdue looks up the resources that are due, until the budget is spent, and all
// resources with a changed generation.
func (f *follower) lookUpAndDecideOverdue(ctx context.Context, p *decisionPass) error {
	p.allowUnselected = true
	// Resources that become due after now wait for the next round, and so do failures of this
	// round. Otherwise a round would never end while the broker is down.
	now := time.Now()
	retryAt := now.Add(f.sentinel.cfg.PollInterval)
	available := f.sentinel.budget.CountAvailableNonUrgent(p.roundBegan)
	onlyUrgent := false // in the last chunk
	for {
		// Request no more resources than the budget allows. Responses have their own order, so a
		// larger request might not publish the resources that are overdue longest.
		limit := available
		if available == 0 || onlyUrgent {
			limit = max(available, lookupChunk) // there may be changed generations
		}
		var owned []string
		taken, remaining := f.index.TakeOverdue(now, limit, retryAt, func(id string) {
			if f.sentinel.shard.Owns([]byte(id)) {
				owned = append(owned, id)
			} else {
				dropUnowned(p.shard, p.memory, f.index, []byte(id))
			}
		})
		if taken == 0 {
			return nil
		}

		dispatchedBefore, urgentBefore, deferredBefore := p.dispatched, p.dispatchedUrgent, p.deferred.Total()
		if err := f.lookUpAndDecide(ctx, p, owned, retryAt); err != nil {
			return err
		}
		urgent := p.dispatchedUrgent - urgentBefore
		nonUrgent := p.dispatched - dispatchedBefore - urgent
		onlyUrgent = urgent == taken
		// The feed and the sweeps spend the same budget.
		available = max(0, min(available-nonUrgent, f.sentinel.budget.CountAvailableNonUrgent(p.roundBegan)))

		noneLeft := taken < limit
		budgetSpent := p.deferred.Total() > deferredBefore || available == 0 && urgent == 0
		if noneLeft || budgetSpent {
			p.countOverdueAsDeferred(remaining)
			return nil
		}
	}
}

// lookUpAndDecide looks resources up by id and decides them. A resource that is missing from the
// response, or does not match the selector, is gone, unless the feed has reported it in the
// meantime.
func (f *follower) lookUpAndDecide(ctx context.Context, p *decisionPass, ids []string, retryAt time.Time) error {
	missing := make(map[string]struct{}, len(ids))
	for _, id := range ids {
		missing[id] = struct{}{}
	}
	p.scheduleNext = func(id []byte, due time.Time, class state.DueClass) {
		delete(missing, string(id))
		f.index.MergeLookupResult(id, due, class, retryAt)
	}
	err := f.lookup.FetchResourcesByID(ctx, ids, func(page source.Page) (source.Envelope, error) {
		return p.decideAndDispatchPage(ctx, page)
	})
	if err != nil {
		return err
	}
	for id := range missing {
		if id := []byte(id); f.index.RemoveUnlessUpdated(id, retryAt) {
			p.memory.ForgetResource(p.memory.HashID(id))
		}
	}
	return nil
}
