package budget

import (
	"fmt"
	"time"
)

// A denialReason is the reason of a denial. It is a metric label with a closed set of values.
type denialReason string

const (
	reasonLevel   denialReason = "max_nodes"
	reasonHeld    denialReason = "recovering"
	reasonRate    denialReason = "window"
	reasonLatched denialReason = "manual_reset"
	reasonForeign denialReason = "not_selected"
)

func allDenialReasons() []denialReason {
	return []denialReason{reasonLevel, reasonHeld, reasonRate, reasonLatched, reasonForeign}
}

// checkLimitsAndRecordExhaustion returns why no other node of a pool may be taken out of service. It also
// records whether the budget of the pool is exhausted.
func (b *Budget) checkLimitsAndRecordExhaustion(pool string, c poolCounts, now time.Time) (why denialReason, denial string) {
	level, rate := b.cfg.limitsFor(c.members)
	tripped, is := b.trips[pool]
	if is && tripped.latched {
		return reasonLatched, fmt.Sprintf("the budget of %s was exhausted at %s and waits for a manual reset: %s", clusterOrQuotedPool(pool), formatUTC(tripped.since), c)
	}
	switch {
	case c.outOfServiceExceptCandidate()+1 > level:
		why, denial = reasonLevel, fmt.Sprintf("budget exhausted: %s in %s, at most %d allowed", c, clusterOrQuotedPool(pool), level)
	case b.cfg.Window > 0 && c.recent+1 > rate:
		why, denial = reasonRate, fmt.Sprintf("budget exhausted: %d nodes of %s were taken out of service within %s, at most %d allowed", c.recent, clusterOrQuotedPool(pool), b.cfg.Window, rate)
	case is && tripped.why == reasonLevel && c.outOfServiceExceptCandidate() > resumeThreshold(level):
		return reasonHeld, fmt.Sprintf("budget exhausted: %s in %s, at most %d allowed; further nodes wait until at most %d are out of service", c, clusterOrQuotedPool(pool), level, max(0, resumeThreshold(level)))
	default:
		delete(b.trips, pool)
		return "", ""
	}
	if !is || tripped.why != why && tripped.why == reasonRate {
		b.trips[pool] = exhaustion{why: why, since: now, latched: b.cfg.OnExhausted == ManualReset}
	}
	return why, denial
}

// clusterOrQuotedPool returns the name of a pool as used in a denial.
func clusterOrQuotedPool(pool string) string {
	if pool == "" {
		return "the cluster"
	}
	return fmt.Sprintf("pool %q", pool)
}

func formatUTC(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// CloseUntilReset closes the budget of a pool until Reset. A new process uses it to restore a
// budget that was closed before.
func (b *Budget) CloseUntilReset(pool string, since time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.trips[pool] = exhaustion{why: reasonLevel, since: since, latched: true}
}

// Reset opens the budget of a pool, and reports whether it was exhausted.
func (b *Budget) Reset(pool string) (wasExhausted bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, was := b.trips[pool]
	delete(b.trips, pool)
	return was
}

// A Pool is the state of the budget of a pool.
type Pool struct {
	Name string
	// Members is the number of nodes of the pool. Most is how many of them may be out of
	// service.
	Members, Most int
	// Ours are quarantined, Cordoned are cordoned by others, and NotReady are not ready.
	// Each node counts once, in this order.
	Ours, Cordoned, NotReady int
	// Recent is the number of nodes that were taken out of service within the window.
	// MostRecent is its limit.
	Recent, MostRecent int
	// Exhausted means that the last request was denied, or would still be. Latched means
	// that this lasts until Reset.
	Exhausted, Latched bool
	// Since is when the budget was exhausted.
	Since time.Time
}

// OutOfService returns how many nodes are out of service.
func (p Pool) OutOfService() int { return p.Ours + p.Cordoned + p.NotReady }

// Status returns the state of the budgets of all pools, sorted by name.
func (b *Budget) Status(now time.Time) []Pool {
	b.mu.Lock()
	defer b.mu.Unlock()
	counts := b.countPoolsAndUpdateState(nil, now)
	var pools []Pool
	for _, name := range sortedPoolNames(counts) {
		c := counts[name]
		p := Pool{Name: name, Members: c.members, Ours: c.ours, Cordoned: c.cordoned, NotReady: c.notReady, Recent: c.recent}
		p.Most, p.MostRecent = b.cfg.limitsFor(c.members)
		if t, is := b.trips[name]; is {
			over := t.why == reasonLevel && p.OutOfService() > resumeThreshold(p.Most) || t.why == reasonRate && p.Recent >= p.MostRecent
			if !t.latched && !over {
				delete(b.trips, name)
			} else {
				p.Exhausted, p.Latched, p.Since = true, t.latched, t.since
			}
		}
		pools = append(pools, p)
	}
	return pools
}
