package sentinel_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fleetloop/fleetloop/internal/cloudevent"
	"github.com/fleetloop/fleetloop/internal/sentinel"
)

// A fakeShard owns the resources that a test assigns.
type fakeShard struct {
	mu      sync.Mutex
	owned   map[string]bool
	held    map[string]int
	changed chan struct{}
	free    *sync.Cond // held has shrunk
}

func newShard(ids ...string) *fakeShard {
	s := &fakeShard{owned: map[string]bool{}, held: map[string]int{}, changed: make(chan struct{})}
	s.free = sync.NewCond(&s.mu)
	for _, id := range ids {
		s.owned[id] = true
	}
	return s
}

func (s *fakeShard) Owns(id []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.owned[string(id)]
}

func (s *fakeShard) Acquire(id []byte) (func(), bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := string(id)
	if !s.owned[key] {
		return nil, false
	}
	s.held[key]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.held[key]--; s.held[key] == 0 {
			delete(s.held, key)
		}
		s.free.Broadcast()
	}, true
}

func (s *fakeShard) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// divide adds some resources to the shard and removes others.
func (s *fakeShard) divide(give, take []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range give {
		s.owned[id] = true
	}
	for _, id := range take {
		delete(s.owned, id)
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

// drained waits until no event about some resources is in flight.
func (s *fakeShard) drained(ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for slices.ContainsFunc(ids, func(id string) bool { return s.held[id] > 0 }) {
		s.free.Wait()
	}
}

func (s *fakeShard) holds(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held[id] > 0
}

// ids returns the ids of clusters from one number to another.
func ids(from, to int) []string {
	var all []string
	for i := from; i < to; i++ {
		all = append(all, clusterID(i))
	}
	return all
}

// offers holds functions that enable a mode in an API.
var offers = map[sentinel.Mode]func(*feedAPI){
	sentinel.ModeSweep:  func(a *feedAPI) { a.cursors, a.watches = false, false },
	sentinel.ModeETag:   func(a *feedAPI) { a.cursors, a.watches, a.tags = false, false, true },
	sentinel.ModeCursor: func(a *feedAPI) { a.watches = false },
	sentinel.ModeWatch:  func(*feedAPI) {},
}

// inEveryMode runs a test for each mode, in a bubble.
func inEveryMode(t *testing.T, test func(t *testing.T, mode sentinel.Mode, offer func(*feedAPI))) {
	t.Helper()
	for mode, offer := range offers {
		t.Run(string(mode), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, mode, offer) })
		})
	}
}

// TestShard checks that only owned resources are published and counted. Gained resources are
// published at once, and lost ones no more.
func TestShard(t *testing.T) {
	const age = 3 * time.Hour
	inEveryMode(t, func(t *testing.T, mode sentinel.Mode, offer func(*feedAPI)) {
		t.Helper()
		fleet := clusterIDs(20)
		for i := range fleet {
			fleet[i].Generation = 2 // which nobody has observed
		}
		fleet[0].Status.LastUpdatedTime, fleet[0].UpdatedTime = time.Now().Add(-time.Hour), time.Now().Add(-time.Hour)
		api := newFeedAPI(fleet...)
		offer(api)
		shard := newShard(ids(0, 10)...)
		b := newFollower(t, api, func(c *sentinel.Config, d *sentinel.Deps) {
			c.Source.FullSweepInterval, c.PollInterval, c.HyperfleetAPI.PageSize = age, time.Minute, 3
			c.MaxAgeReady, c.MaxAgeNotReady = age, age
			d.Shard = shard
		})
		b.run(t)
		time.Sleep(61 * time.Second)
		synctest.Wait()
		b.wantMode(t, mode)
		wantCount(t, "events about what is ours", b.broker.got(), 10)
		wantCount(t, "events about another's", b.broker.of(clusterID(10)), 0)
		b.wantMetric(t, 10, "pending_resources")
		b.wantMetric(t, 10, "decisions_total", "reason", "generation changed - new spec to reconcile")
		b.wantMetric(t, 10, "published_cache_entries")
		if got := b.Stats(); got.Resources != 10 || got.Published != 10 || got.Mode != mode || got.Rounds == 0 {
			t.Errorf("stats: %+v", got)
		}

		time.Sleep(10 * time.Second)
		shard.divide(ids(10, 15), nil)
		synctest.Wait()
		wantCount(t, "events at once after some were gained", b.broker.got(), 15)

		shard.divide(nil, ids(0, 5))
		synctest.Wait()
		for i := range 5 {
			api.patch(clusterID(i))
		}
		api.patch(clusterID(7))
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		wantCount(t, "events after some were lost", b.broker.got(), 16)
		b.wantMetric(t, 10, "pending_resources")
		if got := b.Stats().Resources; got != 10 {
			t.Errorf("%d resources in the stats", got)
		}
		if got := b.metric(t, "oldest_unreconciled_generation_seconds"); got > 1800 {
			t.Errorf("the oldest waits for %v s, and that is another's", got)
		}

		time.Sleep(age + age/20) // all fall due by their age
		synctest.Wait()
		for i := range 5 {
			wantCount(t, "events about one that is lost", b.broker.of(clusterID(i)), 1)
		}
		for i := 5; i < 15; i++ {
			if got := len(b.broker.of(clusterID(i))); got < 2 {
				t.Errorf("%d events about %s, which is still ours, after its age", got, clusterID(i))
			}
		}
		shard.divide(ids(0, 20), nil)
		synctest.Wait()
		for i := range 5 {
			wantCount(t, "events about one that has come back", b.broker.of(clusterID(i)), 2)
			wantCount(t, "events about one that was never here", b.broker.of(clusterID(15+i)), 1)
		}
		b.wantMetric(t, 0, "broker_errors_total")
	})
}

