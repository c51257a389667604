package poller_test

import (
	"errors"
	"fmt"
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

// TestWatchEnds: after any end of a watch, the missed changes are found.
func TestWatchEnds(t *testing.T) {
	cases := map[string]struct {
		reason string
		err    error
		within time.Duration
		lists  int
	}{
		"Ended":   {"the server ended it: it goes on where it was", nil, 2 * time.Second, 1},
		"Broken":  {"it broke: everything is listed", errAway, 2 * time.Second, 2},
		"Expired": {"it can not go on: everything is listed", fmt.Errorf("watch: %w", shoot.ErrExpired), 2 * time.Second, 2},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newFixture()
				r.db.sync(1, r.garden.put(1, working(1)))
				w := r.start(t, "a")
				after(time.Minute)
				r.garden.put(1, working(2))
				after(soon)
				r.garden.set(func(g *garden) { g.forgot = g.version }) // already reported
				r.garden.cut <- tc.err
				r.garden.put(1, ready)
				after(tc.within)
				r.db.wantStatus(t, tc.reason, 1, v1.ShootReady)
				want(t, "lists", r.garden.listed(), tc.lists)
				want(t, "ends", w.metric(t, "shoot_watch_restarts_total"), 1)
				want(t, "it watches again", w.CollectStats().Watching, true)
				r.garden.put(1, working(3))
				after(soon)
				r.db.wantStatus(t, "and is told", 1, v1.ShootProgressing)
			})
		})
	}
}

// TestWatchBreaksAllTheTime: lists become rarer the more often a watch breaks.
func TestWatchBreaksAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture()
		r.garden.watchErr = errAway
		r.start(t, "a")
		after(10 * time.Minute)
		if n := r.garden.listed(); n < 8 || n > 25 {
			t.Errorf("%d lists in ten minutes", n)
		}
		r.garden.set(func(g *garden) { g.watchErr = nil })
		after(2 * time.Minute)
		before := r.garden.listed()
		r.garden.cut <- errAway
		after(2 * time.Second)
		want(t, "a watch that lasted is soon followed by another", r.garden.listed()-before, 1)
	})
}

// TestSilentWatch: the next list finds changes that a watch does not report.
func TestSilentWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture()
		r.db.sync(1, r.garden.put(1, working(1)))
		r.start(t, "a")
		after(soon)
		r.garden.set(func(g *garden) { g.mute = true })
		r.garden.put(1, ready)
		after(4 * time.Minute)
		r.db.wantStatus(t, "nobody told", 1, v1.ShootProgressing)
		after(2 * time.Minute)
		r.db.wantStatus(t, "the list shows it", 1, v1.ShootReady)
	})
}

// TestSlowGardener: hanging calls time out, and events are handled meanwhile.
func TestSlowGardener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture()
		r.db.sync(1, r.garden.put(1, working(1)))
		r.db.sync(2, r.garden.put(2, ready))
		w := r.start(t, "a")
		after(soon)
		r.garden.set(func(g *garden) { g.slow = time.Hour })
		r.garden.remove(2) // has a look hang
		after(5*time.Minute + 10*time.Second)
		r.garden.put(1, ready) // while a list hangs
		after(soon)
		r.db.wantStatus(t, "the watch goes on", 1, v1.ShootReady)
		r.db.wantStatus(t, "nothing was confirmed", 2, v1.ShootReady)
		if w.CollectStats().GardenerErr == nil || w.metric(t, "shoot_watch_errors_total", "class", "unavailable") == 0 {
			t.Error("nobody can see that Gardener does not answer")
		}
		r.garden.set(func(g *garden) { g.slow = 0 })
		after(3 * time.Minute)
		r.db.wantStatus(t, "it is found to be missing", 2, v1.ShootError)
		want(t, "errors of Gardener", w.CollectStats().GardenerErr, nil)
	})
}

