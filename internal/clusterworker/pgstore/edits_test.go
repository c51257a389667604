package pgstore_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/fleetloop/fleetloop/internal/clusterworker"
)

// gate blocks statements of the cluster-worker between taking their snapshot and
// reading the table of syncs.
const gate = `
	create function public.gate() returns boolean language plpgsql as $$
	begin
		perform pg_advisory_xact_lock_shared(7);
		return true;
	end $$;
	alter policy every_cluster on tenant.cluster_sync using (public.gate())`

// through runs call, and runs meanwhile while call is in the gate.
func (b *bed) through(call, meanwhile func()) {
	b.Helper()
	keeper := connect(b.T, b.url)
	if _, err := keeper.Exec(b.Context(), `select pg_advisory_lock(7)`); err != nil {
		b.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		call()
	}()
	b.await("it waits at the gate", func() bool {
		return ask[bool](b, `select exists (select from pg_locks where locktype = 'advisory' and not granted)`)
	})
	meanwhile()
	if _, err := keeper.Exec(b.Context(), `select pg_advisory_unlock(7)`); err != nil {
		b.Fatal(err)
	}
	<-done
}

// TestAnEditDuringAClaimIsNotLost covers a row that was locked and is newer than the
// snapshot of the locking statement. A single statement that claims and reads would
// return the new generation with the old spec. Then the old spec is sent, the new
// generation is marked as synced, and the change is lost.
func TestAnEditDuringAClaimIsNotLost(t *testing.T) {
	const atOnce = `
		with due as materialized (
			select s.cluster_id from tenant.cluster_sync s
			where s.synced is null and s.due_at <= now() order by s.due_at limit 10 for update skip locked
		)
		update tenant.cluster_sync s set due_at = now() + '1 hour'
		from due join tenant.clusters c on c.id = due.cluster_id
		where s.cluster_id = due.cluster_id returning s.generation, c.spec::text`

	t.Run("TheTrap", func(t *testing.T) {
		b := newBed(t)
		id := b.cluster("one")
		b.exec(gate)
		worker := connect(t, b.url)
		var generation int64
		var spec string
		b.through(func() {
			if _, err := worker.Exec(t.Context(), "set role cluster_worker"); err != nil {
				t.Error(err)
			}
			if err := worker.QueryRow(t.Context(), atOnce).Scan(&generation, &spec); err != nil {
				t.Error(err)
			}
		}, func() { b.edit(id) })
		if generation != 2 || spec != `{"v": 1}` {
			t.Fatalf("generation %d, spec %s: there is no such trap, and this test shows nothing", generation, spec)
		}
	})
	t.Run("TheStore", func(t *testing.T) {
		b := newBed(t)
		id := b.cluster("one")
		b.exec(gate)
		var claims []clusterworker.Claim
		b.through(func() {
			var err error
			if claims, err = b.store.ClaimRows(t.Context(), "test", room(10), lease); err != nil {
				t.Error(err)
			}
		}, func() { b.edit(id) })
		if len(claims) != 1 || claims[0].Generation != 2 || string(claims[0].Spec) != `{"v" : 2}` {
			t.Errorf("claimed %+v", claims)
		}
	})
	t.Run("APool", func(t *testing.T) {
		b := newBed(t)
		id := b.cluster("one")
		b.exec(gate)
		var claims []clusterworker.Claim
		b.through(func() {
			var err error
			if claims, err = b.store.ClaimRows(t.Context(), "test", room(10), lease); err != nil {
				t.Error(err)
			}
		}, func() { b.pool(id, "pool") })
		if len(claims) != 1 || claims[0].Generation != 2 || len(claims[0].Pools) != 1 {
			t.Errorf("claimed %+v", claims)
		}
	})
}

func TestAnEditDuringACompletionIsNotLost(t *testing.T) {
	b := newBed(t)
	id := b.cluster("one")
	c := b.claimOne()
	b.exec(gate)
	b.through(func() { b.complete(done(c)) }, func() { b.edit(id) })
	if r := b.row(id); r.Synced || r.SyncedGeneration != 1 {
		t.Errorf("synced is %v at generation %d of %d", r.Synced, r.SyncedGeneration, r.Generation)
	}
	if again := b.claimOne(); again.Generation != 2 {
		t.Errorf("claimed generation %d", again.Generation)
	}
}

// TestAClaimIsOfOneMoment runs claims and edits in random order: a claim is always
// consistent.
func TestAClaimIsOfOneMoment(t *testing.T) {
	b := newBed(t)
	ids := b.clusters(4)
	stop := make(chan struct{})
	var editors sync.WaitGroup
	for _, id := range ids {
		conn := connect(t, b.url)
		editors.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := conn.Exec(t.Context(), `update tenant.resources set generation = generation + 1, spec = json_build_object('v', generation + 1) where id = $1`, id); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for seen := 0; seen < 400; {
		for _, c := range b.claim(4) {
			seen++
			if got := strings.TrimSpace(string(c.Spec)); got != fmt.Sprintf(`{"v" : %d}`, c.Generation) && got != `{"v": 1}` {
				t.Errorf("generation %d with spec %s", c.Generation, got)
			}
			if err := b.store.ReleaseClaims(t.Context(), []clusterworker.Claim{c}); err != nil {
				t.Fatal(err)
			}
		}
	}
	close(stop)
	editors.Wait()
}

// TestAnEditDuringACallIsNotBlocked: no row is locked during a call.
func TestAnEditDuringACallIsNotBlocked(t *testing.T) {
	b := newBed(t)
	id := b.cluster("one")
	c := b.claimOne()
	b.exec(`set lock_timeout = '1ms'`) // any wait at all would fail
	b.edit(id)
	b.pool(id, "pool")
	b.exec(`update tenant.resources set deleted_time = now() where id = $1`, id)
	b.exec(`reset lock_timeout`)
	b.wantNothingDue("the first call still runs")
	b.complete(done(c))
	if r := b.row(id); r.Synced || r.SyncedGeneration != 1 || r.Generation != 4 {
		t.Errorf("synced is %v at generation %d of %d", r.Synced, r.SyncedGeneration, r.Generation)
	}
	again := b.claimOne()
	if again.Generation != 4 || !again.Deleting || !again.UnsyncedSince.After(c.UnsyncedSince) {
		t.Errorf("claimed generation %d, deleting is %v, since %s", again.Generation, again.Deleting, again.UnsyncedSince)
	}
}
