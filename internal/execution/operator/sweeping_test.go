package operator

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// A search counts how often the audit was searched.
type search struct {
	of    atomic.Pointer[string]
	times atomic.Int32
	fails atomic.Bool
}

func (s *search) RecordMissedDeletions(_ context.Context, namespace string, _ func(context.Context, types.NamespacedName, types.UID) (bool, error)) (int, error) {
	s.of.Store(&namespace)
	s.times.Add(1)
	if s.fails.Load() {
		return 0, errors.New("the database is away")
	}
	return 1, nil
}

// TestSweeps verifies that the audit is searched immediately, with backoff after failures, and
// rarely otherwise.
func TestSweeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var by search
		by.fails.Store(true)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		s := &deletionSweeper{namespace: namespace, closer: &by, log: slog.New(slog.DiscardHandler)}
		go func() { ended <- s.Start(ctx) }()
		want := func(after time.Duration, times int32) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if got := by.times.Load(); got != times || *by.of.Load() != namespace {
				t.Errorf("searched %d times, want %d", got, times)
			}
		}
		want(0, 1)
		want(sweepRetryDelay-time.Second, 1)
		want(time.Second, 2)
		want(2*sweepRetryDelay-time.Second, 2)
		want(time.Second, 3)
		want(sweepInterval, 11) // after 1, 2, 4, 8, and each 10 minutes
		by.fails.Store(false)
		want(maxSweepRetryDelay/2, 12)
		want(sweepInterval-time.Second, 12)
		want(time.Second, 13)
		by.fails.Store(true)
		want(sweepInterval, 14)
		by.fails.Store(false)
		want(sweepRetryDelay, 15)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
