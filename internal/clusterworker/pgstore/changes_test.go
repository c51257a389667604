package pgstore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/clusterworker/pgstore"
	"github.com/fleetloop/fleetloop/internal/clusterworker/pgstore/db"
	"github.com/fleetloop/fleetloop/internal/postgres"
)

// TestChangesAreKept covers that a change is stored for each sink by the write that
// makes it, and only if that takes place, and how it is claimed.
func TestChangesAreKept(t *testing.T) {
	b := newBed(t)
	sinks := []string{"one", "two"}
	b.store = pgstore.New(openAs(t, b.url, postgres.RoleClusterWorker), sinks...)
	b.cluster("first")
	c := b.claimOne()
	change := func(action clusterworker.Action) *clusterworker.Change {
		return &clusterworker.Change{At: time.Now().UTC().Truncate(time.Microsecond), Action: action, ClusterID: c.ClusterID, Cluster: "first", Generation: 1, Message: "a\x00b\xffc" + strings.Repeat("m", 10_000)}
	}
	fence := b.lead("one").Fence
	save := func(was v1.ShootStatus, action clusterworker.Action, want int) {
		t.Helper()
		saved, err := b.store.SaveStatus(t.Context(), fence, []clusterworker.StatusChange{{ClusterID: c.ClusterID, WasStatus: was, Status: v1.ShootReady, Change: change(action)}})
		if err != nil || len(saved) != want {
			t.Fatalf("saved %v, %v; want %d", saved, err, want)
		}
	}
	save(v1.ShootStatus(""), clusterworker.ShootReady, 0) // the claim that creates the Shoot is not completed
	lost, kept := done(c), done(c)
	lost.Token++
	lost.Change, kept.Change = change(clusterworker.ShootFailed), change(clusterworker.ShootCreated)
	if ids, err := b.store.Complete(t.Context(), []clusterworker.Result{lost}); err != nil || len(ids) != 1 {
		t.Fatalf("a claim that was lost: %v, %v", ids, err)
	}
	b.complete(kept)
	save(v1.ShootError, clusterworker.ShootFailed, 0)
	save(v1.ShootPending, clusterworker.ShootReady, 1)

	claim := func() (got []string, seqs []int64) {
		t.Helper()
		var pending []clusterworker.PendingEvent
		for _, sink := range sinks {
			claimed, err := b.store.ClaimChanges(t.Context(), sink, 10, lease)
			if err != nil {
				t.Fatal(err)
			}
			pending = append(pending, claimed...)
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
	if err := b.store.PutOffChanges(t.Context(), map[int64]time.Duration{seqs[1]: 0}); err != nil {
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
	expire := func(want, most int, why string) {
		t.Helper()
		if n, err := b.store.ExpireChanges(t.Context(), time.Hour, most); err != nil || n != want {
			t.Errorf("%s: %d have expired, %v; want %d", why, n, err, want)
		}
	}
	expire(0, 10, "after no time")
	b.exec(`update tenant.cluster_change_events set created_at = created_at - interval '2 hours'`)
	expire(1, 10, "two are being sent")
	b.exec(`update tenant.cluster_change_events set due_at = now()`)
	expire(1, 1, "so many at most")
	expire(1, 10, "the rest")
}

// changes stores the given number of changes of each cluster for a sink.
func (b *bed) changes(sink string, clusters, each int) {
	b.Helper()
	b.exec(`insert into tenant.cluster_change_events (sink, cluster_id, change)
		select $1, md5(c::text)::uuid, json_build_object('ClusterID', md5(c::text)::uuid) from generate_series(1, $3::int) n, generate_series(1, $2::int) c`, sink, clusters, each)
}

// TestClaimsOneAtATime covers that concurrent workers claim one change of each cluster
// between them, the oldest, and only those of one sink.
func TestClaimsOneAtATime(t *testing.T) {
	b := newBed(t)
	const clusters, workers = 40, 4
	b.changes("one", clusters, 3)
	b.changes("two", clusters, 3)
	claimed := make(chan clusterworker.PendingEvent, clusters*workers)
	for round := range 3 {
		var g errgroup.Group
		for range workers {
			g.Go(func() error {
				for {
					pending, err := b.store.ClaimChanges(t.Context(), "one", 7, lease)
					if err != nil || len(pending) == 0 {
						return err
					}
					for _, p := range pending {
						claimed <- p
					}
				}
			})
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		seen, seqs := map[string]bool{}, []int64{}
		for range len(claimed) {
			p := <-claimed
			seen[p.Change.ClusterID] = true
			seqs = append(seqs, p.Seq)
			if first, last := int64(round*clusters), int64((round+1)*clusters); p.Sink != "one" || p.Seq <= first || p.Seq > last {
				t.Errorf("round %d has change %d of sink %q, which is not the oldest of its cluster", round, p.Seq, p.Sink)
			}
		}
		if len(seen) != clusters || len(seqs) != clusters {
			t.Errorf("round %d has %d changes of %d clusters, want one of each of %d", round, len(seqs), len(seen), clusters)
		}
		if err := b.store.RemoveChanges(t.Context(), seqs); err != nil {
			t.Fatal(err)
		}
	}
}

// TestClaimVisitsTheOldestAlone covers that a claim does not read the changes behind
// the oldest of a cluster, or those of other sinks.
func TestClaimVisitsTheOldestAlone(t *testing.T) {
	b := newBed(t)
	const clusters, each = 50, 100
	b.changes("one", clusters, each)
	b.changes("two", clusters, each)
	for _, how := range []string{"all are due", "all are being sent"} {
		n := b.visits("one", 10)
		// Each is found by the index, and the claimed ones are read again.
		if most := 3 * clusters; n > most {
			t.Errorf("%s: a claim read %d rows of %d clusters, want at most %d", how, n, clusters, most)
		}
		if _, err := b.store.ClaimChanges(t.Context(), "one", clusters, lease); err != nil {
			t.Fatal(err)
		}
	}
}

// visits counts the rows that a claim reads.
func (b *bed) visits(sink string, most int) int {
	b.Helper()
	tx, err := b.owner.Begin(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = tx.Rollback(b.Context()) }()
	if _, err := tx.Exec(b.Context(), pgstore.ByIndex); err != nil {
		b.Fatal(err)
	}
	var plan []struct{ Plan node }
	if err := tx.QueryRow(b.Context(), "explain (analyze, format json) "+db.ClaimChanges, lease, sink, int64(most)).Scan(&plan); err != nil {
		b.Fatal(err)
	}
	return int(plan[0].Plan.read())
}

// A node is a node of an executed plan.
type node struct {
	Relation string  `json:"Relation Name"`
	Type     string  `json:"Node Type"`
	Rows     float64 `json:"Actual Rows"`
	Filtered float64 `json:"Rows Removed by Filter"`
	Loops    float64 `json:"Actual Loops"`
	Plans    []node
}

// read counts the rows that the node and those below it read from tables.
func (n node) read() (rows float64) {
	if n.Relation != "" && n.Type != "ModifyTable" {
		rows = (n.Rows + n.Filtered) * n.Loops
	}
	for _, p := range n.Plans {
		rows += p.read()
	}
	return rows
}

// TestStatusBeforeTheFirstSync verifies that no status is stored while the first claim of a row lasts,
// because its change comes first, and that a paused row whose worker died does not wait for ever.
func TestStatusBeforeTheFirstSync(t *testing.T) {
	b := newBed(t)
	id := b.cluster("one")
	b.claimOne()
	fence := b.lead("one").Fence
	save := func(when string, want int) {
		t.Helper()
		saved, err := b.store.SaveStatus(t.Context(), fence, []clusterworker.StatusChange{{ClusterID: id, Status: v1.ShootReady}})
		if err != nil || len(saved) != want {
			t.Fatalf("%s: saved %v, %v; want %d", when, saved, err, want)
		}
	}
	save("claimed", 0)
	b.exec(`update tenant.cluster_sync set paused_at = now()`)
	save("claimed and paused", 0)
	b.exec(`update tenant.cluster_sync set paused_at = null, due_at = now()`)
	save("the lease is over, and another worker will claim the row", 0)
	b.exec(`update tenant.cluster_sync set paused_at = now()`)
	save("the lease is over, and the row is paused", 1)
}
