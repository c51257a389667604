package clusterworker

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/fleetloop/fleetloop/internal/backoff"
)

const (
	// tick is the longest time that the claimer sleeps, for changes that do not wake it.
	tick = 250 * time.Millisecond
	// recheckAfter is the least time between two checks of other workers' leases.
	recheckAfter = time.Second
)

// A requestKind is a kind of database request. The set is closed.
type requestKind string

const (
	toClaim    requestKind = "claim"
	toName     requestKind = "name"
	toComplete requestKind = "complete"
	// toRecordCreation records a creation whose result was lost.
	toRecordCreation requestKind = "record_creation"
	toRelease        requestKind = "release"
	toRenew          requestKind = "renew"
	// toFindLease asks when the next lease of another worker ends.
	toFindLease  requestKind = "next_lease"
	toNoteOutage requestKind = "set_outage"
)

// databaseRetryPolicy returns the backoff of repeated database requests.
func databaseRetryPolicy() backoff.Policy {
	return backoff.Policy{Initial: 50 * time.Millisecond, Max: 2 * time.Second}
}

// A claimer is the goroutine that claims rows and starts their calls.
type claimer struct {
	worker        *Worker
	schedule      schedule
	notifications <-chan struct{} // nil without notifications

	failures int       // consecutive failed claims
	retryAt  time.Time // no claim before this time after a failed one

	// Times of the last and of the next check of other workers' leases and of pauses.
	lastLeaseCheck, nextLeaseCheck time.Time
}

func newClaimer(w *Worker) *claimer {
	c := &claimer{worker: w, schedule: schedule{alarms: w.alarms, slots: w.cfg.Slots}}
	if w.deps.Waker != nil {
		c.notifications = w.deps.Waker.NotificationChannel()
	}
	return c
}

// claimUntilDone claims rows and starts their calls until ctx ends.
func (c *claimer) claimUntilDone(ctx context.Context) {
	w := c.worker
	defer w.claimPulse.recordIdle()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		w.claimPulse.recordProgress()
		select {
		case _, open := <-c.notifications:
			c.scheduleClaimOnNotification(open)
		default:
		}
		wait := c.claimRowsAndStartCallsIfDue(ctx)
		if wait <= 0 {
			continue
		}
		timer.Reset(min(wait, tick))
		select {
		case <-ctx.Done():
		case _, open := <-c.notifications:
			c.scheduleClaimOnNotification(open)
		case <-w.wakeups:
		case <-timer.C:
		}
	}
}

// scheduleClaimOnNotification makes a claim due, or stops receiving if the channel is closed.
func (c *claimer) scheduleClaimOnNotification(channelOpen bool) {
	if !channelOpen {
		c.notifications = nil
		return
	}
	now := time.Now()
	c.schedule.startClaimBurst(now)
	c.worker.notified.recordNotification(now)
	// It may announce a pause that ends before the next check.
	if recheckAt := c.lastLeaseCheck.Add(recheckAfter); recheckAt.Before(c.nextLeaseCheck) {
		c.nextLeaseCheck = recheckAt
	}
}

// claimRowsAndStartCallsIfDue claims rows if a claim is due, and returns the wait until then otherwise.
func (c *claimer) claimRowsAndStartCallsIfDue(ctx context.Context) (waitUntilDue time.Duration) {
	w, now := c.worker, time.Now()
	// Later changes send a notification if the worker listens now. Earlier ones are part of the claim.
	pollInterval := w.currentPollInterval()
	c.schedule.setPollIfEarlier(now.Add(pollInterval))
	limits, slotFreedAt, moreExpectedAt := w.limiter.currentClaimLimits()
	if wait := w.timeUntilClaimAllowed(limits, moreExpectedAt, now); wait > 0 {
		w.claims.expectClaimWithin(w.cfg.PollInterval) // no claim is due
		return wait
	}

	c.setAlarmAtOthersNextLeaseEnd(ctx, now)
	if ctx.Err() != nil {
		return 0
	}
	claimAt, cause := c.schedule.nextClaimTime(limits, slotFreedAt)
	if c.retryAt.After(claimAt) {
		claimAt = c.retryAt
	}
	if claimAt.After(now) {
		return claimAt.Sub(now)
	}

	claims, err := c.claimRowsAndAddToLimiter(ctx, limits)
	if err != nil {
		return c.scheduleRetryOfFailedClaim()
	}
	c.failures = 0
	c.schedule.recordClaim(now, checkClaimLimitsReached(claims, limits), pollInterval)
	w.claims.expectClaimWithin(pollInterval)
	w.metrics.countClaimQuery(cause, len(claims))
	c.nameShootsAndStartCalls(ctx, claims)
	return 0
}

// currentPollInterval returns the wait for the next poll. Without notifications it is short. It is also random then,
// so that several workers do not synchronize their polls.
func (w *Worker) currentPollInterval() time.Duration {
	isListening := w.deps.Waker != nil && w.deps.Waker.Ready() == nil
	if isListening {
		return w.cfg.PollInterval
	}
	interval := w.cfg.BlindPollInterval
	return interval*8/10 + rand.N(interval*4/10+1) //nolint:gosec // when a poll is made is no secret
}

