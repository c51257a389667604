package simulation_test

import (
	"testing"
	"time"

	"github.com/fleetloop/fleetloop/devstack/simulation"
	"github.com/fleetloop/fleetloop/internal/sentinel"
)

// TestSweepFindsWhatTheFeedMissed: a feed that leaves changes out makes them
// late by a full sweep, and loses none. Without sweeps they are lost.
func TestSweepFindsWhatTheFeedMissed(t *testing.T) {
	t.Parallel()
	const sweeps = 20 * time.Second
	play := func(every time.Duration) (simulation.World, *simulation.History, []simulation.Breach) {
		w := calm()
		w.Config.Source = sentinel.Sources{Mode: sentinel.ModeWatch, FullSweepInterval: every}
		h, breaches := play(t, w, simulation.Planted{Late: 200 * time.Millisecond}, func(p *simulation.Promise) {
			p.Swift = 0
			p.Wait += sweeps * 6 / 5 // they are up to a fifth later
			p.Stale += sweeps * 6 / 5
		})
		return w, h, breaches
	}
	if w, h, breaches := play(sweeps); len(breaches) > 0 {
		t.Error(simulation.Report(w, h, breaches))
	}
	for range 10 { // what a feed that is late leaves out depends on who comes first
		if _, _, breaches := play(time.Hour); len(breaches) > 0 {
			return
		}
	}
	t.Error("no sweep, and nothing was lost: the feed misses nothing")
}
