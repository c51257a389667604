package simulation

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/fleetloop/fleetloop/internal/sentinel"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// A World is the plan of a simulation: everything that a seed decides.
type World struct {
	Seed   uint64
	Config sentinel.Config

	Features Features
	API      time.Duration // its slowest response without faults
	Broker   time.Duration // its slowest confirmation
	Late     int           // out of ten adapters
	Never    int
	Demote   bool

	IDs    []string
	Steps  []Step
	Faults []Fault
	Clock  []Jump
	Ends   []End

	// Others holds the ends of further sentinels that divide the resources with the first one. At
	// each of Shuffles the resources are divided anew.
	Others   [][]End
	Shuffles []time.Duration

	// Active is how long events are planned. The world then runs without changes until all promises
	// are due.
	Active time.Duration
}

// A Jump sets the API's clock ahead of the local clock by Offset.
type Jump struct{ After, Offset time.Duration }

// An End is a stop or a crash of the sentinel, which starts anew after a while. With a
// configuration it is a change of the configuration, and another sentinel continues at once.
type End struct {
	After, Down time.Duration
	Crash       bool
	Change      *sentinel.Config
}

// String returns the end in the notation of a world.
func (e End) String() string {
	if e.Change == nil {
		return fmt.Sprintf("ends after %s for %s, crash=%t", e.After, e.Down, e.Crash)
	}
	return fmt.Sprintf("changes after %s: poll %s, page size %d, window %d, mode %s",
		e.After, e.Change.PollInterval, e.Change.HyperfleetAPI.PageSize, e.Change.Publish.Window, e.Change.Source.Mode)
}

// memberEnds returns the ends of each sentinel.
func (w *World) memberEnds() [][]End { return append([][]End{w.Ends}, w.Others...) }

// region is the label that the selector uses.
const region = "region"

// NewWorld returns the world of a seed. Every fifth is calm: owners and adapters act, without any
// faults.
func NewWorld(seed uint64) World {
	dice := Dice(seed).For("world")
	w := World{
		Seed:     seed,
		Features: randomFeatures(dice),
		API:      OneOf(dice, 4*time.Millisecond, 40*time.Millisecond),
		Broker:   OneOf(dice, 2*time.Millisecond, 50*time.Millisecond),
		Late:     dice.IntN(4),
		Never:    dice.IntN(4),
		Demote:   Chance(dice, 0.5),
		IDs:      UUIDs(dice, 5+dice.IntN(30)),
		Active:   Between(dice, time.Minute, 3*time.Minute),
	}
	w.Config = randomConfig(dice)
	w.addSteps(dice)
	if seed%5 != 0 {
		w.addFaults(dice)
		w.addEnds(dice)
		w.addClockJumps(dice)
	}
	w.addConfigChanges(Dice(seed).For("changes"))
	w.addOtherSentinels(Dice(seed).For("others"))
	return w
}

// Calm reports whether the world has no faults. A change of the configuration is not a fault.
func (w *World) Calm() bool {
	return len(w.Faults)+len(w.Clock)+len(w.Others) == 0 && !w.restartsSentinel()
}

// restartsSentinel reports whether the sentinel must start anew.
func (w *World) restartsSentinel() bool {
	return slices.ContainsFunc(w.Ends, func(e End) bool { return e.Change == nil })
}

// changesConfig reports whether the configuration changes.
func (w *World) changesConfig() bool {
	return slices.ContainsFunc(w.Ends, func(e End) bool { return e.Change != nil })
}

func randomFeatures(dice *rand.Rand) Features {
	level := dice.IntN(5)
	return Features{
		Keyset: level >= 1, ETag: level >= 2, Cursor: level >= 3, Watch: level >= 4,
		Most: OneOf(dice, 3, 10, 10, 500),
	}
}

func randomConfig(dice *rand.Rand) sentinel.Config {
	return sentinel.Config{
		ResourceType:   "clusters",
		PollInterval:   OneOf(dice, time.Second, 2*time.Second, 5*time.Second, 5*time.Second),
		MaxAgeNotReady: OneOf(dice, 3*time.Second, 10*time.Second),
		MaxAgeReady:    OneOf(dice, 20*time.Second, 40*time.Second),
		LabelSelector:  OneOf(dice, "", region+"=east", region+" in (east,west)"),
		HyperfleetAPI: sentinel.API{
			Timeout:  OneOf(dice, time.Second, 3*time.Second),
			PageSize: OneOf(dice, 3, 10, 10, 500),
		},
		Source: sentinel.Sources{
			Mode: OneOf(dice, sentinel.ModeAuto, sentinel.ModeAuto, sentinel.ModeAuto,
				sentinel.ModeSweep, sentinel.ModeETag, sentinel.ModeCursor, sentinel.ModeWatch),
			FullSweepInterval: OneOf(dice, 20*time.Second, time.Minute, 10*time.Minute),
		},
		Jitter: OneOf(dice, 0, 0, 0.2),
		MessageData: settings.OrderedMap{
			{Key: "generation", Value: ".generation"},
			{Key: "reason", Value: "{{reason}}"},
			{Key: "phase", Value: ".status.phase"},
			{Key: "updated", Value: ".updated_time"},
			{Key: "reported", Value: ".status.last_updated_time"},
			{Key: "decided", Value: "cel:now"},
		},
		Publish: sentinel.Publish{
			Window:         OneOf(dice, 1, 4, 32),
			Timeout:        OneOf(dice, time.Second, 2*time.Second),
			Attempts:       OneOf(dice, 1, 3),
			InitialBackoff: 100 * time.Millisecond,
			MaxBackoff:     time.Second,
			CatchUpFloor:   OneOf[float64](dice, 20, 100),
		},
		ShutdownTimeout: OneOf(dice, time.Second, 3*time.Second),
	}
}

