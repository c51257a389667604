package clusterworker

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

// TestCreationWithoutRecordedResult verifies that a creation is told although its result was lost: the
// response did not arrive, or the worker was killed before it wrote the result. The next apply finds
// the Shoot as it should be.
func TestCreationWithoutRecordedResult(t *testing.T) {
	bubble(t, nil, func(r *fixture) {
		lost := false
		r.garden.answer = func(v verb, _ string) error {
			if v != verbApply || lost {
				return nil
			}
			lost = true
			return shoot.NewClassErrorf(shoot.ClassUnavailable, "connection reset")
		}
		r.start()
		r.store.edit("a", nil)
		r.pass(time.Hour)
		r.wantSynced()
		told := r.recorder.told("a")
		if len(told) == 0 || told[len(told)-1] != ShootCreated {
			t.Errorf("told %q, want the creation", told)
		}
		// Nothing is told of a repetition.
		r.store.edit("a", nil)
		r.pass(time.Minute)
		if diff := cmp.Diff(append(told, ShootUpdated), r.recorder.told("a")); diff != "" {
			t.Error(diff)
		}
	})
}

// TestUpdateWithoutRecordedResult verifies the same of an update.
func TestUpdateWithoutRecordedResult(t *testing.T) {
	bubble(t, nil, func(r *fixture) {
		calls := 0
		r.garden.answer = func(v verb, _ string) error {
			if calls++; v == verbApply && calls == 2 {
				return shoot.NewClassErrorf(shoot.ClassUnavailable, "connection reset")
			}
			return nil
		}
		r.start()
		r.store.edit("a", nil)
		r.pass(time.Minute)
		r.store.edit("a", nil)
		r.pass(time.Hour)
		r.wantSynced()
		if diff := cmp.Diff([]Action{ShootCreated, ShootFailed, ShootUpdated}, r.recorder.told("a")); diff != "" {
			t.Error(diff)
		}
		if calls < 3 {
			t.Errorf("%d calls: the lost one was not repeated", calls)
		}
	})
}

func TestClusterLifecycle(t *testing.T) {
	bubble(t, nil, func(r *fixture) {
		r.start()
		r.store.edit("a", nil)
		r.pass(time.Millisecond)
		r.wantSynced()
		if diff := cmp.Diff([]Action{ShootCreated}, r.recorder.told("a")); diff != "" {
			t.Error(diff)
		}
		r.store.edit("a", nil)
		r.pass(time.Millisecond)
		r.wantSynced()
		if diff := cmp.Diff([]Action{ShootCreated, ShootUpdated}, r.recorder.told("a")); diff != "" {
			t.Error(diff)
		}
		r.store.delete("a")
		r.pass(time.Millisecond)
		r.wantSynced()
		row := r.store.row("a")
		if !row.deletionSent || row.gone {
			t.Errorf("after the deletion: %+v", row)
		}

		// Gardener has deleted it, and the deletion is requested once more.
		delete(r.garden.shoots, row.shootName)
		r.store.delete("a")
		r.pass(time.Millisecond)
		if !r.store.row("a").gone {
			t.Error("nobody noticed that it is gone")
		}
		if diff := cmp.Diff([]Action{ShootCreated, ShootUpdated, ShootDeleted}, r.recorder.told("a")); diff != "" {
			t.Error(diff)
		}
		c := r.recorder.changes[0]
		want := Change{At: c.At, Action: ShootCreated, ClusterID: "a", Cluster: "a", Tenant: "acme", Shoot: "a-0", ShootUID: "uid-1", Generation: 1}
		if diff := cmp.Diff(want, c); diff != "" {
			t.Error(diff)
		}
		r.wantMetric("syncs_succeeded_total", 4)
		r.wantMetric("sync_latency_seconds", 4)
		if s := r.worker.CollectStats(); s.Claimed != 4 || s.Synced != 4 || s.InFlight != 0 || s.Unwritten != 0 || s.Slots != 32 {
			t.Errorf("%+v", s)
		}
	})
}

// TestRecreationIsAWarning verifies that a Shoot that disappeared is created again with a warning, also when an edit
// makes the row due before the poller notices.
func TestRecreationIsAWarning(t *testing.T) {
	bubble(t, nil, func(r *fixture) {
		const warning = "missing Shoot created again"
		r.store.edit("a", nil)
		r.start()
		r.pass(time.Second)
		if strings.Contains(r.log.String(), warning) {
			t.Errorf("a warning about the first creation: %s", r.log)
		}
		delete(r.garden.shoots, r.store.row("a").shootName)
		r.store.edit("a", nil)
		r.pass(time.Second)
		r.wantSynced()
		if !strings.Contains(r.log.String(), warning) {
			t.Errorf("no warning about the second creation: %s", r.log)
		}
	})
}

