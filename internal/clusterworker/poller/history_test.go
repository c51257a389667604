package poller_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/clusterworker/poller"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

const histories = 4 // clusters in a history

// TestHistories: for any actions on clusters, Shoots, watches, the database, Gardener
// and the processes, once it is quiet every row has the status that DeriveStatus returns for
// its Shoot, every Shoot that should exist does, and the recorded changes match the
// written ones. No existing Shoot has the status deleted.
func TestHistories(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
			return step{
				after: time.Duration(rapid.SampledFrom([]int{0, 1, 20, 60, 200, 3000, 40000}).Draw(t, "ms"))*time.Millisecond + time.Microsecond,
				what:  rapid.SampledFrom(moves()).Draw(t, "what"),
				which: rapid.IntRange(0, histories-1).Draw(t, "which"),
				how:   rapid.IntRange(0, 3).Draw(t, "how"),
			}
		}), 1, 60).Draw(rt, "steps")
		poll := rapid.Bool().Draw(rt, "poll")
		var problems []string
		synctest.Test(t, func(t *testing.T) { problems = play(t, steps, poll) })
		if len(problems) > 0 {
			rt.Fatalf("%v", problems)
		}
	})
}

type step struct {
	after time.Duration
	what  move
	which int
	how   int
}

type move string

func moves() []move {
	return []move{
		"work", "work", "work", "half", "edit", "delete", "gardener", "gardener", "gardener", "finish", "meddle", "remove", "vanish",
		"cut", "mute", "database", "garden", "lock", "crash", "stop", "forget",
	}
}

// A player plays a history.
type player struct {
	*fixture
	t        *testing.T
	poll     bool
	workers  []*worker
	started  int
	problems []string
	held     map[int]shoot.Applied // sent, and not recorded yet
}

func play(t *testing.T, steps []step, poll bool) []string {
	t.Helper()
	p := &player{fixture: newFixture(), t: t, poll: poll, held: map[int]shoot.Applied{}}
	for i := range histories {
		p.db.change(i, func(*clusterworker.Row) {})
	}
	p.db.saves = func(c clusterworker.StatusChange) {
		if c.Status != v1.ShootDeleted {
			return
		}
		p.garden.set(func(g *garden) {
			for _, o := range g.shoots {
				if o.Cluster == c.ClusterID {
					p.problems = append(p.problems, c.ClusterID+" is said to be deleted, and is there")
				}
			}
		})
	}
	p.begin()
	p.begin()
	for _, s := range steps {
		time.Sleep(s.after)
		p.move(s)
	}
	p.calm()
	p.check()
	for _, w := range p.workers {
		w.stop()
	}
	return p.problems
}

func (p *player) begin() {
	p.started++
	p.workers = append(p.workers, p.start(p.t, fmt.Sprint("w", p.started), func(c *poller.Config) {
		c.PollOnly, c.PollInterval = p.poll, 5*time.Second
	}))
}

func (p *player) move(s step) {
	n := s.which
	switch s.what {
	case "work":
		p.work(n)
	case "half": // sent to Gardener, not recorded yet
		if row := p.db.row(n); !row.Synced && !row.Deleting {
			p.held[n] = p.send(n)
		}
	case "edit":
		if !p.db.row(n).Deleting {
			p.db.edit(n)
		}
	case "delete":
		if !p.db.row(n).Deleting {
			p.db.wantGone(n)
		}
	case "gardener":
		if p.exists(n) {
			p.garden.put(n, []func(*shoot.Observed){working(s.which * 20), ready, failed, unhealthy}[s.how])
		}
	case "finish":
		if p.isDeleting(n) {
			p.garden.remove(n)
		}
	case "meddle":
		if p.exists(n) {
			p.garden.put(n, edited)
		}
	case "remove":
		p.garden.remove(n)
	case "vanish":
		p.garden.vanish(n)
	default:
		p.disturb(s)
	}
}

// disturb injects a fault.
func (p *player) disturb(s step) {
	switch s.what {
	case "cut":
		select {
		case p.garden.cut <- []error{nil, errAway, shoot.ErrExpired, errAway}[s.how]:
		default:
		}
	case "mute":
		p.garden.set(func(g *garden) { g.mute = !g.mute })
	case "forget":
		p.garden.set(func(g *garden) { g.forgot = g.version })
	case "database":
		p.db.set(func(d *database) {
			if d.err = nil; s.how < 2 {
				d.err = errDatabase
			}
		})
	case "garden":
		away := s.how < 2
		p.garden.set(func(g *garden) {
			g.listErr, g.watchErr, g.getErr = nil, nil, nil
			if away {
				g.listErr, g.watchErr, g.getErr = errAway, errAway, func(string) error { return errAway }
			}
		})
	case "lock":
		p.db.set(func(d *database) { d.locked[idOf(s.which)] = s.how < 2 })
	case "crash", "stop":
		w := p.workers[0]
		p.workers = p.workers[1:]
		if s.what == "crash" {
			w.crash()
		} else {
			w.stop()
		}
		p.begin()
	}
}

