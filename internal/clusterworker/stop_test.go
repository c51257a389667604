package clusterworker

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

// stopsIn sets the stop timeout of a worker.
func stopsIn(d time.Duration) func(*Config) { return func(c *Config) { c.StopTimeout = d } }

func TestStopLetsCallsEnd(t *testing.T) {
	bubble(t, nil, func(r *fixture) {
		r.garden.set(takes(3*time.Second), nil)
		r.add(200) // more than the concurrent calls
		r.start()
		r.pass(1500 * time.Millisecond)
		if took := r.stop(); took != 2500*time.Millisecond {
			t.Errorf("took %s", took)
		}
		if left := r.store.unsynced(); len(left) != 40 {
			t.Errorf("%d are left", len(left))
		}
		for _, id := range r.store.unsynced() {
			if row := r.store.row(id); row.token != 0 {
				t.Errorf("claimed for nothing: %+v", row)
			}
		}
		if s := r.worker.CollectStats(); s.Synced != 160 || s.Unwritten != 0 || s.Released != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestStopCutsOffHangingCalls(t *testing.T) {
	bubble(t, stopsIn(2*time.Second), func(r *fixture) {
		r.garden.set(takes(time.Hour), nil)
		ids := r.add(3)
		r.start()
		r.pass(time.Second)
		if took := r.stop(); took != 1500*time.Millisecond {
			t.Errorf("took %s", took)
		}
		for _, id := range ids {
			row := r.store.row(id)
			if row.synced || row.token != 0 || row.dueAt.After(time.Now()) || row.attempts != 0 || row.err != "" {
				t.Errorf("not given back as it was: %+v", row)
			}
		}
		if told := r.recorder.changes; told != nil {
			t.Errorf("told of %v", told)
		}
		r.wantMetric("sync_failures_total", 0)
	})
}

func TestStopWhileCallsHeedNoDeadline(t *testing.T) {
	bubble(t, stopsIn(2*time.Second), func(r *fixture) {
		r.garden.set(func(context.Context, verb, string) error { hang(time.Hour); return nil }, nil)
		r.store.edit("a", nil)
		r.start()
		begin := time.Now()
		r.cancel()
		err := <-r.done
		r.done = nil
		if err == nil || !strings.Contains(err.Error(), "1 calls") || time.Since(begin) > 2*time.Second {
			t.Errorf("after %s: %v", time.Since(begin), err)
		}
		if row := r.store.row("a"); row.token == 0 {
			t.Error("given back while its call still runs")
		}
		r.pass(2 * time.Hour)
	})
}

func TestStopInEveryState(t *testing.T) {
	hang := func(kind requestKind) func(context.Context, requestKind) error {
		return func(ctx context.Context, asked requestKind) error {
			if asked == kind {
				<-ctx.Done()
			}
			return context.Cause(ctx)
		}
	}
	fail := func(kinds ...requestKind) func(context.Context, requestKind) error {
		return func(_ context.Context, asked requestKind) error {
			if slices.Contains(kinds, asked) {
				return errDown
			}
			return nil
		}
	}
	cases := map[string]struct {
		reason string
		setUp  func(*fixture)
		within time.Duration
		log    string
		held   bool // afterwards
		either bool // the claim may be held or released, because two timeouts end at once
	}{
		"Idle": {reason: "there is nothing to wait for", setUp: func(*fixture) {}, within: 0},
		"Outage": {reason: "no row waits for Gardener", within: 0, setUp: func(r *fixture) {
			r.garden.set(refuses(shoot.ClassUnavailable), func(context.Context) error { return errDown })
		}},
		"ProbeHangs": {reason: "it is not known whose fault it is", within: 1500 * time.Millisecond, setUp: func(r *fixture) {
			r.garden.set(refuses(shoot.ClassUnavailable), func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		}},
		"Throttled":      {reason: "no row waits for Gardener", within: 0, setUp: func(r *fixture) { r.garden.set(refuses(shoot.ClassThrottled), nil) }},
		"ClaimFails":     {reason: "no wait for another try", within: 0, setUp: func(r *fixture) { r.store.setFault(fail(toClaim)) }},
		"ClaimHangs":     {reason: "a claim may have been carried out, so its answer is awaited", within: 2 * time.Second, setUp: func(r *fixture) { r.store.setFault(hang(toClaim)) }},
		"NameFails":      {reason: "no wait for another try", within: 0, setUp: func(r *fixture) { r.store.setFault(fail(toName)) }},
		"NameHangs":      {reason: "as a claim", within: 2 * time.Second, setUp: func(r *fixture) { r.store.setFault(hang(toName)) }, either: true},
		"CompleteFails":  {reason: "a result is written if there is any way", within: 2 * time.Second, setUp: func(r *fixture) { r.store.setFault(fail(toComplete)) }, log: "results not written", held: true},
		"CompleteHangs":  {reason: "as before", within: 2 * time.Second, setUp: func(r *fixture) { r.store.setFault(hang(toComplete)) }, log: "results not written", held: true},
		"ReleaseFails":   {reason: "a claim is given back if there is any way", within: 2 * time.Second, setUp: func(r *fixture) { r.garden.set(takes(time.Hour), nil); r.store.setFault(fail(toRelease)) }, log: "claims not released", held: true},
		"DatabaseIsAway": {reason: "as before", within: 2 * time.Second, setUp: func(r *fixture) { r.store.setFault(fail(toClaim, toName, toComplete, toRelease)) }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			bubble(t, stopsIn(2*time.Second), func(r *fixture) {
				tc.setUp(r)
				r.add(3)
				r.start()
				r.pass(100 * time.Millisecond)
				if took := r.stop(); took > tc.within {
					t.Errorf("%s: took %s", tc.reason, took)
				}
				if !strings.Contains(r.log.String(), tc.log) {
					t.Errorf("the log does not say that %s:\n%s", tc.log, r.log)
				}
				for _, id := range r.store.unsynced() {
					if row := r.store.row(id); (row.token != 0) != tc.held && !tc.either {
						t.Errorf("%s: claimed %t, want %t: %+v", tc.reason, row.token != 0, tc.held, row)
					}
				}
				if err := r.worker.CheckLive(); err != nil {
					t.Errorf("not live once it is over: %v", err)
				}
				// Another worker finishes the work.
				r.store.setFault(nil)
				r.garden.set(nil, nil)
				next := newFixture(r.t, r.store, r.garden, nil)
				next.start()
				next.pass(3 * time.Minute)
				next.wantSynced()
				next.stop()
			})
		})
	}
}

// TestStopDuringClaim: a claim in progress at shutdown is not lost for the time of its
// lease.
func TestStopDuringClaim(t *testing.T) {
	bubble(t, nil, func(r *fixture) {
		ids := r.add(5)
		r.store.setFault(func(_ context.Context, asked requestKind) error {
			if asked == toClaim {
				hang(time.Second)
			}
			return nil
		})
		r.start()
		r.stop()
		if diff := cmp.Diff(ids, r.store.released); diff != "" {
			t.Error(diff)
		}
		if n := r.garden.total(); n != 0 {
			t.Errorf("%d calls after the order to stop", n)
		}
	})
}

func TestStopWritesWhenTheDatabaseComesBack(t *testing.T) {
	bubble(t, nil, func(r *fixture) {
		r.add(50)
		r.store.setFault(func(_ context.Context, asked requestKind) error {
			if asked == toComplete {
				return errDown
			}
			return nil
		})
		r.start()
		r.pass(time.Second)
		time.AfterFunc(10*time.Second, func() { r.store.setFault(nil) })
		if took := r.stop(); took < 9*time.Second || took > 15*time.Second {
			t.Errorf("took %s", took)
		}
		r.wantSynced()
	})
}

func TestRunsOnce(t *testing.T) {
	bubble(t, nil, func(r *fixture) {
		r.start()
		r.stop()
		if err := r.worker.Run(r.t.Context()); err == nil {
			t.Error("it ran again")
		}
	})
}
