package clusterworker

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/internal/processtest"
)

func TestDatabaseIsAwayAndBack(t *testing.T) {
	for _, kind := range []requestKind{toClaim, toName, toComplete} {
		t.Run(string(kind), func(t *testing.T) {
			bubble(t, nil, func(r *fixture) {
				r.start()
				r.pass(time.Minute)
				r.store.setFault(func(_ context.Context, asked requestKind) error {
					if asked == kind {
						return errDown
					}
					return nil
				})
				r.add(300)
				r.pass(30 * time.Second)
				if n := r.garden.total(); n > r.worker.limiter.maxClaims {
					t.Errorf("%d calls whose results can not be written", n)
				}
				if err := r.worker.CheckLive(); err != nil {
					t.Errorf("not live: %v", err)
				}
				if err := r.worker.Ready(); (err != nil) != (kind == toClaim) {
					t.Errorf("ready: %v", err)
				}
				if n := r.store.count(kind); n > 60 {
					t.Errorf("asked %d times", n)
				}
				calls := r.garden.total()
				r.store.setFault(nil)
				r.pass(5 * time.Second)
				r.wantSynced()
				if n := r.garden.total(); n-calls > 300 || kind == toComplete && n != 300 {
					t.Errorf("%d calls, %d of them before: results were lost", n, calls)
				}
				for _, line := range []string{"database requests failing", "database available again"} {
					if n := strings.Count(r.log.String(), line); n != 1 {
						t.Errorf("%d lines say %q", n, line)
					}
				}
				r.wantMetric("database_outages_total", 1)
			})
		})
	}
}

func TestDatabaseIsAwayForLongerThanTheLease(t *testing.T) {
	bubble(t, nil, func(r *fixture) {
		r.start()
		r.pass(time.Minute)
		r.store.setFault(func(_ context.Context, asked requestKind) error {
			if asked == toComplete {
				return errDown
			}
			return nil
		})
		r.add(1000)
		r.pass(10 * time.Minute)
		r.store.setFault(nil)
		r.pass(3 * time.Minute)
		r.wantSynced()
		if s := r.worker.CollectStats(); s.Unwritten != 0 || s.InFlight != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestDatabaseHangs(t *testing.T) {
	bubble(t, nil, func(r *fixture) {
		r.start()
		r.pass(time.Minute)
		r.store.setFault(func(ctx context.Context, _ requestKind) error { <-ctx.Done(); return context.Cause(ctx) })
		r.store.edit("a", nil)
		r.pass(6 * time.Second)
		if err := r.worker.Ready(); err == nil || !strings.Contains(err.Error(), "no response from database for") {
			t.Errorf("ready: %v", err)
		}
		r.pass(10 * time.Minute)
		if err := r.worker.CheckLive(); err != nil {
			t.Errorf("not live: %v", err)
		}
		r.store.setFault(nil)
		r.pass(15 * time.Second)
		r.wantSynced()
	})
}

// TestAnswersOfTheDatabaseAreLost covers requests that the database carried out without
// an answer.
func TestAnswersOfTheDatabaseAreLost(t *testing.T) {
	for _, kind := range []requestKind{toClaim, toName, toComplete} {
		t.Run(string(kind), func(t *testing.T) {
			bubble(t, nil, func(r *fixture) {
				n := 0
				r.store.wrote = func(_ context.Context, asked requestKind) error {
					if asked != kind {
						return nil
					}
					if n++; n%3 == 1 {
						return errDown
					}
					return nil
				}
				r.add(100)
				r.start()
				r.pass(5 * time.Minute)
				r.wantSynced()
			})
		})
	}
}

// TestPoisonResult: one result that the database rejects does not block the others.
func TestPoisonResult(t *testing.T) {
	bubble(t, nil, func(r *fixture) {
		poison := &poisonStore{fakeStore: r.store, id: "cluster-0042"}
		r.worker.deps.Store = poison
		r.add(300)
		r.start()
		r.pass(40 * time.Second)
		if diff := cmp.Diff([]string{"cluster-0042"}, r.store.unsynced()); diff != "" {
			t.Error(diff)
		}
		r.store.edit("new", nil)
		r.pass(10 * time.Second)
		if diff := cmp.Diff([]string{"cluster-0042"}, r.store.unsynced()); diff != "" {
			t.Error(diff)
		}
		r.pass(5 * time.Minute)
		if s := r.worker.CollectStats(); s.Unwritten > 1 || s.Lost == 0 {
			t.Errorf("it piles up: %+v", s)
		}
	})
}

// A poisonStore rejects every batch with the result of one cluster.
type poisonStore struct {
	*fakeStore
	id string
}

func (s *poisonStore) WriteResults(ctx context.Context, results []Result) ([]string, error) {
	for _, r := range results {
		if r.ClusterID == s.id {
			return nil, fmt.Errorf("invalid byte sequence in result of %s", r.ClusterID)
		}
	}
	return s.fakeStore.WriteResults(ctx, results)
}

// TestDatabaseWorksAgain: a kind of request that is no longer needed does not keep the
// database failing.
func TestDatabaseWorksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log processtest.Buffer
		began := 0
		d := &databaseHealth{log: slog.New(slog.NewTextHandler(&log, nil)), onOutageStart: func() { began++ }}
		want := func(reason string, outages, ends int, failing ...string) {
			t.Helper()
			n := strings.Count(log.String(), "available again")
			if diff := cmp.Diff(failing, d.listFailingRequestKinds()); began != outages || n != ends || diff != "" {
				t.Errorf("%s: %d outages, %d ends: %s", reason, began, n, diff)
			}
		}
		d.recordRequestResult(t.Context(), toClaim, nil)
		want("nothing is wrong", 0, 0)
		d.recordRequestResult(t.Context(), toClaim, errDown)
		d.recordRequestResult(t.Context(), toName, errDown)
		d.recordRequestResult(t.Context(), toClaim, errDown)
		want("one outage for all", 1, 0, "claim", "name")
		d.recordRequestResult(t.Context(), toClaim, nil)
		want("something still fails", 1, 0, "name")
		time.Sleep(notNeeded + time.Second)
		d.recordRequestResult(t.Context(), toClaim, nil)
		want("nothing has been named for long", 1, 1)
		d.recordRequestResult(t.Context(), toName, errDown)
		d.recordRequestResult(t.Context(), toName, nil)
		want("another outage", 2, 2)
	})
}
