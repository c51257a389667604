package clusterworker

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/fleetloop/fleetloop/internal/backoff"
)

// tick is the longest time that the claimer sleeps, for changes that do not wake it.
const tick = 250 * time.Millisecond

// A requestKind is a kind of database request. The set is closed.
type requestKind string

const (
	toClaim    requestKind = "claim"
	toName     requestKind = "name"
	toComplete requestKind = "complete"
	toRelease  requestKind = "release"
	toRenew    requestKind = "renew"
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
	*Worker
	schedule schedule
	wakes    <-chan struct{}

	failed int       // consecutive failed claims
	hold   time.Time // no claim before this time after a failed one
	leases time.Time // time of the next check of other workers' leases and of pauses
	looked time.Time // time of the last one
}

func newClaimer(w *Worker) *claimer {
	c := &claimer{Worker: w, schedule: schedule{alarms: w.alarms, slots: w.cfg.Slots}}
	if w.waker != nil {
		c.wakes = w.waker.NotificationChannel()
	}
	return c
}

// claimUntilDone claims rows until ctx ends. Calls run under callCtx. databaseCtx limits database requests,
// so that a claim in progress at shutdown is not lost for the time
// of its lease.
func (c *claimer) claimUntilDone(ctx, callCtx, databaseCtx context.Context) {
	defer c.claimPulse.recordIdle()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		c.claimPulse.recordProgress()
		select {
		case _, open := <-c.wakes:
			c.scheduleClaimOnNotification(open)
		default:
		}
		wait := c.claimRowsAndStartCallsIfDue(ctx, callCtx, databaseCtx)
		if wait <= 0 {
			continue
		}
		timer.Reset(min(wait, tick))
		select {
		case <-ctx.Done():
		case _, open := <-c.wakes:
			c.scheduleClaimOnNotification(open)
		case <-c.nudges:
		case <-timer.C:
		}
	}
}

// scheduleClaimOnNotification makes a claim due, or stops receiving if the channel is closed.
func (c *claimer) scheduleClaimOnNotification(channelOpen bool) {
	if !channelOpen {
		c.wakes = nil
		return
	}
	now := time.Now()
	c.schedule.startClaimBurst(now)
	c.woken.recordNotification(now)
	// It may announce a pause that ends before the next check.
	if soon := c.looked.Add(recheckAfter); soon.Before(c.leases) {
		c.leases = soon
	}
}

// recheckAfter is the least time between two checks of leases and pauses.
const recheckAfter = time.Second

// claimRowsAndStartCallsIfDue claims rows if a claim is due, and returns the wait until then otherwise.
func (c *claimer) claimRowsAndStartCallsIfDue(ctx, callCtx, databaseCtx context.Context) (waitUntilDue time.Duration) {
	now := time.Now()
	listening := c.isListening()
	if !listening {
		c.schedule.setPollIfEarlier(now.Add(c.randomPollIntervalWithoutNotifications()))
	}
	room, freed, more := c.floor.currentClaimLimits()
	if room.Slots == 0 || c.breaker.isOpen() {
		c.claims.expectClaimWithin(c.cfg.PollInterval) // no claim is due
		if !more.IsZero() {
			return min(tick, max(time.Millisecond, more.Sub(now)))
		}
		return tick // the end of either condition wakes the claimer
	}
	if throttled := c.throttle.waitEnd().Sub(now); throttled > 0 {
		c.claims.expectClaimWithin(c.cfg.PollInterval)
		return throttled
	}
	c.setAlarmAtOthersNextLeaseEnd(databaseCtx, now)
	at, why := c.schedule.nextClaimTime(room, freed)
	if c.hold.After(at) {
		at = c.hold
	}
	if at.After(now) {
		return at.Sub(now)
	}
	tickets, err := c.claimRowsAndCount(databaseCtx, room)
	if err != nil {
		c.hold = time.Now().Add(databaseRetryPolicy().Delay(c.failed))
		c.failed++
		// The claim may have been carried out, with only its answer lost.
		c.alarms.addAlarm(time.Now().Add(c.cfg.Lease))
		return time.Until(c.hold)
	}
	c.failed = 0
	interval := c.cfg.PollInterval
	if !listening { // read before the claim: earlier changes are part of it
		interval = c.randomPollIntervalWithoutNotifications()
	}
	c.schedule.recordClaim(now, checkClaimLimitsReached(tickets, room), interval)
	c.claims.expectClaimWithin(interval)
	c.metrics.countClaimQuery(why, len(tickets))
	c.nameShootsAndStartCalls(ctx, callCtx, databaseCtx, tickets)
	return 0
}

