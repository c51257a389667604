package pgstore_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
	"github.com/fleetloop/fleetloop/internal/fleetapi/search"
)

func TestEveryMethodKeepsToItsScope(t *testing.T) {
	s := newStore(t)
	mine, theirs := newRecord("a", v1.KindCluster, "one"), newRecord("b", v1.KindCluster, "one")
	theirPool := newRecord("b", v1.KindNodePool, "pool")
	theirPool.ParentID = theirs.ID
	insert(t, s, mine, theirs, theirPool)
	if err := change(t, s, all(), theirs.Key, func(*fleetapi.Locked) *v1.AdapterStatus {
		return &v1.AdapterStatus{Adapter: "dns", CreatedTime: theirs.CreatedTime, LastReportTime: theirs.CreatedTime}
	}); err != nil {
		t.Fatal(err)
	}

	for name, scope := range map[string]fleetapi.Scope{"Tenant": tenant("a"), "Forgotten": {}, "Star": tenant("*")} {
		t.Run(name, func(t *testing.T) {
			in := func(f func(context.Context, fleetapi.Tx) error) error {
				return s.RunInTx(t.Context(), scope, func(ctx context.Context, tx fleetapi.Tx) error { return f(ctx, tx) })
			}
			if _, err := s.Get(t.Context(), scope, theirs.Key); !errors.Is(err, fleetapi.ErrNotFound) {
				t.Errorf("get: %v", err)
			}
			if got, err := s.ListReports(t.Context(), scope, theirs.Key); !errors.Is(err, fleetapi.ErrNotFound) {
				t.Errorf("reports: %v, %v", got, err)
			}
			for _, q := range []fleetapi.Query{
				{Kind: v1.KindCluster},
				{Kind: v1.KindNodePool},
				{Kind: v1.KindNodePool, ParentID: theirs.ID},
				{Kind: v1.KindCluster, Search: search.Compare{Column: search.Column{Field: search.ID}, Value: search.Value{Text: theirs.ID}}},
				{Kind: v1.KindCluster, Count: true},
			} {
				var seen []string
				q.Limit = 10
				page, err := s.List(t.Context(), scope, q, func(r *fleetapi.Record) error {
					seen = append(seen, r.Tenant)
					return nil
				})
				if err != nil || slices.Contains(seen, "b") || page.Count > 1 {
					t.Errorf("list %+v: %v, count %d, %v", q, seen, page.Count, err)
				}
			}
			if page, err := s.ListStuckResources(t.Context(), scope, fleetapi.StuckQuery{Kinds: []string{v1.KindCluster, v1.KindNodePool}, Limit: 10}); err != nil ||
				slices.ContainsFunc(page.Rows, func(r fleetapi.StuckRow) bool { return r.ID != mine.ID }) {
				t.Errorf("stuck: %+v, %v", page.Rows, err)
			}
			err := in(func(ctx context.Context, tx fleetapi.Tx) error {
				_, err := tx.LockAndReadResource(ctx, theirs.Key)
				return err
			})
			if !errors.Is(err, fleetapi.ErrNotFound) {
				t.Errorf("lock: %v", err)
			}
			if err := in(func(ctx context.Context, tx fleetapi.Tx) error {
				got, err := tx.LockAndReadChildren(ctx, theirs.Key)
				if len(got) != 0 {
					t.Errorf("lock children: %v", got)
				}
				return err
			}); err != nil {
				t.Errorf("lock children: %v", err)
			}
			if err := in(func(ctx context.Context, tx fleetapi.Tx) error { return tx.DeleteAndRecordResource(ctx, theirs.Key) }); err == nil {
				t.Error("remove took another tenant's row")
			}
			if err := in(func(ctx context.Context, tx fleetapi.Tx) error {
				return tx.InsertAndRecordResource(ctx, newRecord("b", v1.KindCluster, "new"))
			}); err == nil {
				t.Error("insert made a row for another tenant")
			}
		})
	}
	if got := mustGet(t, s, theirs.Key); got.Generation != 1 {
		t.Errorf("the other tenant's row changed: %+v", got)
	}
}
