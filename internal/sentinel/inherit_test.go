package sentinel_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
	"github.com/fleetloop/fleetloop/internal/sentinel"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// succeed creates the successor of a stopped sentinel.
func (b *fixture) succeed(t *testing.T, change ...func(*sentinel.Config, *sentinel.Deps)) *fixture {
	t.Helper()
	next := newFixture(t, b.api, append([]func(*sentinel.Config, *sentinel.Deps){func(_ *sentinel.Config, d *sentinel.Deps) {
		d.Predecessor, d.Registerer, d.Publisher = b.Sentinel, b.reg, b.broker
	}}, change...)...)
	next.reg, next.broker = b.reg, b.broker
	return next
}

// TestSuccessor checks that a successor does not repeat confirmed events, including those confirmed
// during the stop. It retries failed events under the same id, and counters continue.
func TestSuccessor(t *testing.T) {
	inEveryMode(t, func(t *testing.T, mode sentinel.Mode, offer func(*feedAPI)) {
		t.Helper()
		fleet := clusterIDs(10)
		for i := range fleet {
			fleet[i].Generation = 2
		}
		api := newFeedAPI(fleet...)
		offer(api)
		ages := func(c *sentinel.Config, d *sentinel.Deps) {
			c.MaxAgeNotReady, c.MaxAgeReady, d.API = 10*time.Minute, 10*time.Minute, api
		}
		b := newFixture(t, api.fakeAPI, ages, func(c *sentinel.Config, _ *sentinel.Deps) { c.Publish.Attempts = 1 })
		var failed []string
		var mu sync.Mutex
		b.broker.publish = func(_ context.Context, e *cloudevent.Event) error {
			switch e.Subject {
			case clusterID(0): // its confirm comes when the sentinel is told to stop already
				time.Sleep(3 * time.Second)
			case clusterID(1):
				mu.Lock()
				defer mu.Unlock()
				if failed = append(failed, e.ID); len(failed) == 1 {
					time.Sleep(3 * time.Second)
					return errDown
				}
			}
			return nil
		}
		stop := b.run(t)
		time.Sleep(time.Second)
		stop()
		wantCount(t, "events before the change", b.broker.got(), 9)
		rounds := b.metric(t, "decisions_total", "reason", "generation changed - new spec to reconcile")
		if got := b.Stats(); got.Published != 9 {
			t.Errorf("stats before: %+v", got)
		}

		next := b.succeed(t, ages, func(c *sentinel.Config, _ *sentinel.Deps) { c.PollInterval = 2 * time.Second })
		if next.Ready() != nil {
			t.Errorf("not ready, although the API answered the one before: %v", next.Ready())
		}
		stop = next.run(t)
		time.Sleep(time.Minute)
		synctest.Wait()
		next.wantMode(t, mode)
		wantCount(t, "events after the change", b.broker.got(), 10)
		if len(failed) != 2 || failed[0] != failed[1] {
			t.Errorf("the event that failed was tried as %v", failed)
		}
		next.wantMetric(t, 10, "events_published_total")
		next.wantMetric(t, rounds+1, "decisions_total", "reason", "generation changed - new spec to reconcile")
		next.wantMetric(t, 10, "published_cache_entries")
		if got := next.Stats(); got.Published != 10 || got.Resources != 10 || got.LastRound.IsZero() || got.APIErr != nil || got.BrokerErr != nil {
			t.Errorf("stats after: %+v", got)
		}
		if e := next.Decisions().ListDecisions(clusterID(0)); len(e) != 2 || e[1].Confirmed.IsZero() {
			t.Errorf("the record of the one before: %+v", e)
		}
		stop()

		// With a shorter interval, resources announced a minute ago are due.
		last := next.succeed(t, ages, func(c *sentinel.Config, _ *sentinel.Deps) {
			c.MaxAgeNotReady, c.MaxAgeReady = 30*time.Second, 30*time.Second
		})
		last.run(t)
		time.Sleep(4 * time.Second)
		synctest.Wait()
		wantCount(t, "events with a shorter interval", b.broker.got(), 20)
	})
}

