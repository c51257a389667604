package sentinel_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
	"github.com/fleetloop/fleetloop/internal/sentinel"
)

func TestAPIErrors(t *testing.T) {
	cases := map[string]struct {
		reason   string
		err      error
		wantGap  time.Duration
		wantText string
	}{
		"Down":         {reason: "wait the interval", err: errDown, wantGap: 5 * time.Second, wantText: "it is down"},
		"Unauthorized": {reason: "the client looks for another token; we only wait", err: errors.New("401 unauthorized"), wantGap: 5 * time.Second, wantText: "401"},
		"Later":        {reason: "wait as long as the server asks", err: retryLaterError(30 * time.Second), wantGap: 30 * time.Second, wantText: "429"},
		"Sooner":       {reason: "but never less than the interval", err: retryLaterError(time.Second), wantGap: 5 * time.Second, wantText: "429"},
		"NextYear":     {reason: "and never for ever", err: retryLaterError(9000 * time.Hour), wantGap: 5 * time.Minute, wantText: "429"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := newAPI(cluster("a", "", 1, 0))
				left := 3
				api.before = func(context.Context, url.Values) error {
					if left--; left >= 0 {
						return tc.err
					}
					return nil
				}
				b := newFixture(t, api)
				b.run(t)
				synctest.Wait()
				if err := b.Ready(); err == nil || !strings.Contains(err.Error(), tc.wantText) {
					t.Errorf("ready: %v", err)
				}
				if err := b.Live(); err != nil {
					t.Errorf("an API that is down is no reason to restart: %v", err)
				}
				time.Sleep(3 * tc.wantGap)
				synctest.Wait()
				calls := api.calls()
				wantCount(t, tc.reason+": requests", calls, 4)
				for i := range 3 {
					if gap := calls[i+1].at.Sub(calls[i].at); gap != tc.wantGap {
						t.Errorf("%s: gap %s, want %s", tc.reason, gap, tc.wantGap)
					}
				}
				b.wantMetric(t, 3, "api_errors_total", "operation", "fetch_resources")
				wantCount(t, "events", b.broker.got(), 1)
				wantCount(t, "error lines", b.log.lines(`level=ERROR msg="poll failed"`), 3)
				if err := b.Ready(); err != nil {
					t.Errorf("ready after all: %v", err)
				}
			})
		})
	}
}

func TestAPITimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI()
		api.before = func(ctx context.Context, _ url.Values) error { <-ctx.Done(); return ctx.Err() }
		b := newFixture(t, api, func(c *sentinel.Config, _ *sentinel.Deps) { c.HyperfleetAPI.Timeout = 2 * time.Second })
		stop := b.run(t)
		time.Sleep(15 * time.Second)
		calls := api.calls()
		wantCount(t, "requests", calls, 3)
		if gap := calls[1].at.Sub(calls[0].at); gap != 7*time.Second {
			t.Errorf("gap %s, want the timeout and the interval", gap)
		}
		wantCount(t, "error lines", b.log.lines("no response in time"), 2)
		if took := stop(); took != 0 {
			t.Errorf("stopping took %s", took)
		}
		b.wantMetric(t, 2, "api_errors_total", "operation", "fetch_resources")
	})
}

