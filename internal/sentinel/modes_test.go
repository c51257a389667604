package sentinel_test

import (
	"context"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fleetloop/fleetloop/internal/cloudevent"
	"github.com/fleetloop/fleetloop/internal/sentinel"
)

// TestOverrunWhileFollowing: a round is too long whatever it is spent on.
func TestOverrunWhileFollowing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newFeedAPI(clusterIDs(5)...)
		api.tags = true
		b := newFollower(t, api, func(c *sentinel.Config, _ *sentinel.Deps) { c.Source.Mode = sentinel.ModeETag })
		api.before = func(context.Context, url.Values) error {
			time.Sleep(6 * time.Second)
			return nil
		}
		b.run(t)
		time.Sleep(time.Minute)
		if got := b.metric(t, "poll_overruns_total"); got < 5 {
			t.Errorf("%v overruns are counted", got)
		}
	})
}

// TestIndexIsGivenBack when everything is listed again.
func TestIndexIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newFeedAPI(clusterIDs(5)...)
		b := newFollower(t, api)
		b.run(t)
		time.Sleep(time.Minute)
		if b.metric(t, "schedule_index_bytes") == 0 {
			t.Error("there is no index")
		}
		api.mu.Lock()
		api.cursors, api.watches = false, false
		api.mu.Unlock()
		api.disconnect()
		time.Sleep(10 * time.Second)
		b.wantMode(t, sentinel.ModeSweep)
		b.wantMetric(t, 0, "schedule_index_bytes")
	})
}

// TestFindsBetter: tags are no reason to overlook that the API offers more.
func TestFindsBetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newFeedAPI(clusterIDs(5)...)
		api.cursors, api.tags = false, true
		b := newFollower(t, api)
		b.run(t)
		time.Sleep(time.Minute)
		b.wantMode(t, sentinel.ModeETag)
		api.mu.Lock()
		api.cursors = true
		api.mu.Unlock()
		time.Sleep(13 * time.Minute)
		synctest.Wait()
		b.wantMode(t, sentinel.ModeWatch)
	})
}

// TestStopWhileFollowing: neither a broker that never answers nor a feed and a
// sweep that wait for it keep a follower from stopping, or from going back to sweeps.
func TestStopWhileFollowing(t *testing.T) {
	for _, mode := range []sentinel.Mode{sentinel.ModeWatch, sentinel.ModeCursor, sentinel.ModeETag} {
		t.Run(string(mode), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := newFeedAPI(clusterIDs(50)...)
				api.tags = mode == sentinel.ModeETag
				b := newFollower(t, api, func(c *sentinel.Config, _ *sentinel.Deps) {
					c.Source.Mode, c.Publish.Window, c.ShutdownTimeout = mode, 2, 3*time.Second
					c.Source.FullSweepInterval, c.Publish.Attempts, c.Publish.Timeout = time.Minute, 1, time.Second
				})
				b.broker.publish = func(ctx context.Context, _ *cloudevent.Event) error {
					<-ctx.Done()
					return context.Cause(ctx)
				}
				stop := b.run(t)
				time.Sleep(30 * time.Second)
				for i := range 50 {
					api.patch(clusterID(i))
				}
				time.Sleep(70 * time.Second)
				if mode != sentinel.ModeETag {
					api.mu.Lock()
					api.cursors, api.watches = false, false
					api.mu.Unlock()
					api.disconnect()
					time.Sleep(5 * time.Minute)
					b.wantMode(t, sentinel.ModeSweep)
				}
				if err := b.Live(); err != nil {
					t.Error(err)
				}
				if took := stop(); took > 3*time.Second {
					t.Errorf("it took %s to stop", took)
				}
			})
		})
	}
}
