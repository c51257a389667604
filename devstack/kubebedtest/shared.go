package kubebedtest

import (
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

// A bed is a control plane or a garden.
type bed interface {
	// Ready returns an error if one of the bed's programs has ended.
	Ready() error
	Stop() error
}

// A sharedBed is the bed of this test process.
type sharedBed[B bed] struct {
	kind  string // for messages
	log   *slog.Logger
	start func() (B, error)

	showing sync.Map // tests that show the logs when they fail

	mu      sync.Mutex
	started bool
	bed     B
}

// newNoBed returns a shared bed for a package whose TestMain does not call the named function.
func newNoBed[B bed](function string) *sharedBed[B] {
	return &sharedBed[B]{start: func() (bed B, err error) {
		return bed, fmt.Errorf("call kubebedtest.%s from TestMain", function)
	}}
}

// newSharedBed returns a shared bed that start starts at its first use.
func newSharedBed[B bed](kind string, log *slog.Logger, start func() (B, error)) *sharedBed[B] {
	s := &sharedBed[B]{kind: kind, log: log}
	s.start = sync.OnceValues(func() (B, error) {
		bed, err := start()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.bed, s.started = bed, err == nil
		return bed, err
	})
	return s
}

// newWarningLogger returns a logger of warnings: a first build takes minutes and should not look like a hang.
func newWarningLogger() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// verifyTestMain runs the tests, stops the bed and checks for leaked goroutines.
func (s *sharedBed[B]) verifyTestMain(m goleak.TestingM, options ...goleak.Option) {
	goleak.VerifyTestMain(bedStoppingRunner[B]{m, s}, options...)
}

type bedStoppingRunner[B bed] struct {
	m goleak.TestingM
	s *sharedBed[B]
}

// Run runs the tests and stops the bed, so that its goroutines are gone before the leak check.
func (r bedStoppingRunner[B]) Run() int {
	code := r.m.Run()
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	if !r.s.started {
		return code
	}
	died := r.s.bed.Ready()
	if err := r.s.bed.Stop(); err != nil || died != nil {
		r.s.log.Error("stop the bed of the tests", "bed", r.s.kind, "err", err, "ended_before", died)
		return max(code, 1)
	}
	return code
}

// startOnceAndShowLogs returns the bed, and calls showLogs the first time that a test requests it.
func (s *sharedBed[B]) startOnceAndShowLogs(tb testing.TB, showLogs func(B)) B {
	tb.Helper()
	bed, err := s.start()
	if err != nil {
		tb.Fatal(err)
	}
	if _, shows := s.showing.LoadOrStore(tb, nil); !shows {
		showLogs(bed)
		tb.Cleanup(func() { s.showing.Delete(tb) })
	}
	return bed
}
