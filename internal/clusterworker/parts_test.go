package clusterworker

import (
	"context"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"

	"github.com/fleetloop/fleetloop/internal/settings"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

func TestDelay(t *testing.T) {
	cases := map[string]struct {
		reason   string
		attempts int
		want     time.Duration
	}{
		"None":     {reason: "nothing has failed", attempts: 0, want: 30 * time.Second},
		"First":    {reason: "the failure counts already", attempts: 1, want: time.Minute},
		"Second":   {reason: "it doubles", attempts: 2, want: 2 * time.Minute},
		"Third":    {reason: "it doubles", attempts: 3, want: 4 * time.Minute},
		"Fourth":   {reason: "it doubles", attempts: 4, want: 8 * time.Minute},
		"Fifth":    {reason: "16 minutes are too long", attempts: 5, want: 15 * time.Minute},
		"Sixth":    {reason: "the cap", attempts: 6, want: 15 * time.Minute},
		"Interval": {reason: "PostgreSQL's interval ends before", attempts: 39, want: 15 * time.Minute},
		"Shift":    {reason: "a shift of a duration would be negative", attempts: 34, want: 15 * time.Minute},
		"Shifted":  {reason: "a shift of a duration would be zero", attempts: 64, want: 15 * time.Minute},
		"Huge":     {reason: "any number", attempts: 1 << 30, want: 15 * time.Minute},
		"Hugest":   {reason: "any number", attempts: math.MaxInt, want: 15 * time.Minute},
		"Negative": {reason: "nonsense is no failure", attempts: math.MinInt, want: 30 * time.Second},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := RetryDelay(tc.attempts); got != tc.want {
				t.Errorf("%s: %s, want %s", tc.reason, got, tc.want)
			}
		})
	}
}

func TestDelayGrows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 1<<30).Draw(t, "attempts")
		if d := RetryDelay(n); d < 30*time.Second || d > 15*time.Minute || RetryDelay(n+1) < d {
			t.Errorf("%d: %s", n, d)
		}
	})
}

func TestConfig(t *testing.T) {
	var loaded Config
	if _, err := settings.Load(&loaded, settings.Source{}); err != nil {
		t.Fatal(err)
	}
	zero, err := Config{}.withDefaultsValidated()
	if err != nil {
		t.Fatal(err)
	}
	loaded.StopTimeout = DefaultStopTimeout // derived from that of the process
	if diff := cmp.Diff(loaded, zero); diff != "" {
		t.Errorf("the defaults of the tags and those of zero differ: %s", diff)
	}
	for name, tc := range map[string]struct {
		reason string
		cfg    Config
	}{
		"Negative": {reason: "no such time", cfg: Config{PollInterval: -1}},
		"NoSlots":  {reason: "no such number", cfg: Config{Slots: -1}},
		"Listen":   {reason: "on or off", cfg: Config{Listen: "maybe"}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := New(tc.cfg, Deps{Store: newFakeStore(), Garden: newFakeGarden(), Maker: &fakeMaker{}, Owner: "o", Installation: "inst"}); err == nil {
				t.Error(tc.reason)
			}
		})
	}
	if _, err := New(Config{}, Deps{}); err == nil {
		t.Error("made of nothing")
	}
}

func TestPlainText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := string(rapid.SliceOfN(rapid.Byte(), 0, 2*maxMessage).Draw(t, "text"))
		out := sanitizeAndTruncateText(in)
		if !utf8.ValidString(out) || strings.ContainsRune(out, 0) || len(out) > maxMessage {
			t.Errorf("%q", out)
		}
		if utf8.ValidString(in) && !strings.ContainsRune(in, 0) && len(in) <= maxMessage && in != out {
			t.Errorf("%q became %q", in, out)
		}
	})
	if got := sanitizeAndTruncateText(strings.Repeat("ä", maxMessage)); len(got) < maxMessage-4 {
		t.Errorf("cut to %d bytes", len(got))
	}
}

func TestAnswers(t *testing.T) {
	cases := map[string]struct {
		reason string
		err    error
		want   bool
	}{
		"Fine":        {reason: "Gardener responds", err: nil, want: true},
		"Forbidden":   {reason: "a rejection is a response", err: shoot.NewClassErrorf(shoot.ClassForbidden, "no"), want: true},
		"Unavailable": {reason: "Gardener does not respond", err: shoot.NewClassErrorf(shoot.ClassUnavailable, "no")},
		"Throttled":   {reason: "Gardener is overloaded", err: shoot.NewClassErrorf(shoot.ClassThrottled, "no")},
		"Unclassed":   {reason: "an error without a class", err: errDown},
		"NewClass":    {reason: "an unknown class", err: shoot.NewClassErrorf("solar_flare", "no")},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := isAnswerFromGardener(tc.err); got != tc.want {
				t.Errorf("%s: %t", tc.reason, got)
			}
		})
	}
}

func TestSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &schedule{alarms: newAlarms(), slots: 32}
		start := time.Now()
		want := func(reason string, room int, freed, after time.Duration, why claimCause) {
			t.Helper()
			at, c := s.nextClaimTime(ClaimLimits{Slots: room, TimedOut: room / timedOutSlotsDivisor}, start.Add(freed))
			if got := at.Sub(start); got != after || c != why {
				t.Errorf("%s: after %s for %s, want %s for %s", reason, got, c, after, why)
			}
		}
		if at, _ := s.nextClaimTime(ClaimLimits{Slots: 32}, start); at.After(start) {
			t.Errorf("the first claim is at %s", at)
		}
		s.recordClaim(start, reachedLimits{}, 30*time.Second)
		want("nothing happens", 32, 0, 30*time.Second, causePoll)
		s.alarms.addAlarm(start.Add(7 * time.Second))
		want("a row will be due", 32, 0, 7*time.Second, causeRetry)
		s.setPollIfEarlier(start.Add(250 * time.Millisecond))
		want("nobody listens any more", 32, 0, 250*time.Millisecond, causePoll)
		s.startClaimBurst(start.Add(30 * time.Millisecond))
		want("a notification", 1, 0, 30*time.Millisecond, causeNotify)
		s.recordClaim(start.Add(30*time.Millisecond), reachedLimits{}, 30*time.Second)
		want("others may have been left out", 32, 0, 80*time.Millisecond, causeNotify)
		s.recordClaim(start.Add(990*time.Millisecond), reachedLimits{}, 30*time.Second)
		want("the burst is over", 32, 0, 7*time.Second, causeRetry)
		s.recordClaim(start.Add(2*time.Second), reachedLimits{all: true}, 30*time.Second)
		want("there may be more, and room for it", 16, 0, 2*time.Second, causeDrain)
		want("there may be more, and little room", 15, 3*time.Second, 3010*time.Millisecond, causeDrain)
		s.recordClaim(start.Add(2*time.Second), reachedLimits{timedOut: true}, 30*time.Second)
		want("there may be more that timed out, and no room for such", 3, 3*time.Second, 7*time.Second, causeRetry)
		want("there may be more that timed out, and room", 4, 3*time.Second, 3010*time.Millisecond, causeDrain)
		s.recordClaim(start.Add(7*time.Second), reachedLimits{}, 30*time.Second)
		want("the alarm is past", 32, 0, 37*time.Second, causePoll)
	})
}

func TestAlarms(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := newAlarms()
		asked := rapid.SliceOfN(rapid.Int64Range(0, int64(15*time.Minute)), 1, 200).Draw(t, "after")
		for _, d := range asked {
			a.addAlarm(a.base.Add(time.Duration(d)))
		}
		for len(asked) > 0 {
			first, ok := a.earliestAlarm()
			if !ok {
				t.Fatal("an alarm is missing")
			}
			a.removePassedAlarms(first)
			left := asked[:0]
			for _, d := range asked {
				switch at := a.base.Add(time.Duration(d)); {
				case at.After(first):
					left = append(left, d)
				case first.Sub(at) >= grain:
					t.Fatalf("%s is told %s late", time.Duration(d), first.Sub(at))
				}
			}
			asked = left
		}
		if _, ok := a.earliestAlarm(); ok {
			t.Error("an alarm that nobody asked for")
		}
	})
}

func TestTally(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTallier{tally: ClusterCounts{Due: 1, Leased: 2, BackingOff: 3, Stuck: 4, Paused: 5, Synced: 6, OldestDue: 7 * time.Second, DeadRows: 8, OldestTransaction: 9 * time.Second}}
		failed := prometheus.NewCounter(prometheus.CounterOpts{Name: "x_total", Help: "Failures."})
		c := newClusterCountCollector(f, failed)
		want := `
# HELP fleetloop_clusterworker_clusters Number of clusters in the database, by state of their sync to Gardener: pending (the sync is due), running, backing_off (1 to 7 failures in a row; waits for the retry), stuck (8 or more failures in a row; still retried), paused (by a user) or synced. Each cluster has one state.
# TYPE fleetloop_clusterworker_clusters gauge
fleetloop_clusterworker_clusters{state="backing_off"} 3
fleetloop_clusterworker_clusters{state="paused"} 5
fleetloop_clusterworker_clusters{state="pending"} 1
fleetloop_clusterworker_clusters{state="running"} 2
fleetloop_clusterworker_clusters{state="stuck"} 4
fleetloop_clusterworker_clusters{state="synced"} 6
`
		if err := testutil.CollectAndCompare(c, strings.NewReader(want), "fleetloop_clusterworker_clusters"); err != nil {
			t.Error(err)
		}
		if n := testutil.CollectAndCount(c); n != 9 {
			t.Errorf("%d series", n)
		}
		time.Sleep(14 * time.Second)
		testutil.CollectAndCount(c)
		if f.asked != 1 {
			t.Errorf("the rows were counted %d times within 15 seconds", f.asked)
		}
		time.Sleep(time.Second)
		f.err = errDown
		if n := testutil.CollectAndCount(c); n != 0 || f.asked != 2 || testutil.ToFloat64(failed) != 1 {
			t.Errorf("%d series while they can not be counted", n)
		}
		testutil.CollectAndCount(c)
		if f.asked != 2 {
			t.Error("a database that fails is asked by every scrape")
		}
		time.Sleep(15 * time.Second)
		f.err = nil
		if n := testutil.CollectAndCount(c); n != 9 {
			t.Errorf("%d series afterwards", n)
		}
	})
}

