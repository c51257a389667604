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

// errNotClaimed makes a worker unready before its first answer from the database.
var errNotClaimed = errors.New("no response from database yet")

// A heartbeat records whether a loop makes progress. The zero value is a loop that does
// not run and counts as live.
type heartbeat struct {
	// next is the deadline of the next progress, nil while nothing runs.
	next atomic.Pointer[time.Time]
}

// allowance is how long one step of a loop may take. It is much longer than any timeout
// within the step.
const allowance = time.Minute

// recordProgress records progress.
func (p *heartbeat) recordProgress() {
	next := time.Now().Add(allowance)
	p.next.Store(&next)
}

// recordIdle records that the loop has nothing to do.
func (p *heartbeat) recordIdle() { p.next.Store(nil) }

func (p *heartbeat) checkProgress() error {
	next := p.next.Load()
	if next == nil || time.Now().Before(*next) {
		return nil
	}
	return fmt.Errorf("no progress since %s", next.Add(-allowance).UTC().Format(time.RFC3339))
}

// CheckLive returns an error if a loop makes no progress. An outage of Gardener or the
// database is no reason to restart the loops.
func (w *Worker) CheckLive() error {
	var errs []error
	if err := w.claimPulse.checkProgress(); err != nil {
		errs = append(errs, fmt.Errorf("claim clusters: %w", err))
	}
	if err := w.writePulse.checkProgress(); err != nil {
		errs = append(errs, fmt.Errorf("write results: %w", err))
	}
	return errors.Join(errs...)
}

// Ready returns why the worker cannot work at present. It should receive notifications and does
// not, or the database does not let it claim. An outage of Gardener is no reason: see Stats and the
// metrics.
func (w *Worker) Ready() error {
	var errs []error
	if w.waker != nil {
		if err := w.waker.Ready(); err != nil {
			errs = append(errs, fmt.Errorf("listen for notifications: %w", err))
		}
	}
	if err := w.claims.checkClaimHealth(); err != nil {
		errs = append(errs, fmt.Errorf("claim clusters: %w", err))
	}
	return errors.Join(errs...)
}

// DescribeOutageOrEmpty describes conditions that hold clusters up without making the worker unready,
// empty if there are none.
func (w *Worker) DescribeOutageOrEmpty() string {
	o := w.breaker.currentOutageOrZero()
	if o.Since.IsZero() {
		return ""
	}
	return fmt.Sprintf("gardener unavailable since %s, sync paused: %s", o.Since.UTC().Format(time.RFC3339), o.Reason)
}

// claimHangs is how long a claim may take before the worker becomes unready.
const claimHangs = 5 * time.Second

// A claimHealth records the progress and result of the last claim.
type claimHealth struct {
	mu      sync.Mutex
	last    error     // error of the last completed claim
	since   time.Time // start of a running claim, else zero
	good    time.Time // end of the last successful claim
	overdue time.Time // latest start of the next claim, with allowance
}

// recordClaimStart records the start of a claim.
func (h *claimHealth) recordClaimStart() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.since = time.Now()
}

// recordClaimEnd records the end of a claim and its error.
func (h *claimHealth) recordClaimEnd(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.since, h.last = time.Time{}, err
	if err == nil {
		h.good = time.Now()
	}
}

// expectClaimWithin sets the latest start of the next claim, as known now.
func (h *claimHealth) expectClaimWithin(wait time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.overdue = time.Now().Add(wait + allowance)
}

func (h *claimHealth) checkClaimHealth() error {
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

func (h *claimHealth) lastSuccessfulClaim() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.good
}

// A databaseHealth logs one line when database requests begin to fail and one when they work
// again, however many fail in between. They work again when each kind of request that
// failed has succeeded or is no longer needed.
type databaseHealth struct {
	log   *slog.Logger
	began func()

	mu      sync.Mutex
	failing map[requestKind]time.Time // by kind, the last failure
	since   time.Time
}

// notNeeded is the age of a kind's last failure after which the kind counts as no
// longer needed.
const notNeeded = 5 * time.Minute

// recordRequestResult records the result of a request. Its kinds are a closed set.
func (d *databaseHealth) recordRequestResult(ctx context.Context, kind requestKind, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	if err != nil {
		if len(d.failing) == 0 {
			d.failing, d.since = map[requestKind]time.Time{}, now
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
	maps.DeleteFunc(d.failing, func(_ requestKind, last time.Time) bool { return now.Sub(last) > notNeeded })
	if len(d.failing) == 0 {
		d.log.InfoContext(ctx, "database available again", "after", now.Sub(d.since).Round(time.Millisecond))
	}
}

// listFailingRequestKinds returns the kinds of requests that fail.
func (d *databaseHealth) listFailingRequestKinds() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []string
	for kind := range d.failing {
		list = append(list, string(kind))
	}
	slices.Sort(list)
	return list
}

// Stats are the current load of a worker and the totals of its results.
type Stats struct {
	// Slots is how many calls may run, InFlight how many run, and Unwritten how many
	// claims have no written result.
	Slots, InFlight, Unwritten int

	// Claimed rows end as Synced, Failed or Lost; each try of a row counts. Forgone
	// ones were given up before their call, and Released ones were released at
	// shutdown.
	Claimed, Synced, Failed, Lost, Forgone, Released uint64

	// LastClaim is when the database last answered a claim, even one without rows.
	LastClaim time.Time

	// OutageSince is when the outage of Gardener began, zero without an outage.
	OutageSince time.Time
	// DatabaseFails are the kinds of database requests that fail at present.
	DatabaseFails []string
}

// CollectStats returns the current load and totals of the worker.
func (w *Worker) CollectStats() Stats {
	running, _, unsettled := w.floor.countCallsAndClaims()
	return Stats{
		Slots: w.cfg.Slots, InFlight: running, Unwritten: unsettled,
		Claimed: w.counts.claimed.Load(), Synced: w.counts.synced.Load(), Failed: w.counts.failed.Load(),
		Lost: w.counts.lost.Load(), Forgone: w.counts.forgone.Load(), Released: w.counts.released.Load(),
		LastClaim: w.claims.lastSuccessfulClaim(), OutageSince: w.breaker.currentOutageOrZero().Since, DatabaseFails: w.db.listFailingRequestKinds(),
	}
}

// counts are the totals of Stats.
type counts struct {
	claimed, synced, failed, lost, forgone, released atomic.Uint64
}
