package sentinel_test

import (
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/sentinel"
)

// expired returns n ready resources whose age passes after some time.
func expired(n int, after time.Duration) []v1.Resource {
	fleet := clusterIDs(n)
	for i := range fleet {
		fleet[i].Status.LastUpdatedTime = time.Now().Add(after - 30*time.Minute)
	}
	return fleet
}

// newDefault returns a sentinel that logs rounds but no single events. A floor of zero means the
// default configuration.
func newDefault(t *testing.T, api *feedAPI, floor float64) (*fixture, *logBuffer) {
	t.Helper()
	log := &logBuffer{}
	b := newFollower(t, api, func(c *sentinel.Config, d *sentinel.Deps) {
		c.LogEvents, c.Publish.CatchUpFloor = sentinel.LogEventsDebug, floor
		d.Log = slog.New(slog.NewTextHandler(log, nil))
	})
	return b, log
}

// TestExpiredGoOutInTheirRound: the default configuration publishes 10,000
// resources in the round in which they expire. That includes a sentinel's
// first round.
func TestExpiredGoOutInTheirRound(t *testing.T) {
	if testing.Short() {
		t.Skip("plays large fleets")
	}
	const n = 10_000
	for name, after := range map[string]time.Duration{"AtTheStart": 0, "Later": 7 * time.Second} {
		t.Run(name, func(t *testing.T) {
			inEveryMode(t, func(t *testing.T, mode sentinel.Mode, offer func(*feedAPI)) {
				t.Helper()
				api := newFeedAPI(expired(n, after)...)
				offer(api)
				b, log := newDefault(t, api, 0)
				b.run(t)
				time.Sleep(after + 9*time.Second)
				synctest.Wait()
				events := b.broker.got()
				if len(events) != n {
					t.Fatalf("%d events, want %d", len(events), n)
				}
				if took := events[n-1].at.Sub(events[0].at); took > 3*time.Second {
					t.Errorf("the events went out within %s, want one round", took)
				}
				b.wantMode(t, mode)
				b.wantMetric(t, 0, "decisions_total", "reason", "publish budget exhausted, deferred")
				b.wantMetric(t, 0, "resources_deferred_total", "ready_state", "ready")
				b.wantMetric(t, 0, "deferred_resources")
				if len(log.lines("deferred=0")) == 0 || len(log.lines("deferred=0")) != len(log.lines("poll completed")) {
					t.Errorf("the rounds do not say that nothing was deferred:\n%s", log)
				}
			})
		})
	}
}

// TestDeferred checks that a round defers the events above its budget. They count as deferred and
// not as skipped, and drain at the documented rate. The default rate of 2,500 per second is checked
// in one mode, and a lower one in the others.
func TestDeferred(t *testing.T) {
	if testing.Short() {
		t.Skip("plays large fleets")
	}
	inEveryMode(t, func(t *testing.T, mode sentinel.Mode, offer func(*feedAPI)) {
		t.Helper()
		rate, floor := 400, 400.0
		if mode == sentinel.ModeWatch {
			rate, floor = 2500, 0
		}
		perRound := rate * 99 / 20 // for 0.99 poll intervals
		n := 10 * rate
		api := newFeedAPI(expired(n, 7*time.Second)...)
		offer(api)
		b, log := newDefault(t, api, floor)
		b.run(t)
		time.Sleep(7 * time.Second)
		synctest.Wait()
		skippedBefore := b.metric(t, "resources_skipped_total", "ready_state", "ready")
		counted := 0.0
		for round, left := range []int{n - perRound, n - 2*perRound, 0} {
			time.Sleep(5 * time.Second)
			synctest.Wait()
			if got := len(b.broker.got()); got != n-left {
				t.Errorf("%d events after round %d, want %d", got, round, n-left)
			}
			counted += float64(left)
			b.wantMetric(t, float64(left), "deferred_resources")
			b.wantMetric(t, counted, "resources_deferred_total", "ready_state", "ready")
			// Only resources published earlier are skipped as announced.
			published := []float64{0, float64(perRound), 3 * float64(perRound)}[round]
			if got := b.metric(t, "resources_skipped_total", "ready_state", "ready") - skippedBefore; got != published {
				t.Errorf("%v resources were skipped until round %d, want %v", got, round, published)
			}
		}
		for _, left := range []int{n - perRound, n - 2*perRound} {
			want := fmt.Sprint("deferred=", left)
			wantCount(t, want, log.lines(want+" "), 1)
		}
		b.wantMetric(t, 0, "resources_deferred_total", "ready_state", "not_ready")
	})
}