// TestSuccessorsOfSuccessors: whenever the configuration changes, in the midst
// of whatever is being published, each generation is announced in time and once.
func TestSuccessorsOfSuccessors(t *testing.T) {
	const n, changes, within = 10, 20, 40 * time.Second
	for seed := range uint64(5) {
		for mode, offer := range offers {
			t.Run(fmt.Sprintf("%s/%d", mode, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					dice, theirs := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 2))
					api := newFeedAPI(clusterIDs(n)...)
					offer(api)
					confirmed := map[string]int{}
					seen := map[string]string{}
					var mu sync.Mutex
					b := newFollower(t, api)
					b.broker.publish = func(ctx context.Context, e *cloudevent.Event) error {
						mu.Lock()
						latency, fails := time.Duration(theirs.IntN(2000))*time.Millisecond, theirs.IntN(4) == 0
						mu.Unlock()
						timer := time.NewTimer(latency)
						defer timer.Stop()
						select {
						case <-timer.C:
						case <-ctx.Done():
							return context.Cause(ctx)
						}
						if fails {
							return errDown
						}
						mu.Lock()
						defer mu.Unlock()
						key := e.Subject + string(e.Data)
						if confirmed[key]++; confirmed[key] > 1 {
							t.Errorf("announced %d times: %s, as %s before and %s now", confirmed[key], key, seen[key], e.ID)
						}
						seen[key] = e.ID
						return nil
					}
					owed := map[string]time.Time{}
					check := func() {
						mu.Lock()
						defer mu.Unlock()
						maps.DeleteFunc(owed, func(key string, _ time.Time) bool { return confirmed[key] > 0 })
						for key, at := range owed {
							if time.Since(at) > within {
								t.Fatalf("%s has not been announced for %s", key, time.Since(at))
							}
						}
					}
					configure := func(c *sentinel.Config, d *sentinel.Deps) {
						d.API, d.Log = api, nil
						c.MaxAgeNotReady, c.MaxAgeReady = time.Hour, time.Hour
						c.PollInterval = time.Duration(1+dice.IntN(5)) * time.Second
						c.Publish.Timeout, c.Publish.Window = time.Duration(1+dice.IntN(3))*time.Second, n+dice.IntN(20)
						c.MessageData = settings.OrderedMap{{Key: "generation", Value: ".generation"}}
						if dice.IntN(3) == 0 {
							c.Source.Mode = sentinel.ModeSweep
						}
					}
					generation := map[string]int{}
					for range changes {
						b = b.succeed(t, configure)
						stop := b.run(t)
						for range dice.IntN(4) {
							id, wait := clusterID(dice.IntN(n)), time.Duration(dice.IntN(4000))*time.Millisecond
							// One that is under way may be overtaken by the next, and is owed no more.
							maps.DeleteFunc(owed, func(key string, _ time.Time) bool { return key[:len(id)] == id })
							api.patch(id)
							generation[id] = max(1, generation[id]) + 1
							owed[fmt.Sprintf(`%s{"generation":"%d"}`, id, generation[id])] = time.Now()
							time.Sleep(wait)
						}
						check()
						stop()
					}
					b = b.succeed(t, configure)
					b.run(t)
					time.Sleep(within)
					check()
					if len(owed) > 0 {
						t.Errorf("never announced: %v", slices.Collect(maps.Keys(owed)))
					}
				})
			})
		}
	}
}

