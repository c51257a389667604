package state

import (
	"sync"
	"time"
)

// BudgetConfig configures a budget. Zero fields mean their defaults, unless they say otherwise.
type BudgetConfig struct {
	Factor float64       // rate limit, as a multiple of the steady rate; default 1.5
	Floor  float64       // minimum rate limit in events per second; default 100
	Burst  time.Duration // interval whose events may all come at once; default 1 s

	// Max is the maximum number of events per second, including urgent ones. The events of one
	// burst may come at once. Zero means no limit.
	Max float64
}

// reservedShare is the part of the budget that urgent events cannot use up: one in so many.
const reservedShare = 4 // one in four

// A Budget limits how many events may be published now. Create it with NewBudget. It is safe for
// concurrent use.
//
// After an outage everything is due at once. The budget lets a fleet catch up slightly faster than
// its steady rate, so that the consumers of the events are not flooded. It holds for every interval
// of length BudgetConfig.Burst, including the first one after the outage: unspent budget is not
// saved. A caller that works in rounds sets Burst slightly shorter than the interval between them.
// Otherwise a round that starts early still finds the events of the last round counted.
//
// Events about a changed spec do not wait for the budget. They are counted, so that other events
// wait for them, but a quarter of the budget is reserved for the other events. Otherwise a fleet
// that is patched without end would get no events by age.
//
// Time is an argument. A time before the latest one counts as the latest one, so that setting back
// the clock stops nothing.
type Budget struct {
	cfg BudgetConfig

	mu     sync.Mutex
	begin  time.Time // has a monotonic clock reading, if there is one
	steady float64   // events per second; see SetSteadyRate
	window spendingWindow

	// compensatedAt is when earlier spending is compensated. Before that, nothing is available.
	compensatedAt time.Duration
}

// NewBudget returns an unspent budget.
func NewBudget(cfg BudgetConfig, now time.Time) *Budget {
	if cfg.Factor <= 0 {
		cfg.Factor = 1.5
	}
	if cfg.Floor <= 0 {
		cfg.Floor = 100
	}
	if cfg.Burst <= 0 {
		cfg.Burst = time.Second
	}
	roundedUp := (cfg.Burst + windowSteps - 1) / windowSteps
	return &Budget{cfg: cfg, begin: now, window: spendingWindow{step: roundedUp}}
}

// CopyWithConfig returns a budget that continues this one with another configuration: recent
// spending still counts. If more was spent than the new configuration allows, nothing is left until
// that is compensated, but for no longer than a burst of the old one.
func (b *Budget) CopyWithConfig(cfg BudgetConfig, now time.Time) *Budget {
	b.mu.Lock()
	defer b.mu.Unlock()
	successor := NewBudget(cfg, b.begin)
	successor.steady = b.steady
	elapsed := now.Sub(b.begin)
	b.window.advanceToAndDropOld(elapsed)
	b.window.addSpendingTo(&successor.window, elapsed)

	spentOthers := b.window.sum[spentOther]
	recovery := successor.computeRecoveryTime(spentOthers, successor.maxNonUrgentRateLocked())
	if successor.cfg.Max > 0 {
		spentAll := spentOthers + b.window.sum[spentUrgent]
		recovery = max(recovery, successor.computeRecoveryTime(spentAll, successor.cfg.Max))
	}
	successor.compensatedAt = max(b.compensatedAt, elapsed+min(recovery, b.cfg.Burst))
	return successor
}

// computeRecoveryTime returns how long a rate takes to compensate for the events above one burst of it.
func (b *Budget) computeRecoveryTime(spentEvents int, eventsPerSecond float64) time.Duration {
	excess := spentEvents - b.countEventsPerBurst(eventsPerSecond)
	seconds := max(0, float64(excess)/eventsPerSecond)
	return time.Duration(seconds * float64(time.Second))
}

// SetSteadyRate sets the steady rate: the events per second that the ages of the fleet produce when
// nothing is late.
func (b *Budget) SetSteadyRate(eventsPerSecond float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.steady = eventsPerSecond
}

// MaxNonUrgentRate returns the maximum number of non-urgent events per second.
func (b *Budget) MaxNonUrgentRate() (eventsPerSecond float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.maxNonUrgentRateLocked()
}

func (b *Budget) maxNonUrgentRateLocked() (eventsPerSecond float64) {
	rate := max(b.cfg.Floor, b.cfg.Factor*b.steady)
	if b.cfg.Max > 0 {
		rate = min(rate, b.cfg.Max)
	}
	return rate
}

// TryTakeUrgent spends an event about a changed generation. It returns false only if no event at
// all may be published now.
func (b *Budget) TryTakeUrgent(now time.Time) (taken bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	elapsed := now.Sub(b.begin)
	b.window.advanceToAndDropOld(elapsed)
	mustCompensate := b.cfg.Max > 0 && elapsed < b.compensatedAt
	if b.countRemainingUnderMax() <= 0 || mustCompensate {
		return false
	}
	b.window.countSpentEvent(spentUrgent)
	return true
}

// TryTakeNonUrgent spends any other event, and reports whether one was left.
func (b *Budget) TryTakeNonUrgent(now time.Time) (taken bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.countAvailableNonUrgentLocked(now) <= 0 {
		return false
	}
	b.window.countSpentEvent(spentOther)
	return true
}

// CountAvailableNonUrgent returns how many times TryTakeNonUrgent would return true.
func (b *Budget) CountAvailableNonUrgent(now time.Time) (events int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.countAvailableNonUrgentLocked(now)
}

func (b *Budget) countAvailableNonUrgentLocked(now time.Time) (events int) {
	elapsed := now.Sub(b.begin)
	b.window.advanceToAndDropOld(elapsed)
	if elapsed < b.compensatedAt {
		return 0
	}
	perBurst := b.countEventsPerBurst(b.maxNonUrgentRateLocked())
	reserved := max(1, perBurst/reservedShare) // urgent events cannot use it
	spent := b.window.sum
	leftOfReserved := reserved - spent[spentOther]
	leftOfAll := perBurst - spent[spentOther] - spent[spentUrgent]
	return max(0, min(b.countRemainingUnderMax(), max(leftOfReserved, leftOfAll)))
}

// countRemainingUnderMax returns how many events of either kind may still be published.
func (b *Budget) countRemainingUnderMax() (events int) {
	if b.cfg.Max <= 0 {
		return unboundedEvents
	}
	return b.countEventsPerBurst(b.cfg.Max) - b.window.sum[spentUrgent] - b.window.sum[spentOther]
}

// countEventsPerBurst returns how many events a rate produces in a burst. It is at least one, because
// otherwise there would never be an event.
func (b *Budget) countEventsPerBurst(eventsPerSecond float64) (events int) {
	return int(min(max(1, eventsPerSecond*b.cfg.Burst.Seconds()), unboundedEvents))
}

const unboundedEvents = 1 << 40