// checkClaimLimitsReached reports for which rows a claim returned all that it asked for.
func checkClaimLimitsReached(claims []timedClaim, limits ClaimLimits) reachedLimits {
	n := 0
	for _, t := range claims {
		if t.LastClass == ClassTimeout {
			n++
		}
	}
	return reachedLimits{all: len(claims) >= limits.Slots, timedOut: n >= limits.TimedOut}
}

// setAlarmAtOthersNextLeaseEnd sets an alarm for the end of a pause or of another worker's lease. That
// worker may have died. It queries twice per lease duration and after notifications, so that none
// ends unnoticed.
func (c *claimer) setAlarmAtOthersNextLeaseEnd(databaseCtx context.Context, now time.Time) {
	if now.Before(c.leases) {
		return
	}
	c.looked, c.leases = now, now.Add(c.cfg.Lease/2)
	ctx, cancel := context.WithTimeoutCause(databaseCtx, storeTimeout, errStoreTimeout)
	defer cancel()
	in, ok, err := c.store.FindNextLeaseEndOfOthers(ctx, c.owner)
	c.db.recordRequestResult(databaseCtx, toFindLease, err)
	if err != nil || !ok {
		return
	}
	ends := now.Add(in)
	c.alarms.addAlarm(ends)
	if again := ends.Add(grain); again.Before(c.leases) {
		c.leases = again // the lease after it
	}
}

// claimRowsAndCount claims as many rows as limits allow, and counts them.
func (c *claimer) claimRowsAndCount(databaseCtx context.Context, limits ClaimLimits) (claims []timedClaim, err error) {
	began := time.Now()
	c.claims.recordClaimStart()
	rows, err := c.loadInstallationAndClaimRows(databaseCtx, limits)
	c.claims.recordClaimEnd(err)
	c.db.recordRequestResult(databaseCtx, toClaim, err)
	if err != nil {
		return nil, err
	}
	claims = make([]timedClaim, len(rows))
	for i, row := range rows {
		claims[i] = timedClaim{Claim: row, claimed: began}
	}
	c.floor.addClaims(len(claims))
	c.counts.claimed.Add(uint64(len(claims)))
	return claims, nil
}

func (c *claimer) loadInstallationAndClaimRows(databaseCtx context.Context, limits ClaimLimits) ([]Claim, error) {
	ctx, cancel := context.WithTimeoutCause(databaseCtx, storeTimeout, errStoreTimeout)
	defer cancel()
	if c.installation == "" {
		id, err := c.askInstallation(ctx)
		if err != nil {
			return nil, err
		}
		if id == "" {
			return nil, errNoInstallation
		}
		c.installation = id
	}
	return c.store.ClaimRows(ctx, c.owner, limits, c.cfg.Lease)
}

// isListening reports whether the worker receives notifications of changes.
func (w *Worker) isListening() bool { return w.waker != nil && w.waker.Ready() == nil }

// randomPollIntervalWithoutNotifications returns the wait for the next poll without notifications. It is random,
// so that several workers do not synchronize their polls.
func (w *Worker) randomPollIntervalWithoutNotifications() time.Duration {
	d := w.cfg.BlindPollInterval
	return d*8/10 + rand.N(d*4/10+1) //nolint:gosec // when a poll is made is no secret
}

// nameShootsAndStartCalls starts the calls of rows, first of those that have a name.
func (c *claimer) nameShootsAndStartCalls(ctx, callCtx, databaseCtx context.Context, claims []timedClaim) {
	var nameless []timedClaim
	for _, t := range claims {
		switch {
		case ctx.Err() != nil:
			c.queueOutcomeAndWakeClaimer(newReleaseOutcome(t))
		case t.ShootName == "":
			nameless = append(nameless, t)
		default:
			c.startSyncOrAbandon(callCtx, t)
		}
	}
	for n := 0; len(nameless) > 0; n++ {
		nameless = c.storeNamesAndStartCalls(ctx, callCtx, databaseCtx, nameless, n)
	}
}

// startSyncOrAbandon starts the call of one row.
func (w *Worker) startSyncOrAbandon(callCtx context.Context, claim timedClaim) {
	if !w.floor.reserveSlot(claim) {
		w.queueOutcomeAndWakeClaimer(newAbandonedOutcome(claim))
		return
	}
	go w.syncClaimAndQueueOutcome(callCtx, claim)
}
