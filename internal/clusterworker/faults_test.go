package clusterworker

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

func TestRowsOwnFailures(t *testing.T) {
	cases := map[string]struct {
		reason string
		spec   string
		on     func(context.Context, verb, string) error
		class  ErrorClass
		text   string
	}{
		"Invalid":     {reason: "Gardener refuses it", on: refuses(shoot.ClassInvalid), class: "invalid_shoot", text: "refused as invalid_shoot"},
		"Forbidden":   {reason: "a right is missing", on: refuses(shoot.ClassForbidden), class: "forbidden", text: "refused as forbidden"},
		"Conflict":    {reason: "it changed under the request", on: refuses(shoot.ClassConflict), class: "conflict", text: "refused as conflict"},
		"OneShoot":    {reason: "Gardener answers a probe, so it is this Shoot", on: refuses(shoot.ClassUnavailable), class: "unavailable", text: "refused as unavailable"},
		"Timeout":     {reason: "a call that ends by our own timeout", on: func(ctx context.Context, _ verb, _ string) error { <-ctx.Done(); return ctx.Err() }, class: ClassTimeout, text: "context deadline exceeded"},
		"Unclassed":   {reason: "an error that nobody foresaw", on: func(context.Context, verb, string) error { return errors.New("odd") }, class: "unknown", text: "odd"},
		"NewClass":    {reason: "classes are a closed set", on: refuses("solar_flare"), class: "unknown", text: "refused as solar_flare"},
		"InvalidSpec": {reason: "no Shoot can be made; the database would not take the text as it is", spec: "bad", class: ClassBadSpec, text: "no region\uFFFD \uFFFD"},
		"MakerPanics": {reason: "a fault of ours", spec: "panic", class: ClassPanic, text: "out of my depth"},
		"CallPanics":  {reason: "a fault of ours", on: func(context.Context, verb, string) error { panic("nil map") }, class: ClassPanic, text: "nil map"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(c *Config) { c.CallTimeout = 4 * time.Second }, func(r *fixture) {
				r.garden.set(func(ctx context.Context, v verb, name string) error {
					if tc.on != nil && strings.HasPrefix(name, "sick") {
						return tc.on(ctx, v, name)
					}
					return nil
				}, nil)
				r.start()
				r.store.edit("sick", func(row *fakeRow) {
					row.spec = "{}" + ""
					if tc.spec != "" {
						row.spec = tc.spec
					}
				})
				ids := r.add(50)
				r.pass(20 * time.Second)
				if diff := cmp.Diff([]string{"sick"}, r.store.unsynced()); diff != "" {
					t.Errorf("%s: %s", tc.reason, diff)
				}
				row := r.store.row("sick")
				if row.class != tc.class || !strings.Contains(row.err, tc.text) || row.attempts != 1 {
					t.Errorf("%s: class %q, attempts %d, %q", tc.reason, row.class, row.attempts, row.err)
				}
				if diff := cmp.Diff([]Action{ShootFailed}, r.recorder.told("sick")); diff != "" {
					t.Error(diff)
				}
				if diff := cmp.Diff([]Action{ShootCreated}, r.recorder.told(ids[7])); diff != "" {
					t.Error(diff)
				}
				if tc.class == ClassPanic {
					r.wantMetric("panics_total", 1)
					if !strings.Contains(r.log.String(), "fakes_test.go") && !strings.Contains(r.log.String(), "faults_test.go") {
						t.Error("the log has no stack")
					}
				}
				// An edit fixes the cluster, which is synced at once.
				r.garden.set(nil, nil)
				r.store.edit("sick", func(row *fakeRow) { row.spec = "{}" })
				r.pass(time.Second)
				r.wantSynced()
				if diff := cmp.Diff([]Action{ShootFailed, ShootCreated}, r.recorder.told("sick")); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

func TestBackoffOfOneRow(t *testing.T) {
	bubble(t, nil, func(r *fixture) {
		r.garden.set(refuses(shoot.ClassInvalid), nil)
		r.store.edit("a", nil)
		r.start()
		r.pass(2 * time.Hour)
		var waits []time.Duration
		for i := range r.garden.begun[1:] {
			waits = append(waits, r.garden.begun[i+1].Sub(r.garden.begun[i]).Round(time.Second))
		}
		want := []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute}
		for len(want) < len(waits) {
			want = append(want, 15*time.Minute)
		}
		if diff := cmp.Diff(want, waits); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]Action{ShootFailed}, r.recorder.told("a")); diff != "" {
			t.Errorf("it fails once in a row: %s", diff)
		}
		if n := strings.Count(r.log.String(), "cluster sync failed"); n != 2 {
			t.Errorf("%d lines for a first failure and one that makes it stuck:\n%s", n, r.log)
		}
	})
}

func TestOutageOfAnHour(t *testing.T) {
	bubble(t, nil, func(r *fixture) {
		down := func(context.Context) error { return shoot.NewClassErrorf(shoot.ClassUnavailable, "connection refused") }
		r.garden.set(refuses(shoot.ClassUnavailable), down)
		r.add(300)
		r.start()
		r.pass(30 * time.Minute)
		r.add(400) // a hundred new ones
		r.pass(30 * time.Minute)
		if n := r.garden.total(); n > 32 {
			t.Errorf("%d calls during the outage", n)
		}
		if n := len(r.garden.probes); n < 3595 || n > 3605 {
			t.Errorf("%d probes in an hour", n)
		}
		for i, at := range r.garden.probes[1:] {
			if d := at.Sub(r.garden.probes[i]); d < time.Second {
				t.Fatalf("two probes within %s", d)
			}
		}
		for _, id := range r.store.unsynced() {
			if row := r.store.row(id); row.attempts != 0 {
				t.Fatalf("the outage is held against %+v", row)
			}
		}
		if err := errors.Join(r.worker.Ready(), r.worker.CheckLive()); err != nil {
			t.Errorf("an outage is no reason not to be ready: %v", err)
		}
		r.wantMetric("circuit_breaker_open", 1)
		if r.worker.CollectStats().OutageSince.IsZero() {
			t.Error("the outage does not show in Stats")
		}
		r.garden.set(nil, nil)
		r.pass(2 * time.Second)
		r.wantSynced()
		r.wantMetric("circuit_breaker_open", 0)
		r.wantMetric("gardener_outages_total", 1)
		for _, line := range []string{"gardener unavailable, sync paused", "gardener available again"} {
			if n := strings.Count(r.log.String(), line); n != 1 {
				t.Errorf("%d lines say %q", n, line)
			}
		}
		if n := len(r.recorder.changes); n != 400 {
			t.Errorf("%d changes were told of 400 created Shoots", n)
		}
	})
}

func TestThrottling(t *testing.T) {
	bubble(t, func(c *Config) { c.Slots = 4 }, func(r *fixture) {
		r.start()
		r.pass(time.Minute)
		begin := time.Now()
		r.garden.set(func(ctx context.Context, v verb, name string) error {
			if name == "cluster-0000-0" && time.Since(begin) < 10*time.Second {
				return &shoot.Error{Class: shoot.ClassThrottled, RetryAfter: 20 * time.Second, Err: errors.New("too many requests")}
			}
			return takes(100*time.Millisecond)(ctx, v, name)
		}, nil)
		r.add(12)
		r.pass(19 * time.Second)
		if n := r.garden.total(); n > 4 {
			t.Errorf("%d calls although Gardener asked us to wait", n)
		}
		if row := r.store.row("cluster-0000"); row.attempts != 0 || row.class != "throttled" {
			t.Errorf("%+v", row)
		}
		r.pass(2 * time.Second)
		r.wantSynced()
	})
}

func TestThrottlingWithinReason(t *testing.T) {
	cases := map[string]struct {
		reason string
		asked  time.Duration
		want   time.Duration
	}{
		"None":   {reason: "a server that does not say for how long", asked: 0, want: time.Second},
		"Short":  {reason: "no hammering", asked: time.Millisecond, want: time.Second},
		"As":     {reason: "as it says", asked: 7 * time.Second, want: 7 * time.Second},
		"A week": {reason: "a mistake", asked: 168 * time.Hour, want: 5 * time.Minute},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := newFailureResult(Claim{}, &shoot.Error{Class: shoot.ClassThrottled, RetryAfter: tc.asked, Err: errDown}, false)
			if r.Delay != tc.want || r.CountsAttempt {
				t.Errorf("%s: %s, counts: %t", tc.reason, r.Delay, r.CountsAttempt)
			}
		})
	}
}