// series returns the values of the label shard in the registry.
func (b *fixture) series(t *testing.T) []string {
	t.Helper()
	families, err := b.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			found[labels["resource_type"]+" "+labels["shard"]] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// TestSuccessorOfAnother checks that a sentinel for other resources takes over no state, and that
// the old series end.
func TestSuccessorOfAnother(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(*sentinel.Config, *sentinel.Deps)
		series string
		again  bool // is what was announced announced again
	}{
		"Nothing":  {"nothing changed", func(*sentinel.Config, *sentinel.Deps) {}, "clusters all", false},
		"Profile":  {"an event is an event, whatever it was published for", func(c *sentinel.Config, _ *sentinel.Deps) { c.Decision.Profile = sentinel.ProfileTransitionAge }, "clusters all", false},
		"Selector": {"what it selects is known", func(c *sentinel.Config, _ *sentinel.Deps) { c.LabelSelector = "region=us-east" }, "clusters region=us-east", false},
		"Part":     {"what is ours is known", func(_ *sentinel.Config, d *sentinel.Deps) { d.Shard, d.Part = newShard("a"), "part 0/2" }, "clusters all part 0/2", false},
		"Broker":   {"what another broker has was published", func(_ *sentinel.Config, d *sentinel.Deps) { d.BrokerType = "rabbitmq" }, "clusters all", false},
		"Type":     {"the ids are of other things", func(c *sentinel.Config, _ *sentinel.Deps) { c.ResourceType = "nodepools" }, "nodepools all", true},
		"API":      {"the ids are of another fleet", func(c *sentinel.Config, _ *sentinel.Deps) { c.HyperfleetAPI.Endpoint = "http://other" }, "clusters all", true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ages := func(c *sentinel.Config, _ *sentinel.Deps) { c.MaxAgeNotReady, c.MaxAgeReady = time.Hour, time.Hour }
				b := newFixture(t, newAPI(cluster("a", "Provisioning", 2, 1)), ages)
				b.api.change("a", func(r *v1.Resource) { r.Status.LastTransitionTime = time.Now().Add(-2 * time.Hour) })
				stop := b.run(t)
				time.Sleep(time.Minute)
				stop()
				wantCount(t, "events before", b.broker.got(), 1)
				next := b.succeed(t, ages, tc.change)
				if diff := cmp.Diff([]string{tc.series}, next.series(t)); diff != "" {
					t.Errorf("%s: series (-want +got)\n%s", tc.reason, diff)
				}
				b.Close() // takes nothing away from the one that goes on
				stop = next.run(t)
				time.Sleep(time.Minute)
				stop()
				wantCount(t, tc.reason+": events", b.broker.got(), map[bool]int{false: 1, true: 2}[tc.again])
				if got := next.Stats().Published; got != uint64(len(b.broker.got())) {
					t.Errorf("%s: %d published", tc.reason, got)
				}
				next.Close()
				next.Close()
				if got := next.series(t); len(got) > 0 {
					t.Errorf("%s: %v are left", tc.reason, got)
				}
			})
		})
	}
}

// TestSuccessorForgetsWhoWaits: a resource that is not looked after any more does not
// count as one that waits for its adapters.
func TestSuccessorForgetsWhoWaits(t *testing.T) {
	inEveryMode(t, func(t *testing.T, _ sentinel.Mode, offer func(*feedAPI)) {
		t.Helper()
		fleet := clusterIDs(2)
		fleet[0].Generation, fleet[0].Labels = 2, map[string]string{"region": "eu"}
		fleet[1].Generation = 2
		fleet[0].Status.LastUpdatedTime, fleet[0].UpdatedTime = time.Now().Add(-time.Hour), time.Now().Add(-time.Hour)
		api := newFeedAPI(fleet...)
		offer(api)
		b := newFollower(t, api)
		stop := b.run(t)
		time.Sleep(time.Second)
		stop()
		if got := b.metric(t, "oldest_unreconciled_generation_seconds"); got < 3600 {
			t.Errorf("the oldest waits for %v s", got)
		}
		next := b.succeed(t, func(c *sentinel.Config, d *sentinel.Deps) { d.API, c.LabelSelector = api, "region=us-east" })
		next.run(t)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if got := next.metric(t, "oldest_unreconciled_generation_seconds"); got < 60 || got > 120 {
			t.Errorf("the oldest waits for %v s, although another is not looked after any more", got)
		}
	})
}

