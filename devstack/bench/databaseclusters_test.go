package main

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/fleetloop/fleetloop/internal/postgres"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
)

// newFleet returns a database with clusters that were never synced.
func newFleet(t *testing.T, rows int) (url string, o *clusterOwner) {
	t.Helper()
	url = pgtest.NewMigratedDatabaseURL(t)
	o, err := openClusterOwner(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = o.Close(t.Context()) })
	if err := o.InsertClustersWithPools(t.Context(), 0, rows); err != nil {
		t.Fatal(err)
	}
	return url, o
}

func connect(t *testing.T, url string, connections int) *bareWorker {
	t.Helper()
	cfg := pgtest.Config(url)
	cfg.Role = postgres.RoleClusterWorker
	b, err := connectBareWorker(t.Context(), cfg, connections)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close(t.Context()) })
	return b
}

func wantUnsynced(t *testing.T, o *clusterOwner, want int) {
	t.Helper()
	if n, err := o.CountUnsynced(t.Context()); n != want || err != nil {
		t.Errorf("%d clusters are unsynced, want %d; %v", n, want, err)
	}
}

// TestEachWayWorksThroughAll: each way processes the same rows, and leaves none.
func TestEachWayWorksThroughAll(t *testing.T) {
	const rows = 100
	url, o := newFleet(t, rows)
	var calls atomic.Int64
	call := func(ctx context.Context) error { calls.Add(1); return ctx.Err() }
	ways := map[string]func() (int, error){
		"Batches":        func() (int, error) { return connect(t, url, 1).CompleteAllDueRows(t.Context(), 30) },
		"BatchesOfTwo":   func() (int, error) { return connect(t, url, 2).CompleteAllDueRows(t.Context(), 7) },
		"RowByRow":       func() (int, error) { return connect(t, url, 3).ProcessDueRowsOneByOne(t.Context(), 2*rows, call) },
		"RowByRowEnough": func() (int, error) { return connect(t, url, 3).ProcessDueRowsOneByOne(t.Context(), rows, call) },
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			if err := o.MarkAllUnsynced(t.Context()); err != nil {
				t.Fatal(err)
			}
			wantUnsynced(t, o, rows)
			if n, err := way(); n != rows || err != nil {
				t.Errorf("%d rows, %v", n, err)
			}
			wantUnsynced(t, o, 0)
		})
	}
	if n := calls.Load(); n != 2*rows {
		t.Errorf("%d calls", n)
	}
}

func TestEdits(t *testing.T) {
	_, o := newFleet(t, 5)
	steps := []struct {
		reason string
		do     func(context.Context) error
		want   int
	}{
		{"no cluster is synced yet", func(context.Context) error { return nil }, 5},
		{"all clusters are synced", o.MarkAllSynced, 0},
		{"one cluster was changed", func(ctx context.Context) error { return o.EditCluster(ctx, 3, 1) }, 1},
		{"all clusters are synced again", o.MarkAllSynced, 0},
		{"the triggers are disabled", func(ctx context.Context) error { return o.SetTriggers(ctx, false) }, 0},
		{"one cluster was changed without triggers", func(ctx context.Context) error { return o.EditCluster(ctx, 3, 2) }, 0},
		{"the triggers are enabled", func(ctx context.Context) error { return o.SetTriggers(ctx, true) }, 0},
		{"the notifications are disabled", func(ctx context.Context) error { return o.SetNotifications(ctx, false) }, 0},
		{"one cluster was changed without notifications", func(ctx context.Context) error { return o.EditCluster(ctx, 4, 3) }, 1},
	}
	for _, s := range steps {
		if err := s.do(t.Context()); err != nil {
			t.Fatalf("%s: %v", s.reason, err)
		}
		t.Log(s.reason)
		wantUnsynced(t, o, s.want)
	}
	if err := o.EditCluster(t.Context(), 5, 1); err == nil {
		t.Error("a cluster that does not exist was changed")
	}
}
