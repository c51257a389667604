package clusterworker

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
)

// TestTwoShareTheLoad: of many clusters each worker has its share, and each
// generation of each cluster is sent once.
func TestTwoShareTheLoad(t *testing.T) {
	t.Parallel()
	const clusters = 200
	e := &editor{fixture: newFixture(t)}
	// A call that times out is sent again. Only a timeout of a minute is safe on a busy machine.
	e.timing = defaultTiming(t)
	e.witness()
	for range 2 {
		e.newWorker(nil).begin()
	}
	all := &pgx.Batch{}
	for i := range clusters {
		c := &cluster{id: e.newID(), name: fmt.Sprintf("c-%d", i), tenant: "a", change: e.next()}
		e.clusters = append(e.clusters, c)
		all.Queue(insertResource, c.id, "Cluster", c.tenant, c.name, nil, c.spec())
	}
	if err := e.owner.SendBatch(t.Context(), all).Close(); err != nil {
		t.Fatal(err)
	}
	e.wantSynced(1)
	e.wantShares(1)

	again := &pgx.Batch{}
	for _, c := range e.clusters {
		c.change = e.next()
		again.Queue(updateResource, c.id, c.spec())
	}
	if err := e.owner.SendBatch(t.Context(), again).Close(); err != nil {
		t.Fatal(err)
	}
	e.wantSynced(2)
	e.wantShares(2)
	e.wantNoBreach()
}

// wantSynced waits until all clusters are synced at a generation.
func (e *editor) wantSynced(generation int64) {
	e.Helper()
	e.await("all clusters", func() error {
		rows, err := e.rows(e.Context())
		if err != nil {
			return err
		}
		for _, c := range e.clusters {
			if x := rows[c.id]; x.settled() != nil || x.SyncedTill != generation {
				return fmt.Errorf("cluster %s is synced at generation %d, want %d (%w)", c.name, x.SyncedTill, generation, x.settled())
			}
		}
		return nil
	})
}

// wantShares holds who sent a generation against fair shares.
func (e *editor) wantShares(generation int64) {
	e.Helper()
	share, times := map[string]int{}, map[string]int{}
	for _, p := range e.book.writes(func(p passage) bool { return p.generation == generation }) {
		share[p.by.worker]++
		times[p.cluster]++
	}
	for _, c := range e.clusters {
		if times[c.id] != 1 {
			e.Errorf("generation %d of %s was sent %d times\n%s", generation, c.name, times[c.id], e.history(c.id))
		}
	}
	for _, w := range e.workers {
		if least := len(e.clusters) / 10; share[w.name] < least {
			e.Errorf("of generation %d %s sent %d, want %d at least", generation, w.name, share[w.name], least)
		}
	}
	e.Logf("generation %d: %v", generation, share)
}
