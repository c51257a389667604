package pgstore_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/clusterworker/pgstore"
	"github.com/fleetloop/fleetloop/internal/clusterworker/pgstore/db"
)

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
					pending, err := b.store.Outbox.LeaseDueChanges(t.Context(), "one", 7, lease)
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
		b.finish(seqs...)
	}
}

// TestClaimVisitsTheOldestAlone covers that a claim does not read the changes behind
// the oldest of a cluster, or those of other sinks.
func TestClaimVisitsTheOldestAlone(t *testing.T) {
	b := newBed(t)
	const clusters, each = 50, 100
	b.changes("one", clusters, each)
	b.changes("two", clusters, each)
	const wanted = 10
	// Each is found by the index, and the claimed ones are read again. Only a claim that does not find enough reads all.
	for _, step := range []struct {
		how  string
		most int
	}{{"all are due", 4 * (wanted + 1)}, {"all are being sent", 3 * clusters}} {
		if n := b.visits("one", wanted); n > step.most {
			t.Errorf("%s: a claim read %d rows of %d clusters, want at most %d", step.how, n, clusters, step.most)
		}
		if _, err := b.store.Outbox.LeaseDueChanges(t.Context(), "one", clusters, lease); err != nil {
			t.Fatal(err)
		}
	}
}

// TestClaimsOfChangesTakeTurns covers that a claim continues below the clusters of the last one, and then begins anew. New
// clusters, whose ids are higher, do not take the turn of older ones.
func TestClaimsOfChangesTakeTurns(t *testing.T) {
	b := newBed(t)
	const clusters = 10
	b.changes("one", clusters, 2)
	turns := map[string]int{} // claims by cluster
	for round, want := range []int{4, 4, 2} {
		pending, err := b.store.Outbox.LeaseDueChanges(t.Context(), "one", 4, lease)
		if err != nil || len(pending) != want {
			t.Fatalf("round %d: claimed %d changes, %v; want %d", round, len(pending), err, want)
		}
		for _, p := range pending {
			turns[p.Change.ClusterID]++
			b.finish(p.Seq)
		}
		for i := range 4 {
			id := fmt.Sprintf("ffffffff-0000-0000-0000-%06d%06d", round, i)
			b.exec(`insert into tenant.cluster_change_events (sink, cluster_id, change)
				values ('one', $1::uuid, json_build_object('ClusterID', $1::uuid))`, id)
		}
	}
	if len(turns) != clusters || slices.Max(slices.Collect(maps.Values(turns))) != 1 {
		t.Fatalf("turns of the clusters: %v; want one of each of %d", turns, clusters)
	}
	pending, err := b.store.Outbox.LeaseDueChanges(t.Context(), "one", 4, lease)
	if err != nil || len(pending) != 4 || !strings.HasPrefix(pending[0].Change.ClusterID, "ffffffff-") {
		t.Fatalf("then claimed %v, %v; want four of the new clusters", pending, err)
	}
}

// TestClaimPlannedForASmallTable covers that a claim whose plan is cached since the table was small does not read it
// completely for each cluster. Only an ANALYZE, which comes a minute after a load, replaces that plan.
func TestClaimPlannedForASmallTable(t *testing.T) {
	b := newBed(t)
	b.changes("one", 5, 1)
	b.exec("analyze tenant.cluster_change_events")
	tx, err := b.owner.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	for _, statement := range []string{
		pgstore.ByIndex, "set local plan_cache_mode = force_generic_plan", "prepare claim as " + db.ClaimChanges,
		"execute claim ('1 minute', 'one', 'ffffffff-ffff-ffff-ffff-ffffffffffff', 10)",
	} {
		if _, err := tx.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	const clusters = 2000
	b.changes("one", clusters, 1)
	var plan []struct{ Plan node }
	explain := "explain (analyze, format json) execute claim ('1 minute', 'one', 'ffffffff-ffff-ffff-ffff-ffffffffffff', 10)"
	if err := tx.QueryRow(t.Context(), explain).Scan(&plan); err != nil {
		t.Fatal(err)
	}
	if n := plan[0].Plan.read(); n > 4*11 {
		t.Errorf("a claim of 10 changes read %.0f rows of %d clusters", n, clusters)
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
	if err := tx.QueryRow(b.Context(), "explain (analyze, format json) "+db.ClaimChanges, lease, sink, uuid.Max.String(), int64(most)).Scan(&plan); err != nil {
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
