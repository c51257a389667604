package sentinel

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetloop/fleetloop/internal/sentinel/decision"
	"github.com/fleetloop/fleetloop/internal/sentinel/scan"
)

// A beginning is where the next round begins, and what it takes over from the
// one before. The zero value is the beginning of the list.
//
// A round that breaks off at a page is taken up there by the next, so that a
// long list comes to its end although requests fail now and then; if it breaks
// at the same page again, the next begins anew.
type beginning struct {
	at        cursor
	resources int
	oldest    time.Duration
}

// A round is one pass: fetch all pages, decide, publish.
type round struct {
	*Sentinel
	number uint32

	now       time.Time
	resources int
	oldest    time.Duration // of the generations that wait for adapters
	tally     tally
	again     int // dispatched resources that are still to be met again
	debug     bool

	jobs       chan *job
	workers    int
	wg         sync.WaitGroup
	dispatched int
	published  atomic.Int64
	failed     atomic.Int64
}

// poll does one round. The error is the API's; what goes wrong with single
// resources and events is dealt with here.
func (s *Sentinel) poll(ctx context.Context) error {
	begin := time.Now()
	ctx, span := s.tracer.Start(ctx, "sentinel.round")
	defer span.End()
	s.rounds++
	r := &round{
		Sentinel: s, number: s.rounds,
		resources: s.start.resources, oldest: s.start.oldest,
		debug: s.log.Enabled(ctx, slog.LevelDebug),
		jobs:  make(chan *job),
	}
	at, err := s.pager.walk(ctx, s.start.at, func(pg page) (scan.Envelope, error) { return r.read(ctx, pg) })
	close(r.jobs)
	r.wg.Wait()
	r.finish(ctx, at, err, time.Since(begin))
	if ctx.Err() != nil {
		return nil // told to stop: that is no error of the API
	}
	return err
}

// read decides about the resources of a page.
func (r *round) read(ctx context.Context, pg page) (scan.Envelope, error) {
	r.pulse.beat(0)
	if pg.at.page == 1 { // the walk began again by numbers
		r.resources, r.oldest, r.again = 0, 0, r.dispatched
	}
	r.now = time.Now()
	before := r.resources
	env, err := r.scanner.Scan(pg.body, func(it *scan.Item) error { return r.visit(ctx, it) })
	r.metrics.add(&r.tally)
	if err != nil {
		r.resources = before // the page will be read again
		return env, err
	}
	r.setAPI(nil)
	return env, nil
}

func (r *round) setAPI(err error) { r.apiErr.Store(&err) }

// visit decides about one resource.
func (r *round) visit(ctx context.Context, it *scan.Item) error {
	if it.Fault != scan.FaultNone {
		r.noteFault(ctx, it)
		if it.Fault.Skips() {
			return nil
		}
	}
	if !r.selector.Empty() && !r.selector.Matches(&it.Labels) {
		r.tally.unselected++
		r.warn("selector", func(log *slog.Logger) {
			log.WarnContext(ctx, "resource does not match the selector, although the API served it", "resource_id", string(it.ID))
		})
		return nil
	}
	r.resources++
	r.prepare(it)
	v := r.profile.Decide(&it.Resource, r.now)
	if v.Warning != decision.WarningNone || v.Err != nil {
		r.noteWarning(ctx, it, v)
	}
	if v.ShouldPublish {
		last, duplicate := r.memory.recall(r.memory.key(it.ID), r.number)
		if duplicate {
			r.noteDuplicate()
			return nil
		}
		v = v.Hold(&it.Resource, last, r.now)
	}
	r.tally.decisions[v.Reason]++
	if !v.ShouldPublish {
		r.skip(ctx, it, v)
		return nil
	}
	return r.dispatch(ctx, it, v)
}

// noteDuplicate takes back that a resource was counted, unless the walk began
// again and the first count was taken back as a whole.
func (r *round) noteDuplicate() {
	if r.again > 0 {
		r.again--
		return
	}
	r.resources--
	r.tally.duplicates++
}

