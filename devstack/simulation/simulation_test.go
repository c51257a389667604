package simulation_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/fleetloop/fleetloop/devstack/simulation"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The default number of worlds without SEEDS; a few with -short.
const (
	seeds = 500
	few   = 50
)

// TestSimulation plays the worlds of many seeds, or the one that SEED names.
func TestSimulation(t *testing.T) {
	t.Parallel()
	if one := number(t, "SEED"); one >= 0 {
		world(t, uint64(one))
		return
	}
	n := number(t, "SEEDS")
	if n < 0 {
		n = seeds
		if testing.Short() {
			n = few
		}
	}
	for seed := range uint64(n) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			world(t, seed)
		})
	}
}

// number returns an environment variable as a number, or -1 if it is not set.
func number(t *testing.T, name string) int64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return -1
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		t.Fatalf("%s=%q: want a number", name, text)
	}
	return n
}

func world(t *testing.T, seed uint64) {
	t.Helper()
	w := simulation.NewWorld(seed)
	h, breaches := play(t, w, simulation.Planted{}, nil)
	if len(breaches) > 0 {
		t.Error(simulation.Report(w, h, breaches))
	}
}

// play plays a world and finds breaches of its promise, or of another one.
func play(t *testing.T, w simulation.World, planted simulation.Planted, other func(*simulation.Promise)) (h *simulation.History, breaches []simulation.Breach) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var promise simulation.Promise
		var err error
		if h, promise, err = simulation.Simulate(t.Context(), w, planted); err != nil {
			t.Fatal(err)
		}
		if other != nil {
			other(&promise)
		}
		breaches = h.FindBreaches(promise)
	})
	return h, breaches
}
