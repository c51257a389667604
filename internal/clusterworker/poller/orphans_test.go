package poller_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/clusterworker/poller"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

// TestPlanOrphans: each guard alone protects a Shoot.
func TestPlanOrphans(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	orphans := func(n int, change func(*shoot.Observed)) (list []shoot.Observed) {
		for i := range n {
			o := shoot.Observed{Name: nameOf(i), UID: fmt.Sprint("uid-", i), Cluster: idOf(i), Installation: installation, History: history, Created: now.Add(-time.Hour)}
			change(&o)
			list = append(list, o)
		}
		return list
	}
	same := func(*shoot.Observed) {}
	candidates := func(n int, change func(*poller.OrphanCandidates)) poller.OrphanCandidates {
		c := poller.OrphanCandidates{
			Installation: installation, History: history, Listed: 100, Clusters: 99, Orphans: orphans(n, same),
			Before: map[string]bool{}, Now: now, MinAge: 15 * time.Minute, Delete: true,
		}
		for i := range n {
			c.Before[fmt.Sprint("uid-", i)] = true
		}
		change(&c)
		return c
	}
	cases := map[string]struct {
		reason               string
		candidates           poller.OrphanCandidates
		report, delete, seen int
		halt                 bool
	}{
		"Orphan":    {"a proven orphan", candidates(1, func(*poller.OrphanCandidates) {}), 1, 1, 1, false},
		"None":      {"no orphan", candidates(0, func(*poller.OrphanCandidates) {}), 0, 0, 0, false},
		"NotAsked":  {"they are deleted only where that was asked for", candidates(1, func(c *poller.OrphanCandidates) { c.Delete = false }), 1, 0, 1, false},
		"FirstSeen": {"one list may be a mistake", candidates(1, func(c *poller.OrphanCandidates) { c.Before = nil }), 0, 0, 1, false},
		"AnotherSeen": {
			"the one seen before had the name, and was another",
			candidates(1, func(c *poller.OrphanCandidates) { c.Before = map[string]bool{"uid-9": true} }), 0, 0, 1, false,
		},
		"Young":  {"it may be one that is just being made", candidates(1, func(c *poller.OrphanCandidates) { c.Orphans[0].Created = now.Add(-15*time.Minute + time.Second) }), 0, 0, 1, false},
		"Future": {"clocks differ", candidates(1, func(c *poller.OrphanCandidates) { c.Orphans[0].Created = now.Add(time.Hour) }), 0, 0, 1, false},
		"Old":    {"it is old enough", candidates(1, func(c *poller.OrphanCandidates) { c.Orphans[0].Created = now.Add(-15 * time.Minute) }), 1, 1, 1, false},
		"NotOurs": {
			"another installation's are none of our business",
			candidates(1, func(c *poller.OrphanCandidates) { c.Orphans[0].Installation = "another" }), 0, 0, 0, false,
		},
		"OtherHistory": {
			"the database was restored since, and may have lost the cluster",
			candidates(1, func(c *poller.OrphanCandidates) { c.Orphans[0].History = "fedcba9876543210" }), 1, 0, 1, false,
		},
		"UnknownHistory": {"the history could not be read", candidates(1, func(c *poller.OrphanCandidates) { c.History = "" }), 1, 0, 1, false},
		"NoHistory":      {"neither is known", candidates(1, func(c *poller.OrphanCandidates) { c.History, c.Orphans[0].History = "", "" }), 1, 0, 1, false},
		"NoUID":          {"the Shoot cannot be identified", candidates(1, func(c *poller.OrphanCandidates) { c.Orphans[0].UID = "" }), 0, 0, 0, false},
		"NoCluster":      {"the cluster cannot be identified", candidates(1, func(c *poller.OrphanCandidates) { c.Orphans[0].Cluster = "" }), 1, 0, 1, false},
		"Deleting":       {"it is already being deleted", candidates(1, func(c *poller.OrphanCandidates) { c.Orphans[0].Deleting = true }), 1, 0, 1, false},
		"Strays":         {"a cluster's second Shoot is not without a cluster", candidates(0, func(c *poller.OrphanCandidates) { c.Strays = orphans(1, same) }), 0, 0, 0, false},
		"TooMany":        {"more than one in a hundred are no accident", candidates(2, func(*poller.OrphanCandidates) {}), 2, 0, 2, true},
		"AsManyAsMay":    {"one in a hundred is", candidates(3, func(c *poller.OrphanCandidates) { c.Listed = 300 }), 3, 3, 3, false},
		"TooManyUnasked": {
			"nothing is held up if nothing was to be done",
			candidates(50, func(c *poller.OrphanCandidates) { c.Delete = false }), 50, 0, 50, false,
		},
		"NoClusters":        {"the database is new, or not the right one", candidates(1, func(c *poller.OrphanCandidates) { c.Clusters, c.Listed = 0, 1 }), 0, 0, 0, true},
		"NoClustersUnasked": {"an empty database is reported even if deletion is off", candidates(1, func(c *poller.OrphanCandidates) { c.Clusters, c.Delete = 0, false }), 0, 0, 0, true},
		"NothingAtAll":      {"a new installation", candidates(0, func(c *poller.OrphanCandidates) { c.Clusters, c.Listed = 0, 0 }), 0, 0, 0, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := poller.PlanOrphanCleanup(tc.candidates)
			want(t, tc.reason+": reported", len(p.Report), tc.report)
			want(t, tc.reason+": deleted", len(p.Delete), tc.delete)
			want(t, tc.reason+": remembered", len(p.Seen), tc.seen)
			if (p.Halt != nil) != tc.halt {
				t.Errorf("%s: halted by %v", tc.reason, p.Halt)
			}
		})
	}
}

