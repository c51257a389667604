package pgstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
	"github.com/fleetloop/fleetloop/internal/fleetapi/pgstore"
)

// newBatch returns a batch of clusters of a tenant with some names.
func newBatch(tenantName string, names ...string) *fleetapi.Batch {
	b := &fleetapi.Batch{Common: *newRecord(tenantName, v1.KindCluster, "")}
	for _, name := range names {
		r := newRecord(tenantName, v1.KindCluster, name)
		b.Rows = append(b.Rows, fleetapi.BatchRow{ID: r.ID, Content: r.Content})
	}
	return b
}

// insertBatch returns the number of new rows, and the index of the first existing one, below zero
// if there was none.
func insertBatch(ctx context.Context, s *pgstore.Store, scope fleetapi.Scope, b *fleetapi.Batch) (created, missing int, err error) {
	err = s.RunInTx(ctx, scope, func(ctx context.Context, tx fleetapi.Tx) error {
		into, _ := tx.(fleetapi.Loader)
		var err error
		if created, err = into.InsertRowsWithFreeNames(ctx, b); err != nil || created == len(b.Rows) {
			missing = -1
			return err
		}
		missing, err = into.FindFirstNotInserted(ctx, b)
		return err
	})
	return created, missing, err
}

func TestABatchComesBackAsItWentIn(t *testing.T) {
	s := newStore(t)
	b := newBatch("a", "one", "two")
	if created, missing, err := insertBatch(t.Context(), s, all(), b); created != 2 || missing != -1 || err != nil {
		t.Fatalf("created %d, first missing %d, %v", created, missing, err)
	}
	one := newRecord("a", v1.KindCluster, "one")
	insert(t, s, newRecord("b", v1.KindCluster, "one")) // so that only the store makes the difference
	want := mustGet(t, s, fleetapi.Key{Kind: v1.KindCluster, ID: list(t, s, tenant("b"), fleetapi.Query{Kind: v1.KindCluster})[0].ID})
	got := mustGet(t, s, fleetapi.Key{Kind: v1.KindCluster, ID: b.Rows[0].ID})
	if string(got.Spec) != string(one.Spec) || got.Revision == 0 {
		t.Errorf("spec %s, revision %d", got.Spec, got.Revision)
	}
	got.ID, got.Tenant, got.Revision = want.ID, want.Tenant, want.Revision
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		t.Errorf("by a batch\n%+v\nalone\n%+v", got, want)
	}
}

func TestABatchLeavesOutNamesInUse(t *testing.T) {
	s := newStore(t)
	insert(t, s, newRecord("a", v1.KindCluster, "three"), newRecord("b", v1.KindCluster, "one"), newRecord("a", v1.KindWorkload, "two"))
	b := newBatch("a", "one", "two", "three", "one", "four")
	if created, missing, err := insertBatch(t.Context(), s, tenant("a"), b); created != 3 || missing != 2 || err != nil {
		t.Errorf("created %d, first missing %d, %v; want 3 and the third", created, missing, err)
	}
	if _, _, err := insertBatch(t.Context(), s, tenant("a"), newBatch("b", "five")); err == nil {
		t.Error("a batch for another tenant was taken")
	}
}

// TestBatchesAtTheSameTime checks that batches with the same names in any order do not deadlock.
// The database would end a deadlock after a second, and repeated ones would fail a load.
func TestBatchesAtTheSameTime(t *testing.T) {
	s := newStore(t)
	const rows, rounds, loads = 1000, 5, 3
	random := rand.New(rand.NewPCG(1, 1))
	for round := range rounds {
		names := make([]string, rows)
		for i := range names {
			names[i] = fmt.Sprintf("c-%d-%d", round, i)
		}
		var created, tries atomic.Int64
		var g sync.WaitGroup
		for range loads {
			random.Shuffle(rows, func(i, j int) { names[i], names[j] = names[j], names[i] })
			b := newBatch("a", names...)
			g.Go(func() {
				err := s.RunInTx(t.Context(), tenant("a"), func(ctx context.Context, tx fleetapi.Tx) error {
					tries.Add(1)
					n, err := tx.(fleetapi.Loader).InsertRowsWithFreeNames(ctx, b) //nolint:errcheck // a panic says as much
					created.Add(int64(n))
					return err
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		g.Wait()
		if created.Load() != rows || tries.Load() != loads {
			t.Errorf("%d rows were created in %d tries, want %d in %d", created.Load(), tries.Load(), rows, loads)
		}
	}
}