// prepare asks the memory for what the API does not say of a resource.
func (r *round) prepare(it *scan.Item) {
	res := &it.Resource
	if res.Ready() && res.Created.IsZero() && (res.LastUpdated.IsZero() || res.LastTransition.IsZero()) {
		res.FirstSeen = r.memory.firstSeen(r.memory.key(it.ID), r.number, r.now)
	}
	if res.Generation <= res.ObservedGeneration || res.ObservedGeneration == 0 && !r.generations {
		return // observed, or nothing that this API speaks of
	}
	since := r.now
	for _, t := range []time.Time{res.Created, res.LastUpdated, res.Updated} {
		if !t.IsZero() && t.Before(r.now) {
			since = t // the last of these says it best
		}
	}
	since = r.memory.stuckSince(r.memory.key(it.ID), r.number, res.ObservedGeneration, since)
	r.oldest = max(r.oldest, r.now.Sub(since))
}

func (r *round) skip(ctx context.Context, it *scan.Item, v decision.Verdict) {
	if it.Resource.Ready() {
		r.tally.skippedReady++
	} else {
		r.tally.skippedOther++
	}
	if r.debug {
		r.log.DebugContext(ctx, "resource skipped", "resource_id", string(it.ID), "reason", v.Reason.String(), "next_event", v.Next)
	}
}

// dispatch hands a resource to a goroutine that publishes. It waits while the
// window is full.
func (r *round) dispatch(ctx context.Context, it *scan.Item, v decision.Verdict) error {
	j := &job{
		key: r.memory.key(it.ID), id: string(it.ID), generation: it.Resource.Generation,
		reason: v.Reason.String(), now: r.now, raw: bytes.Clone(it.Resource.Raw),
	}
	j.eventID = decision.EventID(j.id, j.generation, v, r.now)
	r.memory.claim(j.key, r.number)
	r.dispatched++
	select {
	case r.jobs <- j:
		return nil
	default:
	}
	if r.workers < r.cfg.Publish.Window {
		r.workers++
		r.wg.Go(func() {
			for ok := true; ok; j, ok = <-r.jobs {
				r.publish(ctx, j)
			}
		})
		return nil
	}
	select {
	case r.jobs <- j:
		r.now = time.Now() // it may have been a while
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// finish notes how the round went, and where the next begins.
func (r *round) finish(ctx context.Context, stopped cursor, err error, took time.Duration) {
	s := r.Sentinel
	m := s.metrics
	published, failed := r.published.Load(), r.failed.Load()
	m.duration.Observe(took.Seconds())
	line := []any{
		"resources", r.resources, "due", r.dispatched, "published", published, "failed", failed, "took", took,
	}
	switch {
	case err == nil:
		s.start = beginning{at: s.pager.beginning(stopped)}
		m.pending.Set(float64(r.resources))
		m.oldestUnreconciled.Set(r.oldest.Seconds())
		m.memoryEntries.Set(float64(s.memory.sweep(r.number)))
		if failed == 0 || published > 0 {
			m.lastGoodRound.SetToCurrentTime()
		}
		s.log.InfoContext(ctx, "round done", line...)
	case ctx.Err() != nil:
		s.log.InfoContext(ctx, "round interrupted", line...)
	default:
		again := stopped == s.start.at
		s.start = beginning{}
		if (stopped.token != "" || stopped.page > 1) && !again {
			s.start = beginning{at: stopped, resources: r.resources, oldest: r.oldest}
		}
		m.apiErrors.Inc()
		r.setAPI(err)
		s.log.ErrorContext(ctx, "round broke off: resources not fetched", append(line, "err", err)...)
	}
}

func (r *round) noteFault(ctx context.Context, it *scan.Item) {
	r.tally.faults[it.Fault]++
	r.warn("fault "+it.Fault.String(), func(log *slog.Logger) {
		log.WarnContext(ctx, "resource is malformed", "resource_id", string(it.ID), "fault", it.Fault.String(),
			"field", it.Field, "skipped", it.Fault.Skips())
	})
}

func (r *round) noteWarning(ctx context.Context, it *scan.Item, v decision.Verdict) {
	if v.Err != nil {
		r.warn("decision", func(log *slog.Logger) {
			log.WarnContext(ctx, "message decision failed, the resource counts as due", "resource_id", string(it.ID), "err", v.Err)
		})
	}
	if v.Warning == decision.WarningNone {
		return
	}
	r.tally.warnings[v.Warning]++
	r.warn(v.Warning.String(), func(log *slog.Logger) {
		log.WarnContext(ctx, v.Warning.String(), //nolint:sloglint // the words of a closed set, as the specification has them
			"resource_id", string(it.ID), "generation", it.Resource.Generation, "observed_generation", it.Resource.ObservedGeneration)
	})
}
