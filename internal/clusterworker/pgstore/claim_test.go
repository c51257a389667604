package pgstore_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"

	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/clusterworker/pgstore"
	"github.com/fleetloop/fleetloop/internal/postgres"
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
		ClusterID: id, Generation: 5, ClusterGeneration: 1, Tenant: "a", Name: "one", Spec: json.RawMessage(`{"v": 1}`), Sent: map[string]int64{got.History: 5},
		Pools: []clusterworker.Pool{
			{ID: one, Name: "one", Spec: json.RawMessage(`{"replicas": 1}`)},
			{ID: two, Name: "two", Spec: json.RawMessage(`{"replicas": 1}`)},
		},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(clusterworker.Claim{}, "Token", "Until", "UnsyncedSince", "History")); diff != "" {
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
		store := pgstore.New(openAs(t, b.url, postgres.RoleClusterWorker))
		wg.Go(func() {
			for {
				claims, err := store.ClaimRows(t.Context(), fmt.Sprint("worker-", i), room(7), lease)
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
	// A worker without rows may only have met the locks of the others.
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

// TestALockedRowHoldsUpNobody: a locked row blocks only itself.
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
	lost, err := b.store.WriteResults(t.Context(), []clusterworker.Result{done(second), done(first)})
	if err != nil || !slices.Equal(lost, []string{held}) {
		t.Errorf("complete lost %v, want the locked one: %v", lost, err)
	}
	if !b.row(free).Synced {
		t.Error("the other row was not completed")
	}
	if err := b.store.ReleaseClaims(t.Context(), []clusterworker.Claim{second}); err != nil {
		t.Error(err)
	}
	taken, skipped, err := b.store.StoreNames(t.Context(), []clusterworker.ProposedName{{ClusterID: held, Token: second.Token, ShootName: "s"}})
	if err != nil || len(taken) != 0 || len(skipped) != 1 {
		t.Errorf("name gives %v and %v, %v", taken, skipped, err)
	}
	term, err := b.store.Observations.AcquireOrExtendTerm(t.Context(), "me", lease)
	if err != nil || !term.Held {
		t.Fatal(term, err)
	}
	for _, id := range []string{held, free} {
		r := b.row(id)
		saved, err := b.store.Observations.SaveStatus(t.Context(), term.Fence, []clusterworker.StatusChange{{ClusterID: id, WasStatus: r.Status, Status: "ready"}})
		if err != nil || (len(saved) == 1) != (id == free) {
			t.Errorf("saved %v, %v", saved, err)
		}
	}
	if recorded := b.recordUnchanged(term.Fence, 0, held, free); !slices.Equal(recorded, []string{free}) {
		t.Errorf("recorded %v", recorded)
	}
	if got, err := b.store.Observations.RequeueSynced(t.Context(), term.Fence, []string{held, free}); err != nil || !slices.Equal(got, []string{free}) {
		t.Errorf("requeued %v, %v", got, err)
	}
	if err := b.store.RecordReports(t.Context(), []clusterworker.Reported{{ClusterID: held}, {ClusterID: free}}); err != nil {
		t.Error(err)
	}
	unlock(tx)
	b.complete(done(second)) // the claim is still valid
}

// TestACompletionOutwaitsALock: a row that is briefly locked is not lost.
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
		lost, err := b.store.WriteResults(t.Context(), []clusterworker.Result{done(c)})
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
	// The late result changes nothing.
	before := b.row(id)
	lost, err := b.store.WriteResults(t.Context(), []clusterworker.Result{failed(late, "late", true, 0)})
	if err != nil || !slices.Equal(lost, []string{id}) {
		t.Errorf("lost %v, %v", lost, err)
	}
	if err := b.store.ReleaseClaims(t.Context(), []clusterworker.Claim{late}); err != nil {
		t.Error(err)
	}
	taken, skipped, err := b.store.StoreNames(t.Context(), []clusterworker.ProposedName{{ClusterID: id, Token: late.Token, ShootName: "late"}})
	if err != nil || len(taken) != 0 || len(skipped) != 1 {
		t.Errorf("named: %v and %v, %v", taken, skipped, err)
	}
	if diff := cmp.Diff(before, b.row(id)); diff != "" {
		t.Errorf("it changed the row (-before +after):\n%s", diff)
	}
	// Both results are in one batch, as when a worker claims a lost row again.
	lost, err = b.store.WriteResults(t.Context(), []clusterworker.Result{failed(late, "late", true, 0), done(c)})
	if err != nil || !slices.Equal(lost, []string{id}) || !b.row(id).Synced {
		t.Errorf("lost %v, %v", lost, err)
	}
}

// TestALateResultIsNotWasted: a result counts after the end of its lease if no other
// worker has claimed the row.
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
	b.exec(`update tenant.cluster_sync set sync_attempts = 3, sync_error = 'as before', due_at = now()`)
	c := b.claimOne()
	if err := b.store.ReleaseClaims(t.Context(), []clusterworker.Claim{c}); err != nil {
		t.Fatal(err)
	}
	if r := b.row(id); r.Attempts != 3 || r.SyncError != "as before" {
		t.Errorf("%d attempts, error %q", r.Attempts, r.SyncError)
	}
	if again := b.claimOne(); !again.UnsyncedSince.Equal(c.UnsyncedSince) {
		t.Errorf("unsynced since %s, was %s", again.UnsyncedSince, c.UnsyncedSince)
	}
}

// TestReportedShootOfAClaim verifies which Shoot counts as reported: the one of the last success, whatever the poller
// records later, also in rows of workers that did not know the column.
func TestReportedShootOfAClaim(t *testing.T) {
	observe := `shoot_uid = 'seen'`
	for name, tc := range map[string]struct {
		reason        string
		before, later string // columns before the first claim, and before the second
		result        func(clusterworker.Claim) clusterworker.Result
		want          []string // reported at each claim
	}{
		"New":         {reason: "no Shoot was reported", want: []string{"", ""}},
		"Observed":    {reason: "a UID alone says nothing", before: observe, want: []string{"", ""}},
		"OlderWorker": {reason: "the last success is that of the UID", before: `shoot_uid = 'u', synced_generation = 1`, later: observe, want: []string{"u", "u"}},
		"Known":       {reason: "the poller saw another Shoot", before: observe + `, synced_generation = 1, reported_shoot_uid = 'u'`, want: []string{"u", "u"}},
		"Created": {reason: "a success reports its Shoot", later: observe, result: func(c clusterworker.Claim) clusterworker.Result {
			r := done(c)
			r.Applied.UID = "new"
			return r
		}, want: []string{"", "new"}},
		"Failed": {reason: "a failure reports none", before: `reported_shoot_uid = 'u'`, result: func(c clusterworker.Claim) clusterworker.Result {
			return failed(c, "no", true, 0)
		}, want: []string{"u", "u"}},
		"Gone": {reason: "the deletion is that of the reported Shoot", before: `reported_shoot_uid = 'u'`, result: func(c clusterworker.Claim) clusterworker.Result {
			r := done(c)
			r.Deleting, r.Absent, r.Applied.UID = true, true, ""
			return r
		}, want: []string{"u", "u"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			b.cluster("one")
			set := func(columns string) {
				if columns != "" {
					b.exec("update tenant.cluster_sync set " + columns)
				}
			}
			set(tc.before)
			claim := b.claimOne()
			got := []string{claim.ReportedShootUID}
			if tc.result != nil {
				b.complete(tc.result(claim))
			}
			set(tc.later)
			set(`synced = null, due_at = now()`) // an edit, or the end of the lease
			got = append(got, b.claimOne().ReportedShootUID)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