func TestDeletedBeforeItWasSynced(t *testing.T) {
	bubble(t, nil, func(r *fixture) {
		r.store.edit("a", nil)
		r.store.delete("a")
		r.start()
		r.pass(time.Second)
		r.wantSynced()
		if len(r.garden.shoots) != 0 || !r.store.row("a").gone {
			t.Errorf("%+v, %+v", r.garden.shoots, r.store.row("a"))
		}
		if told := r.recorder.told("a"); told != nil {
			t.Errorf("told of a Shoot that never was: %v", told)
		}
	})
}

func TestBacklogIsDrainedWithFullSlots(t *testing.T) {
	bubble(t, nil, func(r *fixture) {
		r.garden.set(takes(50*time.Millisecond), nil)
		r.add(1000)
		r.start()
		r.pass(2 * time.Second)
		r.wantSynced()
		if r.garden.most != 32 {
			t.Errorf("%d calls at a time", r.garden.most)
		}
		// 1000 rows in 32 slots are 31.25 times 50 ms, and a little more.
		if last := r.garden.begun[999].Sub(r.garden.begun[0]); last > 1800*time.Millisecond {
			t.Errorf("the last call began after %s", last)
		}
		// Half of the slots at a time, if free slots are collected.
		if n := len(r.store.claimed); n > 125 {
			t.Errorf("%d claims for 1000 rows: %v", n, r.store.claimed)
		}
	})
}

func TestSlotsAreRefilledWhileSomeCallsAreSlow(t *testing.T) {
	bubble(t, func(c *Config) { c.Slots = 8 }, func(r *fixture) {
		r.garden.set(func(ctx context.Context, v verb, name string) error {
			if name < "cluster-0007" {
				return takes(10*time.Second)(ctx, v, name)
			}
			return takes(10*time.Millisecond)(ctx, v, name)
		}, nil)
		r.add(100) // of which seven take all slots but one
		r.start()
		r.pass(3 * time.Second)
		if left := r.store.unsynced(); len(left) != 7 {
			t.Errorf("%d are left", len(left))
		}
		r.pass(10 * time.Second)
		r.wantSynced()
	})
}

func TestEditDuringCall(t *testing.T) {
	cases := map[string]struct {
		reason  string
		call    time.Duration
		edit    time.Duration
		unheard bool
		change  func(*Config)
	}{
		"Short":     {reason: "the burst after the notification finds it", call: 200 * time.Millisecond, edit: 100 * time.Millisecond},
		"Long":      {reason: "nothing else would look within the poll interval", call: 10 * time.Second, edit: 5 * time.Second},
		"LongEarly": {reason: "the database does not notify of changes so close to one another", call: 10 * time.Second, edit: 40 * time.Millisecond, unheard: true},
		"Blind":     {reason: "without notifications it is polled often", call: 10 * time.Second, edit: 5 * time.Second, unheard: true, change: func(c *Config) { c.Listen = ListenOff }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			bubble(t, tc.change, func(r *fixture) {
				r.start()
				r.pass(5 * time.Second)
				r.garden.set(takes(tc.call), nil)
				r.store.edit("a", nil)
				r.pass(tc.edit)
				if tc.unheard {
					r.store.notify = nil
				}
				r.pass(0)
				r.store.edit("a", nil)
				r.pass(tc.call - tc.edit + 10*time.Millisecond)
				if !tc.unheard || tc.change == nil {
					if row := r.store.row("a"); row.syncedGeneration != 1 || row.synced {
						t.Errorf("%s: after the first call: %+v", tc.reason, row)
					}
				}
				r.pass(tc.call + 500*time.Millisecond)
				r.wantSynced()
				if got := r.store.row("a").syncedGeneration; got != 2 {
					t.Errorf("%s: synced at generation %d", tc.reason, got)
				}
			})
		})
	}
}

func TestWakesAtOnce(t *testing.T) {
	bubble(t, nil, func(r *fixture) {
		r.start()
		for i := range 20 {
			r.pass(7 * time.Second)
			begin := time.Now()
			r.store.edit(fmt.Sprintf("c%d", i), nil)
			r.pass(0)
			if n := len(r.garden.begun); n != i+1 || !r.garden.begun[i].Equal(begin) {
				t.Fatalf("%d calls for %d changes, not at once", n, i+1)
			}
			r.pass(0)
			r.wantSynced() // nothing else runs: its result does not wait for others
		}
	})
}

