package clusterworker

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

// TestDeletedAfterALostCreation verifies that the sinks get both change events of a Shoot whose creation has no
// result, whatever else fails.
func TestDeletedAfterALostCreation(t *testing.T) {
	both := []Action{ShootCreated, ShootDeleted}
	cases := map[string]struct {
		reason string
		// fail sets up failures after the creation, whose result is lost.
		fail func(r *fixture)
		want []Action
		// abandoned is the number of claims that were lost to another worker.
		abandoned float64
	}{
		"Creation": {reason: "only the result of the creation is lost", want: both, fail: func(*fixture) {}},
		"Both":     {reason: "the result of the deletion is lost, too", want: both, fail: loseDeletion},
		"DeletedByOthers": {reason: "the poller saw the Shoot before another client deleted it", want: both, fail: func(r *fixture) {
			row := r.store.row("a")
			uid := r.garden.shoots[row.shootName].uid
			r.store.edit("a", func(row *fakeRow) { row.shootUID = uid })
			delete(r.garden.shoots, row.shootName)
		}},
		"Foreign": {reason: "the Shoot belongs to another cluster", want: nil, fail: func(r *fixture) {
			r.garden.shoots[r.store.row("a").shootName].cluster = "b"
		}},
		"GardenerFails": {reason: "the read fails like any call", want: both, fail: func(r *fixture) {
			r.garden.read = once(func(string) error { return errReset })
		}},
		"ReadPanics": {reason: "a panic is an error of the row", want: both, fail: func(r *fixture) {
			r.garden.read = once(func(string) error { panic("read") })
		}},
		"DatabaseFails": {reason: "the record is tried again before the deletion", want: both, fail: func(r *fixture) {
			loseDeletion(r)
			fails := once(func(requestKind) error { return errDown })
			r.store.fault = func(_ context.Context, asked requestKind) error {
				if asked != toRecordCreation {
					return nil
				}
				return fails(asked)
			}
		}},
		"AnswerLost": {reason: "the record is written, and its answer is lost", want: both, fail: func(r *fixture) {
			fails := once(func(requestKind) error { return errDown })
			r.store.wrote = func(_ context.Context, asked requestKind) error {
				if asked != toRecordCreation {
					return nil
				}
				return fails(asked)
			}
		}},
		"ClaimLost": {reason: "another worker has the row", want: both, abandoned: 1, fail: func(r *fixture) {
			steals := once(func(requestKind) error {
				r.store.mu.Lock()
				defer r.store.mu.Unlock()
				r.store.token++
				row := r.store.rows["a"]
				row.token, row.owner, row.dueAt = r.store.token, "other", time.Now().Add(time.Minute)
				r.garden.on = func(_ context.Context, v verb, _ string) error {
					if r.store.row("a").owner == "other" {
						t.Errorf("%s while another worker has the row", v)
					}
					return nil
				}
				return nil
			})
			r.store.fault = func(_ context.Context, asked requestKind) error {
				if asked != toRecordCreation {
					return nil
				}
				return steals(asked)
			}
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(r *fixture) {
				r.garden.answer = func(verb, string) error { return errReset }
				r.store.edit("a", nil)
				r.start()
				r.pass(time.Millisecond)
				r.garden.answer = nil
				tc.fail(r)
				r.store.delete("a")
				r.pass(3 * time.Minute)
				r.garden.answer = nil
				if tc.want != nil {
					r.wantSynced()
				}
				// Gardener removes the Shoot, and the worker confirms the deletion.
				if shootName := r.store.row("a").shootName; tc.want != nil && r.garden.shoots[shootName] != nil {
					delete(r.garden.shoots, shootName)
					r.store.delete("a")
					r.pass(time.Millisecond)
				}
				told := slices.DeleteFunc(r.recorder.told("a"), func(a Action) bool { return a == ShootFailed })
				if diff := cmp.Diff(tc.want, told); diff != "" && len(tc.want)+len(told) > 0 {
					t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
				}
				if len(r.store.creations) > 1 {
					t.Errorf("%s: the creation was recorded %d times", tc.reason, len(r.store.creations))
				}
				r.wantMetric("lost_leases_total", tc.abandoned)
			})
		})
	}
}

// loseDeletion makes Gardener carry out a deletion at once, and loses the result.
func loseDeletion(r *fixture) {
	r.garden.answer = func(_ verb, shootName string) error {
		delete(r.garden.shoots, shootName)
		return errReset
	}
}

var errReset = shoot.NewClassErrorf(shoot.ClassUnavailable, "connection reset")

// once returns a function that calls fn the first time, and returns nil afterwards.
func once[T any](fn func(T) error) func(T) error {
	called := false
	return func(v T) error {
		if called {
			return nil
		}
		called = true
		return fn(v)
	}
}