func unhealthy(o *shoot.Observed) {
	ready(o)
	o.Conditions = []shoot.Condition{{Type: "EveryNodeReady", Status: "False"}}
}

func (p *player) exists(n int) (is bool) {
	p.garden.set(func(g *garden) { is = g.shoots[nameOf(n)] != nil })
	return is
}

func (p *player) isDeleting(n int) (is bool) {
	p.garden.set(func(g *garden) { is = g.shoots[nameOf(n)] != nil && g.shoots[nameOf(n)].Deleting })
	return is
}

// send sends the Shoot of the nth cluster.
func (p *player) send(n int) shoot.Applied {
	generation := p.db.row(n).Generation
	p.db.change(n, func(r *clusterworker.Row) { r.ShootName = nameOf(n) }) // before the call
	return p.garden.put(n, func(o *shoot.Observed) {
		if o.SentGeneration != generation {
			o.Generation, o.SentGeneration = o.Generation+1, generation
		}
	})
}

// work syncs a row as a worker does.
func (p *player) work(n int) {
	row := p.db.row(n)
	switch {
	case row.Synced || row.Status == v1.ShootDeleted:
	case row.Deleting && p.exists(n):
		p.garden.put(n, deleting)
		p.db.sendDeletion(n)
	case row.Deleting:
		p.db.sendDeletion(n)
		p.db.change(n, func(r *clusterworker.Row) { r.Status = v1.ShootDeleted })
	default:
		a, ok := p.held[n]
		delete(p.held, n)
		if !ok || p.poll {
			a = p.send(n)
		}
		p.db.sync(n, a)
	}
}

// calm ends all faults, and completes all remaining work.
func (p *player) calm() {
	p.db.set(func(d *database) {
		d.err = nil
		clear(d.locked)
	})
	p.garden.set(func(g *garden) { g.listErr, g.watchErr, g.getErr, g.mute = nil, nil, nil, false })
	clear(p.held)
	for range 20 {
		time.Sleep(time.Minute)
		for n := range histories {
			p.work(n)
			if p.isDeleting(n) {
				p.garden.remove(n)
			}
		}
	}
	after(time.Minute)
}

// check reports deviations from the expected state.
func (p *player) check() {
	fail := func(format string, args ...any) { p.problems = append(p.problems, fmt.Sprintf(format, args...)) }
	for n := range histories {
		row := p.db.row(n)
		var o *shoot.Observed
		p.garden.set(func(g *garden) { o = g.shoots[nameOf(n)] })
		switch {
		case !row.Synced:
			fail("%d is not synced", n)
		case row.Deleting:
			if o != nil || row.Status != v1.ShootDeleted {
				fail("%d is to be deleted, and is %q; there: %t", n, row.Status, o != nil)
			}
			continue
		case o == nil:
			fail("%d is missing", n)
			continue
		}
		v := poller.DeriveStatus(o, poller.RowFacts{EverSeen: true, EverReady: row.ReadyOnce})
		if row.Status != v.Status || row.StatusMessage != v.Message || row.ShootUID != o.UID {
			fail("%d is %q (%s, %s), want %q (%s, %s)", n, row.Status, row.StatusMessage, row.ShootUID, v.Status, v.Message, o.UID)
		}
	}
	for action, st := range map[clusterworker.Action]v1.ShootStatus{
		clusterworker.ShootReady: v1.ShootReady, clusterworker.ShootFailed: v1.ShootError, clusterworker.ShootDeleted: v1.ShootDeleted,
	} {
		written, told := 0, 0
		for _, w := range p.db.log() {
			if w.Status == st && w.WasStatus != st {
				written++
			}
		}
		p.journal.mu.Lock()
		for _, c := range p.journal.all {
			if c.Action == action {
				told++
			}
		}
		p.journal.mu.Unlock()
		if written != told {
			fail("%q was written %d times and told %d times", st, written, told)
		}
	}
	if n := leaders(p.workers...); n != 1 {
		fail("%d observe", n)
	}
}