// TestStoppedDuringCall suspends a process during a call for longer than its lease:
// another worker takes over, and the result of the first is discarded.
func TestStoppedDuringCall(t *testing.T) {
	bubble(t, func(c *Config) { c.PollInterval = time.Hour }, func(r *fixture) { // it does nothing meanwhile
		second := newFixture(r.t, r.store, newFakeGarden(), nil)
		r.store.setFault(func(_ context.Context, asked requestKind) error {
			if asked == toRenew {
				return errDown // a suspended process renews no lease
			}
			return nil
		})
		r.garden.set(func(context.Context, verb, string) error { hang(90 * time.Second); return nil }, nil)
		r.store.edit("a", nil)
		r.start()
		r.pass(time.Second)
		second.start()
		r.pass(80 * time.Second)
		row := r.store.row("a")
		if !row.synced || second.garden.total() != 1 {
			t.Errorf("nobody took over: %+v", row)
		}
		r.pass(time.Minute)
		if after := r.store.row("a"); after != row {
			t.Errorf("the late result was taken: %+v", after)
		}
		r.wantMetric("fence_rejections_total", 1)
		if !strings.Contains(r.log.String(), "claim lost") || r.worker.CollectStats().Lost != 1 {
			t.Error("nobody says so")
		}
		if told := r.recorder.told("a"); told != nil {
			t.Errorf("told of what does not count: %v", told)
		}
		r.garden.set(nil, nil)
		second.stop()
	})
}

