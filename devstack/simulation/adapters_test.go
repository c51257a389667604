package simulation

import (
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// Adapters answer events with reports: promptly, late or never, depending on the resource.
type Adapters struct {
	Fleet *Fleet
	Dice  Dice

	// Late and Never are the numbers, out of ten resources, whose adapters answer late, or never.
	Late, Never int

	// Patience is the maximum delay of a late answer.
	Patience time.Duration

	closed atomic.Bool
}

// ScheduleReport delivers an event to the adapters of its resource.
func (a *Adapters) ScheduleReport(e *Event) {
	lot := a.Dice.For("adapter", e.Resource).IntN(10)
	dice := a.Dice.For("report", e.Resource, e.Generation, time.Since(e.LastUpdated))
	delay := Between(dice, 10*time.Millisecond, 2*time.Second)
	switch {
	case lot < a.Never:
		return
	case lot < a.Never+a.Late:
		delay = Between(dice, time.Second, a.Patience)
	}
	observed := e.Generation
	if Chance(dice, 0.1) {
		observed-- // still working
	}
	well := Chance(dice, 0.8)
	time.AfterFunc(delay, func() {
		if !a.closed.Load() {
			a.Fleet.Report(e.Resource, observed, well)
		}
	})
}

// Close stops the answers.
func (a *Adapters) Close() { a.closed.Store(true) }

// UUIDs returns ids, the same for the same dice.
func UUIDs(dice *rand.Rand, n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = newUUID(dice)
	}
	return ids
}
