package poller_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/clusterworker/poller"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

func TestDriftOf(t *testing.T) {
	row := func(change func(*clusterworker.Row)) clusterworker.Row {
		r := clusterworker.Row{
			ClusterID: idOf(1), Generation: 3, SyncedGeneration: 3, Synced: true,
			ShootName: nameOf(1), ShootUID: "uid", ShootGeneration: 7, Status: v1.ShootReady,
		}
		change(&r)
		return r
	}
	there := func(change func(*shoot.Observed)) *shoot.Observed {
		o := &shoot.Observed{Name: nameOf(1), UID: "uid", SentGeneration: 3, Generation: 7}
		change(o)
		return o
	}
	same := func(*clusterworker.Row) {}
	asSent := func(*shoot.Observed) {}
	cases := map[string]struct {
		reason string
		row    clusterworker.Row
		shoot  *shoot.Observed
		want   poller.Drift
	}{
		"AsSent":      {"it is as it was sent", row(same), there(asSent), poller.DriftNone},
		"Missing":     {"it should be there", row(same), nil, poller.DriftMissing},
		"Behind":      {"what was sent last did not arrive, or was undone", row(same), there(func(o *shoot.Observed) { o.SentGeneration = 2 }), poller.DriftBehind},
		"Unlabelled":  {"somebody took the annotation off", row(same), there(func(o *shoot.Observed) { o.SentGeneration = 0 }), poller.DriftBehind},
		"Ahead":       {"the row is older than the Shoot: the database was restored, and the sync reports it", row(same), there(func(o *shoot.Observed) { o.SentGeneration = 4 }), poller.DriftAhead},
		"AheadEdited": {"likewise, and it is not another client's change", row(same), there(func(o *shoot.Observed) { o.SentGeneration, o.Generation = 4, 8 }), poller.DriftAhead},
		"Changed":     {"somebody changed the spec", row(same), there(func(o *shoot.Observed) { o.Generation = 8 }), poller.DriftChanged},
		"NotKnown":    {"what the Shoot's generation was is not known", row(func(r *clusterworker.Row) { r.ShootGeneration = 0 }), there(asSent), poller.DriftNone},
		"NotSynced":   {"it is about to be sent anyhow", row(func(r *clusterworker.Row) { r.Synced = false }), nil, poller.DriftNone},
		"NoName":      {"nothing was ever sent", row(func(r *clusterworker.Row) { r.ShootName = "" }), nil, poller.DriftNone},
		"Deleting":    {"somebody deletes it: it can be made again when it is gone", row(same), there(func(o *shoot.Observed) { o.Deleting, o.Generation = true, 8 }), poller.DriftNone},
		"Gone":        {"it was to go", row(func(r *clusterworker.Row) { r.Deleting = true }), nil, poller.DriftNone},
		"Going":       {"it is to go and goes", row(func(r *clusterworker.Row) { r.Deleting = true }), there(func(o *shoot.Observed) { o.Deleting = true }), poller.DriftNone},
		"Undeleted":   {"Gardener took the deletion, and it does not go", row(func(r *clusterworker.Row) { r.Deleting, r.DeletionSent = true, true }), there(asSent), poller.DriftUndeleted},
		"GoesUnasked": {"the deletion is about to be sent", row(func(r *clusterworker.Row) { r.Deleting, r.Synced = true, false }), there(asSent), poller.DriftNone},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := poller.DetectDrift(&tc.row, tc.shoot); got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

// TestDriftIsSentAgain: a drifted Shoot is sent again, at once if urgent and with the
// next list otherwise.
func TestDriftIsSentAgain(t *testing.T) {
	cases := map[string]struct {
		reason string
		drift  poller.Drift
		do     func(r *fixture)
		atOnce bool
	}{
		"Missing":   {"another client deleted the Shoot", poller.DriftMissing, func(r *fixture) { r.garden.remove(1) }, true},
		"Unnoticed": {"and no watch told", poller.DriftMissing, func(r *fixture) { r.garden.vanish(1) }, false},
		"Changed":   {"another client changed the Shoot", poller.DriftChanged, func(r *fixture) { r.garden.put(1, edited, ready) }, false},
		"Behind":    {"another client restored an older Shoot", poller.DriftBehind, func(r *fixture) { r.garden.put(1, sent(0)) }, false},
		"Undeleted": {
			"it was made again while it was deleted", poller.DriftUndeleted, func(r *fixture) {
				r.db.wantGone(1)
				r.garden.put(1, deleting)
				r.db.sendDeletion(1)
				after(soon)
				r.garden.remove(1)
				r.garden.put(1, working(1))
			}, true,
		},
		"UndeadUnnoticed": {
			"and no watch told", poller.DriftUndeleted, func(r *fixture) {
				r.db.wantGone(1)
				r.db.sendDeletion(1)
				r.garden.remove(1)
				after(soon)
				r.garden.set(func(g *garden) { g.mute = true })
				r.garden.put(1, working(1))
			}, false,
		},
		"Undead": {
			"it was made again after it was deleted", poller.DriftUndeleted, func(r *fixture) {
				r.db.wantGone(1)
				r.db.sendDeletion(1)
				r.garden.remove(1)
				after(soon)
				r.db.change(1, func(row *clusterworker.Row) {
					if row.Status != v1.ShootDeleted {
						panic("it was not deleted")
					}
				})
				r.garden.put(1, working(1))
			}, true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newFixture()
				for i := range 3 {
					r.db.sync(i, r.garden.put(i, ready))
				}
				w := r.start(t, "a")
				after(soon)
				tc.do(r)
				after(soon)
				want(t, tc.reason+": sent again at once", len(r.db.sentAgain()) > 0, tc.atOnce)
				after(5 * time.Minute)
				want(t, tc.reason+": sent again", r.db.sentAgain(), []string{idOf(1)})
				if slices.ContainsFunc(r.db.log(), func(w written) bool { return w.WasStatus == v1.ShootDeleted }) {
					t.Error("something followed the end")
				}
				want(t, "counted", w.metric(t, "shoot_drift_total", "reason", string(tc.drift)), 1)
			})
		})
	}
}