// TestShardLostWhilePublishing: an event that waits for its next attempt is
// dropped when the resource is another's by then. It is no failure, and nothing
// is left of it that could hold up the next event.
func TestShardLostWhilePublishing(t *testing.T) {
	inEveryMode(t, func(t *testing.T, _ sentinel.Mode, offer func(*feedAPI)) {
		t.Helper()
		fleet := clusterIDs(3)
		fleet[1].Generation = 2
		api := newFeedAPI(fleet...)
		offer(api)
		shard := newShard(ids(0, 3)...)
		tries := 0
		b := newFollower(t, api, func(c *sentinel.Config, d *sentinel.Deps) {
			c.Source.FullSweepInterval, c.Publish.InitialBackoff, c.Publish.MaxBackoff = 24*time.Hour, 5*time.Second, 5*time.Second
			d.Shard = shard
		})
		b.broker.publish = func(context.Context, *cloudevent.Event) error {
			if !shard.holds(clusterID(1)) {
				t.Error("published without having acquired it")
			}
			if tries++; tries == 1 {
				return errDown
			}
			return nil
		}
		b.run(t)
		time.Sleep(time.Second)
		shard.divide(nil, ids(1, 2))
		time.Sleep(time.Minute)
		synctest.Wait()
		if tries != 1 || shard.holds(clusterID(1)) {
			t.Errorf("%d attempts, and held: %t; want only the one before it was lost", tries, shard.holds(clusterID(1)))
		}
		b.wantMetric(t, 0, "broker_errors_total")
		b.wantMetric(t, 0, "publish_retries_total")
		wantCount(t, "lines of an event that failed", b.log.lines("event not published"), 0)
		if e := b.Decisions().ListDecisions(clusterID(1)); len(e) == 0 || e[0].Err == "" {
			t.Errorf("the record does not say what became of it: %+v", e)
		}
		shard.divide(ids(1, 2), nil)
		synctest.Wait()
		wantCount(t, "events when it has come back", b.broker.got(), 1)
		b.wantMetric(t, 3, "pending_resources")
	})
}

// TestShardLooksUpItsOwn checks that a lost resource is not looked up any more, even if lists fail.
func TestShardLooksUpItsOwn(t *testing.T) {
	for _, mode := range []sentinel.Mode{sentinel.ModeCursor, sentinel.ModeWatch} {
		t.Run(string(mode), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := newFeedAPI(clusterIDs(4)...)
				offers[mode](api)
				shard := newShard(ids(0, 4)...)
				b := newFollower(t, api, func(c *sentinel.Config, d *sentinel.Deps) { d.Shard, c.MaxAgeReady = shard, 10*time.Minute })
				b.run(t)
				time.Sleep(time.Minute)
				api.fakeAPI.mu.Lock()
				api.before = func(_ context.Context, q url.Values) error {
					if q.Has("limit") && !q.Has("changed_since") {
						return errDown
					}
					return nil
				}
				api.fakeAPI.mu.Unlock()
				shard.divide(nil, ids(0, 2))
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				for _, call := range api.calls() {
					if strings.Contains(call.query, "ids=") && (strings.Contains(call.query, clusterID(0)) || !strings.Contains(call.query, clusterID(2))) {
						t.Errorf("looked up: %s", call.query)
					}
				}
				wantCount(t, "events about what is still ours", b.broker.got(), 2)
			})
		})
	}
}