// TestPolling: without a watch, each interval reads a batch of the Shoots that were
// observed longest ago, so that all are read in time.
func TestPolling(t *testing.T) {
	forbidden := shoot.NewClassErrorf(shoot.ClassForbidden, "shoots is forbidden: cannot watch")
	cases := map[string]struct {
		reason string
		set    func(*garden, *poller.Config)
	}{
		"NoWatch": {"watches are forbidden", func(g *garden, _ *poller.Config) { g.watchErr = forbidden }},
		"NoList":  {"lists are, too", func(g *garden, _ *poller.Config) { g.listErr, g.watchErr = forbidden, forbidden }},
		"ByHand":  {"it was asked for", func(_ *garden, c *poller.Config) { c.PollOnly = true }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newFixture()
				const n = 5
				for i := range n {
					r.db.sync(i, r.garden.put(i, working(1)))
				}
				w := r.start(t, "a", func(c *poller.Config) {
					c.PollInterval, c.BatchSize, c.ReconcileInterval = 2*time.Second, 2, time.Hour
					tc.set(r.garden, c)
				})
				after(7 * time.Second)
				for i := range n {
					r.garden.put(i, ready)
				}
				for round := range 3 {
					before, changed := r.garden.looked(), readies(r.db, n)
					after(2 * time.Second)
					want(t, "looks in a round", r.garden.looked()-before, 2)
					if got := readies(r.db, n); got != min(changed+2, n) {
						t.Errorf("%s: round %d: %d rows are up to date, %d before", tc.reason, round, got, changed)
					}
				}
				if w.metric(t, "shoot_poll_rounds_total") < 5 || w.CollectStats().Watching {
					t.Error("it does not seem to poll")
				}

				r.db.wantGone(0)
				r.garden.put(0, deleting)
				r.db.sendDeletion(0)
				after(8 * time.Second)
				r.db.wantStatus(t, "it is being deleted", 0, v1.ShootDeleting)
				r.garden.remove(0)
				after(8 * time.Second)
				r.db.wantStatus(t, "it is gone", 0, v1.ShootDeleted)
				r.garden.set(func(g *garden) { g.getErr = func(name string) error { return gone(name, nameOf(0)) } })
				after(20 * time.Second)
				want(t, "looks at what is gone", w.metric(t, "shoot_watch_errors_total", "class", "unknown"), 0)
			})
		})
	}
}

func readies(d *database, n int) (ready int) {
	for i := range n {
		if d.row(i).Status == v1.ShootReady {
			ready++
		}
	}
	return ready
}

func gone(name, which string) error {
	if name == which {
		return errors.New("this one should not be looked at")
	}
	return nil
}

// TestPollingPassesOver: Shoots that cannot be read do not block others, even if there
// are more than a batch.
func TestPollingPassesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture()
		for i := range 10 {
			r.db.sync(i, r.garden.put(i, ready))
		}
		r.garden.getErr = func(name string) error {
			if name < nameOf(4) { // 0 to 3
				return errAway
			}
			return nil
		}
		r.start(t, "a", func(c *poller.Config) {
			c.PollOnly, c.BatchSize, c.PollInterval, c.ReconcileInterval = true, 2, 2*time.Second, 24*time.Hour
		})
		// The first list, which is not a poll, has marked all of them as ready.
		after(10 * time.Second)
		for i := range 10 {
			r.garden.put(i, working(9))
		}
		after(10 * time.Second)
		for i := 4; i < 10; i++ {
			r.db.wantStatus(t, "others have their turn", i, v1.ShootProgressing)
		}
		r.garden.set(func(g *garden) { g.getErr = nil })
		after(time.Minute)
		for i := range 4 {
			r.db.wantStatus(t, "they are tried again", i, v1.ShootProgressing)
		}
	})
}

// TestPollingASlowGardener: hanging reads do not pile up, and only a few run at a time.
func TestPollingASlowGardener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture()
		for i := range 200 {
			r.db.sync(i, r.garden.put(i, working(1)))
		}
		r.garden.slow = 4 * time.Second
		r.start(t, "a", func(c *poller.Config) { c.PollOnly, c.PollInterval, c.BatchSize = true, time.Second, 20 })
		after(2 * time.Minute)
		if r.garden.most > 8 {
			t.Errorf("%d looks ran at the same time", r.garden.most)
		}
		if n := r.garden.looked(); n < 150 || n > 250 {
			t.Errorf("%d looks in two minutes; 8 at a time take four seconds", n)
		}
	})
}

// TestDeletionNeedsALook: only a live read after the accepted deletion confirms that a
// Shoot is gone.
func TestDeletionNeedsALook(t *testing.T) {
	cases := map[string]struct {
		reason string
		do     func(r *fixture)
		want   v1.ShootStatus
	}{
		"NotSent": {
			"Gardener was not told yet", func(r *fixture) {
				r.db.wantGone(1)
				r.garden.remove(1)
			}, v1.ShootDeleting,
		},
		"LookFails": {
			"the garden did not answer", func(r *fixture) {
				r.db.wantGone(1)
				r.db.sendDeletion(1)
				r.garden.set(func(g *garden) { g.getErr = func(string) error { return errAway } })
				r.garden.remove(1)
			}, v1.ShootReady,
		},
		"StillThere": {
			"the watch was wrong", func(r *fixture) {
				r.db.wantGone(1)
				r.garden.put(1, deleting)
				r.db.sendDeletion(1)
				r.garden.set(func(g *garden) { g.happen(shoot.Gone, new(*g.shoots[nameOf(1)])) })
			}, v1.ShootDeleting,
		},
		"AnotherHasTheName": {
			"what has its name is another installation's", func(r *fixture) {
				r.db.wantGone(1)
				r.db.sendDeletion(1)
				r.garden.remove(1)
				r.garden.put(1, func(o *shoot.Observed) { o.Installation = "another" })
			}, v1.ShootDeleted,
		},
		"Gone": {
			"it is gone", func(r *fixture) {
				r.db.wantGone(1)
				r.db.sendDeletion(1)
				r.garden.remove(1)
			}, v1.ShootDeleted,
		},
		"Missing": {
			"the deletion was not requested", func(r *fixture) { r.garden.remove(1) }, v1.ShootError,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newFixture()
				r.db.sync(1, r.garden.put(1, ready))
				r.start(t, "a")
				after(soon)
				tc.do(r)
				after(2 * time.Second)
				r.db.wantStatus(t, tc.reason, 1, tc.want)
			})
		})
	}
}

