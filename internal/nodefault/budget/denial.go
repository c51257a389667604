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

// checkLimitsAndRecordExhaustion returns why no other node of a pool may be taken out of service.
// It also records whether the budget of the pool is exhausted.
func (b *Budget) checkLimitsAndRecordExhaustion(
	pool string, counts poolCounts, now time.Time,
) (why denialReason, denial string) {
	previous, wasExhausted := b.exhausted[pool]
	why, denial = b.checkLimits(pool, counts)
	switch why {
	case reasonLevel, reasonRate:
		// The first reason stands. But a pool that reaches max_nodes resumes later than one that
		// reaches the rate, so max_nodes replaces the rate.
		if !wasExhausted || previous.why == reasonRate && why == reasonLevel {
			b.exhausted[pool] = exhaustion{why: why, since: now, latched: b.cfg.OnExhausted == ManualReset}
		}
	case reasonHeld, reasonLatched, reasonForeign:
		// The budget stays exhausted.
	default:
		delete(b.exhausted, pool)
	}
	return why, denial
}

// checkLimits returns why no other node of a pool may be taken out of service, or "".
func (b *Budget) checkLimits(pool string, counts poolCounts) (why denialReason, denial string) {
	maxOutOfService, maxPerWindow := b.cfg.limitsFor(counts.members)
	resumeAt := resumeThreshold(maxOutOfService)
	others := counts.outOfServiceExceptCandidate()
	previous, wasExhausted := b.exhausted[pool]
	place := clusterOrQuotedPool(pool)
	switch {
	case wasExhausted && previous.latched:
		return reasonLatched, fmt.Sprintf("the budget of %s was exhausted at %s and waits for a manual reset: %s",
			place, formatUTC(previous.since), counts)
	case others+1 > maxOutOfService:
		return reasonLevel, fmt.Sprintf("budget exhausted: %s in %s, at most %d allowed",
			counts, place, maxOutOfService)
	case b.cfg.Window > 0 && counts.recent+1 > maxPerWindow:
		return reasonRate, fmt.Sprintf("budget exhausted: %d nodes of %s were taken out of service within %s, at most %d allowed",
			counts.recent, place, b.cfg.Window, maxPerWindow)
	case wasExhausted && previous.why == reasonLevel && others > resumeAt:
		return reasonHeld, fmt.Sprintf("budget exhausted: %s in %s, at most %d allowed; further nodes wait until at most %d are out of service",
			counts, place, maxOutOfService, max(0, resumeAt))
	default:
		return "", ""
	}
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
	b.exhausted[pool] = exhaustion{why: reasonLevel, since: since, latched: true}
}

// Reset opens the budget of a pool, and reports whether it was exhausted.
func (b *Budget) Reset(pool string) (wasExhausted bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, wasExhausted = b.exhausted[pool]
	delete(b.exhausted, pool)
	return wasExhausted
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

// Status returns the state of the budgets of all pools, sorted by name. It ends the exhaustion of a
// pool that a request would find below its limits.
func (b *Budget) Status(now time.Time) []Pool {
	b.mu.Lock()
	defer b.mu.Unlock()
	counts := b.countPoolsAndUpdateState(nil, now)
	var pools []Pool
	for _, name := range sortedPoolNames(counts) {
		c := counts[name]
		pool := Pool{
			Name:     name,
			Members:  c.members,
			Ours:     c.ours,
			Cordoned: c.cordoned,
			NotReady: c.notReady,
			Recent:   c.recent,
		}
		pool.Most, pool.MostRecent = b.cfg.limitsFor(c.members)
		if exhausted, ok := b.exhausted[name]; ok {
			if exhausted.latched || exhausted.stillExceeded(pool) {
				pool.Exhausted, pool.Latched, pool.Since = true, exhausted.latched, exhausted.since
			} else {
				delete(b.exhausted, name)
			}
		}
		pools = append(pools, pool)
	}
	return pools
}

// stillExceeded reports whether a request would still be denied for the same reason.
func (e exhaustion) stillExceeded(pool Pool) bool {
	switch e.why {
	case reasonLevel:
		return pool.OutOfService() > resumeThreshold(pool.Most)
	case reasonRate:
		return pool.Recent >= pool.MostRecent
	case reasonHeld, reasonLatched, reasonForeign:
		// They do not exhaust a budget.
	}
	return false
}
