package clusterworker_test

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
)

// TestReports: a change is reported at once after a nudge, within seconds without one,
// and everything again from time to time.
func TestReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newReporterSide()
		b, _ := s.start(t)
		after(time.Minute)
		s.change("a", synced(is(v1.ShootProgressing, "")))
		b.WakeRun()
		after(100 * time.Millisecond)
		wantReport(t, "after a nudge", s.last(), "-Available(ShootProgressing) +Applied(Synced) +Health(NoErrors)")
		s.change("a", synced())
		after(5 * time.Second)
		wantReport(t, "without one", s.last(), "+Available(ShootReady) +Applied(Synced) +Health(NoErrors)")

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

// TestReporterIdle: without due reports there is one query every five seconds, and none in a
// process that does not lead.
func TestReporterIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newReporterSide()
		b, _ := s.start(t)
		after(10 * time.Minute)
		if s.asked() > 121 {
			t.Errorf("%d queries in ten minutes", s.asked())
		}
		s.set(func(s *reporterSide) { s.follower = true })
		s.change("a", synced())
		before := s.asked()
		b.WakeRun()
		after(time.Minute)
		wantReport(t, "queries of another", s.asked()-before, 0)
		s.set(func(s *reporterSide) { s.follower = false })
		after(5 * time.Second)
		wantReport(t, "reports", s.tries("a"), 1)
	})
}

// TestManyReportNudges: many nudges cause no more work than few.
func TestManyReportNudges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newReporterSide()
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

// TestManyReports: due reports are sent in batches, a few at a time.
func TestManyReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newReporterSide()
		s.slow = 10 * time.Millisecond
		for i := range 1050 {
			s.change(fmt.Sprintf("c%04d", i), synced())
		}
		s.start(t)
		after(2 * time.Second)
		wantReport(t, "reports", s.stored(), 1050)
		wantReport(t, "at the same time", s.most, 8)
		wantReport(t, "queries", s.asked(), 22)
	})
}

// TestReporterAnswers: the schedule after a report that was not stored.
func TestReporterAnswers(t *testing.T) {
	cases := map[string]struct {
		reason   string
		err      error
		ignore   bool
		row      clusterworker.Row
		min, max int // tries in ten minutes
		log      string
	}{
		"Gone":        {"the cluster is gone", reportAnswerError{code: http.StatusNotFound}, false, synced(is(v1.ShootProgressing, "")), 1, 1, ""},
		"Refused":     {"it makes no sense to the fleet API", reportAnswerError{code: http.StatusBadRequest}, false, synced(is(v1.ShootProgressing, "")), 1, 1, "fleet API rejected report"},
		"Ignored":     {"it came too late, or too early", nil, true, synced(), 18, 21, ""},
		"Failed":      {"the fleet API fails", reportAnswerError{code: http.StatusInternalServerError}, false, synced(), 30, 60, "report to fleet API failed"},
		"Unreachable": {"it can not be reached", errors.New("refused"), false, synced(), 30, 60, "report to fleet API failed"},
		"Unknown":     {"it does not know us", reportAnswerError{code: http.StatusUnauthorized}, false, synced(), 30, 60, "report to fleet API failed"},
		"Throttled":   {"it asks to wait", reportAnswerError{code: http.StatusTooManyRequests, after: time.Minute}, false, synced(), 9, 11, "report to fleet API failed"},
		"Untried":     {"there is nothing to report yet", nil, false, clusterworker.Row{}, 0, 0, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newReporterSide()
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
				s.set(func(s *reporterSide) { s.refuse = nil })
				s.change("a", synced())
				after(time.Minute + 15*time.Second)
				wantReport(t, "a change is reported nevertheless", s.last() != "" || tc.ignore, true)
			})
		})
	}
}

// TestOneReportFails: clusters whose reports always fail, more than a batch, do not block
// others.
func TestOneReportFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newReporterSide()
		s.refuse = func(id string) error {
			if strings.HasPrefix(id, "bad") {
				return reportAnswerError{code: http.StatusInternalServerError}
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
		wantReport(t, "reports on the good one", s.tries("good"), 1)
	})
}

// TestReportNotYetSeen: a cluster is not reported as ready before its Shoot was observed as
// last sent.
func TestReportNotYetSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newReporterSide()
		s.outOfDate = true
		s.change("a", synced())
		s.start(t)
		after(time.Second)
		wantReport(t, "it was sent, and not seen", s.last(), "-Available(ShootProgressing) +Applied(Synced) +Health(NoErrors)")
		s.set(func(s *reporterSide) { s.outOfDate = false })
		after(7 * time.Second)
		wantReport(t, "it was seen", s.last(), "+Available(ShootReady) +Applied(Synced) +Health(NoErrors)")

		s.set(func(s *reporterSide) { s.outOfDate = true })
		s.change("b", synced(isUnwantedAndSent, is(v1.ShootDeleted, "")))
		after(6 * time.Second)
		if !strings.Contains(s.last(), "+Finalized") {
			t.Errorf("the end was not told: %s", s.last())
		}
	})
}

