package bridge_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/clusterworker/bridge"
)

// TestReports: a change is reported at once after a nudge, within seconds without one,
// and everything again from time to time.
func TestReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSide()
		b, _ := s.start(t)
		after(time.Minute)
		s.change("a", synced(is(v1.ShootProgressing, "")))
		b.WakeRun()
		after(100 * time.Millisecond)
		want(t, "after a nudge", s.last(), "-Available(ShootProgressing) +Applied(Synced) +Health(NoErrors)")
		s.change("a", synced())
		after(5 * time.Second)
		want(t, "without one", s.last(), "+Available(ShootReady) +Applied(Synced) +Health(NoErrors)")

		s.change("p", synced(is(v1.ShootProgressing, "")))
		after(time.Second)
		ready, others := s.tries("a"), s.tries("p")
		after(time.Hour)
		if n := s.tries("a") - ready; n < 6 || n > 7 {
			t.Errorf("a ready cluster was reported %d times in an hour", n)
		}
		if n := s.tries("p") - others; n < 100 || n > 120 {
			t.Errorf("one that is not ready was reported %d times in an hour", n)
		}
	})
}

// TestIdle: without due reports there is one query every five seconds, and none in a
// process that does not lead.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSide()
		b, _ := s.start(t)
		after(10 * time.Minute)
		if s.asked() > 121 {
			t.Errorf("%d queries in ten minutes", s.asked())
		}
		s.set(func(s *side) { s.follower = true })
		s.change("a", synced())
		before := s.asked()
		b.WakeRun()
		after(time.Minute)
		want(t, "queries of another", s.asked()-before, 0)
		s.set(func(s *side) { s.follower = false })
		after(5 * time.Second)
		want(t, "reports", s.tries("a"), 1)
	})
}

// TestManyNudges: many nudges cause no more work than few.
func TestManyNudges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSide()
		b, _ := s.start(t)
		after(time.Second)
		before := s.asked()
		for range 1000 {
			b.WakeRun()
			time.Sleep(time.Millisecond)
		}
		after(time.Second)
		if n := s.asked() - before; n > 25 {
			t.Errorf("a second of nudges cost %d queries", n)
		}
	})
}

// TestMany: due reports are sent in batches, a few at a time.
func TestMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSide()
		s.slow = 10 * time.Millisecond
		for i := range 1050 {
			s.change(fmt.Sprintf("c%04d", i), synced())
		}
		s.start(t)
		after(2 * time.Second)
		want(t, "reports", s.stored(), 1050)
		want(t, "at the same time", s.most, 8)
		want(t, "queries", s.asked(), 22)
	})
}

// TestAnswers: the schedule after a report that was not stored.
func TestAnswers(t *testing.T) {
	cases := map[string]struct {
		reason   string
		err      error
		ignore   bool
		row      clusterworker.Row
		min, max int // tries in ten minutes
		log      string
	}{
		"Gone":        {"the cluster is gone", answer{code: http.StatusNotFound}, false, synced(is(v1.ShootProgressing, "")), 1, 1, ""},
		"Refused":     {"it makes no sense to the fleet API", answer{code: http.StatusBadRequest}, false, synced(is(v1.ShootProgressing, "")), 1, 1, "fleet API rejected report"},
		"Ignored":     {"it came too late, or too early", nil, true, synced(), 18, 21, ""},
		"Failed":      {"the fleet API fails", answer{code: http.StatusInternalServerError}, false, synced(), 30, 60, "report to fleet API failed"},
		"Unreachable": {"it can not be reached", errors.New("refused"), false, synced(), 30, 60, "report to fleet API failed"},
		"Unknown":     {"it does not know us", answer{code: http.StatusUnauthorized}, false, synced(), 30, 60, "report to fleet API failed"},
		"Throttled":   {"it asks to wait", answer{code: http.StatusTooManyRequests, after: time.Minute}, false, synced(), 9, 11, "report to fleet API failed"},
		"Untried":     {"there is nothing to report yet", nil, false, clusterworker.Row{}, 0, 0, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSide()
				s.ignore, s.refuse = tc.ignore, func(string) error { return tc.err }
				s.change("a", tc.row)
				_, logs := s.start(t)
				after(10*time.Minute - time.Second)
				if n := s.tries("a"); n < tc.min || n > tc.max {
					t.Errorf("%s: %d tries", tc.reason, n)
				}
				if n, all := strings.Count(logs.String(), tc.log), strings.Count(logs.String(), "WARN"); tc.log != "" && n != 1 || tc.log == "" && all != 0 {
					t.Errorf("%s: told %d times; %d lines", tc.reason, n, all)
				}
				s.set(func(s *side) { s.refuse = nil })
				s.change("a", synced())
				after(time.Minute + 15*time.Second)
				want(t, "a change is reported nevertheless", s.last() != "" || tc.ignore, true)
			})
		})
	}
}

// TestOneFails: clusters whose reports always fail, more than a batch, do not block
// others.
func TestOneFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSide()
		s.refuse = func(id string) error {
			if strings.HasPrefix(id, "bad") {
				return answer{code: http.StatusInternalServerError}
			}
			return nil
		}
		for i := range 150 {
			s.change(fmt.Sprint("bad", i), synced())
		}
		s.start(t)
		after(time.Minute)
		s.change("good", synced())
		after(16 * time.Second)
		want(t, "reports on the good one", s.tries("good"), 1)
	})
}