// TestSuccessorRefused checks that a sentinel with an invalid configuration leaves its predecessor
// intact. A running predecessor is refused.
func TestSuccessorRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, newAPI(cluster("a", "", 2, 1)))
		succeed := func(cfg sentinel.Config, reg prometheus.Registerer) error {
			_, err := sentinel.New(cfg, sentinel.Deps{API: b.api, Publisher: b.broker, Registerer: reg, Predecessor: b.Sentinel})
			return err
		}
		stop := b.run(t)
		synctest.Wait()
		if succeed(sentinel.Config{ResourceType: "clusters"}, b.reg) == nil {
			t.Error("one goes on from another that runs")
		}
		stop()
		if succeed(sentinel.Config{ResourceType: "moons"}, b.reg) == nil {
			t.Error("a bad configuration is taken")
		}
		taken := prometheus.NewRegistry()
		newFixture(t, b.api, func(c *sentinel.Config, d *sentinel.Deps) { c.ResourceType, d.Registerer = "nodepools", taken })
		if succeed(sentinel.Config{ResourceType: "nodepools"}, taken) == nil {
			t.Error("series that another has are taken")
		}
		b.wantMetric(t, 1, "events_published_total")
		if err := succeed(sentinel.Config{ResourceType: "clusters"}, b.reg); err != nil {
			t.Errorf("the one before is spoilt: %v", err)
		}
		if succeed(sentinel.Config{ResourceType: "clusters"}, b.reg) == nil {
			t.Error("two go on from one")
		}
	})
}

// TestSuccessorKeepsTheBudget: a configuration that changes again and again does
// not let more events out.
func TestSuccessorKeepsTheBudget(t *testing.T) {
	const rate = 10
	inEveryMode(t, func(t *testing.T, _ sentinel.Mode, offer func(*feedAPI)) {
		t.Helper()
		fleet := clusterIDs(400)
		for i := range fleet {
			fleet[i].Status.LastUpdatedTime = time.Now().Add(-time.Hour)
		}
		api := newFeedAPI(fleet...)
		offer(api)
		slow := func(c *sentinel.Config, d *sentinel.Deps) {
			c.Publish.CatchUpFloor, c.MaxAgeReady, d.API, d.Log = rate, 3*time.Hour, api, nil
			c.Decision = sentinel.Decision{Profile: sentinel.ProfileTransitionAge}
		}
		for i := range fleet {
			api.change(clusterID(i), func(r *v1.Resource) { r.Status.LastTransitionTime = time.Now().Add(-24 * time.Hour) })
		}
		b := newFixture(t, api.fakeAPI, slow)
		stop := b.run(t)
		for range 20 {
			time.Sleep(500 * time.Millisecond)
			stop()
			b = b.succeed(t, slow)
			stop = b.run(t)
		}
		synctest.Wait()
		if got := len(b.broker.got()); got > 15*rate || got < 5*rate {
			t.Errorf("%d events in 10 s, want about %d", got, 10*rate)
		}
	})
}

// TestStats checks that Stats distinguishes a failed API from a failed broker, and that each round
// reports.
func TestStats(t *testing.T) {
	inEveryMode(t, func(t *testing.T, mode sentinel.Mode, offer func(*feedAPI)) {
		t.Helper()
		api := newFeedAPI(clusterIDs(5)...)
		offer(api)
		var mu sync.Mutex
		var told []sentinel.Stats
		b := newFollower(t, api, func(_ *sentinel.Config, d *sentinel.Deps) {
			d.OnRound = func(s sentinel.Stats) {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, s)
			}
		})
		if got := b.Stats(); got.APIErr == nil || got.BrokerErr != nil || got.Rounds != 0 || !got.LastRound.IsZero() {
			t.Errorf("before the first answer: %+v", got)
		}
		b.run(t)
		synctest.Wait()
		mu.Lock()
		if len(told) == 0 || told[0].Rounds != 1 || told[0].Resources != 5 || told[0].Mode != mode || told[0].APIErr != nil {
			t.Errorf("the first round tells at once: %+v", told)
		}
		mu.Unlock()
		b.broker.ready = errDown
		if got := b.Stats(); got.APIErr != nil || got.BrokerErr == nil {
			t.Errorf("the broker is down: %+v", got)
		}
		before := b.Stats().Rounds
		api.fakeAPI.mu.Lock()
		api.before = func(context.Context, url.Values) error { return errDown }
		api.fakeAPI.mu.Unlock()
		api.disconnect()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		got := b.Stats()
		mu.Lock()
		defer mu.Unlock()
		if got.APIErr == nil || told[len(told)-1].APIErr == nil || got.Rounds > before+1 || len(told) < 3 {
			t.Errorf("the API is down: %+v, and %d rounds tell", got, len(told))
		}
	})
}
