package sentinel

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/sentinel/source"
	"github.com/fleetloop/fleetloop/internal/sentinel/state"
)

// errNotFollowed is the error of a feed that has started and has not read a change yet.
var errNotFollowed = errors.New("no changes read from the fleet API yet")

// errWithdrawn ends a follower when the API no longer offers the feature that it uses.
var errWithdrawn = errors.New("the API no longer offers a change cursor")

// A follower learns of changes from the API, and uses its schedule index to find resources that are
// due by age. It has three loops. Full sweeps fill the index and correct errors in it. The feed
// reads changes. The polls look up the resources that are due. The feed has the newest data: the
// other loops may have asked before a change.
type follower struct {
	sentinel *Sentinel
	mode     Mode
	index    *state.DueIndex
	lookup   *source.Walker // due resources
	etags    *source.Walker // pages that changed

	// score is shared by all passes and evaluated once a round.
	score *publishResults

	// cursors passes a start cursor from a sweep to the feed. resync requests such a cursor.
	cursors chan string
	resync  chan struct{}

	fullSweeps atomic.Uint32 // number of completed full sweeps

	// complete says that the index holds all resources of this sentinel. news starts the next round
	// early, when the index becomes complete or the feed starts.
	complete atomic.Bool
	wake     chan struct{}

	// pages holds how many selected resources each page with an ETag has. The counts are valid for
	// the shard at the time when paging began.
	pages  map[source.Place]int
	paging shardEpoch
}

// runFollower runs a follower until ctx ends, the API withdraws the feature, or the API offers a
// better one.
func (s *Sentinel) runFollower(ctx context.Context, mode Mode) {
	s.log.InfoContext(ctx, "following the API", "mode", string(mode), "full_sweep_interval", s.cfg.Source.FullSweepInterval)
	f := &follower{
		sentinel: s, mode: mode, index: state.NewDueIndex(time.Now()), lookup: newWalker(s), score: new(publishResults),
		cursors: make(chan string, 1), resync: make(chan struct{}, 1), wake: make(chan struct{}, 1),
		paging: shardEpoch{shard: s.shard},
	}
	f.paging.beginList()
	s.start = sweepStart{}
	if mode == ModeWatch {
		s.setMode(ModeCursor) // until the watch has delivered an event
	} else {
		s.setMode(mode)
	}
	defer s.setMode(ModeSweep)

	within, stop := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	defer wg.Wait() // also after a panic
	defer stop(nil)
	wg.Go(func() {
		defer s.panics.recoverAndCancel()
		stop(f.runFullSweeps(within))
	})
	if mode != ModeETag {
		s.feeding.store(errNotFollowed)
		wg.Go(func() {
			defer s.panics.recoverAndCancel()
			stop(f.newFeed(within).followChanges(within))
		})
	}
	f.runPolls(within)
	wg.Wait()
	stop(nil)

	s.feeding.store(nil)
	s.looking.store(nil)
	s.start = sweepStart{}
	s.metrics.indexBytes.Set(0)
	better, more := errors.AsType[offerError](context.Cause(within))
	switch {
	case ctx.Err() != nil:
	case more:
		s.log.InfoContext(ctx, "api offers a better source mode", "mode", string(better.mode))
	default:
		s.feedDisabledUntil = time.Now().Add(s.cfg.Source.FullSweepInterval)
		s.log.WarnContext(ctx, "change feed failed, listing all resources in every poll", "err", context.Cause(within), "until", s.feedDisabledUntil)
	}
}

// newDecisionPass returns a pass that shares the follower's index and score.
func (f *follower) newDecisionPass(ctx context.Context) *decisionPass {
	p := f.sentinel.newDecisionPass(ctx)
	p.index, p.score = f.index, f.score
	return p
}

