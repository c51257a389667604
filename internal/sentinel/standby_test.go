package sentinel_test

import (
	"context"
	"io"
	"maps"
	"net/url"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fleetloop/fleetloop/internal/cloudevent"
	"github.com/fleetloop/fleetloop/internal/sentinel"
)

// A standbyAPI is a fleet API that answers lists from a standby. Changes, watches and lookups are read
// from the primary.
type standbyAPI struct {
	*feedAPI

	standby atomic.Pointer[feedAPI] // an earlier state of the fleet; nil without a lag
}

// stopReplay keeps the standby at the current state.
func (a *standbyAPI) stopReplay() {
	a.fakeAPI.mu.Lock()
	defer a.fakeAPI.mu.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	standby := newFeedAPI(slices.Collect(maps.Values(a.resources))...)
	standby.changes = slices.Clone(a.changes)
	a.standby.Store(standby)
}

func (a *standbyAPI) resumeReplay() { a.standby.Store(nil) }

func (a *standbyAPI) ListPage(ctx context.Context, collection string, q url.Values, dst []byte) ([]byte, error) {
	if standby := a.standby.Load(); standby != nil && !q.Has("changed_since") && !q.Has("ids") {
		return standby.ListPage(ctx, collection, q, dst)
	}
	return a.feedAPI.ListPage(ctx, collection, q, dst)
}

func (a *standbyAPI) ListPageIf(
	ctx context.Context, collection string, q url.Values, _ string, dst []byte,
) ([]byte, io.ReadCloser, string, error) {
	page, err := a.ListPage(ctx, collection, q, dst)
	return page, nil, "", err
}

// withStandby runs a test of an API with a standby in each mode that has a change feed. There is no full
// sweep except after a change of the shard.
func withStandby(t *testing.T, test func(t *testing.T, api *standbyAPI, b *fixture, shard *fakeShard)) {
	t.Helper()
	for _, mode := range []sentinel.Mode{sentinel.ModeCursor, sentinel.ModeWatch} {
		t.Run(string(mode), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := &standbyAPI{feedAPI: newFeedAPI(clusterIDs(4)...)}
				shard := newShard(append(ids(0, 3), clusterID(77))...)
				b := newFollower(t, api.feedAPI, func(c *sentinel.Config, d *sentinel.Deps) {
					c.Source.Mode, c.Source.FullSweepInterval, c.Publish.Attempts = mode, 24*time.Hour, 1
					d.API, d.Shard = api, shard
				})
				b.run(t)
				time.Sleep(time.Minute)
				synctest.Wait()
				b.wantMode(t, mode)
				test(t, api, b, shard)
				b.wantMetric(t, 0, "resyncs_total")
			})
		})
	}
}

// TestLookupBehindStandby: a lagging standby does not hide what is due because its event failed.
func TestLookupBehindStandby(t *testing.T) {
	withStandby(t, func(t *testing.T, api *standbyAPI, b *fixture, _ *fakeShard) {
		t.Helper()
		var down atomic.Bool
		b.broker.publish = func(context.Context, *cloudevent.Event) error {
			if down.Load() {
				return errDown
			}
			return nil
		}
		down.Store(true)
		api.stopReplay()
		api.patch(clusterID(1))
		api.add(cluster(clusterID(77), "Provisioning", 1, 0))
		time.Sleep(11 * time.Second) // two polls
		api.resumeReplay()
		down.Store(false)
		time.Sleep(6 * time.Second)
		synctest.Wait()
		wantCount(t, "events of the changed one", b.broker.of(clusterID(1)), 1)
		wantCount(t, "events of the new one", b.broker.of(clusterID(77)), 1)
	})
}

// TestSweepBehindStandby: a sweep that reads an earlier state than the feed does not end the repeats.
func TestSweepBehindStandby(t *testing.T) {
	withStandby(t, func(t *testing.T, api *standbyAPI, b *fixture, shard *fakeShard) {
		t.Helper()
		api.stopReplay()
		api.patch(clusterID(1))
		api.add(cluster(clusterID(77), "Provisioning", 1, 0))
		time.Sleep(6 * time.Second)
		synctest.Wait()
		wantCount(t, "events before the sweep", b.broker.got(), 2)
		shard.divide(nil, nil) // which starts a sweep
		time.Sleep(10 * time.Second)
		api.resumeReplay()
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, id := range []string{clusterID(1), clusterID(77)} {
			if got := len(b.broker.of(id)); got < 5 || got > 8 {
				t.Errorf("%d events of %s in 76 s, want one every ten seconds", got, id)
			}
		}
	})
}

// TestHandOverBehindStandby: a change that the feed dropped, because another replica owned the resource,
// is published although the sweep after the hand-over reads an earlier state.
func TestHandOverBehindStandby(t *testing.T) {
	withStandby(t, func(t *testing.T, api *standbyAPI, b *fixture, shard *fakeShard) {
		t.Helper()
		api.stopReplay()
		api.patch(clusterID(3))
		time.Sleep(6 * time.Second)
		synctest.Wait()
		wantCount(t, "events of another's", b.broker.got(), 0)
		shard.divide(ids(3, 4), nil)
		time.Sleep(10 * time.Second)
		api.resumeReplay()
		time.Sleep(time.Second)
		synctest.Wait()
		wantCount(t, "events after the hand-over", b.broker.of(clusterID(3)), 1)
	})
}
