package pgstore_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/internal/clusterworker"
)

// TestPoolsSent covers that node pools are returned while Gardener has their current
// state, and not for a row that has changed since.
func TestPoolsSent(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	id := b.cluster("one")
	stays, goes := b.pool(id, "stays"), b.pool(id, "goes")
	b.exec(`update tenant.resources set deleted_time = now(), generation = 2 where id = $1`, goes)
	sent := func(want ...clusterworker.PoolSent) {
		t.Helper()
		rows, err := b.store.Observations.ListRowsOfClusters(t.Context(), []string{id})
		if err != nil || len(rows) != 1 {
			t.Fatalf("RowsOf() = %v, %v", rows, err)
		}
		got, err := b.store.ListSentPools(t.Context(), &rows[0])
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("pools (-want +got):\n%s", diff)
		}
		rows[0].ReportVersion--
		if got, err := b.store.ListSentPools(t.Context(), &rows[0]); err != nil || len(got) > 0 {
			t.Errorf("by an older row: %v, %v", got, err)
		}
	}
	sent() // nothing was sent yet
	claims := b.claim(1)
	if len(claims) != 1 {
		t.Fatalf("claimed %v", claims)
	}
	c := claims[0]
	result := clusterworker.Result{ClusterID: c.ClusterID, Token: c.Token, Generation: c.Generation, ClusterGeneration: c.ClusterGeneration}
	if lost, err := b.store.WriteResults(t.Context(), []clusterworker.Result{result}); err != nil || len(lost) > 0 {
		t.Fatalf("Complete() = %v, %v", lost, err)
	}
	sent(clusterworker.PoolSent{ID: stays, Name: "stays", Generation: 1}, clusterworker.PoolSent{ID: goes, Name: "goes", Generation: 2, Deleting: true})
	b.exec(`update tenant.resources set spec = '{"replicas": 2}', generation = 2 where id = $1`, stays)
	sent()
}