type fakeTallier struct {
	tally ClusterCounts
	err   error
	asked int
}

func (f *fakeTallier) CountClusters(context.Context) (ClusterCounts, error) {
	f.asked++
	return f.tally, f.err
}

func TestReady(t *testing.T) {
	bubble(t, func(c *Config) { c.Slots = 2 }, func(r *fixture) {
		want := func(reason, text string) {
			t.Helper()
			switch err := r.worker.Ready(); {
			case text == "" && err != nil, text != "" && (err == nil || !strings.Contains(err.Error(), text)):
				t.Errorf("%s: %v", reason, err)
			}
		}
		want("it has not begun", "no response from database yet")
		r.store.setFault(func(context.Context, requestKind) error { return errDown })
		r.start()
		want("the database is away at the start", "connection refused")
		r.store.setFault(nil)
		r.pass(3 * time.Second)
		want("all is well", "")
		r.waker.set(errDown)
		want("the worker does not listen", "listen for notifications: connection refused")
		r.wantMetric("listener_down", 1)
		r.waker.set(nil)
		want("somebody does again", "")
		r.wantMetric("listener_down", 0)
		r.pass(10 * time.Minute)
		want("nothing happens", "")
		r.garden.set(takes(10*time.Second), nil)
		r.add(300)
		for range 20 {
			r.pass(time.Minute)
			want("there is much to do", "")
		}
		r.garden.set(refuses(shoot.ClassThrottled), nil)
		r.pass(10 * time.Minute)
		want("Gardener asks us to wait", "")
	})
}

func TestHealthOfClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h claimHealth
		h.recordClaimStart()
		h.recordClaimEnd(nil)
		h.expectClaimWithin(30 * time.Second)
		time.Sleep(89 * time.Second)
		if err := h.checkClaimHealth(); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Second)
		if err := h.checkClaimHealth(); err == nil || !strings.Contains(err.Error(), "since the last successful one at") {
			t.Errorf("long after the next claim was due: %v", err)
		}
	})
}

func TestPulse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, newFakeStore(), newFakeGarden(), nil)
		for name, p := range map[string]*heartbeat{"claim clusters": &r.worker.claimPulse, "write results": &r.worker.writePulse} {
			p.recordProgress()
			time.Sleep(59 * time.Second)
			if err := r.worker.CheckLive(); err != nil {
				t.Error(err)
			}
			time.Sleep(2 * time.Second)
			if err := r.worker.CheckLive(); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("a loop that hangs: %v", err)
			}
			p.recordIdle()
		}
	})
}

// TestLeaseHasTimeByBothClocks covers that the monotonic clock stops while a machine
// sleeps.
func TestLeaseHasTimeByBothClocks(t *testing.T) {
	now := time.Now()
	fresh := timedClaim{Claim: Claim{Until: now.Add(time.Minute)}}
	if !fresh.hasLeaseFor(15*time.Second) || fresh.hasLeaseFor(2*time.Minute) {
		t.Error("a fresh lease")
	}
	slept := timedClaim{Claim: Claim{Until: now.Round(0).Add(-time.Second)}}
	if slept.hasLeaseFor(0) {
		t.Error("a lease that ended")
	}
}

// TestBatchesHaveEachClusterOnce: two claims of one cluster, of which the earlier is
// lost, are not in one write, as the cluster identifies a lost claim.
func TestBatchesHaveEachClusterOnce(t *testing.T) {
	w := &outcomeWriter{batch: maxBatch}
	for _, id := range []string{"a", "b", "c", "a", "d"} {
		w.pending = append(w.pending, outcome{timedClaim: timedClaim{Claim: Claim{ClusterID: id}}, result: Result{ClusterID: id}})
	}
	if got := w.prepareFirstPendingResults(); len(got) != 3 || got[2].ClusterID != "c" {
		t.Errorf("%v", got)
	}
	w.batch = 2
	if got := w.prepareFirstPendingResults(); len(got) != 2 {
		t.Errorf("%v", got)
	}
}
