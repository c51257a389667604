package pgstore_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"

	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/clusterworker/pgstore"
	"github.com/fleetloop/fleetloop/internal/postgres/migrations"
)

func TestAClaimSaysWhatToDo(t *testing.T) {
	b := newBed(t)
	id := b.cluster("one")
	two, one := b.pool(id, "two"), b.pool(id, "one")
	gone := b.pool(id, "gone")
	b.exec(`update tenant.resources set deleted_time = now() where id = $1`, gone)

	begin := time.Now()
	got := b.claimOne()
	want := clusterworker.Claim{
		ClusterID: id, Generation: 5, ClusterGeneration: 1, Tenant: "a", Name: "one", Spec: json.RawMessage(`{"v": 1}`),
		Pools: []clusterworker.Pool{
			{ID: one, Name: "one", Spec: json.RawMessage(`{"replicas": 1}`)},
			{ID: two, Name: "two", Spec: json.RawMessage(`{"replicas": 1}`)},
		},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(clusterworker.Claim{}, "Token", "Until", "UnsyncedSince")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got.Token == 0 || got.UnsyncedSince.IsZero() || got.Until.Before(begin.Add(lease)) || got.Until.After(time.Now().Add(lease)) {
		t.Errorf("token %d, unsynced since %s, until %s", got.Token, got.UnsyncedSince, got.Until)
	}
	b.wantNothingDue("it is claimed")
	b.complete(done(got))
	b.wantNothingDue("it is synced")
	b.exec(`update tenant.resources set deleted_time = now() where id = $1`, id)
	if got := b.claimOne(); !got.Deleting || got.ShootUID != "uid-"+id {
		t.Errorf("deleting is %v, the Shoot's uid %q", got.Deleting, got.ShootUID)
	}
}

func TestThoseDueForLongestComeFirst(t *testing.T) {
	b := newBed(t)
	ids := b.clusters(5)
	for i, id := range ids {
		b.exec(`update tenant.cluster_sync set due_at = now() - make_interval(mins => $2::int) where cluster_id = $1`, id, i+1)
	}
	b.exec(`update tenant.cluster_sync set due_at = now() + '1 hour' where cluster_id = $1`, ids[4])
	var got []string
	for range 2 {
		for _, c := range b.claim(2) {
			got = append(got, c.ClusterID)
		}
	}
	if diff := cmp.Diff([]string{ids[3], ids[2], ids[1], ids[0]}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	b.wantNothingDue("the fifth is not due yet")
}

func TestManyWorkersClaimEachRowOnce(t *testing.T) {
	b := newBed(t)
	const n, workers = 400, 8
	b.exec(insertMany, n)
	var mu sync.Mutex
	claimed := map[string]int{}
	tokens := map[int64]bool{}
	var wg sync.WaitGroup
	for i := range workers {
		store := pgstore.New(openAs(t, b.url, migrations.RoleClusterWorker))
		wg.Go(func() {
			for {
				claims, err := store.Claim(t.Context(), fmt.Sprint("worker-", i), 7, lease)
				if err != nil {
					t.Error(err)
					return
				}
				if len(claims) == 0 {
					return
				}
				mu.Lock()
				for _, c := range claims {
					claimed[c.ClusterID]++
					tokens[c.Token] = true
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	// A worker that finds nothing may have met the others' locks alone.
	for _, c := range b.claim(n) {
		claimed[c.ClusterID]++
		tokens[c.Token] = true
	}
	if len(claimed) != n || len(tokens) != n {
		t.Errorf("%d rows were claimed with %d tokens, want %d", len(claimed), len(tokens), n)
	}
	for id, times := range claimed {
		if times != 1 {
			t.Errorf("%s was claimed %d times", id, times)
		}
	}
}

// Whoever holds a row in his hands holds up nothing but that row.
func TestALockedRowHoldsUpNobody(t *testing.T) {
	b := newBed(t)
	held, free := b.cluster("held"), b.cluster("free")
	other := connect(t, b.url)
	lock := func() pgx.Tx {
		tx, err := other.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), `select from tenant.cluster_sync where cluster_id = $1 for update`, held); err != nil {
			t.Fatal(err)
		}
		return tx
	}
	unlock := func(tx pgx.Tx) {
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}

	tx := lock()
	first := b.claimOne()
	if first.ClusterID != free {
		t.Fatal("claimed the locked row")
	}
	unlock(tx)
	second := b.claimOne()

	tx = lock()
	lost, err := b.store.Complete(t.Context(), []clusterworker.Result{done(second), done(first)})
	if err != nil || !slices.Equal(lost, []string{held}) {
		t.Errorf("complete lost %v, want the locked one: %v", lost, err)
	}
	if !b.row(free).Synced {
		t.Error("the other row was not completed")
	}
	if err := b.store.Release(t.Context(), []clusterworker.Claim{second}); err != nil {
		t.Error(err)
	}
	taken, err := b.store.Name(t.Context(), []clusterworker.Naming{{ClusterID: held, Token: second.Token, ShootName: "s"}})
	if err != nil || len(taken) != 1 {
		t.Errorf("name gives %v, %v", taken, err)
	}
	term, err := b.store.Lead(t.Context(), "me", lease)
	if err != nil || !term.Held {
		t.Fatal(term, err)
	}
	for _, id := range []string{held, free} {
		r := b.row(id)
		saved, err := b.store.SaveStatus(t.Context(), term.Fence, []clusterworker.StatusChange{{ClusterID: id, WasStatus: r.Status, Status: "ready"}})
		if err != nil || (len(saved) == 1) != (id == free) {
			t.Errorf("saved %v, %v", saved, err)
		}
	}
	if err := b.store.Touch(t.Context(), term.Fence, []string{held, free}); err != nil {
		t.Error(err)
	}
	if got, err := b.store.Requeue(t.Context(), term.Fence, []string{held, free}); err != nil || !slices.Equal(got, []string{free}) {
		t.Errorf("requeued %v, %v", got, err)
	}
	if err := b.store.Reported(t.Context(), []clusterworker.Reported{{ClusterID: held}, {ClusterID: free}}); err != nil {
		t.Error(err)
	}
	unlock(tx)
	b.complete(done(second)) // the claim still stands
}

// A row that is locked for a moment is not lost.
func TestACompletionOutwaitsALock(t *testing.T) {
	b := newBed(t)
	id := b.cluster("one")
	c := b.claimOne()
	other := connect(t, b.url)
	tx, err := other.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `update tenant.resources set generation = generation + 1 where id = $1`, id); err != nil {
		t.Fatal(err)
	}
	completed := make(chan []string)
	go func() {
		lost, err := b.store.Complete(t.Context(), []clusterworker.Result{done(c)})
		if err != nil {
			t.Error(err)
		}
		completed <- lost
	}()
	// It has met the lock once the second of its statements has run.
	b.await("it has looked whether its claim stands", func() bool {
		return ask[bool](b, `select exists (select from pg_stat_activity where query like '%CountClaimed%' and pid <> pg_backend_pid())`)
	})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if lost := <-completed; len(lost) != 0 {
		t.Errorf("lost %v", lost)
	}
	if r := b.row(id); r.Synced || r.SyncedGeneration != 1 || r.Generation != 2 {
		t.Errorf("synced is %v, generation %d of %d", r.Synced, r.SyncedGeneration, r.Generation)
	}
	if c := b.claimOne(); c.Generation != 2 {
		t.Errorf("claimed generation %d", c.Generation)
	}
}

// A gate holds statements of the cluster-worker between taking their snapshot
// and reading the table of syncs.
const gate = `
	create function public.gate() returns boolean language plpgsql as $$
	begin
		perform pg_advisory_xact_lock_shared(7);
		return true;
	end $$;
	alter policy every_cluster on tenant.cluster_sync using (public.gate())`

// through runs call, and does meanwhile while call is in the gate.
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

// A row that was locked may be newer than what the statement sees that locked
// it. One that claims and reads at once then gives the new generation with the old
// spec: the old spec is sent, the new generation is marked as synced, and the
// change is lost. The store must not fall into that trap.
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
			if claims, err = b.store.Claim(t.Context(), "test", 10, lease); err != nil {
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
			if claims, err = b.store.Claim(t.Context(), "test", 10, lease); err != nil {
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

// Claims and edits without order: what is claimed is always of one moment.
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
			if err := b.store.Release(t.Context(), []clusterworker.Claim{c}); err != nil {
				t.Fatal(err)
			}
		}
	}
	close(stop)
	editors.Wait()
}

// During a call nothing is locked.
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

func TestALeaseThatEnds(t *testing.T) {
	b := newBed(t)
	id := b.cluster("one")
	late := b.claimOne()
	b.wantNothingDue("its lease runs")
	b.exec(`update tenant.cluster_sync set due_at = now()`) // the lease is over
	c := b.claimOne()
	if c.Token <= late.Token {
		t.Errorf("token %d after %d", c.Token, late.Token)
	}
	// The one that comes back too late changes nothing.
	before := b.row(id)
	lost, err := b.store.Complete(t.Context(), []clusterworker.Result{failed(late, "late", true, 0)})
	if err != nil || !slices.Equal(lost, []string{id}) {
		t.Errorf("lost %v, %v", lost, err)
	}
	if err := b.store.Release(t.Context(), []clusterworker.Claim{late}); err != nil {
		t.Error(err)
	}
	if taken, err := b.store.Name(t.Context(), []clusterworker.Naming{{ClusterID: id, Token: late.Token, ShootName: "late"}}); err != nil || len(taken) != 1 {
		t.Errorf("named: %v, %v", taken, err)
	}
	if diff := cmp.Diff(before, b.row(id)); diff != "" {
		t.Errorf("it changed the row (-before +after):\n%s", diff)
	}
	// Both results in one batch, as when a worker claims a row again that it lost.
	lost, err = b.store.Complete(t.Context(), []clusterworker.Result{failed(late, "late", true, 0), done(c)})
	if err != nil || !slices.Equal(lost, []string{id}) || !b.row(id).Synced {
		t.Errorf("lost %v, %v", lost, err)
	}
}

// A result of a claim whose lease is over counts as long as nobody else has
// taken the row.
func TestALateResultIsNotWasted(t *testing.T) {
	b := newBed(t)
	id := b.cluster("one")
	c := b.claimOne()
	b.exec(`update tenant.cluster_sync set due_at = now()`)
	b.complete(done(c))
	if !b.row(id).Synced {
		t.Error("not synced")
	}
}

func TestAReleasedRowIsDueAsItWas(t *testing.T) {
	b := newBed(t)
	id := b.cluster("one")
	b.exec(`update tenant.cluster_sync set sync_attempts = 3, sync_error = 'as before'`)
	c := b.claimOne()
	if err := b.store.Release(t.Context(), []clusterworker.Claim{c}); err != nil {
		t.Fatal(err)
	}
	if r := b.row(id); r.Attempts != 3 || r.SyncError != "as before" {
		t.Errorf("%d attempts, error %q", r.Attempts, r.SyncError)
	}
	if again := b.claimOne(); !again.UnsyncedSince.Equal(c.UnsyncedSince) {
		t.Errorf("unsynced since %s, was %s", again.UnsyncedSince, c.UnsyncedSince)
	}
}

// Whatever a row holds, it and the others are claimed and completed.
func TestOddRowsAreClaimedLikeOthers(t *testing.T) {
	cases := map[string]struct {
		reason string
		sql    string // $1 is the cluster, $2 a pool
	}{
		"EndlessWait":   {"a time that no clock shows", `update tenant.cluster_sync set unsynced_since = '-infinity', shoot_status_updated = 'infinity', sync_last_attempt = '-infinity' where cluster_id = $1`},
		"ByHand":        {"somebody has it synced again by hand", `update tenant.cluster_sync set synced = null, unsynced_since = null where cluster_id = $1`},
		"ManyAttempts":  {"the highest number that fits", `update tenant.cluster_sync set sync_attempts = 2147483647 where cluster_id = $1`},
		"NoObject":      {"a spec that is no object", `update tenant.resources set spec = '[null]' where id = $1`},
		"OddText":       {"a spec with what jsonb would not take", `update tenant.resources set spec = '{"a": "\u0000", "a": 1e999}' where id in ($1, $2)`},
		"DeepPool":      {"a pool nested more deeply than most parsers go", `update tenant.resources set spec = (repeat('[', 5000) || repeat(']', 5000))::json where id = $2`},
		"LongSpec":      {"a spec of a megabyte", `update tenant.resources set spec = json_build_object('a', repeat('x', 1 << 20)) where id = $1`},
		"OddName":       {"a pool's name with the signs of arrays", `update tenant.resources set name = '{","\}' where id = $2`},
		"OrphanedClaim": {"a claim without a claimant", `update tenant.cluster_sync set claim_token = 1, claimed_by = null where cluster_id = $1`},
	}
	b := newBed(t)
	n := 0
	for name, tc := range cases {
		id := b.cluster(name)
		pool := b.pool(id, "pool")
		b.exec("with ids as (select $1::uuid, $2::uuid) "+tc.sql, id, pool)
		n++
	}
	b.cluster("plain")
	claims := b.claim(100)
	if len(claims) != n+1 {
		t.Fatalf("%d rows were claimed, want %d", len(claims), n+1)
	}
	results := make([]clusterworker.Result, len(claims))
	for i, c := range claims {
		results[i] = failed(c, "odd", true, 0)
		if want := 1; len(c.Pools) != want && c.Name != "plain" {
			t.Errorf("%s (%s) has %d pools, want %d", c.Name, cases[c.Name].reason, len(c.Pools), want)
		}
	}
	b.complete(results...)
	for _, c := range b.claim(100) {
		if c.Attempts < 1 {
			t.Errorf("%s (%s) has %d attempts", c.Name, cases[c.Name].reason, c.Attempts)
		}
		b.complete(done(c))
	}
	if rows, err := b.store.Rows(t.Context(), "", 100); err != nil || len(rows) != n+1 {
		t.Errorf("%d rows, %v", len(rows), err)
	}
	if _, err := b.store.Tally(t.Context()); err != nil {
		t.Error(err)
	}
}

// However the planner takes the table to be, a claim reads no more rows than
// it needs.
func TestAClaimReadsNoMoreThanItNeeds(t *testing.T) {
	const n = 3000
	cases := map[string]struct {
		reason string
		before func(b *bed)
	}{
		"NeverAnalyzed": {"the planner knows nothing", func(b *bed) { b.exec(insertMany, n) }},
		"Analyzed":      {"all are due, and it is known", func(b *bed) { b.exec(insertMany, n); b.exec("analyze") }},
		"AllSynced": {"none was due when it was analyzed", func(b *bed) {
			b.exec(insertMany, n)
			b.exec("update tenant.cluster_sync set synced = now()")
			b.exec("vacuum analyze")
			b.exec("update tenant.cluster_sync set synced = null")
		}},
		"FewWereDue": {"few were due when it was analyzed", func(b *bed) {
			b.exec(insertMany, n)
			b.exec("update tenant.cluster_sync set synced = now() where cluster_id not in (select cluster_id from tenant.cluster_sync limit 100)")
			b.exec("vacuum analyze")
			b.exec("update tenant.cluster_sync set synced = null")
		}},
		"Paused": {"most of what is due is paused", func(b *bed) {
			b.exec(insertMany, n)
			b.exec("update tenant.cluster_sync set paused_at = now() where cluster_id not in (select cluster_id from tenant.cluster_sync limit 100)")
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			tc.before(b)
			b.exec("alter table tenant.cluster_sync set (autovacuum_enabled = off)")
			read := func() int64 {
				b.exec("select pg_stat_force_next_flush()")
				return ask[int64](b, `select seq_tup_read + coalesce(idx_tup_fetch, 0) from pg_stat_user_tables where relname = 'cluster_sync'`)
			}
			before := read()
			const slots = 10
			claims := b.claim(slots)
			if len(claims) != slots {
				t.Fatalf("claimed %d", len(claims))
			}
			// The server tells of what a connection did when it has been idle, or ends.
			b.store = nil
			b.exec(`select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()`)
			b.await("the connection has told what it read", func() bool { return read() > before })
			if got := read() - before; got > 10*slots {
				t.Errorf("read %d rows for %d: %s", got, slots, tc.reason)
			}
		})
	}
}
