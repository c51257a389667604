package clusterworker

import (
	"testing"
	"time"
)

// TestAPauseEndsInTime checks that the worker claims a cluster when its pause ends, and not at its
// next poll, also if the pause begins right after the worker has looked for the next end.
func TestAPauseEndsInTime(t *testing.T) {
	for name, lasts := range map[string]time.Duration{"Short": 3 * time.Second, "LongerThanALease": 10 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(r *fixture) {
				r.start()
				r.pass(time.Minute + 100*time.Millisecond)
				until := time.Now().Add(lasts)
				r.store.edit("paused", func(row *fakeRow) { row.pausedUntil = until })
				r.pass(lasts - 10*time.Millisecond)
				if n := r.garden.total(); n != 0 {
					t.Fatalf("%d calls during the pause", n)
				}
				r.pass(200 * time.Millisecond)
				if n := r.garden.total(); n != 1 {
					t.Errorf("%d calls at the end of the pause, want 1", n)
				}
			})
		})
	}
}