// timeUntilClaimAllowed returns how long the worker may not claim any row, 0 if it may.
func (w *Worker) timeUntilClaimAllowed(limits ClaimLimits, moreExpectedAt, now time.Time) time.Duration {
	switch {
	case w.breaker.isOpen():
		return tick // the end of the outage wakes the claimer
	case limits.Slots == 0 && moreExpectedAt.IsZero():
		return tick // the end of a call wakes the claimer
	case limits.Slots == 0:
		return max(time.Millisecond, moreExpectedAt.Sub(now))
	default:
		return w.throttle.waitEnd().Sub(now)
	}
}

// setAlarmAtOthersNextLeaseEnd sets an alarm for the end of a pause or of another worker's lease. That
// worker may have died. It queries twice per lease duration and after notifications, so that none
// ends unnoticed.
func (c *claimer) setAlarmAtOthersNextLeaseEnd(ctx context.Context, now time.Time) {
	w := c.worker
	if now.Before(c.nextLeaseCheck) {
		return
	}
	c.lastLeaseCheck, c.nextLeaseCheck = now, now.Add(w.cfg.Lease/2)
	queryCtx, cancel := w.withQueryTimeout(ctx, storeTimeout)
	defer cancel()
	untilEnd, found, err := w.deps.Store.FindNextLeaseEndOfOthers(queryCtx, w.deps.Owner)
	w.db.recordRequestResult(ctx, toFindLease, err)
	if err != nil || !found {
		return
	}
	endsAt := now.Add(untilEnd)
	w.alarms.addAlarm(endsAt)
	// The next check finds the lease after this one.
	if afterEnd := endsAt.Add(grain); afterEnd.Before(c.nextLeaseCheck) {
		c.nextLeaseCheck = afterEnd
	}
}

// claimRowsAndAddToLimiter claims as many rows as limits allow, and counts them.
func (c *claimer) claimRowsAndAddToLimiter(ctx context.Context, limits ClaimLimits) (claims []timedClaim, err error) {
	w := c.worker
	began := time.Now()
	queryCtx, cancel := w.withQueryTimeout(ctx, storeTimeout)
	defer cancel()
	w.claims.recordClaimStart()
	rows, err := w.deps.Store.ClaimRows(queryCtx, w.deps.Owner, limits, w.cfg.Lease)
	w.claims.recordClaimEnd(err)
	w.db.recordRequestResult(ctx, toClaim, err)
	if err != nil {
		return nil, err
	}
	claims = make([]timedClaim, len(rows))
	for i, row := range rows {
		claims[i] = timedClaim{Claim: row, claimed: began}
	}
	w.limiter.addClaims(len(claims))
	return claims, nil
}

// withQueryTimeout limits a database request of the claimer. The request may outlive ctx: the rows of a claim whose
// answer is lost at shutdown would stay claimed until their leases end.
func (w *Worker) withQueryTimeout(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	graceCtx, release := withGracePeriod(ctx, w.cfg.StopTimeout)
	queryCtx, cancel := context.WithTimeoutCause(graceCtx, timeout, errStoreTimeout)
	return queryCtx, func() {
		cancel()
		release()
	}
}

// scheduleRetryOfFailedClaim delays the next claim, and returns the wait for it.
func (c *claimer) scheduleRetryOfFailedClaim() (wait time.Duration) {
	now := time.Now()
	wait = databaseRetryPolicy().Delay(c.failures)
	c.failures++
	c.retryAt = now.Add(wait)
	// The claim may have been carried out, with only its answer lost.
	c.worker.alarms.addAlarm(now.Add(c.worker.cfg.Lease))
	return wait
}

// checkClaimLimitsReached reports for which rows a claim returned all that it asked for.
func checkClaimLimitsReached(claims []timedClaim, limits ClaimLimits) reachedLimits {
	timedOut := 0
	for _, claim := range claims {
		if claim.LastClass == ClassTimeout {
			timedOut++
		}
	}
	return reachedLimits{all: len(claims) >= limits.Slots, timedOut: timedOut >= limits.TimedOut}
}

// nameShootsAndStartCalls starts the calls of rows, first of those that have a name.
func (c *claimer) nameShootsAndStartCalls(ctx context.Context, claims []timedClaim) {
	var nameless []timedClaim
	for _, claim := range claims {
		switch {
		case ctx.Err() != nil:
			c.worker.queueOutcomeAndWakeClaimer(newReleaseOutcome(claim))
		case claim.ShootName == "":
			nameless = append(nameless, claim)
		default:
			c.startSyncOrAbandon(ctx, claim)
		}
	}
	for choice := 0; len(nameless) > 0; choice++ {
		nameless = c.storeNamesAndStartCalls(ctx, nameless, choice)
	}
}

// startSyncOrAbandon starts the call of one row.
func (c *claimer) startSyncOrAbandon(ctx context.Context, claim timedClaim) {
	if !c.worker.limiter.reserveSlot(claim) {
		c.worker.queueOutcomeAndWakeClaimer(newAbandonedOutcome(claim))
		return
	}
	go c.worker.syncClaimAndQueueOutcome(ctx, claim)
}