// TestLockedRowIsRequeued: a missing Shoot is sent again soon even if its row is locked when its
// cluster is requeued, as it is while its new status is reported to the API.
func TestLockedRowIsRequeued(t *testing.T) {
	for name, tc := range map[string]struct {
		locked int // number of first Requeue calls that find the row locked
		within time.Duration
	}{
		"Once":  {1, 5 * time.Second},
		"Often": {6, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newFixture()
				r.db.sync(1, r.garden.put(1, ready))
				r.start(t, "a")
				after(soon)
				r.db.set(func(d *database) {
					d.before = func(call string) {
						if call == "Requeue" {
							d.set(func(d *database) { d.locked[idOf(1)] = d.calls[call] < tc.locked })
						}
					}
				})
				r.garden.remove(1)
				after(soon)
				r.db.wantStatus(t, "it is missing", 1, v1.ShootError)
				after(tc.within)
				want(t, "sent again", r.db.sentAgain(), []string{idOf(1)})
			})
		})
	}
}

// TestEventDoesNotEndACheckForDrift: a Shoot that another client has changed is sent again soon if
// its row was locked when its cluster was requeued, even if an event about the Shoot comes meanwhile.
func TestEventDoesNotEndACheckForDrift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture()
		r.db.sync(1, r.garden.put(1, ready))
		r.start(t, "a")
		after(soon)
		missed := false
		r.db.set(func(d *database) {
			d.before = func(call string) {
				if call != "Requeue" {
					return
				}
				d.set(func(d *database) { d.locked[idOf(1)] = !missed })
				if !missed {
					missed = true
					r.garden.put(1, edited, working(80))
				}
			}
		})
		r.garden.put(1, edited, ready)
		for range 5 * time.Minute / soon { // until the next list
			if after(soon); r.db.called("Requeue") > 0 {
				break
			}
		}
		after(5 * time.Second)
		want(t, "sent again", r.db.sentAgain(), []string{idOf(1)})
	})
}

// TestNoDriftBySyncing: a Shoot that a worker sends during a list has not drifted,
// although the list is older than the row.
func TestNoDriftBySyncing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture()
		for i := range 4 {
			r.db.sync(i, r.garden.put(i, ready))
		}
		w := r.start(t, "a")
		after(soon)
		r.garden.set(func(g *garden) { g.mute = true }) // watch events would avoid live reads
		r.db.set(func(d *database) {
			d.before = func(call string) {
				if call != "Rows" { // between the two lists
					return
				}
				d.edit(1)
				d.sync(1, r.garden.put(1, edited, sent(d.row(1).Generation), ready))
				d.sync(77, r.garden.put(77, ready)) // new
				d.edit(2)                           // sent, and not recorded yet
				r.garden.put(2, edited, sent(d.row(2).Generation), ready)
			}
		})
		after(5 * time.Minute)
		want(t, "lists", r.garden.listed(), 2)
		want(t, "sent again", r.db.sentAgain(), nil)
		want(t, "orphans", w.metric(t, "orphan_shoots"), 0)
		r.db.wantStatus(t, "the new one", 77, v1.ShootReady)
		want(t, "told of what is new", r.journal.of(77), []clusterworker.Action{clusterworker.ShootReady})
		if r.garden.looked() == 0 {
			t.Error("there was nothing to look at again: this tests nothing")
		}
	})
}

// TestFightOverAShoot: a Shoot that another client keeps changing is sent again once
// per list.
func TestFightOverAShoot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture()
		r.db.sync(1, r.garden.put(1, ready))
		r.start(t, "a")
		for range 16 * 60 {
			after(time.Second)
			r.garden.put(1, edited, ready)
			if !r.db.row(1).Synced { // a worker sends it
				r.db.sync(1, r.garden.put(1, edited, ready))
			}
		}
		want(t, "sent again in sixteen minutes", len(r.db.sentAgain()), 3)
	})
}

// TestMissingRowsAreMade: every list creates the missing rows of clusters, with a
// warning and a count.
func TestMissingRowsAreMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture()
		w := r.start(t, "a")
		after(time.Minute)
		want(t, "nothing is missing", w.metric(t, "missing_sync_rows_total"), 0)
		var ids []string
		for n := range 700 {
			ids = append(ids, idOf(n))
		}
		r.db.set(func(d *database) { d.missing = ids })
		after(5 * time.Minute)
		want(t, "all are made", w.metric(t, "missing_sync_rows_total"), 700)
		if n := strings.Count(r.logs.String(), "missing sync rows added"); n != 2 {
			t.Errorf("%d warnings of 700 rows in batches of 500", n)
		}
	})
}
