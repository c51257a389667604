package sentinel

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestPublishers checks the number of publishers: as many as necessary, within the limit, and none
// after a pause. A waiting caller always gets one, also one that is about to end.
func TestPublishers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 3
		p := newPublisherPool(limit)
		defer p.closeAndWait()
		count := func() int {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.n
		}
		var done atomic.Int32
		submit := func(n int, each time.Duration) {
			for range n {
				if _, err := p.submitWork(t.Context(), nil, func() { time.Sleep(each); done.Add(1) }); err != nil {
					t.Fatal(err)
				}
			}
		}
		submit(5, time.Second)
		if got := count(); got != limit {
			t.Errorf("%d publishers for 5 events, want %d", got, limit)
		}
		time.Sleep(idlePublisher + 3*time.Second)
		synctest.Wait()
		if got := count(); got != 0 || done.Load() != 5 {
			t.Errorf("%d publishers are idle, and %d of 5 events are done", got, done.Load())
		}
		for range 200 {
			submit(limit, 0)
			time.Sleep(idlePublisher) // they leave now
			submit(limit+1, 0)
		}
		synctest.Wait()
		if got := done.Load(); got != 5+200*(2*limit+1) {
			t.Errorf("%d events are done", got)
		}
		submit(limit, time.Hour)
		full, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if waited, err := p.submitWork(full, nil, func() { t.Error("done after all") }); !waited || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("waited: %t, %v", waited, err)
		}
		cut := make(chan struct{})
		close(cut)
		if waited, err := p.submitWork(t.Context(), cut, func() { t.Error("done after all") }); !waited || !errors.Is(err, errShardChanged) {
			t.Errorf("waited: %t, %v", waited, err)
		}
	})
}
