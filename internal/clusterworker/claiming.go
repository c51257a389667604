package clusterworker

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/fleetloop/fleetloop/internal/backoff"
)

// tick is how often the claimer looks at what does not wake it.
const tick = 250 * time.Millisecond

// A request is one to the database. The set is closed.
type request string

const (
	toClaim    request = "claim"
	toName     request = "name"
	toComplete request = "complete"
	toRelease  request = "release"
	toRenew    request = "renew"
	// toFindLease asks when the lease of another worker ends.
	toFindLease  request = "next_lease"
	toNoteOutage request = "set_outage"
)

// dbRetry is how requests to the database are repeated.
func dbRetry() backoff.Policy {
	return backoff.Policy{Initial: 50 * time.Millisecond, Max: 2 * time.Second}
}

// A claimer is the goroutine that claims rows and has them called for.
type claimer struct {
	*Worker
	schedule schedule
	wakes    <-chan struct{}

	failed int       // claims in a row
	hold   time.Time // until when a claim that failed is not repeated
	leases time.Time // when the leases of other workers are looked at again
}

func newClaimer(w *Worker) *claimer {
	c := &claimer{Worker: w, schedule: schedule{alarms: w.alarms, slots: w.cfg.Slots}}
	if w.waker != nil {
		c.wakes = w.waker.Wakes()
	}
	return c
}

// run claims until ctx ends. Calls run under calls; hard bounds what the
// database is asked, so that a claim which is under way at the end is not
// lost for the time of its lease.
func (c *claimer) run(ctx, calls, hard context.Context) {
	defer c.claimPulse.rest()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		c.claimPulse.beat()
		select {
		case _, open := <-c.wakes:
			c.heard(open)
		default:
		}
		wait := c.step(ctx, calls, hard)
		if wait <= 0 {
			continue
		}
		timer.Reset(min(wait, tick))
		select {
		case <-ctx.Done():
		case _, open := <-c.wakes:
			c.heard(open)
		case <-c.nudges:
		case <-timer.C:
		}
	}
}

// heard notes a notification.
func (c *claimer) heard(open bool) {
	if !open {
		c.wakes = nil
		return
	}
	now := time.Now()
	c.schedule.wake(now)
	c.woken.set(now)
}

// step claims if it is time, and gives how long to wait for that otherwise.
func (c *claimer) step(ctx, calls, hard context.Context) time.Duration {
	now := time.Now()
	listening := c.listening()
	if !listening {
		c.schedule.pollBy(now.Add(c.blindInterval()))
	}
	room, freed, more := c.floor.room()
	if room.Slots == 0 || c.breaker.isOpen() {
		c.claims.expect(c.cfg.PollInterval) // none is owed
		if !more.IsZero() {
			return min(tick, max(time.Millisecond, more.Sub(now)))
		}
		return tick // what ends that wakes us
	}
	if throttled := c.throttle.get().Sub(now); throttled > 0 {
		c.claims.expect(c.cfg.PollInterval)
		return throttled
	}
	c.awaitLeases(hard, now)
	at, why := c.schedule.next(room, freed)
	if c.hold.After(at) {
		at = c.hold
	}
	if at.After(now) {
		return at.Sub(now)
	}
	tickets, err := c.claim(hard, room)
	if err != nil {
		c.hold = time.Now().Add(dbRetry().Delay(c.failed))
		c.failed++
		// It may have been carried out, and only its answer is lost.
		c.alarms.set(time.Now().Add(c.cfg.Lease))
		return time.Until(c.hold)
	}
	c.failed = 0
	interval := c.cfg.PollInterval
	if !listening { // asked before the claim: what came before that is in it
		interval = c.blindInterval()
	}
	c.schedule.claimed(now, fills(tickets, room), interval)
	c.claims.expect(interval)
	c.metrics.claimed(why, len(tickets))
	c.dispatch(ctx, calls, hard, tickets)
	return 0
}

// fills says of which rows a claim got all that it asked for.
func fills(tickets []ticket, room Room) filled {
	n := 0
	for _, t := range tickets {
		if t.LastClass == ClassTimeout {
			n++
		}
	}
	return filled{all: len(tickets) >= room.Slots, timedOut: n >= room.TimedOut}
}

// awaitLeases has rows claimed when the lease of another worker ends, which may have
// died. It asks twice in the time of a lease, so that none ends unseen.
func (c *claimer) awaitLeases(hard context.Context, now time.Time) {
	if now.Before(c.leases) {
		return
	}
	c.leases = now.Add(c.cfg.Lease / 2)
	ctx, cancel := context.WithTimeoutCause(hard, storeTimeout, errStoreTimeout)
	defer cancel()
	in, ok, err := c.store.NextLease(ctx, c.owner)
	c.db.note(hard, toFindLease, err)
	if err != nil || !ok {
		return
	}
	ends := now.Add(in)
	c.alarms.set(ends)
	if again := ends.Add(grain); again.Before(c.leases) {
		c.leases = again // the one after it
	}
}

// claim takes up to room rows.
func (c *claimer) claim(hard context.Context, room Room) ([]ticket, error) {
	began := time.Now()
	c.claims.begin()
	rows, err := c.claimRows(hard, room)
	c.claims.end(err)
	c.db.note(hard, toClaim, err)
	if err != nil {
		return nil, err
	}
	tickets := make([]ticket, len(rows))
	for i, row := range rows {
		tickets[i] = ticket{Claim: row, claimed: began}
	}
	c.floor.admit(len(tickets))
	c.counts.claimed.Add(uint64(len(tickets)))
	return tickets, nil
}

func (c *claimer) claimRows(hard context.Context, room Room) ([]Claim, error) {
	ctx, cancel := context.WithTimeoutCause(hard, storeTimeout, errStoreTimeout)
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

// listening reports whether somebody tells us of changes.
func (w *Worker) listening() bool { return w.waker != nil && w.waker.Ready() == nil }

// blindInterval is how long to wait for the next poll while nobody does: each
// time another, so that several workers do not come to ask at the same time.
func (w *Worker) blindInterval() time.Duration {
	d := w.cfg.BlindPollInterval
	return d*8/10 + rand.N(d*4/10+1) //nolint:gosec // when a poll is made is no secret
}

// dispatch has rows called for: first those that have a name.
func (c *claimer) dispatch(ctx, calls, hard context.Context, tickets []ticket) {
	var nameless []ticket
	for _, t := range tickets {
		switch {
		case ctx.Err() != nil:
			c.submit(givenBack(t))
		case t.ShootName == "":
			nameless = append(nameless, t)
		default:
			c.begin(calls, t)
		}
	}
	for n := 0; len(nameless) > 0; n++ {
		nameless = c.nameAndBegin(ctx, calls, hard, nameless, n)
	}
}

// begin has one row called for.
func (w *Worker) begin(calls context.Context, t ticket) {
	if !w.floor.enter(t) {
		w.submit(forgone(t))
		return
	}
	go w.call(calls, t)
}
