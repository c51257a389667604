package clusterworker_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
)

// pools are the node pools of every cluster.
type pools []clusterworker.PoolSent

func (p pools) ListSentPools(context.Context, *clusterworker.Row) ([]clusterworker.PoolSent, error) {
	return p, nil
}

// TestPoolReport covers the reports on a node pool.
func TestPoolReport(t *testing.T) {
	t.Parallel()
	const none = v1.ConditionStatus("")
	ready := clusterworker.Row{ClusterGeneration: 3, Generation: 5, SyncedGeneration: 5, Synced: true, Status: v1.ShootReady}
	with := func(change func(*clusterworker.Row)) clusterworker.Row {
		row := ready
		change(&row)
		return row
	}
	cases := map[string]struct {
		reason               string
		row                  clusterworker.Row
		deleting             bool
		available, finalized v1.ConditionStatus
	}{
		"Ready":       {"a pool is as ready as its cluster", ready, false, v1.ConditionTrue, none},
		"Progressing": {"Gardener is at it", with(func(r *clusterworker.Row) { r.Status = v1.ShootProgressing }), false, v1.ConditionFalse, none},
		"Failed":      {"nor is it more ready", with(func(r *clusterworker.Row) { r.Status = v1.ShootError }), false, v1.ConditionFalse, none},
		"Going":       {"the machines may still be there", with(func(r *clusterworker.Row) { r.Status = v1.ShootProgressing }), true, v1.ConditionFalse, v1.ConditionFalse},
		"Gone":        {"the cluster is complete without it", ready, true, v1.ConditionFalse, v1.ConditionTrue},
		"GoneWithAll": {"the cluster is gone", with(func(r *clusterworker.Row) { r.Status, r.Deleting = v1.ShootDeleted, true }), true, v1.ConditionFalse, v1.ConditionTrue},
		"GoingWithAll": {
			"a Shoot that is ready before its deletion has begun still has all machines",
			with(func(r *clusterworker.Row) { r.Deleting = true }), true, v1.ConditionFalse, v1.ConditionFalse,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := clusterworker.BuildPoolReport(&tc.row, clusterworker.PoolSent{ID: "p", Generation: 7, Deleting: tc.deleting}, time.Now())
			got := map[string]v1.ConditionStatus{}
			for _, c := range r.Conditions {
				got[c.Type] = c.Status
			}
			if got[v1.ConditionAvailable] != tc.available || got[v1.ConditionFinalized] != tc.finalized || r.ObservedGeneration != 7 {
				t.Errorf("%s: got %+v, want available %s, finalized %q at generation 7", tc.reason, r, tc.available, tc.finalized)
			}
		})
	}
}

// TestPoolsAreReported covers that node pools are reported with their cluster: those
// whose current state Gardener has, and none as ready or gone before that was observed.
func TestPoolsAreReported(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		row    func(*clusterworker.Row)
		side   func(*reporterSide)
		want   []string
	}{
		"Synced":    {"the cluster first", func(*clusterworker.Row) {}, func(*reporterSide) {}, []string{"c", "stays True", "goes True"}},
		"NotSynced": {"what Gardener has may be older", func(r *clusterworker.Row) { r.Synced = false }, func(*reporterSide) {}, []string{"c"}},
		"OutOfDate": {"the status is of the Shoot with the pool", func(*clusterworker.Row) {}, func(s *reporterSide) { s.outOfDate = true }, []string{"c", "stays False", "goes False"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newReporterSide()
				s.set(tc.side)
				row := clusterworker.Row{ClusterGeneration: 1, Generation: 1, SyncedGeneration: 1, Synced: true, Status: v1.ShootReady}
				tc.row(&row)
				s.change("c", row)
				b, err := clusterworker.NewReporter(clusterworker.ReporterConfig{}, clusterworker.ReporterDeps{Store: s, Fleet: s, Observer: s, Pools: pools{{ID: "stays", Generation: 1}, {ID: "goes", Generation: 2, Deleting: true}}})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := b.Run(ctx); err != nil {
					t.Fatal(err)
				}
				if diff := gocmp.Diff(tc.want, s.said()); diff != "" {
					t.Errorf("%s: reports (-want +got):\n%s", tc.reason, diff)
				}
			})
		})
	}
}

// said returns the reported resources, and for node pools the status of the main
// condition.
func (s *reporterSide) said() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []string
	for i, id := range s.told {
		kind := map[string]string{"stays": v1.ConditionAvailable, "goes": v1.ConditionFinalized}[id]
		at := slices.IndexFunc(s.reports[i].Conditions, func(c v1.ReportCondition) bool { return c.Type == kind })
		if at >= 0 {
			id += " " + string(s.reports[i].Conditions[at].Status)
		}
		list = append(list, id)
	}
	return list
}
