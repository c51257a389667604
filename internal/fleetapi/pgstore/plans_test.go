package pgstore_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
	"github.com/fleetloop/fleetloop/internal/fleetapi/pgstore"
	"github.com/fleetloop/fleetloop/internal/fleetapi/search"
)

// manyRows inserts clusters and node pools of two tenants, the second of which has few. Few are not
// ready and few are not synced.
const manyRows = `
	insert into tenant.resources (id, kind, tenant, name, spec, generation, created_time, updated_time, phase, last_updated_time, last_transition_time)
	select gen_random_uuid(), 'Cluster', case when n % 50 = 0 then 'a' else 'b' end, 'c-' || n, '{}', 1, now(), now() - n * interval '1 second', case when n / 50 % 7 = 0 then 'Failed' else 'Ready' end, now(), now() - n * interval '1 minute'
	from generate_series(1, 15000) n;
	insert into tenant.resources (id, kind, tenant, name, owner_id, owner_kind, spec, generation, created_time, updated_time, phase, last_updated_time, last_transition_time)
	select gen_random_uuid(), 'NodePool', r.tenant, 'np', r.id, 'Cluster', '{}', 1, now(), now(), r.phase, now(), r.last_transition_time
	from tenant.resources r where r.kind = 'Cluster';
	update tenant.cluster_sync set synced = now(), unsynced_since = null where abs(hashtext(cluster_id::text)) % 100 <> 0;
	update tenant.cluster_sync set unsynced_since = now() - interval '1 hour' where synced is null;
	analyze tenant.resources, tenant.clusters, tenant.nodepools, tenant.cluster_sync`

// explain returns the plan of a statement as the role of a scope runs it.
func (d *database) explain(t *testing.T, scope fleetapi.Scope, settings []string, statement string, args []any) string {
	t.Helper()
	tx, err := d.conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	role := "fleet_api"
	if scope.All {
		role = "fleet_api_all_tenants"
	}
	for _, sql := range append(settings, "set local role "+role, "select set_config('fleetloop.tenant', '"+scope.Tenant+"', true)") {
		if _, err := tx.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	var plan []string
	rows, err := tx.Query(t.Context(), "explain (costs off) "+statement, args...)
	if err == nil {
		plan, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if err := errors.Join(err, tx.Rollback(t.Context())); err != nil {
		t.Fatal(err)
	}
	return strings.Join(plan, "\n")
}

// TestStuckIsFoundByIndexes checks that neither a first nor a later page reads or sorts the table.
func TestStuckIsFoundByIndexes(t *testing.T) {
	d := newDatabase(t)
	d.exec(t, manyRows)
	settings := []string{"set local enable_sort = off", "set local jit = off"}
	for name, tc := range map[string]struct {
		scope   fleetapi.Scope
		indexes []string
	}{
		"Tenant": {tenant("a"), []string{"clusters_tenant_unready_idx", "nodepools_tenant_unready_idx", "cluster_sync_unsynced_idx"}},
		"All":    {all(), []string{"clusters_unready_idx", "nodepools_unready_idx", "cluster_sync_unsynced_idx"}},
	} {
		t.Run(name, func(t *testing.T) {
			if !tc.scope.All {
				settings = append(settings, "set local enable_bitmapscan = off")
			}
			q := fleetapi.StuckQuery{Kinds: []string{v1.KindCluster, v1.KindNodePool}, OlderThan: 5 * time.Minute, Limit: 20}
			for range 2 {
				statements, args := pgstore.StuckStatements(tc.scope, q)
				for i, statement := range statements {
					plan := d.explain(t, tc.scope, settings, statement, args[i])
					if !strings.Contains(plan, tc.indexes[i]) || strings.Contains(plan, "Seq Scan on clusters") || strings.Contains(plan, "Seq Scan on nodepools") ||
						strings.Contains(plan, "Seq Scan on cluster_sync") {
						t.Errorf("want the index %s and no scan of a table, got\n%s", tc.indexes[i], plan)
					}
				}
				page, err := d.ListStuckResources(t.Context(), tc.scope, q)
				if err != nil || len(page.Rows) == 0 || page.Next == nil {
					t.Fatalf("got %d rows, %v", len(page.Rows), err)
				}
				q.After = *page.Next
			}
		})
	}
}

// TestOrdersOfTheConsoleHaveAnIndex checks that a list by name, by a time or in an order of the status reads no
// more than its page.
func TestOrdersOfTheConsoleHaveAnIndex(t *testing.T) {
	d := newDatabase(t)
	d.exec(t, manyRows)
	for name, tc := range map[string]struct {
		scope fleetapi.Scope
		index string
	}{"Tenant": {tenant("a"), "tenant_"}, "All": {all(), ""}} {
		for column, index := range map[search.Field]string{
			search.Name: "name_idx", search.Phase: "phase_idx", search.LastTransitionTime: "transition_idx", search.UpdatedTime: "updated_idx",
		} {
			kinds := []string{v1.KindCluster, v1.KindNodePool}
			if column == search.Name || column == search.UpdatedTime {
				kinds = kinds[:1] // only clusters have these indexes
			}
			for _, kind := range kinds {
				for _, desc := range []bool{false, true} {
					q := fleetapi.Query{Kind: kind, Order: []fleetapi.Order{{Column: column, Desc: desc}}, Limit: 20}
					for range 2 {
						statement, args := pgstore.PageStatement(tc.scope, q)
						settings := []string{}
						if !tc.scope.All {
							settings = append(settings, "set local enable_bitmapscan = off")
						}
						plan := d.explain(t, tc.scope, settings, statement, args)
						want := strings.ToLower(kind) + "s_" + tc.index + index
						if !strings.Contains(plan, want) || strings.Contains(plan, "Seq Scan on "+strings.ToLower(kind)) {
							t.Errorf("%s: want the index %s, got\n%s", name, want, plan)
						}
						rows := list(t, d.Store, tc.scope, q)
						q.After = placeOf(&q, &rows[len(rows)-1])
					}
				}
			}
		}
	}
}
