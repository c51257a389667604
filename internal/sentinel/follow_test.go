package sentinel_test

import (
	"context"
	"net/http"
	"net/url"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fleetloop/fleetloop/internal/cloudevent"
	"github.com/fleetloop/fleetloop/internal/sentinel"
)

func newFollower(t *testing.T, api *feedAPI, change ...func(*sentinel.Config, *sentinel.Deps)) *fixture {
	t.Helper()
	return newFixture(t, api.fakeAPI, append([]func(*sentinel.Config, *sentinel.Deps){func(_ *sentinel.Config, d *sentinel.Deps) { d.API = api }}, change...)...)
}

func (b *fixture) wantMode(t *testing.T, want sentinel.Mode) {
	t.Helper()
	for _, mode := range []sentinel.Mode{sentinel.ModeSweep, sentinel.ModeETag, sentinel.ModeCursor, sentinel.ModeWatch} {
		if b.metric(t, "source_mode", "mode", string(mode)) == 1 && mode != want {
			t.Errorf("the mode is %s, want %s", mode, want)
		}
	}
}

// TestFollows: in every mode a changed generation is published, a resource
// falls due by its age, one that is gone is left alone, and one that is new is found.
func TestFollows(t *testing.T) {
	cases := map[string]struct {
		reason string
		offer  func(*feedAPI)
		mode   sentinel.Mode
		want   sentinel.Mode
		within time.Duration // of a changed spec
	}{
		"Watch":       {"the best there is", func(*feedAPI) {}, sentinel.ModeAuto, sentinel.ModeWatch, 0},
		"Cursor":      {"by hand", func(*feedAPI) {}, sentinel.ModeCursor, sentinel.ModeCursor, 5 * time.Second},
		"NoWatch":     {"there are no watches", func(a *feedAPI) { a.watches = false }, sentinel.ModeAuto, sentinel.ModeCursor, 5 * time.Second},
		"SilentWatch": {"a watch that says nothing is not waited for", func(a *feedAPI) { a.silent = true }, sentinel.ModeAuto, sentinel.ModeCursor, 5 * time.Second},
		"NoIDs":       {"resources are looked up one by one", func(a *feedAPI) { a.ids = false }, sentinel.ModeAuto, sentinel.ModeWatch, 0},
		"ETag":        {"tags are all there is", func(a *feedAPI) { a.cursors, a.tags = false, true }, sentinel.ModeAuto, sentinel.ModeETag, 5 * time.Second},
		"ETagNoIDs":   {"and nothing else at all", func(a *feedAPI) { a.cursors, a.tags, a.ids = false, true, false }, sentinel.ModeAuto, sentinel.ModeETag, 5 * time.Second},
		"ETagByHand":  {"although there is more", func(a *feedAPI) { a.tags = true }, sentinel.ModeETag, sentinel.ModeETag, 5 * time.Second},
		"Nothing":     {"it offers nothing", func(a *feedAPI) { a.cursors = false }, sentinel.ModeAuto, sentinel.ModeSweep, 5 * time.Second},
		"Sweep":       {"by hand", func(*feedAPI) {}, sentinel.ModeSweep, sentinel.ModeSweep, 5 * time.Second},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := newFeedAPI(clusterIDs(20)...)
				tc.offer(api)
				b := newFollower(t, api, func(c *sentinel.Config, _ *sentinel.Deps) {
					c.Source.Mode, c.HyperfleetAPI.PageSize = tc.mode, 8
				})
				b.run(t)
				time.Sleep(30 * time.Second) // a silent watch is given up by then
				synctest.Wait()
				b.wantMode(t, tc.want)
				wantCount(t, tc.reason+": nothing is due", b.broker.got(), 0)

				api.patch(clusterID(3))
				time.Sleep(tc.within)
				synctest.Wait()
				wantCount(t, tc.reason+": the spec changed", b.broker.of(clusterID(3)), 1)
				time.Sleep(16 * time.Second)
				synctest.Wait()
				wantCount(t, tc.reason+": nobody answered", b.broker.of(clusterID(3)), 2)
				api.answer(clusterID(3))

				api.remove(clusterID(4))
				api.add(cluster(clusterID(77), "Provisioning", 1, 0))
				time.Sleep(tc.within)
				synctest.Wait()
				wantCount(t, tc.reason+": one is new", b.broker.of(clusterID(77)), 1)
				api.answer(clusterID(77))
				time.Sleep(16 * time.Second)
				synctest.Wait()
				b.wantMetric(t, 20, "pending_resources")

				time.Sleep(30 * time.Minute)
				synctest.Wait()
				wantCount(t, tc.reason+": not answered for since", b.broker.of(clusterID(4)), 0)
				for i := range 20 {
					if i != 3 && i != 4 {
						wantCount(t, tc.reason+": "+clusterID(i)+" fell due by its age", b.broker.of(clusterID(i)), 1)
					}
				}
				b.wantMetric(t, 0, "api_errors_total", "operation", "fetch_resources")
			})
		})
	}
}

// TestIdleRound checks the requests of an idle sentinel. A round requests one page of changes for
// any number of resources, and a watch requests nothing.
func TestIdleRound(t *testing.T) {
	for mode, want := range map[sentinel.Mode]int{sentinel.ModeCursor: 12, sentinel.ModeWatch: 0} {
		t.Run(string(mode), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := newFeedAPI(clusterIDs(500)...)
				b := newFollower(t, api, func(c *sentinel.Config, _ *sentinel.Deps) { c.Source.Mode, c.HyperfleetAPI.PageSize = mode, 10 })
				b.run(t)
				time.Sleep(59 * time.Second)
				synctest.Wait()
				before := len(api.calls())
				time.Sleep(time.Minute)
				synctest.Wait()
				if got := len(api.calls()) - before; got != want {
					t.Errorf("%d requests in a minute, want %d", got, want)
				}
			})
		})
	}
}

