package poller_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/clusterworker/poller"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

// TestALife covers a Shoot from its first observation to its confirmed end, each change
// within a tenth of a second and each event recorded once.
func TestALife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture()
		r.db.change(1, func(*clusterworker.Row) {})
		w := r.start(t, "a")
		after(time.Second)
		r.db.wantStatus(t, "nothing was asked for", 1, "")

		r.db.sync(1, r.garden.put(1))
		after(soon)
		r.db.wantStatus(t, "it is there", 1, v1.ShootProgressing)
		r.garden.put(1, working(20))
		after(soon)
		r.db.wantStatus(t, "it is being made", 1, v1.ShootProgressing)
		r.garden.put(1, ready)
		after(soon)
		r.db.wantStatus(t, "it is made", 1, v1.ShootReady)
		want(t, "its uid", r.db.row(1).ShootUID, "uid-1")

		r.db.edit(1)
		r.db.sync(1, r.garden.put(1, edited, sent(2)))
		after(soon)
		r.db.wantStatus(t, "it was changed", 1, v1.ShootProgressing)
		r.garden.put(1, failed, func(o *shoot.Observed) { o.ObservedGeneration = o.Generation })
		after(soon)
		r.db.wantStatus(t, "that failed", 1, v1.ShootError)
		r.garden.put(1, working(60))
		after(soon)
		r.db.wantStatus(t, "Gardener tries again", 1, v1.ShootProgressing)
		r.garden.put(1, ready)
		after(soon)
		r.db.wantStatus(t, "and succeeds", 1, v1.ShootReady)

		r.db.wantGone(1)
		r.garden.put(1, deleting)
		r.db.sendDeletion(1)
		after(soon)
		r.db.wantStatus(t, "it is being deleted", 1, v1.ShootDeleting)
		r.garden.remove(1)
		after(soon)
		r.db.wantStatus(t, "it is gone", 1, v1.ShootDeleted)
		want(t, "told", r.journal.of(1), []clusterworker.Action{
			clusterworker.ShootReady, clusterworker.ShootFailed, clusterworker.ShootReady, clusterworker.ShootDeleted,
		})
		for _, c := range r.journal.all { // the UID tells this deletion from a later one
			want(t, "the uid of "+string(c.Action), c.ShootUID != "", c.Action == clusterworker.ShootDeleted)
		}
		want(t, "nothing was sent again", r.db.sentAgain(), nil)
		if n := w.metric(t, "shoot_status_lag_seconds"); n == 0 {
			t.Error("no lag was measured")
		}
		select {
		case <-r.wrote:
		default:
			t.Error("nobody was told that something was written")
		}
	})
}

// TestFirstList: the first list finds all changes since the last leader, in batches.
func TestFirstList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture()
		const n = 1234
		for i := range n {
			r.db.sync(i, r.garden.put(i, ready))
		}
		w := r.start(t, "a")
		after(soon)
		for i := range n {
			r.db.wantStatus(t, "it is ready", i, v1.ShootReady)
		}
		want(t, "pages", r.db.called("Rows"), 3)
		want(t, "writes", r.db.called("SaveStatus"), 3)
		want(t, "looks", r.garden.looked(), 0)
		want(t, "ready ones", w.metric(t, "shoots", "status", "ready"), n)
		want(t, "stats", w.CollectStats().Shoots, map[v1.ShootStatus]int{v1.ShootReady: n})
	})
}

// TestIdle: without changes there is less than one query per second, and every list
// records the time of the observation.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture()
		for i := range 20 {
			r.db.sync(i, r.garden.put(i, ready))
		}
		r.start(t, "a")
		r.start(t, "b")
		after(time.Minute)
		before := r.db.called("")
		after(10 * time.Minute)
		if n := r.db.called("") - before; n > 2*10*6+10 {
			t.Errorf("%d queries in ten minutes of two processes", n)
		}
		want(t, "a row is touched with every list", r.db.touched[idOf(3)], 2)
		want(t, "lists", r.garden.listed(), 3)
	})
}

