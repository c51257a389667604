package pgstore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/clusterworker/pgstore"
	"github.com/fleetloop/fleetloop/internal/postgres/migrations"
)

// TestChangesAreKept holds that a change is kept for each sink by the write that
// makes it, and not if that does not take place, and how it is claimed.
func TestChangesAreKept(t *testing.T) {
	b := newBed(t)
	sinks := []string{"one", "two"}
	b.store = pgstore.New(openAs(t, b.url, migrations.RoleClusterWorker), sinks...)
	b.cluster("first")
	c := b.claimOne()
	change := func(action clusterworker.Action) *clusterworker.Change {
		return &clusterworker.Change{At: time.Now().UTC().Truncate(time.Microsecond), Action: action, ClusterID: c.ClusterID, Cluster: "first", Generation: 1, Message: "a\x00b\xffc" + strings.Repeat("m", 10_000)}
	}
	lost, kept := done(c), done(c)
	lost.Token++
	lost.Change, kept.Change = change(clusterworker.ShootFailed), change(clusterworker.ShootCreated)
	if ids, err := b.store.Complete(t.Context(), []clusterworker.Result{lost}); err != nil || len(ids) != 1 {
		t.Fatalf("a claim that was lost: %v, %v", ids, err)
	}
	b.complete(kept)
	fence := b.lead("one").Fence
	save := func(was v1.ShootStatus, action clusterworker.Action, want int) {
		t.Helper()
		saved, err := b.store.SaveStatus(t.Context(), fence, []clusterworker.StatusChange{{ClusterID: c.ClusterID, WasStatus: was, Status: v1.ShootReady, Change: change(action)}})
		if err != nil || len(saved) != want {
			t.Fatalf("saved %v, %v; want %d", saved, err, want)
		}
	}
	save(v1.ShootError, clusterworker.ShootFailed, 0)
	save(v1.ShootPending, clusterworker.ShootReady, 1)

	claim := func() (got []string, seqs []int64) {
		t.Helper()
		pending, err := b.store.ClaimChanges(t.Context(), sinks, 10, lease)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range pending {
			if len(p.Change.Message) > 5000 || !strings.HasPrefix(p.Change.Message, "ab\uFFFDc") || p.Change.ClusterID != c.ClusterID || p.Change.At.IsZero() {
				t.Errorf("kept is %+v", p.Change)
			}
			got, seqs = append(got, p.Sink+" "+string(p.Change.Action)), append(seqs, p.Seq)
		}
		return got, seqs
	}
	got, seqs := claim()
	if diff := cmp.Diff([]string{"one shoot-created", "two shoot-created"}, got); diff != "" {
		t.Fatalf("first (-want +got)\n%s", diff)
	}
	if got, _ := claim(); len(got) > 0 {
		t.Errorf("%v is claimed while what comes before it is being sent", got)
	}
	if err := b.store.RemoveChanges(t.Context(), seqs[:1]); err != nil {
		t.Fatal(err)
	}
	if err := b.store.PutOffChange(t.Context(), seqs[1], 0); err != nil {
		t.Fatal(err)
	}
	got, _ = claim()
	if diff := cmp.Diff([]string{"two shoot-created", "one shoot-ready"}, got, cmp.Transformer("sorted", func(s []string) map[string]int {
		m := map[string]int{}
		for _, v := range s {
			m[v]++
		}
		return m
	})); diff != "" {
		t.Errorf("then (-want +got)\n%s", diff)
	}
	if n, err := b.store.ExpireChanges(t.Context(), time.Hour); err != nil || n != 0 {
		t.Errorf("%d have expired after no time, %v", n, err)
	}
	b.exec(`update tenant.cluster_sync_changes set created_at = created_at - interval '2 hours'`)
	if n, err := b.store.ExpireChanges(t.Context(), time.Hour); err != nil || n != 3 {
		t.Errorf("%d have expired, %v; want all 3", n, err)
	}
}