// TestPublishFails: an event that fails is tried again with growing gaps, then
// left to the next round; the others do not wait.
func TestPublishFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, newAPI(cluster("bad", "", 1, 0), cluster("good", "", 1, 0)))
		var mu sync.Mutex
		var all []time.Time
		b.broker.publish = func(_ context.Context, e *cloudevent.Event) error {
			if e.Subject == "bad" {
				mu.Lock()
				defer mu.Unlock()
				all = append(all, time.Now())
				return errDown
			}
			return nil
		}
		soFar := func() []time.Time {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(all)
		}
		b.run(t)
		time.Sleep(5*time.Second - time.Nanosecond)
		synctest.Wait()
		tries := soFar()
		wantCount(t, "tries", tries, 4)
		for i, most := range []time.Duration{200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond} {
			gap := tries[i+1].Sub(tries[i])
			if gap > most || gap < most*8/10 {
				t.Errorf("gap %d is %s", i, gap)
			}
		}
		wantCount(t, "events", b.broker.got(), 1)
		if at := b.broker.got()[0].at; !at.Equal(tries[0]) {
			t.Errorf("the other waited %s", at.Sub(tries[0]))
		}
		b.wantMetric(t, 1, "broker_errors_total")
		b.wantMetric(t, 3, "publish_retries_total")
		b.wantMetric(t, 1, "events_published_total")
		wantCount(t, "error lines", b.log.lines(`level=ERROR msg="event not published, retrying in the next poll" resource_type=clusters selector="" resource_id=bad reason="generation changed`), 1)
		time.Sleep(2 * time.Nanosecond)
		synctest.Wait()
		wantCount(t, "tries with the next round", soFar(), 5)
	})
}

// TestBrokerDown: when everything fails the round is not good, the log is not
// flooded, and once the broker is back everything goes out.
func TestBrokerDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI()
		for i := range 300 {
			api.put(cluster(fmt.Sprint(i), "", 1, 0))
		}
		b := newFixture(t, api)
		var up atomic.Bool
		b.broker.ready = errDown
		b.broker.publish = func(context.Context, *cloudevent.Event) error {
			if up.Load() {
				return nil
			}
			return errDown
		}
		b.run(t)
		time.Sleep(12 * time.Second)
		if err := b.Ready(); err == nil || err.Error() != "broker: it is down" {
			t.Errorf("ready: %v", err)
		}
		if err := b.Live(); err != nil {
			t.Errorf("live: %v", err)
		}
		b.wantMetric(t, 0, "last_successful_poll_timestamp_seconds")
		wantCount(t, "lines, one for each resource", b.log.lines("event not published"), 300)
		if n := len(b.log.lines("events not published again")); n > 3 {
			t.Errorf("%d lines about what failed again", n)
		}
		up.Store(true)
		time.Sleep(5 * time.Second)
		wantCount(t, "events", b.broker.got(), 300)
		time.Sleep(time.Minute)
		if len(b.log.lines("omitted_before=")) > 0 {
			t.Error("lines were reported as left out although none came after")
		}
	})
}

// TestOneSlowResource: an event whose confirm does not come holds up neither
// the others nor, beyond its bound, the round.
func TestOneSlowResource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI()
		for i := range 50 {
			api.put(cluster(fmt.Sprint(i), "", 1, 0))
		}
		b := newFixture(t, api, func(c *sentinel.Config, _ *sentinel.Deps) {
			c.Publish.Window, c.Publish.Timeout, c.Publish.Attempts = 2, time.Second, 1
		})
		b.broker.publish = func(ctx context.Context, e *cloudevent.Event) error {
			if e.Subject == "7" {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		begin := time.Now()
		b.run(t)
		synctest.Wait()
		wantCount(t, "events at once", b.broker.got(), 49)
		time.Sleep(time.Second)
		synctest.Wait()
		wantCount(t, "why", b.log.lines("no confirmation from the broker in time"), 1)
		wantCount(t, "the round ended", b.log.lines("poll completed"), 1)
		time.Sleep(5*time.Second - time.Since(begin))
		synctest.Wait()
		wantCount(t, "the next came in time", b.api.calls(), 2)
	})
}

