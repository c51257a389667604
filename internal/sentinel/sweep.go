package sentinel

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fleetloop/fleetloop/internal/sentinel/source"
)

// A sweepStart is where the next sweep starts, and the counts that it continues. The zero value is
// the start of the list.
//
// A sweep that fails at a page is resumed there, so that a long list completes although requests
// fail. If it fails at the same page again, the next sweep starts from the beginning.
type sweepStart struct {
	at        source.Place
	resources int
	ready     int
	oldest    time.Duration
	served    int
	labelled  bool
}

// An offerError ends a sweep whose first page shows that the API offers a better mode.
type offerError struct{ mode Mode }

func (e offerError) Error() string { return fmt.Sprintf("the API offers the mode %q", e.mode) }

// listAndDecideAll reads the whole list with a pass, and starts where the last sweep failed. It
// calls onFirstPage with the first page. It returns errShardChanged when interrupt is closed.
func (s *Sentinel) listAndDecideAll(
	ctx context.Context, p *decisionPass, interrupt <-chan struct{}, onFirstPage func(source.Page, source.Envelope) error,
) error {
	p.resources, p.ready, p.oldest = s.start.resources, s.start.ready, s.start.oldest
	p.served, p.labelled = s.start.served, s.start.labelled
	p.cut = interrupt
	reading, stop := withCancelOnShardChange(ctx, interrupt) // publishing continues
	defer stop()
	stopped, err := s.walker.FetchResources(reading, s.start.at, func(pg source.Page) (source.Envelope, error) {
		if pg.First {
			p.resetCounts()
		}
		env, err := p.decideAndDispatchPage(ctx, pg)
		if err != nil {
			return env, err
		}
		s.setSteadyRate(max(p.ready, s.population.ready), max(p.resources-p.ready, s.population.others))
		if pg.First {
			err = onFirstPage(pg, env)
		}
		return env, err
	})
	if errors.As(err, new(offerError)) {
		return err
	}
	again := stopped == s.start.at
	s.start = sweepStart{}
	switch {
	case errors.Is(err, errShardChanged), err != nil && ctx.Err() == nil && errors.Is(context.Cause(reading), errShardChanged):
		// The next sweep reads the whole list, because a page that was already read may contain a
		// resource that is new in the shard. The error may arrive before reading has ended.
		return errShardChanged
	case err == nil:
		if p.served > 0 {
			s.labels.served.Store(p.labelled)
		}
		s.start.at = s.walker.FirstPlace()
		s.population = population{ready: p.ready, others: p.resources - p.ready}
		s.setSteadyRate(s.population.ready, s.population.others)
	case stopped.Later() && !again:
		s.start = sweepStart{at: stopped, resources: p.resources, ready: p.ready, oldest: p.oldest, served: p.served, labelled: p.labelled}
	}
	return err
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
	p.began = begin
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
	s.reportRoundAndResetCounters(ctx, p, err, time.Since(begin))
	if ctx.Err() != nil {
		return nil // the sentinel stops: not an error of the API
	}
	return err
}

// reportRoundAndResetCounters records the result of a round in metrics and log. p is its last pass, and
// err the API's error.
func (s *Sentinel) reportRoundAndResetCounters(ctx context.Context, p *decisionPass, err error, took time.Duration) {
	dispatched, published, failed := int(p.score.dispatched.Swap(0)), p.score.published.Swap(0), p.score.failed.Swap(0)
	deferred := p.deferred.Total()
	s.metrics.duration.Observe(took.Seconds())
	addIfPositive(s.metrics.deferredReady, p.deferred.Ready)
	addIfPositive(s.metrics.deferredOther, p.deferred.NotReady)
	line := []any{
		"resources", p.resources, "due", dispatched + deferred, "published", published, "failed", failed, "deferred", deferred, "took", took,
	}
	s.reporter.logSuppressedCounts(ctx, false)
	if ctx.Err() == nil {
		defer func() { s.onRound(s.Stats()) }()
	}
	switch {
	case err == nil:
		s.counts.recordRound(p.resources)
		s.metrics.pending.Set(float64(p.resources))
		s.metrics.deferredNow.Set(float64(deferred))
		s.metrics.oldestUnreconciled.Set(p.oldest.Seconds())
		if failed == 0 || published > 0 {
			s.metrics.lastGoodRound.SetToCurrentTime()
		}
		s.log.InfoContext(ctx, "poll completed", line...)
	case ctx.Err() != nil:
		s.log.InfoContext(ctx, "poll interrupted", line...)
	default:
		s.log.ErrorContext(ctx, "poll failed", append(line, "err", err)...)
	}
}

// detectBetterMode returns an offerError if a first page shows that the API supports a better mode than
// sweeps.
func (s *Sentinel) detectBetterMode(firstPage source.Page, env source.Envelope) (offer error) {
	mode := s.cfg.Source.Mode
	if mode == ModeSweep || s.cfg.Decision.Profile == ProfileExpression || time.Now().Before(s.feedDisabledUntil) {
		return nil
	}
	if env.Cursor != "" && mode != ModeETag {
		if mode == ModeAuto {
			mode = ModeWatch
		}
		return offerError{mode}
	}
	if firstPage.Tag != "" {
		return offerError{ModeETag}
	}
	return nil
}