// TestDividedAllTheTime: a list that takes longer than the times between changes comes
// to its end nevertheless.
func TestDividedAllTheTime(t *testing.T) {
	inEveryMode(t, func(t *testing.T, _ sentinel.Mode, offer func(*feedAPI)) {
		t.Helper()
		api := newFeedAPI(clusterIDs(20)...)
		offer(api)
		api.before = func(context.Context, url.Values) error {
			time.Sleep(time.Second)
			return nil
		}
		shard := newShard(ids(0, 20)...)
		b := newFollower(t, api, func(c *sentinel.Config, d *sentinel.Deps) {
			c.HyperfleetAPI.PageSize = 2
			d.Shard = shard
		})
		b.run(t)
		for range 60 {
			time.Sleep(3 * time.Second)
			shard.divide(nil, nil)
		}
		if b.metric(t, "last_full_sweep_timestamp_seconds") == 0 {
			t.Error("no list has come to its end")
		}
	})
}

// transfer moves resources from one of two shards to the other, as a group of sentinels does. The
// old owner finishes its attempts before the new owner gets them.
func transfer(from, to *fakeShard, ids []string) {
	from.divide(nil, ids)
	from.drained(ids)
	to.divide(ids, nil)
}

// TestTransfers: while resources go to and fro between two sentinels, the two
// never publish about one at a time, and none is forgotten.
func TestTransfers(t *testing.T) {
	const n, patches, within = 12, 40, 30 * time.Second
	for seed := range uint64(5) {
		for mode, offer := range offers {
			t.Run(fmt.Sprintf("%s/%d", mode, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					dice := rand.New(rand.NewPCG(seed, 0))
					api := newFeedAPI(clusterIDs(n)...)
					offer(api)
					broker := &sharedBroker{
						dice: rand.New(rand.NewPCG(seed, 1)),
						busy: [2]map[string]int{{}, {}}, failures: map[string]int{}, confirmed: map[string]time.Time{},
					}
					shards := []*fakeShard{newShard(ids(0, n)...), newShard()}
					for i, shard := range shards {
						b := newFollower(t, api, func(c *sentinel.Config, d *sentinel.Deps) {
							c.Source.FullSweepInterval, c.Publish.Timeout, c.Publish.InitialBackoff = time.Hour, 2*time.Second, 100*time.Millisecond
							d.Shard, d.Log = shard, nil
						})
						b.broker.publish = func(ctx context.Context, e *cloudevent.Event) error { return broker.publish(ctx, t, i, e) }
						b.run(t)
					}
					where := map[string]int{}
					patched := map[string]time.Time{}
					check := func(now time.Time) {
						for id, at := range patched {
							done := broker.last(id)
							if done.After(at) {
								delete(patched, id)
							} else if now.Sub(at) > within {
								t.Fatalf("%s was patched %s ago and not published since", id, now.Sub(at))
							}
						}
					}
					for range patches {
						id := clusterID(dice.IntN(n))
						api.patch(id)
						if _, ok := patched[id]; !ok {
							patched[id] = time.Now()
						}
						time.Sleep(time.Duration(dice.IntN(2000)) * time.Millisecond)
						var move []string
						from := dice.IntN(2)
						for i := range n {
							if id := clusterID(i); where[id] == from && dice.IntN(3) == 0 {
								move = append(move, id)
								where[id] = 1 - from
							}
						}
						transfer(shards[from], shards[1-from], move)
						check(time.Now())
					}
					time.Sleep(within)
					synctest.Wait()
					check(time.Now())
					if len(patched) > 0 {
						t.Errorf("never published: %v", slices.Collect(maps.Keys(patched)))
					}
				})
			})
		}
	}
}

// A sharedBroker is slow and sometimes fails, but not more than three times in a row about a
// resource. It checks that no two sentinels publish about a resource concurrently.
type sharedBroker struct {
	mu        sync.Mutex
	dice      *rand.Rand
	busy      [2]map[string]int // how often each publishes about a resource
	failures  map[string]int    // in a row
	confirmed map[string]time.Time
}

func (b *sharedBroker) publish(ctx context.Context, t *testing.T, who int, e *cloudevent.Event) error {
	t.Helper()
	b.mu.Lock()
	// One sentinel may: a generation does not wait for the one before it.
	if other := b.busy[1-who][e.Subject]; other != 0 {
		t.Errorf("%d publishes about %s while the other does", who, e.Subject)
	}
	b.busy[who][e.Subject]++
	latency, fails := time.Duration(b.dice.IntN(3000))*time.Millisecond, b.dice.IntN(4) == 0
	if b.failures[e.Subject]++; b.failures[e.Subject] > 3 {
		latency, fails = latency/10, false
	}
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.busy[who][e.Subject]--
	}()
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
	b.mu.Lock()
	defer b.mu.Unlock()
	b.confirmed[e.Subject], b.failures[e.Subject] = time.Now(), 0
	return nil
}

func (b *sharedBroker) last(id string) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.confirmed[id]
}
