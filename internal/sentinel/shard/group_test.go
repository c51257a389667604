package shard_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fleetloop/fleetloop/internal/sentinel"
	"github.com/fleetloop/fleetloop/internal/sentinel/shard"
)

var _ sentinel.Shard = (*shard.Group)(nil)

func TestGroupSharesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemoryLeases()
		replicas := newReplicas(t, store, 3)
		wantShared(t, replicas...)
		if diff := cmp.Diff([]string{"pod-0", "pod-1", "pod-2"}, replicas[1].Members()); diff != "" {
			t.Errorf("members (-want +got):\n%s", diff)
		}
		told := changed(replicas[0])
		replicas = append(replicas, newReplica(t, store, "pod-3"))
		wantShared(t, replicas...)
		if !told() {
			t.Error("another replica came, and what is owned did not change")
		}

		told = changed(replicas[0])
		replicas[2].stop()
		wantShared(t, replicas[0], replicas[1], replicas[3])
		if !told() {
			t.Error("a replica left, and what is owned did not change")
		}
		wantNothing(t, replicas[2])
		if n := len(store.Records()); n != 3 {
			t.Errorf("there are %d records after one has left, want 3", n)
		}
		time.Sleep(time.Hour)
		wantShared(t, replicas[0], replicas[1], replicas[3])
	})
}

func TestGroupOverTwoIdentities(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemoryLeases()
		wantShared(t, newReplica(t, store, "sentinel"), newReplica(t, store, "sentinel"))
	})
}

// TestGroupLosesOne has one replica unable to reach the store: at no time may
// it own what another does, and what it owned is owned again in time.
func TestGroupLosesOne(t *testing.T) {
	for name, fault := range map[string]func(context.Context, string) error{"Refused": refuses, "Hangs": hangs} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newMemoryLeases()
				replicas := newReplicas(t, store, 3)
				wantShared(t, replicas...)
				time.Sleep(777 * time.Millisecond)

				lost, told := replicas[0], changed(replicas[0])
				lost.link.interrupt(fault)
				begin := time.Now()
				for len(replicas[1].Members()) == 3 {
					for _, id := range ids() {
						if lost.Owns(id) && (replicas[1].Owns(id) || replicas[2].Owns(id)) {
							t.Fatalf("%q has two owners %s after one is lost", id, time.Since(begin))
						}
					}
					if time.Since(begin) > 12*time.Second {
						t.Fatal("its share is not taken over")
					}
					time.Sleep(10 * time.Millisecond)
				}
				wantNothing(t, lost)
				if !told() {
					t.Error("it owns nothing any more, and nothing changed")
				}
				wantShared(t, replicas[1:]...)
				if got := gauge(t, lost, "fenced"); got != 1 {
					t.Errorf("shard_fenced = %v, want 1", got)
				}
				if err := lost.Ready().Error(); !strings.Contains(err, "fleet") {
					t.Errorf("Ready() = %v, want the group's name in it", err)
				}

				time.Sleep(time.Minute)
				lost.link.interrupt(nil)
				time.Sleep(7 * time.Second)
				wantShared(t, replicas...)
			})
		})
	}
}

// gauge returns one of r's gauges, as it is gathered.
func gauge(t *testing.T, r *replica, name string) float64 {
	t.Helper()
	families, err := r.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "hyperfleet_sentinel_shard_"+name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

// TestGroupSurvivesAnOutage has the store away for all: everybody lets go, and
// goes on where it was.
func TestGroupSurvivesAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemoryLeases()
		replicas := newReplicas(t, store, 3)
		wantShared(t, replicas...)
		for _, r := range replicas {
			r.link.interrupt(refuses)
		}
		time.Sleep(7 * time.Second)
		for _, r := range replicas {
			if err := r.Ready(); err != nil {
				t.Errorf("after less than its time it owns nothing: %v", err)
			}
		}
		time.Sleep(1100 * time.Millisecond)
		told := changed(replicas[0])
		for _, r := range replicas {
			wantNothing(t, r)
		}
		time.Sleep(time.Minute)
		for _, r := range replicas {
			r.link.interrupt(nil)
		}
		time.Sleep(time.Second)
		wantShared(t, replicas...)
		if !told() {
			t.Error("what is owned has come back, and nothing changed")
		}
		for _, r := range store.Records() {
			if r.Epoch != 1 || r.State != shard.Active {
				t.Errorf("%s is %s in epoch %d; nobody had to declare it lost", r.Name, r.State, r.Epoch)
			}
		}
	})
}

// TestGroupWaitsForAttempts checks that a resource with an attempt in progress moves to no other
// member before the attempt has ended.
func TestGroupWaitsForAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemoryLeases()
		first := newReplica(t, store, "pod-0")
		wantShared(t, first)
		var releases []func()
		for _, id := range ids() {
			releases = append(releases, acquire(t, first, id))
		}
		second := newReplica(t, store, "pod-1")
		time.Sleep(time.Minute)
		wantNothing(t, second)
		if first.Ready() != nil || second.Ready() == nil {
			t.Errorf("Ready() = %v and %v", first.Ready(), second.Ready())
		}
		for _, release := range releases {
			release()
			release() // does nothing more
		}
		wantShared(t, first, second)

		// One that leaves waits in the same way.
		var id []byte
		for _, candidate := range ids() {
			if second.Owns(candidate) {
				id = candidate
			}
		}
		release := acquire(t, second, id)
		go second.stop()
		time.Sleep(4 * time.Second)
		if _, ok := second.Acquire(id); ok || first.Owns(id) {
			t.Error("what is under way is given to another, or begun again")
		}
		release()
		synctest.Wait()
		if !first.Owns(id) {
			t.Error("what the other left behind is not owned")
		}
		time.Sleep(3 * time.Second)
		wantShared(t, first)
	})
}

