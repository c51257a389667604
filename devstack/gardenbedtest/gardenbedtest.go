// Package gardenbedtest provides one garden for the tests of a package, and a project
// in it for each test.
//
// The first test that requests it starts the garden; Main stops it at the end. If the
// process is killed, the programs die with it. A failed test shows the output of the
// programs since its start.
package gardenbedtest

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/fleetloop/fleetloop/devstack/gardenbed"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
)

// A shared bed is the garden of this test process.
type shared struct {
	options gardenbed.Options
	start   func() (*gardenbed.Bed, error)

	showing sync.Map // tests that show the logs when they fail

	projects atomic.Int64

	mu  sync.Mutex
	bed *gardenbed.Bed
}

//nolint:gochecknoglobals // one garden per test process; testing offers no other place to keep it
var current = &shared{start: func() (*gardenbed.Bed, error) {
	return nil, fmt.Errorf("call gardenbedtest.Main from TestMain")
}}

// Main runs the tests of a package, checks for leaked goroutines, and stops the garden
// if a test started it. Call it from TestMain.
func Main(m *testing.M, o gardenbed.Options, options ...goleak.Option) {
	if o.Kube.Log == nil { // a first build takes minutes and should not look like a hang
		o.Kube.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	s := &shared{options: o}
	s.start = sync.OnceValues(s.startBed)
	current = s
	goleak.VerifyTestMain(runner{m, s}, options...)
}

type runner struct {
	m *testing.M
	s *shared
}

// Run runs the tests and stops the garden, so that its goroutines are gone before the
// leak check.
func (r runner) Run() int {
	code := r.m.Run()
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	if r.s.bed == nil {
		return code
	}
	died := r.s.bed.Ready()
	if err := r.s.bed.Stop(); err != nil || died != nil {
		r.s.options.Kube.Log.Error("stop the garden of the tests", "err", err, "ended_before", died)
		return max(code, 1)
	}
	return code
}

func (s *shared) startBed() (*gardenbed.Bed, error) {
	bed, err := gardenbed.Start(context.Background(), s.options)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bed = bed
	return bed, err
}

// Bed returns the garden of this package's tests.
func Bed(tb testing.TB) *gardenbed.Bed {
	tb.Helper()
	bed, err := current.start()
	if err != nil {
		tb.Fatal(err)
	}
	if _, shows := current.showing.LoadOrStore(tb, nil); !shows {
		kubebedtest.ShowLogsOnFailure(tb, bed.Kube())
		tb.Cleanup(func() { current.showing.Delete(tb) })
	}
	return bed
}

// Project creates a project for the test and returns its name and namespace. The name
// is short, as together with that of a Shoot it may have 21 characters. The project
// stays as long as the garden.
func Project(tb testing.TB) (name, namespace string) {
	tb.Helper()
	name = fmt.Sprintf("test%d", current.projects.Add(1))
	namespace, err := Bed(tb).NewProject(tb.Context(), name)
	if err != nil {
		tb.Fatal(err)
	}
	return name, namespace
}

// Gardenlet runs a gardenlet for the Shoots of a namespace until the test ends.
func Gardenlet(tb testing.TB, bed *gardenbed.Bed, o gardenbed.GardenletOptions) *gardenbed.Gardenlet {
	tb.Helper()
	g, err := gardenbed.NewGardenlet(bed.Config(), o)
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			tb.Errorf("the gardenlet: %v", err)
		}
	})
	return g
}
