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
// other loops may have asked before a change, and a sweep may read pages that are older than the
// request. The feed therefore reads the changes since the beginning of each sweep again.
type follower struct {
	sentinel *Sentinel
	mode     Mode
	index    *state.DueIndex
	lookup   *source.Walker // due resources
	etags    *source.Walker // pages that changed

	// published is shared by all passes and evaluated once a round.
	published *publishResults

	// cursors passes a start cursor from a sweep to the feed. resync requests such a cursor.
	cursors chan string
	resync  chan struct{}

	fullSweeps atomic.Uint32 // number of completed full sweeps

	// complete says that the index holds all resources of this sentinel.
	complete atomic.Bool

	// wake starts the next round early, when the index becomes complete or the feed starts.
	wake chan struct{}

	// pages holds how many selected resources each page with an ETag has. The counts are valid for
	// the shard at the time when paging began.
	pages  map[source.Place]int
	paging shardEpoch
}

func (s *Sentinel) newFollower(mode Mode) *follower {
	f := &follower{
		sentinel:  s,
		mode:      mode,
		index:     state.NewDueIndex(time.Now()),
		lookup:    newWalker(s),
		published: new(publishResults),
		cursors:   make(chan string, 1),
		resync:    make(chan struct{}, 1),
		wake:      make(chan struct{}, 1),
		paging:    shardEpoch{shard: s.shard},
	}
	f.paging.beginList()
	return f
}

// runFollowerUntilFeedEnds runs a follower until ctx ends, the API withdraws the feature, or the API offers a
// better one. If the feature was withdrawn, the sentinel does not use it for some time.
func (s *Sentinel) runFollowerUntilFeedEnds(ctx context.Context, mode Mode) {
	interval := s.cfg.Source.FullSweepInterval
	s.log.InfoContext(ctx, "following the API", "mode", string(mode), "full_sweep_interval", interval)
	f := s.newFollower(mode)
	s.start = sweepStart{}
	if mode == ModeWatch {
		s.setMode(ModeCursor) // until the watch has delivered an event
	} else {
		s.setMode(mode)
	}
	defer s.setMode(ModeSweep)

	reason := f.runLoopsUntilOneEnds(ctx)

	s.feeding.store(nil)
	s.looking.store(nil)
	s.start = sweepStart{}
	s.metrics.indexBytes.Set(0)
	if ctx.Err() != nil {
		return
	}
	if offer, ok := errors.AsType[offerError](reason); ok {
		s.log.InfoContext(ctx, "api offers a better source mode", "mode", string(offer.mode))
		return
	}
	s.feedDisabledUntil = time.Now().Add(interval)
	s.log.WarnContext(ctx, "change feed failed, listing all resources in every poll",
		"err", reason, "until", s.feedDisabledUntil)
}

// runLoopsUntilOneEnds runs the loops of the follower until ctx ends, or the sweeps or the feed
// cannot continue. It waits for all loops and returns why they ended.
func (f *follower) runLoopsUntilOneEnds(ctx context.Context) (reason error) {
	s := f.sentinel
	ctx, stop := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	defer wg.Wait() // also after a panic
	defer stop(nil)
	wg.Go(func() {
		defer s.panics.recoverAndCancel()
		stop(f.runFullSweeps(ctx))
	})
	if f.mode != ModeETag {
		s.feeding.store(errNotFollowed)
		wg.Go(func() {
			defer s.panics.recoverAndCancel()
			stop(f.newFeed(ctx).followChanges(ctx))
		})
	}
	f.runPolls(ctx)
	wg.Wait()
	return context.Cause(ctx)
}

// newDecisionPass returns a pass that shares the follower's index and results.
func (f *follower) newDecisionPass(ctx context.Context) *decisionPass {
	p := f.sentinel.newDecisionPass(ctx)
	p.index, p.published = f.index, f.published
	return p
}

// runFullSweeps lists everything at the start, at the full sweep interval, when the feed has lost
// its cursor, and when the shard changes.
func (f *follower) runFullSweeps(ctx context.Context) error {
	epoch := shardEpoch{shard: f.sentinel.shard}
	for {
		err := f.sweepUntilComplete(ctx, epoch.beginList())
		interrupted := errors.Is(err, errShardChanged)
		if err != nil && !interrupted {
			return err
		}
		if interrupted || epoch.hasShardChanged() {
			f.sentinel.log.InfoContext(ctx, "shard assignment changed, listing all resources")
			f.complete.Store(false)
			if interrupted {
				epoch.recordInterrupted()
			}
			continue
		}
		if !f.complete.Swap(true) {
			f.triggerPoll()
		}
		if err := f.awaitNextSweep(ctx, epoch.changed); err != nil {
			return err
		}
	}
}

// awaitNextSweep waits until a full sweep is due: the interval is over, the feed requests a cursor,
// or the shard has changed.
func (f *follower) awaitNextSweep(ctx context.Context, shardChanged <-chan struct{}) error {
	interval := f.sentinel.cfg.Source.FullSweepInterval
	timer := time.NewTimer(interval*4/5 + rand.N(interval*2/5)) //nolint:gosec // only spreads sweeps
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-f.resync:
	case <-shardChanged:
		f.complete.Store(false)
	case <-ctx.Done():
	}
	return ctx.Err()
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
	sweep := f.index.BeginSweep()
	onFirstPage := f.sendCursorToFeed
	if f.mode == ModeETag {
		onFirstPage = f.detectChangeFeed
	}
	for {
		p := f.newDecisionPass(ctx)
		p.scheduleNext = func(id []byte, due time.Time, class state.DueClass) {
			f.index.MergeFromSweep(id, due, class, sweep)
		}
		err := f.sentinel.listAndDecideAll(ctx, p, interrupt, onFirstPage)
		if err == nil {
			removed := f.index.EndSweepAndRemoveUnseen(sweep)
			f.sentinel.memory.EndLapAndEvictUnused()
			f.fullSweeps.Add(1)
			f.sentinel.metrics.lastFullSweep.SetToCurrentTime()
			f.sentinel.log.InfoContext(ctx, "full sweep completed",
				"resources", p.list.resources, "removed", removed, "took", time.Since(begin))
			return nil
		}
		if ctx.Err() != nil || endsSweep(err) {
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

// endsSweep reports whether an error ends a full sweep. After any other error the sweep resumes.
func endsSweep(err error) bool {
	return errors.Is(err, errWithdrawn) || errors.Is(err, errShardChanged) || errors.As(err, new(offerError))
}

// sendCursorToFeed gives the feed the cursor of a sweep's first page: changes after it may be
// missing from the sweep.
func (f *follower) sendCursorToFeed(_ source.Page, envelope source.Envelope) error {
	if envelope.Cursor == "" {
		return errWithdrawn
	}
	select {
	case <-f.cursors: // an older cursor that was not used
	default:
	}
	f.cursors <- envelope.Cursor
	return nil
}

// detectChangeFeed returns an offerError if a sweep's first page shows that an API that was read by
// ETags has a change feed now.
func (f *follower) detectChangeFeed(firstPage source.Page, envelope source.Envelope) error {
	err := f.sentinel.detectBetterMode(firstPage, envelope)
	if offer, ok := errors.AsType[offerError](err); ok && offer.mode == f.mode {
		return nil
	}
	return err
}

// isCursorRejected reports whether the API rejected a cursor.
func isCursorRejected(err error) bool {
	switch source.HTTPStatusOf(err) {
	case http.StatusGone, http.StatusBadRequest, http.StatusNotFound, http.StatusUnprocessableEntity:
		return true
	}
	return false
}
