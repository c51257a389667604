package sentinel_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
	"github.com/fleetloop/fleetloop/internal/sentinel"
)

// TestCatchUp: after an outage of the broker everything is due. What the ages
// call for comes back at the budget's rate, what changed comes first, and all
// of it comes.
func TestCatchUp(t *testing.T) {
	const n, changed, rate = 400, 30, 20
	for _, mode := range []sentinel.Mode{sentinel.ModeSweep, sentinel.ModeCursor, sentinel.ModeWatch} {
		t.Run(string(mode), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := newFeedAPI(clusterIDs(n)...)
				var up atomic.Bool
				b := newFollower(t, api, func(c *sentinel.Config, d *sentinel.Deps) {
					d.Log = nil // a line for each resource in each round is most of the work
					c.Source.Mode, c.Publish.Attempts, c.Publish.CatchUpFloor = mode, 1, rate
					c.MaxAgeReady, c.MaxAgeNotReady = 5*time.Minute, time.Hour
				})
				b.broker.publish = func(context.Context, *cloudevent.Event) error {
					if !up.Load() {
						return errDown
					}
					return nil
				}
				b.run(t)
				time.Sleep(time.Minute)
				for i := range changed {
					api.patch(clusterID(10 * i))
				}
				time.Sleep(5 * time.Minute)
				up.Store(true)
				begin := time.Now()
				time.Sleep(2 * time.Minute)
				synctest.Wait()

				first := map[string]time.Duration{}
				for _, e := range b.broker.got() {
					if _, again := first[e.Subject]; !again {
						first[e.Subject] = e.at.Sub(begin)
					}
				}
				if len(first) != n {
					t.Errorf("%d resources were published, want all %d", len(first), n)
				}
				// The window of the budget is the poll interval while sweeping.
				perWindow := map[int]int{}
				for i := range n {
					at := first[clusterID(i)]
					if i%10 == 0 && i < 10*changed {
						if at > 6*time.Second {
							t.Errorf("a changed generation was published after %s", at)
						}
						continue
					}
					perWindow[int(at/(5*time.Second))]++
				}
				for w, count := range perWindow {
					if count > 5*rate+rate {
						t.Errorf("%d events of age in the %d. five seconds, want at most %d", count, w, 6*rate)
					}
				}
			})
		})
	}
}

// TestSteadyRateSetsTheBudget: a large fleet may catch up faster than the
// floor, by the factor over what its ages call for.
func TestSteadyRateSetsTheBudget(t *testing.T) {
	const n = 3000 // at 10 minutes: 5 a second, and 7.5 to catch up
	synctest.Test(t, func(t *testing.T) {
		api := newFeedAPI(clusterIDs(n)...)
		b := newFollower(t, api, func(c *sentinel.Config, d *sentinel.Deps) {
			d.Log = nil // as in TestCatchUp
			c.MaxAgeReady, c.Publish.CatchUpFloor = 10*time.Minute, 0.1
		})
		b.run(t)
		time.Sleep(10*time.Minute + time.Second) // all were reported on at one time
		begin := len(b.broker.got())
		time.Sleep(200 * time.Second)
		synctest.Wait()
		if got := len(b.broker.got()) - begin; got < 1350 || got > 1520 {
			t.Errorf("%d events in 200 s, want about %d", got, 1500)
		}
		b.wantMetric(t, 7.5, "publish_budget_events_per_second")
		if got := b.metric(t, "decisions_total", "reason", "publish budget exhausted, deferred"); got == 0 {
			t.Error("none is counted as deferred")
		}
	})
}

// TestMaxPerSecond bounds changed generations as well.
func TestMaxPerSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fleet []v1.Resource
		for i := range 100 {
			fleet = append(fleet, cluster(clusterID(i), "Provisioning", 2, 1))
		}
		b := newFollower(t, newFeedAPI(fleet...), func(c *sentinel.Config, _ *sentinel.Deps) { c.Publish.MaxPerSecond = 5 })
		b.run(t)
		time.Sleep(9900 * time.Millisecond) // two rounds
		synctest.Wait()
		if got := len(b.broker.got()); got < 40 || got > 50 {
			t.Errorf("%d events in 10 s, want about 50", got)
		}
	})
}

// TestJitter checks that resources with the same report time fall due at different times. None is
// later than its age, and the times are the same in another process.
func TestJitter(t *testing.T) {
	const n, age = 200, 10 * time.Minute
	play := func(t *testing.T, mode sentinel.Mode) (ids []string) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			b := newFollower(t, newFeedAPI(clusterIDs(n)...), func(c *sentinel.Config, _ *sentinel.Deps) {
				c.Jitter, c.MaxAgeReady, c.Source.Mode = 0.5, age, mode
			})
			b.run(t)
			begin := time.Now()
			time.Sleep(age + 6*time.Second)
			synctest.Wait()
			early := 0
			first := map[string]bool{}
			for _, e := range b.broker.got() {
				if first[e.Subject] {
					continue
				}
				first[e.Subject] = true
				ids = append(ids, e.ID)
				switch at := e.at.Sub(begin); {
				case at < age/2:
					t.Errorf("%s is published after %s", e.Subject, at)
				case at < age*3/4:
					early++
				}
			}
			if len(first) != n {
				t.Errorf("%d resources are published in time, want %d", len(first), n)
			}
			if early < n/3 || early > n*2/3 {
				t.Errorf("%d of %d are published in the first half of the time, want about half", early, n)
			}
		})
		slices.Sort(ids)
		return ids
	}
	if one, other := play(t, sentinel.ModeSweep), play(t, sentinel.ModeWatch); !slices.Equal(one, other) {
		t.Error("two sentinels give other ids")
	}
}

// TestRequestsArePaced: the API is asked no faster than the configuration says.
func TestRequestsArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newFeedAPI(clusterIDs(100)...)
		b := newFollower(t, api, func(c *sentinel.Config, _ *sentinel.Deps) {
			c.HyperfleetAPI.RequestsPerSecond, c.HyperfleetAPI.PageSize, c.Source.Mode = 4, 1, sentinel.ModeSweep
		})
		b.run(t)
		time.Sleep(10*time.Second - 1)
		synctest.Wait()
		if got := len(api.calls()); got < 38 || got > 42 {
			t.Errorf("%d requests in 10 s, want 40", got)
		}
	})
}

// TestConfigRefusesModes checks that modes that cannot work are refused.
func TestConfigRefusesModes(t *testing.T) {
	for _, mode := range []sentinel.Mode{sentinel.ModeETag, sentinel.ModeCursor, sentinel.ModeWatch, "other"} {
		_, err := sentinel.New(sentinel.Config{
			ResourceType: "clusters", Source: sentinel.Sources{Mode: mode},
			Decision: sentinel.Decision{Profile: sentinel.ProfileExpression, Result: "true"},
		}, sentinel.Deps{API: newAPI(), Publisher: &fakeBroker{}})
		var located error
		_ = sentinel.WrapKeyErrors(err, func(key string, err error) error {
			if key == "source.mode" {
				located = err
			}
			return err
		})
		if located == nil {
			t.Errorf("%s: %v, want an error of source.mode", mode, errors.Join(err))
		}
	}
}