// TestEveryShootIsReported verifies that the sinks get the creation of each Shoot of a cluster, and the deletion of the
// last, if another client deletes the first Shoot and the result of the second one's creation is lost.
func TestEveryShootIsReported(t *testing.T) {
	observe := func(r *fixture) { // as the poller does
		uid := r.garden.shoots["a-0"].uid
		r.store.edit("a", func(row *fakeRow) { row.shootUID = uid })
	}
	for name, tc := range map[string]struct {
		reason string
		fail   func(r *fixture)
		want   []string
	}{
		"Retried":  {"the retry finds the Shoot", func(*fixture) {}, []string{"shoot-created uid-1", "shoot-created uid-2"}},
		"Observed": {"the poller recorded the UID first", observe, []string{"shoot-created uid-1", "shoot-created uid-2"}},
		"DeletedByOthers": {"the Shoot was observed, and another client deleted it before the retry", func(r *fixture) {
			observe(r)
			delete(r.garden.shoots, "a-0")
		}, []string{"shoot-created uid-1", "shoot-created uid-2", "shoot-created uid-3"}},
		"Deleted": {"the cluster is deleted before the retry", func(r *fixture) {
			r.store.delete("a")
		}, []string{"shoot-created uid-1", "shoot-created uid-2", "shoot-deleted uid-2"}},
		"BothLost": {"the result of the deletion is lost, too", func(r *fixture) {
			loseDeletion(r)
			r.store.delete("a")
		}, []string{"shoot-created uid-1", "shoot-created uid-2", "shoot-deleted uid-2"}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(r *fixture) {
				r.store.edit("a", nil)
				r.start()
				r.pass(time.Millisecond)
				delete(r.garden.shoots, "a-0")
				r.garden.answer = func(verb, string) error { return errReset }
				r.store.edit("a", nil)
				r.pass(time.Millisecond)
				r.garden.mu.Lock() // only the clock wakes the worker in some cases
				r.garden.answer = nil
				tc.fail(r)
				r.garden.mu.Unlock()
				r.pass(3 * time.Minute)
				r.garden.answer = nil
				if r.store.row("a").deleting { // Gardener removes the Shoot, and the worker confirms it
					delete(r.garden.shoots, "a-0")
					r.store.delete("a")
					r.pass(3 * time.Minute)
				}
				r.wantSynced()
				var told []string
				for _, c := range r.recorder.changes {
					change := string(c.Action) + " " + c.ShootUID
					if c.ShootUID != "" && !slices.Contains(told, change) { // a sink drops what has the same id
						told = append(told, change)
					}
				}
				if diff := cmp.Diff(tc.want, told); diff != "" {
					t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
				}
			})
		})
	}
}

// TestLostCreationKeepsTheRow verifies what a recorded creation changes in a row before its deletion is sent: nothing
// that a report or the waiting time depends on. Which generation the Shoot has is not known.
func TestLostCreationKeepsTheRow(t *testing.T) {
	bubble(t, nil, func(r *fixture) {
		r.garden.answer = func(verb, string) error { return errReset }
		r.store.edit("a", nil)
		r.start()
		r.pass(time.Millisecond)
		var atDeletion fakeRow
		r.garden.answer = nil
		r.garden.on = func(_ context.Context, v verb, _ string) error {
			if v == verbDelete {
				atDeletion = r.store.row("a")
			}
			return nil
		}
		r.store.delete("a")
		before := r.store.row("a")
		r.pass(time.Minute)
		if atDeletion.synced || atDeletion.unsyncedSince != before.unsyncedSince || atDeletion.syncedGeneration != 0 || atDeletion.shootUID == "" {
			t.Errorf("before the deletion is sent: %+v; before the claim: %+v", atDeletion, before)
		}
		r.wantMetric("syncs_succeeded_total", 1)
	})
}

// TestLostCreationAtShutdown verifies that a worker that stops while the database is unavailable does not wait to
// record a creation.
func TestLostCreationAtShutdown(t *testing.T) {
	bubble(t, func(c *Config) { c.StopTimeout = 2 * time.Second }, func(r *fixture) {
		r.garden.answer = func(verb, string) error { return errReset }
		r.store.edit("a", nil)
		r.start()
		r.pass(time.Millisecond)
		r.store.setFault(func(_ context.Context, asked requestKind) error {
			if asked == toRecordCreation {
				return errDown
			}
			return nil
		})
		r.store.delete("a")
		r.pass(10 * time.Second)
		if took := r.stop(); took > 2*time.Second {
			t.Errorf("the worker stopped after %s", took)
		}
		if told := r.recorder.told("a"); slices.Contains(told, ShootCreated) {
			t.Errorf("reported without a record: %v", told)
		}
		if row := r.store.row("a"); row.token != 0 {
			t.Errorf("the row was not released: %+v", row)
		}
	})
}