// TestReportOfAnUnseenShoot: a new leader does not repeat that a cluster is ready before it has
// observed it, except in a long outage of Gardener; failures are reported at once.
func TestReportOfAnUnseenShoot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newReporterSide()
		s.unseen = true
		s.change("ready", synced())
		s.change("failing", synced(isEdited, failing("unavailable", "Gardener is away")))
		s.start(t)
		after(30 * time.Second)
		wantReport(t, "reports on the ready one", s.tries("ready"), 0)
		if s.tries("failing") == 0 {
			t.Error("the failure was not told")
		}
		after(40 * time.Second)
		wantReport(t, "after a minute", s.tries("ready"), 1)
		after(40 * time.Second) // its node pools wait for a status that is known to be current
		if s.tries("ready") < 2 {
			t.Error("the report was not repeated while the Shoot was unseen")
		}
		after(time.Hour)
		if tries := s.tries("ready"); tries > 15 {
			t.Errorf("%d reports in an outage of an hour, want one at most every ten minutes in the end", tries)
		}
		s.change("fresh", synced(func(row *clusterworker.Row) { row.StatusUpdated = new(time.Now()) }))
		after(100 * time.Second)
		if tries := s.tries("fresh"); tries < 3 {
			t.Errorf("%d reports on a status of this term, want one every 30 seconds until it is known", tries)
		}
	})
}

// TestReportOfAnOutdatedStatus: a leader that has not observed a Shoot since its last change does not repeat that it is
// ready, or that it failed, however long that takes.
func TestReportOfAnOutdatedStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newReporterSide()
		s.unseen = true
		changed := func(r *clusterworker.Row) { r.ShootGeneration, r.StatusGeneration = 8, 7 }
		s.change("a", synced(changed))
		s.start(t)
		after(2 * time.Minute)
		const progressing = "-Available(ShootProgressing) +Applied(Synced) +Health(NoErrors)"
		wantReport(t, "ready before the change", s.last(), progressing)
		s.change("a", synced(changed, is(v1.ShootError, "no quota")))
		after(time.Minute)
		wantReport(t, "failed before the change", s.last(), progressing)
		s.change("a", synced(changed, func(r *clusterworker.Row) { r.StatusGeneration = 8 }))
		after(time.Minute)
		wantReport(t, "ready with the change", s.last(), "+Available(ShootReady) +Applied(Synced) +Health(NoErrors)")
	})
}

// TestChangeDuringAReport: a change during a report is reported again.
func TestChangeDuringAReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newReporterSide()
		s.slow = time.Second
		s.change("a", synced(is(v1.ShootProgressing, "")))
		s.start(t)
		after(500 * time.Millisecond)
		s.change("a", synced())
		after(8 * time.Second)
		wantReport(t, "the last report", s.last(), "+Available(ShootReady) +Applied(Synced) +Health(NoErrors)")
	})
}

// TestReportsToASlowFleet: reports that hang time out.
func TestReportsToASlowFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newReporterSide()
		s.slow = time.Hour
		s.change("a", synced())
		s.start(t)
		after(15 * time.Second)
		s.set(func(s *reporterSide) { s.slow = 0 })
		after(30 * time.Second)
		wantReport(t, "reports", s.stored(), 1)
	})
}

// TestReporterDatabaseAway: an unavailable database is retried with growing delays; reports
// that could not be recorded are repeated.
func TestReporterDatabaseAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newReporterSide()
		s.err = errors.New("the database is away")
		s.change("a", synced())
		_, logs := s.start(t)
		after(10 * time.Minute)
		if s.asked() < 50 || s.asked() > 90 {
			t.Errorf("%d queries in ten minutes", s.asked())
		}
		wantReport(t, "lines", strings.Count(logs.String(), "WARN"), 1)
		s.set(func(s *reporterSide) { s.err, s.noteErr = nil, s.err })
		after(time.Minute)
		if s.tries("a") < 2 {
			t.Error("what was not noted was not reported again")
		}
		s.set(func(s *reporterSide) { s.noteErr = nil })
		after(11 * time.Second)
		before := s.tries("a")
		after(time.Minute)
		wantReport(t, "reports once it was noted", s.tries("a")-before, 0)
		if !strings.Contains(logs.String(), "again") {
			t.Error("nobody was told that all is well")
		}
	})
}

// TestReporterStopsDuringABatch: sent reports are recorded during shutdown, so that the next
// process does not repeat them.
func TestReporterStopsDuringABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newReporterSide()
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
		wantReport(t, "noted", noted, 8)
	})
}

// TestTermEndsDuringABatchOfReports: a process that no longer leads sends no more reports.
func TestTermEndsDuringABatchOfReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newReporterSide()
		s.slow = time.Second
		for i := range 100 {
			s.change(fmt.Sprint(i), synced())
		}
		s.start(t)
		after(1500 * time.Millisecond)
		s.set(func(s *reporterSide) { s.follower = true })
		after(time.Minute)
		wantReport(t, "reports", s.stored(), 16)
	})
}

func TestNewReporter(t *testing.T) {
	s := newReporterSide()
	cases := map[string]struct {
		reason string
		cfg    clusterworker.ReporterConfig
		deps   clusterworker.ReporterDeps
		ok     bool
	}{
		"Least":      {"what it works with is all it takes", clusterworker.ReporterConfig{}, clusterworker.ReporterDeps{Store: s, Fleet: s, Observer: s}, true},
		"Negative":   {"no time is negative", clusterworker.ReporterConfig{Timeout: -1}, clusterworker.ReporterDeps{Store: s, Fleet: s, Observer: s}, false},
		"NoObserver": {"the condition for reporting is missing", clusterworker.ReporterConfig{}, clusterworker.ReporterDeps{Store: s, Fleet: s}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := clusterworker.NewReporter(tc.cfg, tc.deps); (err == nil) != tc.ok {
				t.Errorf("%s: got %v", tc.reason, err)
			}
		})
	}
}

func TestMetricsAreInOrder(t *testing.T) {
	s, reg := newReporterSide(), prometheus.NewPedanticRegistry()
	if _, err := clusterworker.NewReporter(clusterworker.ReporterConfig{}, clusterworker.ReporterDeps{Store: s, Fleet: s, Observer: s, Registerer: reg}); err != nil {
		t.Fatal(err)
	}
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}
