package clusterworker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// errNotClaimed is why a worker that has not reached the database yet is not
// ready.
var errNotClaimed = errors.New("no response from database yet")

// A heartbeat says whether a loop makes progress. The zero value is one that does
// not run, and lives.
type heartbeat struct {
	// next is when progress is due at the latest, nil while nothing runs.
	next atomic.Pointer[time.Time]
}

// allowance is how long one step of a loop may take: much longer than any
// timeout within it.
const allowance = time.Minute

// noteProgress notes progress.
func (p *heartbeat) noteProgress() {
	next := time.Now().Add(allowance)
	p.next.Store(&next)
}

// noteIdle notes that there is nothing to do.
func (p *heartbeat) noteIdle() { p.next.Store(nil) }

func (p *heartbeat) checkProgress() error {
	next := p.next.Load()
	if next == nil || time.Now().Before(*next) {
		return nil
	}
	return fmt.Errorf("no progress since %s", next.Add(-allowance).UTC().Format(time.RFC3339))
}

// Live reports whether the loops make progress. That Gardener or the database
// is down is no reason to restart them.
func (w *Worker) Live() error {
	var errs []error
	if err := w.claimPulse.checkProgress(); err != nil {
		errs = append(errs, fmt.Errorf("claim clusters: %w", err))
	}
	if err := w.writePulse.checkProgress(); err != nil {
		errs = append(errs, fmt.Errorf("write results: %w", err))
	}
	return errors.Join(errs...)
}

// Ready reports why the worker can not do its work just now: nobody tells it of
// changes although somebody should, or the database does not let it claim. That
// Gardener is down is no reason: see Stats and the metrics.
func (w *Worker) Ready() error {
	var errs []error
	if w.waker != nil {
		if err := w.waker.Ready(); err != nil {
			errs = append(errs, fmt.Errorf("listen for notifications: %w", err))
		}
	}
	if err := w.claims.checkHealth(); err != nil {
		errs = append(errs, fmt.Errorf("claim clusters: %w", err))
	}
	return errors.Join(errs...)
}

// Warning says what does not make the worker unready and holds clusters up, empty if
// nothing does.
func (w *Worker) Warning() string {
	o := w.breaker.currentOutage()
	if o.Since.IsZero() {
		return ""
	}
	return fmt.Sprintf("gardener unavailable since %s, sync paused: %s", o.Since.UTC().Format(time.RFC3339), o.Reason)
}

// claimHangs is how long a claim may take before the worker is not ready.
const claimHangs = 5 * time.Second

// A claimHealth is how the last claim went.
type claimHealth struct {
	mu      sync.Mutex
	last    error     // of the last claim that ended
	since   time.Time // of a claim that runs, else zero
	good    time.Time // when the last good one ended
	overdue time.Time // when the next one should have begun at the latest, and some
}

// noteClaimStart notes a claim that begins.
func (h *claimHealth) noteClaimStart() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.since = time.Now()
}

// noteClaimEnd notes how it ended.
func (h *claimHealth) noteClaimEnd(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.since, h.last = time.Time{}, err
	if err == nil {
		h.good = time.Now()
	}
}

// expectWithin notes when the next one is due at the latest, by what is known now.
func (h *claimHealth) expectWithin(within time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.overdue = time.Now().Add(within + allowance)
}

func (h *claimHealth) checkHealth() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	switch {
	case h.last != nil:
		return h.last
	case h.good.IsZero():
		return errNotClaimed
	case !h.since.IsZero() && now.Sub(h.since) > claimHangs:
		return fmt.Errorf("no response from database for %s", now.Sub(h.since).Round(time.Second))
	case now.After(h.overdue):
		return fmt.Errorf("no claim has started since the last successful one at %s, the claim loop does not run", h.good.UTC().Format(time.RFC3339))
	}
	return nil
}

func (h *claimHealth) lastGood() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.good
}

// A dbWatch has one line logged when the database begins to fail and one when
// it works again, however many requests fail between. It works again when each
// kind of request does that failed, or was not needed any more.
type dbWatch struct {
	log   *slog.Logger
	began func()

	mu      sync.Mutex
	failing map[request]time.Time // since when it is known last
	since   time.Time
}

// notNeeded is how long ago a kind of request failed last that seems not to be
// needed any more.
const notNeeded = 5 * time.Minute

// noteRequest notes how a request went. Its kinds are a closed set.
func (d *dbWatch) noteRequest(ctx context.Context, kind request, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	if err != nil {
		if len(d.failing) == 0 {
			d.failing, d.since = map[request]time.Time{}, now
			d.began()
			d.log.ErrorContext(ctx, "database requests failing, retrying", "request", string(kind), "err", err)
		}
		d.failing[kind] = now
		return
	}
	if len(d.failing) == 0 {
		return
	}
	delete(d.failing, kind)
	maps.DeleteFunc(d.failing, func(_ request, last time.Time) bool { return now.Sub(last) > notNeeded })
	if len(d.failing) == 0 {
		d.log.InfoContext(ctx, "database available again", "after", now.Sub(d.since).Round(time.Millisecond))
	}
}

// failingKinds are the requests that fail.
func (d *dbWatch) failingKinds() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []string
	for kind := range d.failing {
		list = append(list, string(kind))
	}
	slices.Sort(list)
	return list
}

// Stats are what a worker is at, and what became of what it did so far.
type Stats struct {
	// Slots is how many calls may run, InFlight how many do, and Unwritten how
	// many claims there are about which nothing is written yet.
	Slots, InFlight, Unwritten int

	// Claimed rows came to be Synced, Failed or Lost, in which a try of a row
	// counts each time. Forgone ones were given up before their call, Released
	// ones given back at the end.
	Claimed, Synced, Failed, Lost, Forgone, Released uint64

	// LastClaim is when the database last gave rows, or said that there are
	// none.
	LastClaim time.Time

	// OutageSince is since when Gardener is down, zero if it is not.
	OutageSince time.Time
	// DatabaseFails are the requests to the database that fail just now.
	DatabaseFails []string
}

// Stats says what the worker is at.
func (w *Worker) Stats() Stats {
	running, _, unsettled := w.floor.currentLoad()
	return Stats{
		Slots: w.cfg.Slots, InFlight: running, Unwritten: unsettled,
		Claimed: w.counts.claimed.Load(), Synced: w.counts.synced.Load(), Failed: w.counts.failed.Load(),
		Lost: w.counts.lost.Load(), Forgone: w.counts.forgone.Load(), Released: w.counts.released.Load(),
		LastClaim: w.claims.lastGood(), OutageSince: w.breaker.currentOutage().Since, DatabaseFails: w.db.failingKinds(),
	}
}

// counts are what Stats tells.
type counts struct {
	claimed, synced, failed, lost, forgone, released atomic.Uint64
}
