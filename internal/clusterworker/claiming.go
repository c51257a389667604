package clusterworker

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/fleetloop/fleetloop/internal/backoff"
)

// tick is the longest time that the claimer sleeps, for changes that do not wake it.
const tick = 250 * time.Millisecond

// A request is a kind of database request. The set is closed.
type request string

const (
	toClaim    request = "claim"
	toName     request = "name"
	toComplete request = "complete"
	toRelease  request = "release"
	toRenew    request = "renew"
	// toFindLease asks when the next lease of another worker ends.
	toFindLease  request = "next_lease"
	toNoteOutage request = "set_outage"
)

// dbRetry returns the backoff of repeated database requests.
func dbRetry() backoff.Policy {
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
		c.wakes = w.waker.Wakes()
	}
	return c
}

// runClaims claims rows until ctx ends. Calls run under callCtx. dbCtx limits database requests,
// so that a claim in progress at shutdown is not lost for the time
// of its lease.
func (c *claimer) runClaims(ctx, callCtx, dbCtx context.Context) {
	defer c.claimPulse.noteIdle()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		c.claimPulse.noteProgress()
		select {
		case _, open := <-c.wakes:
			c.noteNotification(open)
		default:
		}
		wait := c.claimAndDispatchIfDue(ctx, callCtx, dbCtx)
		if wait <= 0 {
			continue
		}
		timer.Reset(min(wait, tick))
		select {
		case <-ctx.Done():
		case _, open := <-c.wakes:
			c.noteNotification(open)
		case <-c.nudges:
		case <-timer.C:
		}
	}
}

// noteNotification records a notification.
func (c *claimer) noteNotification(channelOpen bool) {
	if !channelOpen {
		c.wakes = nil
		return
	}
	now := time.Now()
	c.schedule.noteNotification(now)
	c.woken.setTime(now)
	// It may announce a pause that ends before the next check.
	if soon := c.looked.Add(recheckAfter); soon.Before(c.leases) {
		c.leases = soon
	}
}

// recheckAfter is the least time between two checks of leases and pauses.
const recheckAfter = time.Second

// claimAndDispatchIfDue claims rows if a claim is due, and returns the wait until then otherwise.
func (c *claimer) claimAndDispatchIfDue(ctx, callCtx, dbCtx context.Context) (wait time.Duration) {
	now := time.Now()
	listening := c.listening()
	if !listening {
		c.schedule.pollBy(now.Add(c.blindInterval()))
	}
	room, freed, more := c.floor.freeRoom()
	if room.Slots == 0 || c.breaker.isOpen() {
		c.claims.expectWithin(c.cfg.PollInterval) // no claim is due
		if !more.IsZero() {
			return min(tick, max(time.Millisecond, more.Sub(now)))
		}
		return tick // the end of either condition wakes the claimer
	}
	if throttled := c.throttle.notBefore().Sub(now); throttled > 0 {
		c.claims.expectWithin(c.cfg.PollInterval)
		return throttled
	}
	c.alarmAtNextLeaseEnd(dbCtx, now)
	at, why := c.schedule.nextClaim(room, freed)
	if c.hold.After(at) {
		at = c.hold
	}
	if at.After(now) {
		return at.Sub(now)
	}
	tickets, err := c.claimBatch(dbCtx, room)
	if err != nil {
		c.hold = time.Now().Add(dbRetry().Delay(c.failed))
		c.failed++
		// The claim may have been carried out, with only its answer lost.
		c.alarms.setAlarm(time.Now().Add(c.cfg.Lease))
		return time.Until(c.hold)
	}
	c.failed = 0
	interval := c.cfg.PollInterval
	if !listening { // read before the claim: earlier changes are part of it
		interval = c.blindInterval()
	}
	c.schedule.noteClaim(now, limitsReached(tickets, room), interval)
	c.claims.expectWithin(interval)
	c.metrics.countClaim(why, len(tickets))
	c.dispatchRows(ctx, callCtx, dbCtx, tickets)
	return 0
}

// limitsReached reports for which rows a claim returned all that it asked for.
func limitsReached(tickets []ticket, room Room) filled {
	n := 0
	for _, t := range tickets {
		if t.LastClass == ClassTimeout {
			n++
		}
	}
	return filled{all: len(tickets) >= room.Slots, timedOut: n >= room.TimedOut}
}

// alarmAtNextLeaseEnd sets an alarm for the end of another worker's lease, as that worker may
// have died, or of a pause. It queries twice per lease duration and after notifications, so that
// none ends unnoticed.
func (c *claimer) alarmAtNextLeaseEnd(dbCtx context.Context, now time.Time) {
	if now.Before(c.leases) {
		return
	}
	c.looked, c.leases = now, now.Add(c.cfg.Lease/2)
	ctx, cancel := context.WithTimeoutCause(dbCtx, storeTimeout, errStoreTimeout)
	defer cancel()
	in, ok, err := c.store.NextLeaseEndOfOthers(ctx, c.owner)
	c.db.noteRequest(dbCtx, toFindLease, err)
	if err != nil || !ok {
		return
	}
	ends := now.Add(in)
	c.alarms.setAlarm(ends)
	if again := ends.Add(grain); again.Before(c.leases) {
		c.leases = again // the lease after it
	}
}

// claimBatch claims as many rows as room allows.
func (c *claimer) claimBatch(dbCtx context.Context, room Room) ([]ticket, error) {
	began := time.Now()
	c.claims.noteClaimStart()
	rows, err := c.claimRows(dbCtx, room)
	c.claims.noteClaimEnd(err)
	c.db.noteRequest(dbCtx, toClaim, err)
	if err != nil {
		return nil, err
	}
	tickets := make([]ticket, len(rows))
	for i, row := range rows {
		tickets[i] = ticket{Claim: row, claimed: began}
	}
	c.floor.admitClaims(len(tickets))
	c.counts.claimed.Add(uint64(len(tickets)))
	return tickets, nil
}

func (c *claimer) claimRows(dbCtx context.Context, room Room) ([]Claim, error) {
	ctx, cancel := context.WithTimeoutCause(dbCtx, storeTimeout, errStoreTimeout)
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
	return c.store.Claim(ctx, c.owner, room, c.cfg.Lease)
}

// listening reports whether the worker receives notifications of changes.
func (w *Worker) listening() bool { return w.waker != nil && w.waker.Ready() == nil }

// blindInterval returns the wait for the next poll without notifications. It is random,
// so that several workers do not synchronize their polls.
func (w *Worker) blindInterval() time.Duration {
	d := w.cfg.BlindPollInterval
	return d*8/10 + rand.N(d*4/10+1) //nolint:gosec // when a poll is made is no secret
}

// dispatchRows starts the calls of rows, first of those that have a name.
func (c *claimer) dispatchRows(ctx, callCtx, dbCtx context.Context, tickets []ticket) {
	var nameless []ticket
	for _, t := range tickets {
		switch {
		case ctx.Err() != nil:
			c.submitOutcome(givenBack(t))
		case t.ShootName == "":
			nameless = append(nameless, t)
		default:
			c.startCall(callCtx, t)
		}
	}
	for n := 0; len(nameless) > 0; n++ {
		nameless = c.nameAndStartCalls(ctx, callCtx, dbCtx, nameless, n)
	}
}

// startCall starts the call of one row.
func (w *Worker) startCall(callCtx context.Context, t ticket) {
	if !w.floor.beginCall(t) {
		w.submitOutcome(expiredOutcome(t))
		return
	}
	go w.syncRow(callCtx, t)
}
