package e2e

import (
	"testing"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// slack is how late an event may come on a machine that has other things to
// do. It only ever bounds from above.
const slack = time.Minute

const (
	reasonGeneration  = "generation changed - new spec to reconcile"
	reasonAgeNotReady = "max age expired (not ready)"
	reasonAgeReady    = "max age expired (ready)"
)

// TestGenerationOutranksAge is the specification's integration test 2: a new
// spec is announced at once, however long a resource may go unannounced and
// however fresh its last report is.
func TestGenerationOutranksAge(t *testing.T) {
	t.Parallel()
	l := newLoop(t, oneAdapter(), "poll_interval: 200ms\nmax_age_not_ready: 1h\nmax_age_ready: 2h\n")
	for name, available := range map[string]bool{"ready": true, "not-ready": false} {
		c := l.create(t, name, "")
		first := l.queue.wantEvents(t, c.ID, 1, slack)[0]
		if first.str("reason") != reasonGeneration {
			t.Errorf("%s: announced as new because %q, want %q", name, first.str("reason"), reasonGeneration)
		}
		l.report(t, c.ID, 1, available)
		if got := l.get(t, c.ID).Status; (got.Phase == v1.PhaseReady) != available || got.ObservedGeneration != 1 {
			t.Errorf("%s: after the report the status is %+v", name, got)
		}

		begin := time.Now()
		patched := l.patch(t, c.ID)
		if patched.Generation != 2 {
			t.Fatalf("%s: generation %d after a patch, want 2", name, patched.Generation)
		}
		events := l.queue.wantEvents(t, c.ID, 2, slack)
		if second := events[1]; second.str("reason") != reasonGeneration || second.Time.Before(begin) || second.ID == first.ID {
			t.Errorf("%s: the second event is %q at %s with id %s; want %q after %s and another id than the first's", name,
				second.str("reason"), second.Time, second.ID, reasonGeneration, begin)
		}
		l.report(t, c.ID, 2, available)
		if len(l.queue.of(c.ID)) != 2 {
			t.Errorf("%s: %d events, want 2", name, len(l.queue.of(c.ID)))
		}
	}
}

// TestMaxAge is the specification's integration test 3: where generations
// match, the next event comes when the last report has its age, not before,
// and says so.
func TestMaxAge(t *testing.T) {
	t.Parallel()
	const notReady, ready = 1500 * time.Millisecond, 3 * time.Second
	l := newLoop(t, oneAdapter(), "poll_interval: 50ms\nmax_age_not_ready: 1500ms\nmax_age_ready: 3s\n")
	cases := map[string]struct {
		available bool
		age       time.Duration
		reason    string
	}{
		"not-ready": {false, notReady, reasonAgeNotReady},
		"ready":     {true, ready, reasonAgeReady},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := l.create(t, name, "")
			seen := len(l.queue.wantEvents(t, c.ID, 1, slack))
			for range 2 {
				l.report(t, c.ID, 1, tc.available)
				reported := l.get(t, c.ID).Status.LastUpdatedTime
				// An event of before the report may still be on its way.
				for next := seen; ; next++ {
					e := l.queue.wantEvents(t, c.ID, next+1, tc.age+slack)[next]
					if e.Time.Before(reported) {
						continue
					}
					if due := reported.Add(tc.age); e.Time.Before(due) || e.Time.After(due.Add(slack)) {
						t.Errorf("event at %s, want it at %s", e.Time, due)
					}
					if e.str("reason") != tc.reason {
						t.Errorf("reason %q, want %q", e.str("reason"), tc.reason)
					}
					seen = next + 1
					break
				}
			}
		})
	}
}
