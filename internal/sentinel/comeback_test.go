package sentinel_test

import (
	"context"
	"io"
	"net/url"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/sentinel"
)

// TestComesBackDuringALookup: a resource that left the selector and is back
// by the time that a lookup says it is gone stays watched.
func TestComesBackDuringALookup(t *testing.T) {
	for name, slow := range map[string]string{"Lookup": "ids", "Sweep": "limit"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fleet := clusterIDs(2)
				api := newFeedAPI(fleet...)
				api.ignoreLabels = true
				late := &lateAPI{feedAPI: api, slow: slow}
				b := newFollower(t, api, func(c *sentinel.Config, d *sentinel.Deps) {
					c.LabelSelector, d.API, c.MaxAgeReady = "region=us-east", late, 30*time.Minute
					c.Source.FullSweepInterval = 5 * time.Minute
					if slow == "ids" { // wait for its age
						c.Source.FullSweepInterval = 24 * time.Hour
					}
				})
				b.run(t)
				time.Sleep(50 * time.Second)
				relabel := func(region string) {
					api.change(clusterID(0), func(r *v1.Resource) {
						r.Labels, r.Status.LastUpdatedTime = map[string]string{"region": region}, time.Now().Add(-29*time.Minute)
					})
					api.note(clusterID(0))
				}
				late.on.Store(true)
				api.change(clusterID(0), func(r *v1.Resource) { r.Labels = map[string]string{"region": "eu-west"} })
				for !late.held.Load() {
					time.Sleep(100 * time.Millisecond)
				}
				relabel("us-east") // after the answer was made, and before it comes
				late.on.Store(false)
				time.Sleep(10*time.Second + 70*time.Second)
				synctest.Wait()
				if got := len(b.broker.of(clusterID(0))); got != 1 {
					t.Errorf("%d events of the one that is back, want 1", got)
				}
			})
		})
	}
}

// A lateAPI prepares one response ten seconds before it returns it.
type lateAPI struct {
	*feedAPI
	slow     string // the parameter that it has to have
	on, held atomic.Bool
}

func (a *lateAPI) ListPage(ctx context.Context, collection string, q url.Values, dst []byte) ([]byte, error) {
	page, err := a.feedAPI.ListPage(ctx, collection, q, dst)
	if q.Has(a.slow) && !q.Has("changed_since") && a.on.Load() {
		a.held.Store(true)
		time.Sleep(9 * time.Second)
	}
	return page, err
}

func (a *lateAPI) ListPageIf(ctx context.Context, collection string, q url.Values, _ string, dst []byte) ([]byte, io.ReadCloser, string, error) {
	page, err := a.ListPage(ctx, collection, q, dst)
	return page, nil, "", err
}
