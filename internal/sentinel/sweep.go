package sentinel

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fleetloop/fleetloop/internal/sentinel/source"
	"github.com/fleetloop/fleetloop/internal/sentinel/state"
)

// A sweepStart is where the next sweep starts, and the counts that it continues. The zero value is
// the start of the list.
//
// A sweep that fails at a page is resumed there, so that a long list completes although requests
// fail. If it fails at the same page again, the next sweep starts from the beginning.
type sweepStart struct {
	at     source.Place
	counts listCounts
}

// An offerError ends a sweep whose first page shows that the API offers a better mode.
type offerError struct{ mode Mode }

func (e offerError) Error() string { return fmt.Sprintf("the API offers the mode %q", e.mode) }

// listAndDecideAll reads the whole list with a pass, and starts where the last sweep failed. It
// calls onFirstPage with the first page. It returns errShardChanged when interrupt is closed.
func (s *Sentinel) listAndDecideAll(
	ctx context.Context,
	p *decisionPass,
	interrupt <-chan struct{},
	onFirstPage func(source.Page, source.Envelope) error,
) error {
	p.list = s.start.counts
	p.interrupt = interrupt
	reading, stop := withCancelOnShardChange(ctx, interrupt) // publishing continues
	defer stop()

	stopped, err := s.walker.FetchResources(reading, s.start.at, func(page source.Page) (source.Envelope, error) {
		if page.First {
			p.resetCounts()
		}
		envelope, err := p.decideAndDispatchPage(ctx, page)
		if err != nil {
			return envelope, err
		}
		ready, others := p.list.ready, p.list.resources-p.list.ready
		s.setSteadyRate(max(ready, s.population.ready), max(others, s.population.others))
		if page.First {
			err = onFirstPage(page, envelope)
		}
		return envelope, err
	})

	if errors.As(err, new(offerError)) {
		return err
	}
	failedWhereItStarted := stopped == s.start.at
	s.start = sweepStart{}
	// The error of another goroutine may arrive before the reading has ended.
	interrupted := errors.Is(err, errShardChanged) ||
		err != nil && ctx.Err() == nil && errors.Is(context.Cause(reading), errShardChanged)
	switch {
	case interrupted:
		// The next sweep reads the whole list, because a page that was already read may contain a
		// resource that is new in the shard.
		return errShardChanged
	case err == nil:
		s.recordCompleteList(p.list)
	case stopped.Later() && !failedWhereItStarted:
		s.start = sweepStart{at: stopped, counts: p.list}
	}
	return err
}

// recordCompleteList records what a complete list has shown about the API and the resources.
func (s *Sentinel) recordCompleteList(list listCounts) {
	if list.served > 0 {
		s.labels.served.Store(list.labelled)
	}
	s.start.at = s.walker.FirstPlace()
	s.population = population{ready: list.ready, others: list.resources - list.ready}
	s.setSteadyRate(s.population.ready, s.population.others)
}

// A population is the number of resources, ready and others.
type population struct{ ready, others int }

// setSteadyRate passes the rate of events that the maximum ages produce, per second, to the budget.
func (s *Sentinel) setSteadyRate(ready, notReady int) {
	s.budget.SetSteadyRate(float64(ready)/s.cfg.MaxAgeReady.Seconds() + float64(notReady)/s.cfg.MaxAgeNotReady.Seconds())
	s.metrics.budget.Set(s.budget.MaxNonUrgentRate())
}

// runSweepRound runs one round that lists everything. It returns API errors; errors of single
// resources and events are handled here. It returns errShardChanged when interrupt is closed.
func (s *Sentinel) runSweepRound(ctx context.Context, interrupt <-chan struct{}) error {
	begin := time.Now()
	ctx, span := s.tracer.Start(ctx, "sentinel.round")
	defer span.End()
	s.rounds.Add(1)
	p := s.newDecisionPass(ctx)
	p.roundBegan = begin

	err := s.listAndDecideAll(ctx, p, interrupt, s.detectBetterMode)
	if !errors.Is(err, errShardChanged) && !p.awaitPublishing(interrupt) {
		err = errShardChanged
	}
	if errors.As(err, new(offerError)) {
		return err
	}
	if errors.Is(err, errShardChanged) {
		s.start = sweepStart{}
		s.log.InfoContext(ctx, "shard assignment changed, listing all resources", "took", time.Since(begin))
		return err
	}

	if err == nil {
		s.metrics.memoryEntries.Set(float64(s.memory.EndLapAndEvictUnused()))
		s.metrics.lastFullSweep.SetToCurrentTime()
	} else if ctx.Err() == nil {
		s.reporter.countAndStoreAPIError(&s.listing, err)
	}
	s.reportRoundAndResetCounters(ctx, p.published, roundResult{
		resources:   p.list.resources,
		longestWait: p.list.longestWait,
		deferred:    p.deferred,
		took:        time.Since(begin),
		err:         err,
	})
	if ctx.Err() != nil {
		return nil // the sentinel stops: not an error of the API
	}
	return err
}

// A roundResult is the result of a round, except for what its publishers count.
type roundResult struct {
	resources   int
	longestWait time.Duration // of a generation for its adapters
	deferred    state.OverdueCount
	took        time.Duration
	err         error // of the API
}

// reportRoundAndResetCounters records the result of a round in metrics and log. It resets the
// counters of the publishers for the next round.
func (s *Sentinel) reportRoundAndResetCounters(ctx context.Context, counters *publishResults, round roundResult) {
	dispatched, published, failed := counters.dispatched.Swap(0), counters.published.Swap(0), counters.failed.Swap(0)
	deferred := round.deferred.Total()
	s.metrics.duration.Observe(round.took.Seconds())
	addIfPositive(s.metrics.deferredReady, round.deferred.Ready)
	addIfPositive(s.metrics.deferredOther, round.deferred.NotReady)
	s.reporter.logSuppressedCounts(ctx, false)
	if ctx.Err() == nil {
		defer func() { s.onRound(s.Stats()) }()
	}

	line := []any{
		"resources", round.resources,
		"due", int(dispatched) + deferred,
		"published", published,
		"failed", failed,
		"deferred", deferred,
		"took", round.took,
	}
	switch {
	case round.err == nil:
		s.counts.recordRound(round.resources)
		s.metrics.pending.Set(float64(round.resources))
		s.metrics.deferredNow.Set(float64(deferred))
		s.metrics.oldestUnreconciled.Set(round.longestWait.Seconds())
		if failed == 0 || published > 0 {
			s.metrics.lastGoodRound.SetToCurrentTime()
		}
		s.log.InfoContext(ctx, "poll completed", line...)
	case ctx.Err() != nil:
		s.log.InfoContext(ctx, "poll interrupted", line...)
	default:
		s.log.ErrorContext(ctx, "poll failed", append(line, "err", round.err)...)
	}
}

// detectBetterMode returns an offerError if a first page shows that the API supports a better mode than
// sweeps, and the configuration allows it.
func (s *Sentinel) detectBetterMode(firstPage source.Page, envelope source.Envelope) (offer error) {
	mode := s.cfg.Source.Mode
	if mode == ModeSweep || s.cfg.Decision.Profile == ProfileExpression || time.Now().Before(s.feedDisabledUntil) {
		return nil
	}
	if envelope.Cursor != "" && mode != ModeETag {
		if mode == ModeAuto {
			mode = ModeWatch // the best mode; whether the API has it shows in the first watch
		}
		return offerError{mode}
	}
	if firstPage.Tag != "" {
		return offerError{ModeETag}
	}
	return nil
}