// TestGroupLeavesInTime: what does not end, or a store that is away, does not
// keep a replica from stopping.
func TestGroupLeavesInTime(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, r *replica){
		"Attempt":   func(t *testing.T, r *replica) { t.Helper(); acquire(t, r, []byte("cluster-1")) },
		"StoreAway": func(_ *testing.T, r *replica) { r.link.interrupt(hangs) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newMemoryLeases()
				r := newReplica(t, store, "pod-0")
				wantShared(t, r)
				prepare(t, r)
				begin := time.Now()
				r.stop()
				if took := time.Since(begin); took > shard.DefaultLeaseDuration/2 {
					t.Errorf("it took %s to stop", took)
				}
				wantNothing(t, r)
				// Its remaining record is found to have ended.
				next := newReplica(t, store, "pod-1")
				time.Sleep(11 * time.Second)
				wantShared(t, next)
			})
		})
	}
}

// TestGroupRecordDeleted checks that the deletion of a record by a user does not cause two owners.
func TestGroupRecordDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemoryLeases()
		replicas := newReplicas(t, store, 2)
		wantShared(t, replicas...)
		// It gets no notification, and cannot detect it for a while.
		replicas[0].link.interrupt(hangs)
		name := store.Records()[0].Name
		if err := store.Remove(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		for range 1100 {
			time.Sleep(10 * time.Millisecond)
			for _, id := range ids() {
				if replicas[0].Owns(id) && replicas[1].Owns(id) {
					t.Fatalf("%q has two owners", id)
				}
			}
		}
		wantShared(t, replicas[1])
		replicas[0].link.interrupt(nil)
		time.Sleep(7 * time.Second)
		wantShared(t, replicas...)
	})
}

// TestGroupDeafOne checks that a watch that is silent without ending is restarted.
func TestGroupDeafOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemoryLeases()
		replicas := newReplicas(t, store, 2)
		wantShared(t, replicas...)
		replicas[0].link.interrupt(func(_ context.Context, request string) error {
			if request == "tell" {
				return errRefused
			}
			return nil
		})
		time.Sleep(time.Second)
		replicas[0].link.interrupt(nil) // what was told meanwhile is missing
		replicas = append(replicas, newReplica(t, store, "pod-2"))
		time.Sleep(7 * time.Second)
		wantShared(t, replicas...)
	})
}

func TestGroupCollects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemoryLeases()
		old, err := store.Put(t.Context(), shard.Record{Name: "fleet-old", Epoch: 1, State: shard.Active})
		if err != nil {
			t.Fatal(err)
		}
		r := newReplica(t, store, "pod-0")
		time.Sleep(11 * time.Second)
		wantShared(t, r)
		if all := store.Records(); len(all) != 2 || all[0].Name != old.Name || all[0].State != shard.Lost {
			t.Errorf("the records are %v, want the old one to be lost", all)
		}
		time.Sleep(11 * time.Minute)
		if all := store.Records(); len(all) != 1 {
			t.Errorf("the records are %v, want the old one to be gone", all)
		}
		wantShared(t, r)
	})
}

func TestGroupMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas := newReplicas(t, newMemoryLeases(), 2)
		if got := gauge(t, replicas[0], "members"); got != 2 {
			t.Errorf("shard_members = %v, want 2", got)
		}
		if got := gauge(t, replicas[0], "fenced"); got != 0 {
			t.Errorf("shard_fenced = %v, want 0", got)
		}
		problems, err := testutil.GatherAndLint(replicas[0].metrics)
		if err != nil || len(problems) > 0 {
			t.Errorf("lint: %v, %v", problems, err)
		}
		replicas[0].stop()
		if families, err := replicas[0].metrics.Gather(); err != nil || len(families) > 0 {
			t.Errorf("after it has left there are %d metrics, %v", len(families), err)
		}
	})
}

func TestNewGroupRefuses(t *testing.T) {
	t.Parallel()
	store := newMemoryLeases()
	for name, c := range map[string]struct {
		cfg  shard.GroupConfig
		deps shard.Deps
	}{
		"NoName":       {shard.GroupConfig{Identity: "a"}, shard.Deps{Leases: store}},
		"NoIdentity":   {shard.GroupConfig{Name: "a"}, shard.Deps{Leases: store}},
		"NoLeases":     {shard.GroupConfig{Name: "a", Identity: "a"}, shard.Deps{}},
		"ShortLease":   {shard.GroupConfig{Name: "a", Identity: "a", LeaseDuration: time.Millisecond}, shard.Deps{Leases: store}},
		"RareRenewals": {shard.GroupConfig{Name: "a", Identity: "a", RenewEvery: 3 * time.Second}, shard.Deps{Leases: store}},
	} {
		if _, err := shard.NewGroup(c.cfg, c.deps); err == nil {
			t.Errorf("%s: NewGroup() gives no error", name)
		}
	}
}
