package sentinel_test

import (
	"context"
	"errors"
	"net/url"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fleetloop/fleetloop/internal/sentinel"
)

// TestLiveWhileFollowing: a loop that waits long is alive, whatever the others do meanwhile.
func TestLiveWhileFollowing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newFeedAPI(clusterIDs(5)...)
		b := newFollower(t, api, func(c *sentinel.Config, _ *sentinel.Deps) { c.PollInterval = time.Hour })
		b.run(t)
		time.Sleep(time.Minute)
		api.patch(clusterID(1))
		synctest.Wait()
		wantCount(t, "changed", b.broker.of(clusterID(1)), 1)
		api.answer(clusterID(1))
		for range 50 {
			time.Sleep(time.Minute)
			if err := b.Live(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestReadyTellsOfEveryLoop: that one kind of request works does not hide that
// another does not, and one that works again is believed.
func TestReadyTellsOfEveryLoop(t *testing.T) {
	cases := map[string]struct {
		reason string
		mode   sentinel.Mode
		fails  func(q url.Values) bool
	}{
		"Lookups":  {"bookmarks come in", sentinel.ModeWatch, func(q url.Values) bool { return q.Has("ids") }},
		"Feed":     {"resources can be looked up", sentinel.ModeCursor, func(q url.Values) bool { return q.Has("changed_since") }},
		"ETags":    {"no page has changed when it is back", sentinel.ModeETag, func(q url.Values) bool { return q.Has("limit") }},
		"AllETags": {"the same", sentinel.ModeETag, func(url.Values) bool { return true }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fleet := clusterIDs(5)
				fleet[0].Status.Phase = "Provisioning" // is looked up again and again
				if tc.mode == sentinel.ModeETag {
					fleet = fleet[1:]
				}
				api := newFeedAPI(fleet...)
				api.tags = tc.mode == sentinel.ModeETag
				b := newFollower(t, api, func(c *sentinel.Config, _ *sentinel.Deps) { c.Source.Mode = tc.mode })
				var down atomic.Bool
				api.before = func(_ context.Context, q url.Values) error {
					if down.Load() && tc.fails(q) {
						return errDown
					}
					return nil
				}
				b.run(t)
				time.Sleep(61 * time.Second)
				if err := b.Ready(); err != nil {
					t.Errorf("before: %v", err)
				}
				down.Store(true)
				time.Sleep(20 * time.Second)
				for range 20 {
					if err := b.Ready(); !errors.Is(err, errDown) {
						t.Errorf("%s: ready is %v", tc.reason, err)
					}
					if tc.mode == sentinel.ModeWatch {
						api.note("none") // something is heard
					}
					time.Sleep(time.Second)
				}
				down.Store(false)
				time.Sleep(20 * time.Second)
				if err := b.Ready(); err != nil {
					t.Errorf("%s: still %v", tc.reason, err)
				}
			})
		})
	}
}