// TestNewGenerationOfAnUnchangedStatus: that a Shoot is ready with a new generation is recorded, although its status stays
// as it is and no other event follows. The row is locked at first, by the worker that sent the change.
func TestNewGenerationOfAnUnchangedStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture()
		r.db.sync(1, r.garden.put(1, ready))
		r.start(t, "a")
		after(soon)
		r.db.edit(1)
		r.db.set(func(d *database) { d.locked[idOf(1)] = true })
		applied := r.garden.put(1, edited, sent(2), ready)
		after(soon)
		r.db.set(func(d *database) { d.locked[idOf(1)] = false })
		r.db.sync(1, applied)
		after(time.Second)
		row := r.db.row(1)
		want(t, "the generation of the status", row.StatusGeneration, applied.Generation)
		want(t, "the status is outdated", row.IsStatusOutdated(), false)
	})
}

// TestUnchanged: an event that changes nothing costs no query.
func TestUnchanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture()
		r.db.sync(1, r.garden.put(1, ready))
		r.start(t, "a")
		after(soon)
		before := r.db.called("")
		for range 50 {
			r.garden.put(1, func(o *shoot.Observed) { o.LastOperation.Updated = time.Now() })
			after(soon)
		}
		want(t, "queries", r.db.called("")-before, 0)
	})
}

// TestTogether: simultaneous events are read and written together.
func TestTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture()
		const n = 700
		for i := range n {
			r.db.sync(i, r.garden.put(i, working(1)))
		}
		r.start(t, "a")
		after(time.Minute)
		before := r.db.called("")
		for p := range 5 {
			for i := range n {
				r.garden.put(i, working(10+p))
			}
		}
		after(soon)
		want(t, "queries: two parts are read and written", r.db.called("")-before, 4)
		want(t, "the newest counts", r.db.row(5).StatusMessage, "Gardener is reconciling the cluster (14 %): work.")
	})
}

// TestProgress: the progress of an operation is written every five seconds at most, with the newest state. Its end is
// written at once.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture()
		r.db.sync(1, r.garden.put(1, working(0)))
		r.start(t, "a")
		after(soon)
		message := func(percent int) string {
			return fmt.Sprintf("Gardener is reconciling the cluster (%d %%): work.", percent)
		}
		saves := r.db.called("SaveStatus")
		for percent := range 50 {
			r.garden.put(1, working(percent))
			after(200 * time.Millisecond)
		}
		want(t, "writes in ten seconds", r.db.called("SaveStatus")-saves, 2)
		after(5 * time.Second)
		want(t, "the newest progress", r.db.row(1).StatusMessage, message(49))
		r.garden.put(1, working(60))
		after(soon)
		r.garden.put(1, working(70))
		after(soon)
		want(t, "no further write yet", r.db.row(1).StatusMessage, message(60))
		r.garden.put(1, ready)
		after(soon)
		want(t, "the end", r.db.row(1).Status, v1.ShootReady)
		after(time.Minute)
		want(t, "the delayed progress is not written after it", r.db.row(1).Status, v1.ShootReady)
	})
}

// TestDelayedProgressIsNoLag: the status after delayed progress is not measured from the operation that ended before.
func TestDelayedProgressIsNoLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture()
		r.db.sync(1, r.garden.put(1, working(0)))
		w := r.start(t, "a")
		after(time.Minute)
		r.garden.put(1, working(90))
		after(soon)
		samples := w.metric(t, "shoot_status_lag_seconds")
		want(t, "samples of written progress", samples, 1)
		r.garden.put(1, ready, func(o *shoot.Observed) { o.Conditions[0].Status = "False" })
		after(3 * time.Second)
		want(t, "created but not healthy is delayed", r.db.row(1).StatusMessage, "Gardener is reconciling the cluster (90 %): work.")
		r.garden.put(1, func(o *shoot.Observed) {
			o.Conditions = []shoot.Condition{{Type: "APIServerAvailable", Status: "True"}}
		})
		after(soon)
		want(t, "status", r.db.row(1).Status, v1.ShootReady)
		want(t, "samples", w.metric(t, "shoot_status_lag_seconds"), samples)
	})
}