// TestWatchResumes: what changes while the watch is away is published when it
// is back, which is soon.
func TestWatchResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newFeedAPI(clusterIDs(5)...)
		b := newFollower(t, api)
		b.run(t)
		time.Sleep(time.Minute)
		for i := range 5 {
			api.disconnect()
			api.patch(clusterID(i))
			// A change that the poll after the end of the watch does not see yet waits for
			// the next watch: 50 ms at first, and twice as long after each short one.
			time.Sleep(time.Second)
			synctest.Wait()
			wantCount(t, "changed while away", b.broker.of(clusterID(i)), 1)
		}
		wantCount(t, "in all", b.broker.got(), 5)
		b.wantMetric(t, 0, "resyncs_total")
	})
}

// TestCursorTooOld: the place is lost, everything is listed for a new one, and
// nothing that changed meanwhile is lost with it.
func TestCursorTooOld(t *testing.T) {
	for _, mode := range []sentinel.Mode{sentinel.ModeCursor, sentinel.ModeWatch} {
		t.Run(string(mode), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := newFeedAPI(clusterIDs(50)...)
				b := newFollower(t, api, func(c *sentinel.Config, _ *sentinel.Deps) { c.Source.Mode, c.HyperfleetAPI.PageSize = mode, 10 })
				b.run(t)
				time.Sleep(62 * time.Second)
				for i := range 3 {
					api.patch(clusterID(i))
					api.remove(clusterID(10 + i))
					api.expire()
					time.Sleep(6 * time.Second)
					synctest.Wait()
					wantCount(t, "changed before the place was lost", b.broker.of(clusterID(i)), 1)
					b.wantMetric(t, float64(1+i), "resyncs_total")
					time.Sleep(6 * time.Second)
					synctest.Wait()
					b.wantMetric(t, float64(49-i), "pending_resources")
					api.answer(clusterID(i))
				}
				b.wantMode(t, mode)
			})
		})
	}
}

// TestWithdrawn checks the loss of the change feed. The sentinel lists such an API in every round,
// and follows it when the feed returns.
func TestWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newFeedAPI(clusterIDs(5)...)
		b := newFollower(t, api)
		b.run(t)
		time.Sleep(time.Minute)
		b.wantMode(t, sentinel.ModeWatch)
		api.mu.Lock()
		api.cursors, api.watches = false, false
		api.mu.Unlock()
		api.disconnect()
		api.patch(clusterID(1))
		time.Sleep(6 * time.Second)
		synctest.Wait()
		b.wantMode(t, sentinel.ModeSweep)
		wantCount(t, "changed when it was withdrawn", b.broker.of(clusterID(1)), 1)
		api.answer(clusterID(1))
		api.mu.Lock()
		api.cursors, api.watches = true, true
		api.mu.Unlock()
		time.Sleep(9 * time.Minute)
		synctest.Wait()
		b.wantMode(t, sentinel.ModeSweep) // it is not trusted at once
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		b.wantMode(t, sentinel.ModeWatch)
	})
}

// TestFailedPublishIsTriedAgain: what the broker did not take is tried again
// in the next round, without anything changing.
func TestFailedPublishIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newFeedAPI(clusterIDs(5)...)
		var up atomic.Bool
		b := newFollower(t, api, func(c *sentinel.Config, _ *sentinel.Deps) { c.Publish.Attempts = 1 })
		b.broker.publish = func(context.Context, *cloudevent.Event) error {
			if up.Load() {
				return nil
			}
			return errDown
		}
		b.run(t)
		time.Sleep(time.Minute)
		api.patch(clusterID(1))
		time.Sleep(time.Minute)
		wantCount(t, "while it is down", b.broker.got(), 0)
		up.Store(true)
		time.Sleep(6 * time.Second)
		synctest.Wait()
		wantCount(t, "when it is back", b.broker.of(clusterID(1)), 1)
		b.wantMetric(t, 5, "pending_resources")
	})
}

// TestStaleWatch: a watch whose connection lives and which no longer says where
// it is does not hide that the API is of no use.
func TestStaleWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newFeedAPI(clusterIDs(5)...)
		b := newFollower(t, api)
		b.run(t)
		time.Sleep(time.Minute)
		synctest.Wait()
		if err := b.Ready(); err != nil {
			t.Errorf("while all is well: %v", err)
		}
		api.mu.Lock()
		api.silent = true
		api.mu.Unlock()
		api.fakeAPI.mu.Lock()
		api.before = func(context.Context, url.Values) error { return statusError(http.StatusServiceUnavailable) }
		api.fakeAPI.mu.Unlock()
		time.Sleep(50 * time.Second)
		synctest.Wait()
		if err := b.Ready(); err == nil {
			t.Error("the database of the API is away, and the sentinel is ready")
		}
		if b.metric(t, "api_errors_total", "operation", "fetch_resources") == 0 {
			t.Error("no error of the API is counted")
		}

		api.mu.Lock()
		api.silent = false
		api.mu.Unlock()
		api.fakeAPI.mu.Lock()
		api.before = nil
		api.fakeAPI.mu.Unlock()
		api.patch(clusterID(1))
		time.Sleep(9 * time.Second)
		synctest.Wait()
		if err := b.Ready(); err != nil {
			t.Errorf("when it is back: %v", err)
		}
		wantCount(t, "changed meanwhile", b.broker.of(clusterID(1)), 1)
		b.wantMode(t, sentinel.ModeWatch)
	})
}
