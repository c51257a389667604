package poller_test

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/clusterworker/poller"
)

// leaders returns how many of the processes lead.
func leaders(workers ...*worker) (n int) {
	for _, w := range workers {
		if w.IsLeader() {
			n++
		}
	}
	return n
}

// TestOneObserves: only one of several processes sends requests to Gardener. When it
// stops, another one takes over within a third of a term, and when it dies within one
// term more.
func TestOneObserves(t *testing.T) {
	cases := map[string]struct {
		reason string
		end    func(*worker)
		within time.Duration
	}{
		"Stops": {"it resigns", func(w *worker) { w.stop() }, 10 * time.Second},
		"Dies":  {"its term has to end", func(w *worker) { w.crash() }, 40 * time.Second},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newFixture()
				r.db.sync(1, r.garden.put(1, working(1)))
				a := r.start(t, "a")
				after(time.Second)
				b, c := r.start(t, "b"), r.start(t, "c")
				after(time.Minute)
				if !a.IsLeader() || leaders(a, b, c) != 1 {
					t.Fatal("the first one does not observe alone")
				}
				want(t, "watches", r.garden.watched(), 1)
				want(t, "the gauge", a.metric(t, "leader"), 1)

				tc.end(a)
				want(t, "the gauge of one that has ended", a.metric(t, "leader"), 0)
				want(t, "what only an observer can say", a.metric(t, "shoots", "status", "progressing"), 0)
				r.garden.put(1, ready) // without a leader
				after(tc.within)
				want(t, "observers: "+tc.reason, leaders(b, c), 1)
				r.db.wantStatus(t, tc.reason, 1, v1.ShootReady)
				want(t, "told once", r.journal.of(1), []clusterworker.Action{clusterworker.ShootReady})
			})
		})
	}
}

// TestFrozen: a process that was suspended for longer than its term writes nothing
// after it resumes, whatever it was doing.
func TestFrozen(t *testing.T) {
	for _, at := range []string{"RowsOf", "SaveStatus", "Lead", "Rows", "Touch"} {
		t.Run(at, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newFixture()
				r.db.sync(1, r.garden.put(1, working(1)))
				a := r.start(t, "a", func(c *poller.Config) { c.ReconcileInterval = 20 * time.Second })
				after(soon)
				first := a.CollectStats().Fence

				asleep, wake := a.process.freeze(at)
				r.garden.put(1, working(50))
				<-asleep
				frozen := len(r.db.log())

				b := r.start(t, "b")
				after(time.Minute)
				if !b.IsLeader() || a.IsLeader() {
					t.Fatalf("the other one does not observe (%t, %t)", a.IsLeader(), b.IsLeader())
				}
				r.garden.put(1, ready)
				after(soon)
				r.db.wantStatus(t, "the other one sees it", 1, v1.ShootReady)
				wake()
				after(time.Minute)
				r.db.wantStatus(t, "and the first one changes nothing of that", 1, v1.ShootReady)
				for _, w := range r.db.log()[frozen:] {
					if w.fence == first {
						t.Errorf("the frozen one wrote %v", w)
					}
				}
				want(t, "observers", leaders(a, b), 1)
				want(t, "told once", r.journal.of(1), []clusterworker.Action{clusterworker.ShootReady})
			})
		})
	}
}

// TestLateByItsOwnClock: a leader whose term is over by its own clock does not try to
// write, as another one may be about to.
func TestLateByItsOwnClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture()
		r.db.sync(1, r.garden.put(1, working(1)))
		a := r.start(t, "a")
		after(soon)
		r.db.set(func(d *database) {
			d.before = func(call string) {
				if call == "Lead" {
					time.Sleep(25 * time.Second) // no renewal arrives
				}
			}
		})
		after(29 * time.Second)
		if a.IsLeader() {
			t.Error("it observes although its term may be over")
		}
		before := r.db.called("SaveStatus")
		r.garden.put(1, working(70))
		after(soon)
		want(t, "attempts to write", r.db.called("SaveStatus")-before, 0)
		r.db.set(func(d *database) { d.before = nil })
		after(2 * time.Minute)
		want(t, "it observes again", a.IsLeader(), true)
		want(t, "what it missed", r.db.row(1).StatusMessage, "Gardener is reconciling the cluster (70 %): work.")
		if a.metric(t, "leadership_losses_total") == 0 {
			t.Error("the loss was not counted")
		}
	})
}

// TestDatabaseAway: an unavailable database costs the term, and has no other effect.
func TestDatabaseAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture()
		r.db.sync(1, r.garden.put(1, working(1)))
		w := r.start(t, "a")
		after(soon)
		for _, away := range []time.Duration{5 * time.Second, 5 * time.Minute} {
			r.garden.put(1, working(30))
			r.db.set(func(d *database) { d.err = errDatabase })
			r.garden.put(1, ready)
			after(away)
			r.db.set(func(d *database) { d.err = nil })
			after(15 * time.Second)
			r.db.wantStatus(t, "it is written when the database is back", 1, v1.ShootReady)
			r.garden.put(1, working(30))
			after(soon)
		}
		if w.metric(t, "shoot_watch_errors_total", "class", "database") == 0 {
			t.Error("the errors were not counted")
		}
	})
}

// TestRestart: a restarted process records no change twice.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture()
		r.db.sync(1, r.garden.put(1, ready))
		for range 3 {
			w := r.start(t, "a")
			after(time.Minute)
			w.stop()
		}
		want(t, "told once", r.journal.of(1), []clusterworker.Action{clusterworker.ShootReady})
		want(t, "written once", len(r.db.log()), 1)
	})
}