// runFullSweeps lists everything at the start, at the full sweep interval, when the feed has lost
// its cursor, and when the shard changes.
func (f *follower) runFullSweeps(ctx context.Context) error {
	d := shardEpoch{shard: f.sentinel.shard}
	for {
		err := f.sweepUntilComplete(ctx, d.beginList())
		if err != nil && !errors.Is(err, errShardChanged) {
			return err
		}
		if err != nil || d.hasShardChanged() {
			f.sentinel.log.InfoContext(ctx, "shard assignment changed, listing all resources")
			f.complete.Store(false)
			if err != nil {
				d.recordInterrupted()
			}
			continue
		}
		if !f.complete.Swap(true) {
			f.triggerPoll()
		}
		interval := f.sentinel.cfg.Source.FullSweepInterval
		timer := time.NewTimer(interval*4/5 + rand.N(interval*2/5)) //nolint:gosec // only spreads sweeps
		select {
		case <-timer.C:
		case <-f.resync:
		case <-d.changed:
			f.complete.Store(false)
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// triggerPoll starts the next poll at once.
func (f *follower) triggerPoll() {
	select {
	case f.wake <- struct{}{}:
	default: // another wake-up is already pending
	}
}

// sweepUntilComplete lists everything and resumes after errors. It returns errShardChanged when
// interrupt is closed.
func (f *follower) sweepUntilComplete(ctx context.Context, interrupt <-chan struct{}) error {
	begin := time.Now()
	f.sentinel.rounds.Add(1)
	mark := f.index.BeginSweep()
	for {
		p := f.newDecisionPass(ctx)
		p.keep = func(id []byte, due time.Time, class state.DueClass) { f.index.MergeFromSweep(id, due, class, mark) }
		err := f.sentinel.listAndDecideAll(ctx, p, interrupt, f.sendCursorOrDetectBetterMode)
		if err == nil {
			removed := f.index.EndSweepAndRemoveUnseen(mark)
			f.sentinel.memory.EndLapAndEvictUnused()
			f.fullSweeps.Add(1)
			f.sentinel.metrics.lastFullSweep.SetToCurrentTime()
			f.sentinel.log.InfoContext(ctx, "full sweep completed", "resources", p.resources, "removed", removed, "took", time.Since(begin))
			return nil
		}
		if errors.Is(err, errWithdrawn) || errors.Is(err, errShardChanged) || errors.As(err, new(offerError)) || ctx.Err() != nil {
			return err
		}
		f.sentinel.reporter.countAndStoreAPIError(&f.sentinel.listing, err)
		f.sentinel.log.ErrorContext(ctx, "full sweep interrupted, resuming", "err", err)
		waiting, stop := withCancelOnShardChange(ctx, interrupt)
		err = backoff.Sleep(waiting, f.sentinel.cfg.delayAfterError(err))
		stop()
		if err != nil {
			f.sentinel.start = sweepStart{} // pages that were read may now belong to another replica
			return err
		}
	}
}

// sendCursorOrDetectBetterMode gives the feed the cursor of a sweep's first page: changes after it
// may be missing from the sweep. A feed that has a cursor ignores it. In a mode without a feed,
// sendCursorOrDetectBetterMode checks whether the API offers one now.
func (f *follower) sendCursorOrDetectBetterMode(firstPage source.Page, env source.Envelope) error {
	if f.mode == ModeETag {
		err := f.sentinel.detectBetterMode(firstPage, env)
		if offer, ok := errors.AsType[offerError](err); ok && offer.mode == f.mode {
			return nil
		}
		return err
	}
	if env.Cursor == "" {
		return errWithdrawn
	}
	select {
	case <-f.cursors: // an older cursor that was not used
	default:
	}
	f.cursors <- env.Cursor
	return nil
}

// runPolls looks up the resources that are due, at each poll interval, or at once when the index
// has become complete or the feed has started.
func (f *follower) runPolls(ctx context.Context) {
	for ctx.Err() == nil {
		begin := time.Now()
		err := f.pollOnce(ctx)
		took := time.Since(begin)
		if err == nil {
			f.sentinel.reporter.reportPollOverrun(ctx, took, f.sentinel.cfg.PollInterval)
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

func (f *follower) pollOnce(ctx context.Context) error {
	begin := time.Now()
	ctx, span := f.sentinel.tracer.Start(ctx, "sentinel.round")
	defer span.End()
	ready, all := f.index.CountReady(), f.index.Len()
	complete := f.complete.Load()
	if complete {
		f.sentinel.setSteadyRate(ready, all-ready)
	}
	var err error
	if f.mode == ModeETag && f.fullSweeps.Load() > 0 {
		all, err = f.fetchAndDecideChangedPages(ctx)
	}
	p := f.newDecisionPass(ctx)
	p.lastError, p.began = &f.sentinel.looking, begin
	if err == nil {
		if p.debug {
			f.logNotDue(ctx, begin)
		}
		err = f.lookUpAndDecideOverdue(ctx, p)
	}
	p.publishing.Wait()
	switch {
	case err == nil:
		f.sentinel.looking.store(nil)
	case ctx.Err() == nil:
		f.sentinel.reporter.countAndStoreAPIError(&f.sentinel.looking, err)
	}
	// A round fails if the feed fails; that error is already counted and logged. Resources that are
	// due by age are looked up all the same.
	whole := err
	if err == nil && complete {
		whole = f.sentinel.feeding.load()
	}
	addIfPositive(f.sentinel.metrics.skippedReady, max(0, ready-int(f.score.ready.Swap(0))-p.deferred.Ready))
	addIfPositive(f.sentinel.metrics.skippedOthers, max(0, all-ready-int(f.score.others.Swap(0))-p.deferred.NotReady))
	if f.mode != ModeETag {
		all = f.index.Len()
	}
	p.resources, p.oldest = all, f.sentinel.memory.PurgeExpiredAndGetLongestWait(time.Now())
	f.sentinel.metrics.memoryEntries.Set(float64(f.sentinel.memory.Len()))
	f.sentinel.metrics.indexBytes.Set(float64(f.index.EstimateMemoryBytes()))
	switch {
	case errors.Is(whole, errNotFollowed): // the feed has just started; there is nothing to report yet
	case complete, whole != nil:
		f.sentinel.reportRoundAndResetCounters(ctx, p, whole, time.Since(begin))
	}
	return err
}

// logNotDue logs each resource that a poll skips without a lookup, as a sweep logs the resources
// that it decides.
func (f *follower) logNotDue(ctx context.Context, now time.Time) {
	for id, due := range f.index.ListNotDue(now) {
		f.sentinel.log.DebugContext(ctx, "resource skipped", "resource_id", id, "reason", "not due according to the schedule index", "next_event", due)
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
	p.keep, p.lastError = f.index.PutNewest, &f.sentinel.looking
	met := make(map[source.Place]int, len(f.pages))
	_, err = f.etags.FetchResourcesIfChanged(ctx, func(pg source.Page) (source.Envelope, error) {
		if pg.First {
			p.resetCounts()
		}
		if pg.Unchanged {
			pg.Items = f.pages[pg.At]
		}
		before := p.resources
		env, err := p.decideAndDispatchPage(ctx, pg)
		if err == nil {
			met[pg.At], f.pages[pg.At] = p.resources-before, p.resources-before
		}
		return env, err
	})
	if err == nil {
		f.pages = met
	}
	return p.resources, err
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
	again := now.Add(f.sentinel.cfg.PollInterval)
	left, rush := f.sentinel.budget.CountAvailableNonUrgent(p.began), false
	for {
		// Request no more resources than the budget allows. Responses have their own order, so a
		// larger request might not publish the resources that are overdue longest.
		limit := left
		if left == 0 || rush {
			limit = max(left, lookupChunk) // there may be changed generations
		}
		var ids []string
		taken, behind := f.index.TakeOverdue(now, limit, again, func(id string) {
			if f.sentinel.shard.Owns([]byte(id)) {
				ids = append(ids, id)
			} else {
				dropUnowned(p.shard, p.memory, f.index, []byte(id))
			}
		})
		if taken == 0 {
			return nil
		}
		dispatched, urgent, deferred := p.dispatched, p.urgent, p.deferred.Total()
		if err := f.lookUpAndDecide(ctx, p, ids, again); err != nil {
			return err
		}
		urgent = p.urgent - urgent
		rush = urgent == taken
		left = max(0, min(left-(p.dispatched-dispatched-urgent), f.sentinel.budget.CountAvailableNonUrgent(p.began)))
		if taken < limit || p.deferred.Total() > deferred || left == 0 && urgent == 0 {
			p.countOverdueAsDeferred(behind)
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
	p.keep = func(id []byte, due time.Time, class state.DueClass) {
		delete(missing, string(id))
		f.index.MergeLookupResult(id, due, class, retryAt)
	}
	err := f.lookup.FetchResourcesByID(ctx, ids, func(pg source.Page) (source.Envelope, error) { return p.decideAndDispatchPage(ctx, pg) })
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

// isCursorRejected reports whether the API rejected a cursor.
func isCursorRejected(err error) bool {
	switch source.HTTPStatusOf(err) {
	case http.StatusGone, http.StatusBadRequest, http.StatusNotFound, http.StatusUnprocessableEntity:
		return true
	}
	return false
}