func TestStop(t *testing.T) {
	hang := func(ctx context.Context, _ *cloudevent.Event) error { <-ctx.Done(); return ctx.Err() }
	slow := func(ctx context.Context, _ *cloudevent.Event) error {
		return backoff.Sleep(ctx, 3*time.Second)
	}
	cases := map[string]struct {
		reason    string
		publish   func(context.Context, *cloudevent.Event) error
		before    func(context.Context, url.Values) error
		after     time.Duration
		wantTook  time.Duration
		wantCount int
	}{
		"Asleep":        {reason: "at once", after: 7 * time.Second, wantCount: 30},
		"InConfirms":    {reason: "what is under way is awaited, nothing else begins", publish: slow, after: time.Second, wantTook: 2 * time.Second, wantCount: 4},
		"Blocked":       {reason: "no longer than the bound", publish: hang, after: time.Second, wantTook: 4 * time.Second},
		"InRetries":     {reason: "a wait is cut short", publish: func(context.Context, *cloudevent.Event) error { return errDown }, after: 50 * time.Millisecond},
		"WhileFetching": {reason: "at once", before: func(ctx context.Context, _ url.Values) error { <-ctx.Done(); return ctx.Err() }, after: time.Second},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := newAPI()
				for i := range 30 {
					api.put(cluster(fmt.Sprint(i), "Ready", 1, 0))
				}
				api.before = tc.before
				b := newFixture(t, api, func(c *sentinel.Config, _ *sentinel.Deps) {
					c.Publish.Window, c.ShutdownTimeout, c.Publish.Timeout = 4, 4*time.Second, time.Minute
				})
				b.broker.publish = tc.publish
				stop := b.run(t)
				time.Sleep(tc.after)
				if took := stop(); took != tc.wantTook {
					t.Errorf("%s: took %s, want %s", tc.reason, took, tc.wantTook)
				}
				wantCount(t, tc.reason+": events", b.broker.got(), tc.wantCount)
				time.Sleep(time.Minute)
				wantCount(t, "events after the stop", b.broker.got(), tc.wantCount)
				wantCount(t, "error lines", b.log.lines("level=ERROR"), 0)
				if err := b.Live(); err != nil {
					t.Errorf("live when stopped: %v", err)
				}
			})
		})
	}
}

func TestOverrun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI(cluster("a", "Ready", 1, 1))
		api.before = func(ctx context.Context, _ url.Values) error { time.Sleep(7 * time.Second); return ctx.Err() }
		b := newFixture(t, api)
		b.run(t)
		time.Sleep(22 * time.Second)
		calls := api.calls()
		wantCount(t, "requests", calls, 4)
		if gap := calls[1].at.Sub(calls[0].at); gap != 7*time.Second {
			t.Errorf("gap %s, want the next at once", gap)
		}
		b.wantMetric(t, 3, "poll_overruns_total")
		wantCount(t, "warnings", b.log.lines("poll took longer than the poll interval"), 3)
	})
}

func TestPollInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI(cluster("a", "Ready", 1, 1))
		api.before = func(ctx context.Context, _ url.Values) error { time.Sleep(time.Second); return ctx.Err() }
		b := newFixture(t, api)
		b.run(t)
		time.Sleep(61 * time.Second)
		wantCount(t, "requests", api.calls(), 13)
		b.wantMetric(t, 0, "poll_overruns_total")
	})
}

// TestLive: a loop that hangs is not alive, one that waits long is.
func TestLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI()
		b := newFixture(t, api, func(c *sentinel.Config, _ *sentinel.Deps) { c.PollInterval = 24 * time.Hour })
		if err := b.Live(); err != nil {
			t.Errorf("before it runs: %v", err)
		}
		if err := b.Ready(); err == nil || err.Error() != "no response from the fleet API yet" {
			t.Errorf("ready before it runs: %v", err)
		}
		hung := make(chan struct{})
		defer close(hung)
		api.before = func(context.Context, url.Values) error {
			if len(api.calls()) > 1 {
				<-hung // deaf to its context
			}
			return nil
		}
		b.run(t)
		time.Sleep(23 * time.Hour)
		if err := b.Live(); err != nil {
			t.Errorf("while it waits: %v", err)
		}
		time.Sleep(time.Hour + 30*time.Second)
		if err := b.Live(); err != nil {
			t.Errorf("shortly after the request: %v", err)
		}
		time.Sleep(5 * time.Minute)
		if err := b.Live(); err == nil || !strings.Contains(err.Error(), "no progress since") {
			t.Errorf("long after the request: %v", err)
		}
	})
}