// TestStrangers: a Shoot that does not belong to the row does not affect it.
func TestStrangers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture()
		r.db.sync(1, r.garden.put(1, ready))
		w := r.start(t, "a")
		after(soon)
		r.garden.putNamed("second", 1, failed)
		r.garden.putNamed("odd", 2, func(o *shoot.Observed) { o.Cluster = "not an id" })
		after(soon)
		r.garden.put(1, working(4))
		after(soon)
		r.db.wantStatus(t, "nobody is held up by them", 1, v1.ShootProgressing)
		r.garden.put(1, ready)
		after(soon)
		r.db.wantStatus(t, "another Shoot has its label", 1, v1.ShootReady)
		after(6 * time.Minute)
		r.db.wantStatus(t, "also in a list", 1, v1.ShootReady)
		want(t, "strays", w.metric(t, "duplicate_shoots"), 1)

		// Another client removes the label: it is still the observed Shoot.
		r.garden.put(1, func(o *shoot.Observed) { o.Cluster = idOf(77) })
		after(6 * time.Minute)
		r.db.wantStatus(t, "it has the uid that was seen", 1, v1.ShootReady)
	})
}

// TestClusterGoesForGood: a deleted row is removed from the cache.
func TestClusterGoesForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture()
		r.db.sync(1, r.garden.put(1, ready))
		r.db.sync(2, r.garden.put(2, ready))
		w := r.start(t, "a")
		after(soon)
		row := r.db.row(1)
		if current, known := w.IsStatusCurrent(&row); !current || !known {
			t.Error("it is not known while it is there")
		}
		r.db.drop(1)
		before := len(r.db.log())
		r.garden.put(1, failed)
		after(soon)
		want(t, "written", len(r.db.log())-before, 0)
		if _, known := w.IsStatusCurrent(&row); known {
			t.Error("it is still remembered")
		}
		row = r.db.row(2)
		r.db.drop(2)
		r.garden.vanish(2)
		after(20 * time.Minute)
		if _, known := w.IsStatusCurrent(&row); known {
			t.Error("one that no event told of is still remembered")
		}
		want(t, "orphans", w.metric(t, "orphan_shoots"), 0) // the cluster no longer exists
		if w.metric(t, "orphan_cleanup_blocked_total") == 0 {
			t.Error("nobody can see that there is no cluster any more")
		}
	})
}

// TestCurrent covers whether a status is about the Shoot as it was last sent.
func TestCurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture()
		r.db.sync(1, r.garden.put(1, ready))
		w := r.start(t, "a")
		wantCurrent := func(reason string, current, known bool) {
			t.Helper()
			row := r.db.row(1)
			c, k := w.IsStatusCurrent(&row)
			want(t, reason, [2]bool{c, k}, [2]bool{current, known})
		}
		after(soon)
		wantCurrent("it was seen", true, true)

		r.garden.set(func(g *garden) { g.mute = true })
		r.db.edit(1)
		wantCurrent("nothing was sent yet", true, true)
		r.db.sync(1, r.garden.put(1, edited, sent(2)))
		wantCurrent("what was sent was not seen yet", false, true)
		r.garden.set(func(g *garden) { g.mute = false })
		r.garden.put(1, working(1))
		wantCurrent("nor is it before it was written", false, true)
		after(soon)
		wantCurrent("it was seen and written", true, true)

		r.garden.remove(1)
		after(soon)
		wantCurrent("it is missing", true, true)
		r.garden.set(func(g *garden) { g.mute = true })
		r.db.edit(1)
		r.db.sync(1, r.garden.put(1, ready, sent(3)))
		wantCurrent("it was made anew", false, true)

		row := r.db.row(1)
		row.Status = v1.ShootProgressing
		if c, _ := w.IsStatusCurrent(&row); c {
			t.Error("a row that is older than what was written is not current")
		}
		w.stop()
		wantCurrent("nobody observes", false, false)
	})
}

func TestNew(t *testing.T) {
	deps := poller.Deps{Store: &process{database: newDatabase()}, Viewer: newGarden()}
	cases := map[string]struct {
		reason string
		cfg    poller.Config
		deps   poller.Deps
		ok     bool
	}{
		"Least":    {"an owner is all it takes", poller.Config{Owner: "a"}, deps, true},
		"NoOwner":  {"two without a name would share a term", poller.Config{}, deps, false},
		"Negative": {"no time is negative", poller.Config{Owner: "a", Term: -1}, deps, false},
		"TooMany":  {"a batch is one query", poller.Config{Owner: "a", BatchSize: 501}, deps, false},
		"NoStore":  {"there is nothing to write to", poller.Config{Owner: "a"}, poller.Deps{Viewer: newGarden()}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := poller.New(tc.cfg, tc.deps); (err == nil) != tc.ok {
				t.Errorf("%s: got %v", tc.reason, err)
			}
		})
	}
}