// TestNoSecondCallBesideAHangingOne: a worker whose call ignores its deadline does not
// begin another one when it claims the cluster again.
func TestNoSecondCallBesideAHangingOne(t *testing.T) {
	bubble(t, func(c *Config) { c.CallTimeout = 10 * time.Second }, func(r *fixture) {
		r.garden.set(func(context.Context, verb, string) error { hang(200 * time.Second); return nil }, nil)
		r.store.edit("a", nil)
		r.start()
		r.pass(199 * time.Second)
		if n := r.garden.total(); n != 1 {
			t.Errorf("%d calls", n)
		}
		if r.metric("lost_leases_total") < 2 {
			t.Error("the claims that were given up are not counted")
		}
		r.garden.set(nil, nil)
		r.pass(2 * time.Minute)
		r.wantSynced()
	})
}

// TestStoppedBeforeCall suspends a process between the claim and the call.
func TestStoppedBeforeCall(t *testing.T) {
	cases := map[string]struct {
		reason string
		pause  time.Duration
		called bool
	}{
		"InTime":  {reason: "the lease has time for the call", pause: 44 * time.Second, called: true},
		"TooLate": {reason: "the call could go on after the lease", pause: 46 * time.Second},
		"Over":    {reason: "the lease is over", pause: 10 * time.Minute},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(r *fixture) {
				first := true
				r.maker.on = func(Claim) {
					if first {
						first = false
						hang(tc.pause)
					}
				}
				r.store.edit("a", nil)
				r.start()
				r.store.notify = nil
				r.pass(tc.pause)
				if n := r.garden.total(); (n == 1) != tc.called {
					t.Errorf("%s: %d calls", tc.reason, n)
				}
				r.pass(2 * time.Minute)
				r.wantSynced()
			})
		})
	}
}