// TestNotYetSeen: a cluster is not reported as ready before its Shoot was observed as
// last sent.
func TestNotYetSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSide()
		s.outOfDate = true
		s.change("a", synced())
		s.start(t)
		after(time.Second)
		want(t, "it was sent, and not seen", s.last(), "-Available(ShootProgressing) +Applied(Synced) +Health(NoErrors)")
		s.set(func(s *side) { s.outOfDate = false })
		after(7 * time.Second)
		want(t, "it was seen", s.last(), "+Available(ShootReady) +Applied(Synced) +Health(NoErrors)")

		s.set(func(s *side) { s.outOfDate = true })
		s.change("b", synced(isUnwantedAndSent, is(v1.ShootDeleted, "")))
		after(6 * time.Second)
		if !strings.Contains(s.last(), "+Finalized") {
			t.Errorf("the end was not told: %s", s.last())
		}
	})
}

// TestUnseen: a new leader does not repeat that a cluster is ready before it has
// observed it, except in a long outage of Gardener; failures are reported at once.
func TestUnseen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSide()
		s.unseen = true
		s.change("ready", synced())
		s.change("failing", synced(isEdited, failing("unavailable", "Gardener is away")))
		s.start(t)
		after(30 * time.Second)
		want(t, "reports on the ready one", s.tries("ready"), 0)
		if s.tries("failing") == 0 {
			t.Error("the failure was not told")
		}
		after(40 * time.Second)
		want(t, "after a minute", s.tries("ready"), 1)
	})
}

// TestChangeDuringAReport: a change during a report is reported again.
func TestChangeDuringAReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSide()
		s.slow = time.Second
		s.change("a", synced(is(v1.ShootProgressing, "")))
		s.start(t)
		after(500 * time.Millisecond)
		s.change("a", synced())
		after(8 * time.Second)
		want(t, "the last report", s.last(), "+Available(ShootReady) +Applied(Synced) +Health(NoErrors)")
	})
}

// TestSlowFleet: reports that hang time out.
func TestSlowFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSide()
		s.slow = time.Hour
		s.change("a", synced())
		s.start(t)
		after(15 * time.Second)
		s.set(func(s *side) { s.slow = 0 })
		after(30 * time.Second)
		want(t, "reports", s.stored(), 1)
	})
}

// TestDatabaseAway: an unavailable database is retried with growing delays; reports
// that could not be recorded are repeated.
func TestDatabaseAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSide()
		s.err = errors.New("the database is away")
		s.change("a", synced())
		_, logs := s.start(t)
		after(10 * time.Minute)
		if s.asked() < 50 || s.asked() > 90 {
			t.Errorf("%d queries in ten minutes", s.asked())
		}
		want(t, "lines", strings.Count(logs.String(), "WARN"), 1)
		s.set(func(s *side) { s.err, s.noteErr = nil, s.err })
		after(time.Minute)
		if s.tries("a") < 2 {
			t.Error("what was not noted was not reported again")
		}
		s.set(func(s *side) { s.noteErr = nil })
		after(11 * time.Second)
		before := s.tries("a")
		after(time.Minute)
		want(t, "reports once it was noted", s.tries("a")-before, 0)
		if !strings.Contains(logs.String(), "again") {
			t.Error("nobody was told that all is well")
		}
	})
}

// TestStopsDuringABatch: sent reports are recorded during shutdown, so that the next
// process does not repeat them.
func TestStopsDuringABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSide()
		s.slow = time.Second
		for i := range 100 {
			s.change(fmt.Sprint(i), synced())
		}
		_, _, stop := s.startUntil(t)
		after(1500 * time.Millisecond)
		stop()
		noted := 0
		for _, at := range s.due {
			if at.After(time.Now()) {
				noted++
			}
		}
		want(t, "noted", noted, 8)
	})
}

// TestTermEndsDuringABatch: a process that no longer leads sends no more reports.
func TestTermEndsDuringABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSide()
		s.slow = time.Second
		for i := range 100 {
			s.change(fmt.Sprint(i), synced())
		}
		s.start(t)
		after(1500 * time.Millisecond)
		s.set(func(s *side) { s.follower = true })
		after(time.Minute)
		want(t, "reports", s.stored(), 16)
	})
}

func TestNew(t *testing.T) {
	s := newSide()
	cases := map[string]struct {
		reason string
		cfg    bridge.Config
		deps   bridge.Deps
		ok     bool
	}{
		"Least":      {"what it works with is all it takes", bridge.Config{}, bridge.Deps{Store: s, Fleet: s, Observer: s}, true},
		"Negative":   {"no time is negative", bridge.Config{Timeout: -1}, bridge.Deps{Store: s, Fleet: s, Observer: s}, false},
		"NoObserver": {"nobody says whether to report", bridge.Config{}, bridge.Deps{Store: s, Fleet: s}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := bridge.New(tc.cfg, tc.deps); (err == nil) != tc.ok {
				t.Errorf("%s: got %v", tc.reason, err)
			}
		})
	}
}

func TestMetricsAreInOrder(t *testing.T) {
	s, reg := newSide(), prometheus.NewPedanticRegistry()
	if _, err := bridge.New(bridge.Config{}, bridge.Deps{Store: s, Fleet: s, Observer: s, Registerer: reg}); err != nil {
		t.Fatal(err)
	}
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}
