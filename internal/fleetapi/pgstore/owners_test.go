package pgstore_test

import (
	"fmt"
	"testing"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
)

// TestAMovedRowIsToldToBothTenants checks a move for a reader of all tenants that sorts by tenant,
// as watches do. The old tenant sees a removal, and only the new one sees the row.
func TestAMovedRowIsToldToBothTenants(t *testing.T) {
	d := newDatabase(t)
	r := newRecord("a", v1.KindCluster, "row")
	insert(t, d.Store, r)
	begin, err := d.ReadLatestCursor(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	told := func(scope fleetapi.Scope, stepwise bool) (told []string) {
		t.Helper()
		q := fleetapi.ChangeQuery{After: begin, Limit: 100, Stepwise: stepwise}
		_, _, err := d.VisitChanges(t.Context(), scope, q, func(c *fleetapi.Change) error {
			what := "gone"
			if c.Record != nil {
				what = c.Record.Tenant + "'s"
			}
			told = append(told, fmt.Sprint(c.Tenant, ": ", what))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return told
	}

	d.exec(t, "update tenant.clusters set tenant = 'b' where id = $1", r.ID)
	wantTold(t, "stepwise", []string{"a: gone", "b: b's"}, told(all(), true))
	wantTold(t, "once each", []string{"b: b's"}, told(all(), false))
	wantTold(t, "the old tenant", []string{"a: gone"}, told(tenant("a"), false))
	wantTold(t, "the new tenant", []string{"b: b's"}, told(tenant("b"), false))
	relabel(t, d.Store, r, `{"zone":"x"}`)
	wantTold(t, "stepwise, relabelled since", []string{"a: gone", "b: b's"}, told(all(), true))
	d.exec(t, "update tenant.clusters set tenant = 'c' where id = $1", r.ID)
	wantTold(t, "stepwise, moved on", []string{"a: gone", "b: gone", "c: c's"}, told(all(), true))

	// A move in a transaction that is before one that wrote to the row earlier.
	begin, err = d.ReadLatestCursor(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	early, err := connectTo(t, d.url).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := early.Exec(t.Context(), "select pg_current_xact_id()"); err != nil {
		t.Fatal(err)
	}
	touch(t, d.Store, r)
	if _, err := early.Exec(t.Context(), "update tenant.clusters set tenant = 'd' where id = $1", r.ID); err != nil {
		t.Fatal(err)
	}
	if err := early.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantTold(t, "once each, the row is there", []string{"c: d's"}, told(all(), false))

	// A move that is not settled: the log is behind the rows.
	begin, err = d.ReadLatestCursor(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	touch(t, d.Store, r)
	slow, err := connectTo(t, d.url).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := slow.Exec(t.Context(), "select pg_current_xact_id()"); err != nil {
		t.Fatal(err)
	}
	d.exec(t, "update tenant.clusters set tenant = 'e' where id = $1", r.ID)
	wantTold(t, "before the move is settled", []string{"d: gone"}, told(all(), true))
}
