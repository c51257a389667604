package simulation_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/fleetloop/fleetloop/devstack/simulation"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The default number of worlds without SEEDS. With the race detector, which makes a world twelve
// times as expensive, TestSimulation plays the first ones, and a program without it plays all.
const (
	seeds = 500
	raced = 100
	few   = 50 // with -short
)

// TestSimulation plays the worlds of many seeds, or the one that SEED names.
func TestSimulation(t *testing.T) {
	t.Parallel()
	if one := number(t, "SEED"); one >= 0 {
		world(t, uint64(one))
		return
	}
	n := number(t, "SEEDS")
	switch {
	case n >= 0:
	case testing.Short():
		n = few
	case raceEnabled:
		n = raced
	default:
		n = seeds
	}
	for seed := range uint64(n) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			world(t, seed)
		})
	}
}

// TestSimulationWithoutRaceDetector builds these tests without the race detector, and plays all
// worlds and larger storms.
func TestSimulationWithoutRaceDetector(t *testing.T) {
	t.Parallel()
	if !raceEnabled || testing.Short() || number(t, "SEED") >= 0 || number(t, "SEEDS") >= 0 {
		t.Skip("TestSimulation plays all worlds that are asked for")
	}
	program := filepath.Join(t.TempDir(), "simulation.test")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-race=false", "-trimpath", "-tags=grpcnotrace", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the tests: %v\n%s", err, out)
	}
	run := exec.CommandContext(t.Context(), program, "-test.run=^Test(Simulation|Storm)$", "-test.timeout=25m", "-storm=10000")
	run.Env = append(os.Environ(), fmt.Sprint("SEEDS=", seeds))
	if out, err := run.CombinedOutput(); err != nil {
		t.Errorf("play %d worlds and two storms: %v\n%s", seeds, err, out)
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