// TestDeletionDuringALook: a read that began before the accepted deletion does not
// confirm it, as the Shoot may have been created in between.
func TestDeletionDuringALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture()
		r.db.sync(1, r.garden.put(1, ready))
		r.start(t, "a")
		after(soon)
		looking, answer := make(chan struct{}), make(chan struct{})
		first := true
		r.garden.set(func(g *garden) {
			g.getErr = func(string) error {
				if first {
					first = false
					g.mu.Unlock()
					close(looking)
					<-answer
					g.mu.Lock()
					return shoot.ErrNotFound // the state at the start of the read
				}
				return nil
			}
			g.mute = true
		})
		r.garden.vanish(1)
		r.garden.set(func(g *garden) {
			g.mute = false
			g.happen(shoot.Gone, &shoot.Observed{Name: nameOf(1), Cluster: idOf(1), Installation: installation})
		})
		<-looking
		r.garden.set(func(g *garden) { g.mute = true })
		r.db.sync(1, r.garden.put(1, ready)) // created again
		r.db.wantGone(1)
		r.garden.put(1, deleting)
		r.db.sendDeletion(1)
		close(answer)
		after(soon)
		r.db.wantStatus(t, "it is there", 1, v1.ShootDeleting)
		want(t, "told", slices.Contains(r.journal.of(1), clusterworker.ShootDeleted), false)
	})
}

// TestRowChangesMeanwhile: a row that changes between read and write is not written but
// handled again, and so is a locked row.
func TestRowChangesMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture()
		r.db.sync(1, r.garden.put(1, working(1)))
		r.db.sync(2, r.garden.put(2, working(1)))
		r.start(t, "a")
		after(soon)
		changed := false
		r.db.set(func(d *database) {
			d.locked[idOf(2)] = true
			d.before = func(call string) {
				if call == "SaveStatus" && !changed {
					changed = true
					d.wantGone(1)
				}
			}
		})
		r.garden.put(1, ready)
		r.garden.put(2, ready)
		after(time.Second)
		r.db.wantStatus(t, "it was looked at again", 1, v1.ShootReady)
		want(t, "with what is wanted now", r.db.log()[len(r.db.log())-1].WasDeleting, true)
		want(t, "told once", r.journal.of(1), []clusterworker.Action{clusterworker.ShootReady})

		after(time.Minute)
		if n := r.db.called("SaveStatus"); n > 20 {
			t.Errorf("%d attempts to write a locked row", n)
		}
		r.garden.put(2, working(80)) // newer than the waiting one
		r.db.set(func(d *database) { clear(d.locked) })
		after(15 * time.Second)
		want(t, "the newest was written", r.db.row(2).StatusMessage, "Gardener is reconciling the cluster (80 %): work.")
	})
}

// TestLostAnswer: a write without an answer is not mistaken for the earlier state.
func TestLostAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture()
		r.db.sync(1, r.garden.put(1, working(1)))
		r.start(t, "a")
		after(soon)
		r.db.set(func(d *database) { d.deaf = true })
		r.garden.put(1, ready)
		after(soon)
		r.garden.put(1, working(1)) // as it was before
		after(2 * time.Second)
		r.db.wantStatus(t, "the newest counts", 1, v1.ShootProgressing)
	})
}

// TestSecondOutage: after a time without failures, the first failure is soon retried.
func TestSecondOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture()
		r.garden.listErr = errAway
		r.start(t, "a")
		after(10 * time.Minute)
		r.garden.set(func(g *garden) { g.listErr = nil })
		after(time.Minute)
		for lists := r.garden.listed(); r.garden.listed() == lists; {
			r.garden.set(func(g *garden) { g.listErr = errAway })
			after(time.Second)
		}
		r.garden.set(func(g *garden) { g.listErr = nil })
		before := r.garden.listed()
		after(2 * time.Second)
		want(t, "lists after one that failed", r.garden.listed()-before, 1)
	})
}

// TestErrorsAreToldOfOnce: an outage of Gardener is one line in the log.
func TestErrorsAreToldOfOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFixture()
		r.garden.listErr = errAway
		w := r.start(t, "a")
		after(10 * time.Minute)
		want(t, "lines", strings.Count(r.logs.String(), "level=WARN"), 1)
		if n := w.metric(t, "shoot_watch_errors_total", "class", "unavailable"); n < 8 || n > 25 {
			t.Errorf("%g tries in ten minutes", n)
		}
	})
}