// addSteps adds the steps of the owners.
func (w *World) addSteps(dice *rand.Rand) {
	at := func() time.Duration { return Between(dice, 0, w.Active) }
	for _, id := range w.IDs {
		born := Step{Deed: Create, Resource: id}
		if Chance(dice, 0.3) {
			born.After = at()
		}
		w.Steps = append(w.Steps, born)
		for range dice.IntN(6) {
			s := Step{After: born.After + at(), Resource: id, Times: 1}
			switch dice.IntN(12) {
			case 0:
				s.Deed, s.Times, s.Gap = Patch, 2+dice.IntN(20), 50*time.Millisecond
			case 1: // without an end
				s.Deed, s.Times, s.Gap = Patch, 2+dice.IntN(60), Between(dice, 200*time.Millisecond, 2*time.Second)
			case 2:
				s.Deed = Delete
			case 3:
				s.Deed = Remove
			case 4, 5:
				s.Deed = MoveOut
			case 6, 7:
				s.Deed = MoveIn
			case 8:
				s.Deed = OwnerReport
			default:
				s.Deed = Patch
			}
			w.Steps = append(w.Steps, s)
		}
	}
}

// addFaults adds the faults: some episodes of one or two kinds each.
func (w *World) addFaults(dice *rand.Rand) {
	for range 1 + dice.IntN(6) {
		from := Between(dice, 0, w.Active)
		length := Between(dice, 100*time.Millisecond, 25*time.Second)
		for range 1 + dice.IntN(2) {
			f := Fault{
				Kind: Kind(dice.UintN(uint(NumKinds))),
				From: from, To: min(from+length, w.Active),
				P: OneOf(dice, 0.2, 0.7, 1),
			}
			if f.Kind == Withdrawn {
				f.P, f.Features = 1, w.Features
				f.Features.Watch = false
				f.Features.Cursor = f.Features.Cursor && Chance(dice, 0.5)
				f.Features.ETag = f.Features.Cursor
				f.Features.Keyset = f.Features.Keyset && (f.Features.Cursor || Chance(dice, 0.7))
			}
			w.Faults = append(w.Faults, f)
		}
	}
}

// addEnds adds the stops and crashes.
func (w *World) addEnds(dice *rand.Rand) {
	after := time.Duration(0)
	for range dice.IntN(4) {
		after += Between(dice, 0, w.Active/3)
		w.Ends = append(w.Ends, End{After: after, Down: Between(dice, 0, 8*time.Second), Crash: Chance(dice, 0.6)})
	}
}

// addConfigChanges adds changes of the configuration, in a third of the worlds. They make nothing slower,
// so that the promise for the first configuration is valid for all.
func (w *World) addConfigChanges(dice *rand.Rand) {
	if dice.IntN(3) > 0 {
		return
	}
	for range 1 + dice.IntN(8) {
		c := w.Config
		c.PollInterval = min(c.PollInterval, OneOf(dice, time.Second, 2*time.Second, 5*time.Second))
		c.HyperfleetAPI.PageSize = max(c.HyperfleetAPI.PageSize, OneOf(dice, 3, 10, 500))
		c.Publish.Window = max(c.Publish.Window, OneOf(dice, 1, 4, 32))
		c.Source.Mode = OneOf(dice, c.Source.Mode, sentinel.ModeAuto, sentinel.ModeSweep, sentinel.ModeETag, sentinel.ModeCursor, sentinel.ModeWatch)
		w.Ends = append(w.Ends, End{After: Between(dice, 0, w.Active), Change: &c})
	}
	slices.SortStableFunc(w.Ends, func(a, b End) int { return cmp.Compare(a.After, b.After) })
}

// addOtherSentinels adds sentinels that divide the resources with the first one, in a third of the worlds
// with faults.
func (w *World) addOtherSentinels(dice *rand.Rand) {
	if w.Seed%5 == 0 || dice.IntN(3) > 0 {
		return
	}
	for range 1 + dice.IntN(2) {
		ends := []End{}
		after := time.Duration(0)
		for range dice.IntN(3) {
			after += Between(dice, 0, w.Active/2)
			ends = append(ends, End{After: after, Down: Between(dice, 0, 15*time.Second), Crash: Chance(dice, 0.6)})
		}
		w.Others = append(w.Others, ends)
	}
	for range dice.IntN(4) {
		w.Shuffles = append(w.Shuffles, Between(dice, 0, w.Active))
	}
}

