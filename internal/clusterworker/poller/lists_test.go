package poller_test

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/clusterworker/poller"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

// TestListIsOlder: a slow list does not revert later observations.
func TestListIsOlder(t *testing.T) {
	cases := map[string]struct {
		reason string
		during func(r *fixture)
		want   v1.ShootStatus
		writes int
		told   []clusterworker.Action
		polls  bool
	}{
		"Changed": {
			"the watch told of it", func(r *fixture) { r.garden.put(1, ready) },
			v1.ShootReady, 1,
			[]clusterworker.Action{clusterworker.ShootReady},
			false,
		},
		"LookedUp": {
			"the garden supports no watch", func(r *fixture) {
				r.garden.put(1, ready)
				after(time.Second)
			},
			v1.ShootReady, 1,
			[]clusterworker.Action{clusterworker.ShootReady},
			true,
		},
		"Gone": {
			"it was looked up", func(r *fixture) {
				r.db.wantGone(1)
				r.db.sendDeletion(1)
				r.garden.remove(1)
			},
			v1.ShootDeleted, 1,
			[]clusterworker.Action{clusterworker.ShootDeleted},
			false,
		},
		"Missing": {
			"and should be there", func(r *fixture) { r.garden.remove(1) },
			v1.ShootError, 1,
			[]clusterworker.Action{clusterworker.ShootFailed},
			false,
		},
		"Made": {
			"there was none before", func(r *fixture) {
				r.garden.remove(1)
				after(soon)
				r.db.sync(1, r.garden.put(1, ready))
			},
			v1.ShootReady, 2,
			[]clusterworker.Action{clusterworker.ShootFailed, clusterworker.ShootReady},
			false,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newFixture()
				r.db.sync(1, r.garden.put(1, working(20)))
				r.start(t, "a", func(c *poller.Config) { c.PollOnly, c.PollInterval = tc.polls, time.Second })
				after(time.Second)
				before := len(r.db.log())
				r.garden.set(func(g *garden) { g.lag = 5 * time.Second })
				after(5 * time.Minute)
				want(t, "the second list is under way", r.garden.listed(), 2)
				tc.during(r)
				after(soon)
				r.db.wantStatus(t, tc.reason, 1, tc.want)
				after(time.Minute)
				r.db.wantStatus(t, tc.reason+": and then the list came", 1, tc.want)
				want(t, tc.reason+": writes", len(r.db.log())-before, tc.writes)
				want(t, tc.reason+": told", r.journal.of(1), tc.told)
			})
		})
	}
}

// TestListIsNewer: an event during a list may be older than the list, which is then the
// only source.
func TestListIsNewer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture()
		r.db.sync(1, r.garden.put(1, working(20)))
		r.start(t, "a")
		after(time.Second)
		r.garden.set(func(g *garden) { g.slow = 5 * time.Second }) // before the list
		after(5 * time.Minute)
		want(t, "the second list is under way", r.garden.listed(), 2)
		r.garden.put(1, working(30))
		after(soon)
		r.garden.set(func(g *garden) { g.mute = true })
		r.garden.put(1, ready)
		after(5 * time.Second)
		r.garden.set(func(g *garden) { g.mute, g.slow = false, 0 })
		after(10 * time.Second)
		r.db.wantStatus(t, "the list has it", 1, v1.ShootReady)
	})
}

// TestListOfNobody: an installation without Shoots and rows is listed as well.
func TestListOfNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture()
		w := r.start(t, "a")
		after(time.Second)
		if w.CollectStats().LastList.IsZero() || !w.CollectStats().Watching {
			t.Error("it does not observe")
		}
		r.db.sync(1, r.garden.put(1, func(o *shoot.Observed) { o.Generation = 1 }))
		after(soon)
		r.db.wantStatus(t, "the first one", 1, v1.ShootProgressing)
	})
}

// TestNoListsAllowed: a polled state stays known until the next poll of its Shoot,
// however often a list is refused meanwhile, and only as long as the row exists.
func TestNoListsAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture()
		const n = 300
		for i := range n {
			r.db.sync(i, r.garden.put(i, ready))
		}
		r.garden.listErr = shoot.NewClassErrorf(shoot.ClassForbidden, "shoots is forbidden: cannot list")
		w := r.start(t, "a", func(c *poller.Config) { c.BatchSize = 20 })
		known := func(i int) bool {
			row := clusterworker.Row{ClusterID: idOf(i), Status: v1.ShootReady, SyncedGeneration: 1}
			_, known := w.IsStatusCurrent(&row)
			return known
		}
		after(8 * time.Minute) // one cycle takes 7.5 minutes, and lists are tried every 5
		r.garden.set(func(g *garden) { g.getErr = func(string) error { return errAway } })
		after(10 * time.Minute)
		for i := range n {
			if !known(i) {
				t.Fatalf("the Shoot of cluster %d was looked up, and is not known any more", i)
			}
		}
		r.db.drop(7)
		after(5 * time.Minute)
		want(t, "a cluster that is gone is known", known(7), false)
		want(t, "one that is there is known", known(8), true)
	})
}