func TestChangesNobodyNotifiedOf(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(*Config)
		setUp  func(*fixture)
		within time.Duration
	}{
		"AfterAnother":   {reason: "the burst goes on for a second", within: 50 * time.Millisecond, setUp: func(r *fixture) { r.store.edit("other", nil); r.pass(900 * time.Millisecond) }},
		"Polled":         {reason: "the specified poll", within: 30 * time.Second, setUp: func(r *fixture) { r.pass(10 * time.Second) }},
		"Blind":          {reason: "the worker does not listen", within: 300 * time.Millisecond, change: func(c *Config) { c.Listen = ListenOff }, setUp: func(r *fixture) { r.pass(10 * time.Second) }},
		"ListenerIsDown": {reason: "the listener is not connected", within: 600 * time.Millisecond, setUp: func(r *fixture) { r.pass(10 * time.Second); r.waker.set(errDown) }},
		"ListenerIsUp":   {reason: "the last blind poll comes after listening began", within: 300 * time.Millisecond, setUp: func(r *fixture) { r.waker.set(errDown); r.pass(10 * time.Second); r.waker.set(nil) }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			bubble(t, tc.change, func(r *fixture) {
				r.start()
				tc.setUp(r)
				r.store.notify = nil
				r.store.edit("a", nil)
				r.pass(tc.within)
				if left := r.store.unsynced(); left != nil {
					t.Errorf("%s: %v not synced within %s", tc.reason, left, tc.within)
				}
			})
		})
	}
}

func TestIdleWorkerAsksSeldom(t *testing.T) {
	bubble(t, nil, func(r *fixture) {
		r.start()
		r.pass(time.Hour)
		if n := len(r.store.claimed); n != 121 {
			t.Errorf("%d claims in an hour", n)
		}
		r.wantMetric("empty_claims_total", 121)
		r.wantMetric("claims_total", 0)
	})
}

func TestNameCollisions(t *testing.T) {
	bubble(t, nil, func(r *fixture) {
		r.maker.name = func(_ Claim, n int) string { return fmt.Sprintf("same-%d", n) }
		r.add(5)
		r.start()
		r.pass(time.Second)
		r.wantSynced()
		if n := r.store.count(toName); n != 5 {
			t.Errorf("%d requests for five names of which one is free each time", n)
		}
	})
}

func TestNoNameIsFree(t *testing.T) {
	bubble(t, nil, func(r *fixture) {
		r.maker.name = func(Claim, int) string { return "same" }
		r.add(2)
		r.start()
		r.pass(time.Second)
		if left := r.store.unsynced(); len(left) != 1 {
			t.Fatalf("%v", left)
		}
		row := r.store.row(r.store.unsynced()[0])
		if row.attempts != 1 || row.class != ErrorClass(shoot.ClassConflict) || !strings.Contains(row.err, "name") {
			t.Errorf("%+v", row)
		}
	})
}

func TestNameStaysWhateverComes(t *testing.T) {
	bubble(t, nil, func(r *fixture) {
		r.garden.set(refuses(shoot.ClassForbidden), nil)
		r.store.edit("a", nil)
		r.start()
		r.maker.name = func(Claim, int) string { return "another" }
		r.garden.set(nil, nil)
		r.pass(2 * time.Minute)
		r.wantSynced()
		if name := r.store.row("a").shootName; name != "a-0" {
			t.Errorf("the Shoot is called %s", name)
		}
	})
}

// TestNameOfALockedRow: a row that is locked while it gets its name keeps the first choice.
func TestNameOfALockedRow(t *testing.T) {
	bubble(t, nil, func(r *fixture) {
		r.store.edit("a", func(row *fakeRow) { row.locked = true })
		r.start()
		r.pass(time.Second)
		if name, n := r.store.row("a").shootName, r.store.count(toName); name != "" || n != 1 {
			t.Errorf("the Shoot is called %q after %d requests", name, n)
		}
		r.store.mu.Lock()
		r.store.rows["a"].locked = false
		r.store.mu.Unlock()
		r.pass(2 * r.worker.cfg.Lease)
		r.wantSynced()
		if name := r.store.row("a").shootName; name != "a-0" {
			t.Errorf("the Shoot is called %s", name)
		}
	})
}

func TestManyWorkersShareRows(t *testing.T) {
	bubble(t, nil, func(r *fixture) {
		r.garden.set(takes(200*time.Millisecond), nil)
		others := make([]*fixture, 3)
		for i := range others {
			others[i] = newFixture(r.t, r.store, r.garden, nil)
		}
		r.store.notify = func() {
			r.waker.wake()
			for _, o := range others {
				o.waker.wake()
			}
		}
		r.add(500)
		r.start()
		for _, o := range others {
			o.start()
		}
		for range 20 {
			r.pass(100 * time.Millisecond)
			r.add(500) // edits all of them
		}
		r.pass(10 * time.Second)
		r.wantSynced()
		for _, o := range others {
			o.stop()
		}
		if r.store.lost > 0 {
			t.Errorf("%d claims lost", r.store.lost)
		}
		r.garden.most = 0 // there are slots of four workers
	})
}
