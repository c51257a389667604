package sentinel_test

import (
	"context"
	"net/url"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
	"github.com/fleetloop/fleetloop/internal/sentinel"
)

// TestFailingGenerationsAreLeftToTheNextRound: however many changed generations the
// broker refuses at once, each is tried once in a round.
func TestFailingGenerationsAreLeftToTheNextRound(t *testing.T) {
	const n = 600 // more than are looked up at a time, or published
	synctest.Test(t, func(t *testing.T) {
		var fleet []v1.Resource
		for i := range n {
			fleet = append(fleet, cluster(clusterID(i), "Provisioning", 2, 1))
		}
		b := newFollower(t, newFeedAPI(fleet...), func(c *sentinel.Config, d *sentinel.Deps) {
			c.Publish.Attempts, d.Log = 1, nil // as in TestCatchUp
		})
		var tried atomic.Int32
		b.broker.publish = func(context.Context, *cloudevent.Event) error {
			tried.Add(1)
			return errDown
		}
		b.run(t)
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		if got := tried.Load(); got < 12*n || got > 15*n {
			t.Errorf("%d attempts in a minute, want %d in each of 13 rounds", got, n)
		}
		if got := b.metric(t, "reconcile_duration_seconds"); got < 12 {
			t.Errorf("%v rounds came to their end in a minute, want 12", got)
		}
	})
}

// TestFailingEventsHoldUpNoOthers: what no broker ever takes does not stand
// before all that are overdue.
func TestFailingEventsHoldUpNoOthers(t *testing.T) {
	const failing, n = 400, 500
	synctest.Test(t, func(t *testing.T) {
		fleet := clusterIDs(n)
		for i := range fleet {
			fleet[i].Status.LastUpdatedTime = time.Now().Add(-10 * time.Minute)
			if i < failing {
				fleet[i].Status.LastUpdatedTime = time.Now().Add(-20 * time.Minute) // due before the others
			}
		}
		api := newFeedAPI(fleet...)
		b := newFollower(t, api, func(c *sentinel.Config, d *sentinel.Deps) {
			d.Log = nil // as in TestCatchUp
			c.Publish.Attempts, c.Publish.CatchUpFloor, c.Source.FullSweepInterval = 1, 20, 24*time.Hour
		})
		b.broker.publish = func(_ context.Context, e *cloudevent.Event) error {
			if e.Subject < clusterID(failing) {
				return errDown
			}
			return nil
		}
		b.run(t)
		time.Sleep(25 * time.Minute)
		synctest.Wait()
		wantCount(t, "those that can be published", b.broker.got(), n-failing)
	})
}

// TestCountsWhatIsSkipped: what counts as skipped does not depend on the mode.
func TestCountsWhatIsSkipped(t *testing.T) {
	for _, mode := range []sentinel.Mode{sentinel.ModeSweep, sentinel.ModeWatch} {
		t.Run(string(mode), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fleet := clusterIDs(30)
				for i := range fleet {
					if i < 10 {
						fleet[i].Status.Phase, fleet[i].Status.LastUpdatedTime = "Provisioning", time.Now().Add(time.Minute)
					}
				}
				b := newFollower(t, newFeedAPI(fleet...), func(c *sentinel.Config, _ *sentinel.Deps) {
					c.Source.Mode, c.MaxAgeReady, c.MaxAgeNotReady = mode, 63*time.Second, time.Hour
				})
				b.run(t)
				skipped := func() [2]float64 {
					synctest.Wait()
					return [2]float64{
						b.metric(t, "resources_skipped_total", "ready_state", "ready"),
						b.metric(t, "resources_skipped_total", "ready_state", "not_ready"),
					}
				}
				time.Sleep(61 * time.Second)
				before := skipped()
				time.Sleep(5 * time.Second)
				if after := skipped(); after[0]-before[0] != 0 || after[1]-before[1] != 10 {
					t.Errorf("%v ready and %v others were skipped, want 0 and 10", after[0]-before[0], after[1]-before[1])
				}
			})
		})
	}
}

// TestMetInFlight: a resource that comes by while its event is on its way is
// looked at again soon. It may fail at the very moment that this is noted.
func TestMetInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := clusterIDs(1)
		fleet[0].Status.LastUpdatedTime = time.Now().Add(-29 * time.Minute)
		api := newFeedAPI(fleet...)
		b := newFollower(t, api)
		b.broker.publish = func(context.Context, *cloudevent.Event) error {
			time.Sleep(8 * time.Second)
			return nil
		}
		b.run(t)
		time.Sleep(67 * time.Second)
		api.note(clusterID(0))
		synctest.Wait()
		last := b.Decisions().ListDecisions(clusterID(0))[0]
		if last.Published || last.Next.Sub(last.At) > 5*time.Second {
			t.Errorf("decided at %s to look again at %s: %+v", last.At, last.Next, last)
		}
	})
}

// TestLooksUpWithoutAFeed: what falls due by its age does not wait for what
// the API asked of the feed.
func TestLooksUpWithoutAFeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := clusterIDs(2)
		fleet[0].Status.LastUpdatedTime = time.Now().Add(-28 * time.Minute)
		api := newFeedAPI(fleet...)
		api.before = func(_ context.Context, q url.Values) error {
			if q.Has("changed_since") {
				return retryLaterError(5 * time.Minute)
			}
			return nil
		}
		b := newFollower(t, api, func(c *sentinel.Config, _ *sentinel.Deps) { c.Source.Mode = sentinel.ModeCursor })
		b.run(t)
		time.Sleep(2*time.Minute + 6*time.Second)
		synctest.Wait()
		wantCount(t, "due after two minutes", b.broker.of(clusterID(0)), 1)
		b.wantMetric(t, 0, "last_successful_poll_timestamp_seconds")
	})
}

// TestAnsweredResourcesHoldUpNoOthers: what turns out not to be due, or to be
// announced already, takes nothing of the budget and no turn from the rest.
func TestAnsweredResourcesHoldUpNoOthers(t *testing.T) {
	const n = 500
	synctest.Test(t, func(t *testing.T) {
		fleet := clusterIDs(n)
		for i := range fleet {
			fleet[i].Status.LastUpdatedTime = time.Now().Add(-29 * time.Minute)
		}
		fleet[0].Status.LastUpdatedTime = time.Now().Add(-29*time.Minute + time.Second) // the last to fall due
		api := newFeedAPI(fleet...)
		api.before = func(_ context.Context, q url.Values) error {
			if q.Has("changed_since") {
				return errDown
			}
			return nil
		}
		b := newFollower(t, api, func(c *sentinel.Config, _ *sentinel.Deps) {
			c.Source.Mode, c.Publish.CatchUpFloor = sentinel.ModeCursor, 10
		})
		b.run(t)
		time.Sleep(50 * time.Second)
		for i := 1; i < n; i++ {
			api.fakeAPI.answer(clusterID(i)) // of which the feed does not tell
		}
		time.Sleep(17 * time.Second)
		synctest.Wait()
		wantCount(t, "the one that nobody answered", b.broker.got(), 1)
	})
}
