package clusterworker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
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
// not, or the database does not let it claim. An outage of Gardener is no reason; DescribeOutageOrEmpty
// reports it.
func (w *Worker) Ready() error {
	var errs []error
	if w.deps.Waker != nil {
		if err := w.deps.Waker.Ready(); err != nil {
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
	outage := w.breaker.currentOutageOrZero()
	if outage.Since.IsZero() {
		return ""
	}
	return fmt.Sprintf("gardener unavailable since %s, sync paused: %s", outage.Since.UTC().Format(time.RFC3339), outage.Reason)
}

// claimHangs is how long a claim may take before the worker becomes unready.
const claimHangs = 5 * time.Second

// A claimHealth records the progress and result of the last claim.
type claimHealth struct {
	mu           sync.Mutex
	lastErr      error     // error of the last completed claim
	runningSince time.Time // start of a running claim, else zero
	lastSuccess  time.Time // end of the last successful claim
	overdueAt    time.Time // latest start of the next claim, with allowance
}

// recordClaimStart records the start of a claim.
func (h *claimHealth) recordClaimStart() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.runningSince = time.Now()
}

// recordClaimEnd records the end of a claim and its error.
func (h *claimHealth) recordClaimEnd(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.runningSince, h.lastErr = time.Time{}, err
	if err == nil {
		h.lastSuccess = time.Now()
	}
}

// expectClaimWithin sets the latest start of the next claim, as known now.
func (h *claimHealth) expectClaimWithin(wait time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.overdueAt = time.Now().Add(wait + allowance)
}

func (h *claimHealth) checkClaimHealth() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	switch {
	case h.lastErr != nil:
		return h.lastErr
	case h.lastSuccess.IsZero():
		return errNotClaimed
	case !h.runningSince.IsZero() && now.Sub(h.runningSince) > claimHangs:
		return fmt.Errorf("no response from database for %s", now.Sub(h.runningSince).Round(time.Second))
	case now.After(h.overdueAt):
		return fmt.Errorf(
			"no claim has started since the last successful one at %s, the claim loop does not run",
			h.lastSuccess.UTC().Format(time.RFC3339),
		)
	}
	return nil
}

// A databaseHealth logs one line when database requests begin to fail and one when they work
// again, however many fail in between. They work again when each kind of request that
// failed has succeeded or is no longer needed.
type databaseHealth struct {
	log           *slog.Logger
	onOutageStart func()

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
			d.onOutageStart()
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