// newOrphans returns an installation of ten clusters and one extra Shoot, the nth.
func newOrphans(t *testing.T, n int, change ...func(*poller.Config)) (*fixture, *worker) {
	t.Helper()
	r := newFixture()
	for i := range 10 {
		r.db.sync(i, r.garden.put(i, ready))
	}
	r.garden.put(n, ready)
	return r, r.start(t, "a", change...)
}

func deleteOrphans(c *poller.Config) { c.DeleteOrphans = true }

// TestOrphans: a Shoot without a cluster is reported after a while, and deleted if
// configured.
func TestOrphans(t *testing.T) {
	for _, deletes := range []bool{false, true} {
		t.Run(fmt.Sprint(deletes), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, w := newOrphans(t, 77, func(c *poller.Config) { c.DeleteOrphans = deletes })
				after(14 * time.Minute)
				want(t, "orphans that are young", w.metric(t, "orphan_shoots"), 0)
				after(2 * time.Minute)
				if deletes {
					want(t, "deleted", r.garden.deleted, []shoot.Ref{{Name: nameOf(77), UID: "uid-11", Cluster: idOf(77), Installation: installation}})
					want(t, "counted", w.metric(t, "orphan_shoots_deleted_total"), 1)
				} else {
					want(t, "deleted", r.garden.deleted, nil)
					want(t, "reported", w.metric(t, "orphan_shoots"), 1)
					want(t, "stats", w.CollectStats().Orphans, 1)
					if !strings.Contains(r.logs.String(), "orphan shoot found") {
						t.Error("the log does not tell of it")
					}
				}
				want(t, "other Shoots", len(r.garden.shoots) >= 10, true)
			})
		})
	}
}

// TestOrphansThatAreNone: the last check, on both sides, protects a Shoot that has a
// cluster by then.
func TestOrphansThatAreNone(t *testing.T) {
	cases := map[string]struct {
		reason string
		in     func(r *fixture) // right before the last check
	}{
		"ClusterAppears": {"its cluster was restored", func(r *fixture) {
			r.db.change(77, func(row *clusterworker.Row) { row.ShootName = nameOf(77) })
		}},
		"AnotherUID": {"it was made anew", func(r *fixture) {
			r.garden.shoots[nameOf(77)].UID = "new"
		}},
		"NotOurs": {"it was given to another installation", func(r *fixture) {
			r.garden.shoots[nameOf(77)].Installation = "another"
		}},
		"Gone": {"it is gone", func(r *fixture) { delete(r.garden.shoots, nameOf(77)) }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, _ := newOrphans(t, 77, deleteOrphans)
				looked := false
				r.garden.set(func(g *garden) {
					g.getErr = func(string) error { // g is locked
						looked = true
						tc.in(r)
						return nil
					}
				})
				after(16 * time.Minute)
				want(t, "it came to the last look", looked, true)
				want(t, tc.reason, r.garden.deleted, nil)
			})
		})
	}
}

// TestEmptyDatabase: a worker with the wrong database deletes nothing.
func TestEmptyDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture()
		for i := range 3 {
			r.garden.put(i, ready)
		}
		w := r.start(t, "a", deleteOrphans)
		after(time.Hour)
		want(t, "deleted", r.garden.deleted, nil)
		if w.metric(t, "orphan_cleanup_blocked_total") < 10 || !strings.Contains(r.logs.String(), "the database has no clusters") {
			t.Error("nobody can see that something is wrong")
		}
	})
}

// TestUndeadAreNoOrphans: a Shoot whose cluster has the status deleted still has a row,
// which shows that the database is the right one.
func TestUndeadAreNoOrphans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture()
		r.db.sync(1, r.garden.put(1, ready))
		r.db.wantGone(1)
		r.db.sendDeletion(1)
		r.garden.remove(1)
		r.garden.put(77, ready)
		r.start(t, "a", deleteOrphans)
		after(time.Second)
		r.garden.put(1, working(1)) // undead, and not an orphan
		after(20 * time.Minute)
		want(t, "deleted", len(r.garden.deleted), 1)
		want(t, "sent again", r.db.sentAgain(), []string{idOf(1)})
	})
}