// addClockJumps adds the errors of the API's clock.
func (w *World) addClockJumps(dice *rand.Rand) {
	if Chance(dice, 0.5) {
		return
	}
	for range 1 + dice.IntN(3) {
		offset := OneOf(dice, time.Second, 30*time.Second, 2*time.Minute, time.Hour)
		offset = Between(dice, -offset, offset)
		w.Clock = append(w.Clock, Jump{After: Between(dice, 0, w.Active), Offset: offset})
	}
}

// Promise returns what the sentinel guarantees in this world. It depends only on
// the configuration. The modes send different requests, but the promise is the
// same: changes are pulled, or resources looked up, in no more requests than a
// list has pages and resources.
//
// A round requests all resources and waits for all confirmations. Without
// faults it takes
//
//	round = requests × (latency of the API + 1/requests per second) + ⌈resources ÷ window⌉ × latency of the broker
//
// and a change may just miss the current round, so it waits for the rest of the
// poll interval, or of the round if that is longer, and for the next round:
//
//	wait = max(poll, round) + round
//
// After a fault an attempt to publish may hang until its timeout and is then
// delayed by a backoff, and both make a round longer. An interrupted round is
// followed, after a poll interval, by one that only reads the rest:
//
//	wait = poll + max(poll, round) + round
//
// A resource that is due by age also waits for the budget, which is at least the
// floor. The steady rate s uses a part of it, but the budget is at least 1.5 s:
// the worst case is s = ⅔ floor, which leaves a third of the floor.
//
//	patience = 3 × resources ÷ floor
//
// While a watch is open, a change waits only for the events before it.
func (w *World) Promise(begin time.Time) Promise {
	cfg := &w.Config
	n := len(w.IDs)
	confirms := time.Duration((n+cfg.Publish.Window-1)/cfg.Publish.Window) * w.Broker
	requests := n/min(cfg.HyperfleetAPI.PageSize, w.Features.Most) + 2
	if !w.Features.Cursor || w.withdraws(func(f Features) bool { return !f.Cursor }) {
		requests += n // each one is looked up alone
	}
	fetch := time.Duration(requests) * (w.API + 5*time.Millisecond)
	round := fetch + confirms
	p := Promise{
		Wait:     max(cfg.PollInterval, round) + round,
		Patience: time.Duration(3 * float64(n) / cfg.Publish.CatchUpFloor * float64(time.Second)),
		Stale:    2*w.API + round,
		Stop:     cfg.ShutdownTimeout,
		NotReady: cfg.MaxAgeNotReady, Ready: cfg.MaxAgeReady,
		Early: func(resource string) float64 { return cfg.ComputeEarlyFraction([]byte(resource)) },
		Calm:  w.Calm(), Clocks: len(w.Clock) > 0,
		Drifts: !w.Features.Keyset || w.withdraws(func(f Features) bool { return !f.Keyset }),
	}
	if p.Calm && !w.changesConfig() && w.Features.Watch && (cfg.Source.Mode == sentinel.ModeAuto || cfg.Source.Mode == sentinel.ModeWatch) {
		p.Swift, p.Settled = 2*confirms+100*time.Millisecond, begin.Add(2*round+time.Second)
	}
	if !p.Calm {
		attempt := cfg.Publish.Timeout + cfg.Publish.MaxBackoff
		round += attempt
		p.Wait = cfg.PollInterval + max(cfg.PollInterval, round) + round
		// While the window is full of unconfirmed events, resources that were read wait.
		p.Stale = cfg.HyperfleetAPI.Timeout + time.Duration(n*cfg.Publish.Attempts)*attempt
	}
	return p
}

// withdraws reports whether the API is ever rolled back to a version without a feature.
func (w *World) withdraws(lacks func(Features) bool) bool {
	return slices.ContainsFunc(w.Faults, func(f Fault) bool { return f.Kind == Withdrawn && lacks(f.Features) })
}

// String returns the decisions of a seed.
func (w *World) String() string {
	var b strings.Builder
	c := &w.Config
	fmt.Fprintf(&b, "features %+v, source %+v, jitter %v, poll %s, ages %s and %s, selector %q, timeout %s, page size %d, publish %+v\n",
		w.Features, c.Source, c.Jitter, c.PollInterval, c.MaxAgeNotReady, c.MaxAgeReady, c.LabelSelector, c.HyperfleetAPI.Timeout, c.HyperfleetAPI.PageSize, c.Publish)
	fmt.Fprintf(&b, "%d resources, %d/10 adapters late and %d/10 silent, active for %s, clock %v\n", len(w.IDs), w.Late, w.Never, w.Active, w.Clock)
	for i, ends := range w.memberEnds() {
		for _, e := range ends {
			fmt.Fprintf(&b, "sentinel %d: %s\n", i, e)
		}
	}
	if len(w.Others) > 0 {
		fmt.Fprintf(&b, "%d sentinels divide the resources, and anew after %v\n", 1+len(w.Others), w.Shuffles)
	}
	for _, f := range w.Faults {
		fmt.Fprintf(&b, "%s\n", f)
	}
	return b.String()
}
