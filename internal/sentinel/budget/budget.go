// Package budget says how many events may be published now.
//
// After an outage everything is due at once. The budget lets a fleet catch up
// at a little more than the rate that its ages call for in any case, so that
// the consumers of the events see no storm. It holds in every stretch of time
// of Config.Burst, the first one after the outage included: what was not spent
// is not saved up. Whoever asks in rounds makes Burst a little shorter than
// these are apart: a round that comes too early finds the last one's events
// still counted.
//
// Events about a changed spec do not wait for it. They are counted, so that
// others wait for them, but never all: a quarter of the budget is for those
// alone, or a fleet that is patched without end would not be looked after.
package budget

import (
	"sync"
	"time"
)

// Config is what the budget is made of. Fields that are zero mean their
// default, unless they say otherwise.
type Config struct {
	Factor float64       // what may be published, as a multiple of the steady rate; 1.5
	Floor  float64       // events per second that may be published in any case; 100
	Burst  time.Duration // a stretch of time, all of whose events may come at once; 1 s

	// Max is how many events may be published per second, urgent ones included,
	// those of a burst at once. Zero is no bound.
	Max float64
}

// share is the part of the budget that urgent events can not use up.
const share = 4 // one in four

// A Budget is made with New. It is safe for concurrent use.
//
// Time is an argument. One that lies before another that was given is taken
// for the later one, so that a clock that is set back stops nothing.
type Budget struct {
	cfg Config

	mu     sync.Mutex
	begin  time.Time // carries the monotonic clock, where there is one
	steady float64
	window window
	paid   time.Duration // when what was spent before is made up for
}

// New makes a budget that nothing was spent of.
func New(cfg Config, now time.Time) *Budget {
	if cfg.Factor <= 0 {
		cfg.Factor = 1.5
	}
	if cfg.Floor <= 0 {
		cfg.Floor = 100
	}
	if cfg.Burst <= 0 {
		cfg.Burst = time.Second
	}
	return &Budget{cfg: cfg, begin: now, window: window{step: (cfg.Burst + steps - 1) / steps}}
}

// Next makes a budget that goes on from this one with another configuration:
// what was spent lately is spent. If that is more than there would have been by
// the new one, nothing is left until it is made up for, for a burst of the old
// one at most.
func (b *Budget) Next(cfg Config, now time.Time) *Budget {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := New(cfg, b.begin)
	n.steady = b.steady
	at := now.Sub(b.begin)
	b.window.advanceTo(at)
	b.window.replayInto(&n.window, at)
	excess := n.excessDuration(b.window.sum[other], n.currentRate())
	if n.cfg.Max > 0 {
		excess = max(excess, n.excessDuration(b.window.sum[other]+b.window.sum[urgent], n.cfg.Max))
	}
	n.paid = max(b.paid, at+min(excess, b.cfg.Burst))
	return n
}

// excessDuration is how long a rate takes to make up for events that are more than one
// burst of it.
func (b *Budget) excessDuration(spent int, rate float64) time.Duration {
	return time.Duration(max(0, float64(spent-b.eventsPerBurst(rate))/rate) * float64(time.Second))
}

// Steady sets the steady rate: how many events per second the ages of the
// fleet call for when nothing is late.
func (b *Budget) Steady(perSecond float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.steady = perSecond
}

// Rate is how many events per second may be published that are not urgent.
func (b *Budget) Rate() float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.currentRate()
}

func (b *Budget) currentRate() float64 {
	rate := max(b.cfg.Floor, b.cfg.Factor*b.steady)
	if b.cfg.Max > 0 {
		rate = min(rate, b.cfg.Max)
	}
	return rate
}

// Urgent spends an event about a changed generation. It says no only if no
// event at all may be published any more.
func (b *Budget) Urgent(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := now.Sub(b.begin)
	b.window.advanceTo(at)
	if b.remainingEvents() <= 0 || b.cfg.Max > 0 && at < b.paid {
		return false
	}
	b.window.spendEvent(urgent)
	return true
}

// Take spends any other event, if there is one left.
func (b *Budget) Take(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.available(now) <= 0 {
		return false
	}
	b.window.spendEvent(other)
	return true
}

// Available is how many times Take would say yes.
func (b *Budget) Available(now time.Time) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.available(now)
}

func (b *Budget) available(now time.Time) int {
	at := now.Sub(b.begin)
	b.window.advanceTo(at)
	if at < b.paid {
		return 0
	}
	all := b.eventsPerBurst(b.currentRate())
	spent := b.window.sum
	own := max(1, all/share) - spent[other] // what no urgent event can take away
	return max(0, min(b.remainingEvents(), max(own, all-spent[other]-spent[urgent])))
}

// remainingEvents is how many events may be published at all.
func (b *Budget) remainingEvents() int {
	if b.cfg.Max <= 0 {
		return unbounded
	}
	return b.eventsPerBurst(b.cfg.Max) - b.window.sum[urgent] - b.window.sum[other]
}

// eventsPerBurst is how many events a rate makes of a burst: one at least, or there would
// never be any.
func (b *Budget) eventsPerBurst(rate float64) int {
	return int(min(max(1, rate*b.cfg.Burst.Seconds()), unbounded))
}

const unbounded = 1 << 40
