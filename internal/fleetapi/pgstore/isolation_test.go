package pgstore_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/postgres"
)

const (
	codeForeignKey = "23503"
	codeNoRight    = "42501"
)

// insertOwned inserts a row of a tenant under an owner.
const insertOwned = `insert into tenant.resources (id, kind, tenant, name, owner_id, owner_kind, spec, generation,
	created_time, updated_time, phase, last_updated_time, last_transition_time)
	values (gen_random_uuid(), $1, $2, 'planted', $3, 'Cluster', '{}', 1, now(), now(), 'Pending', now(), now())`

const insertReport = `insert into tenant.adapter_reports (resource_id, kind, tenant, adapter, observed_generation, conditions, created_time, last_report_time)
	values ($1, 'Cluster', $2, 'planted', 1, '[]', now(), now())`

// as runs one statement within a scope, with the API's role of that scope.
func (d *database) as(t *testing.T, scope postgres.Scope, sql string, args ...any) error {
	t.Helper()
	tx, err := d.conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := tx.Rollback(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	if scope.Role == "" {
		scope.Role = postgres.RoleFleetAPI
	}
	if _, err := tx.Exec(t.Context(), "select set_config('role', $1, true), set_config('fleetloop.tenant', $2, true)", scope.Role, scope.Tenant); err != nil {
		t.Fatal(err)
	}
	_, err = tx.Exec(t.Context(), sql, args...)
	return err
}

// TestARowHasTheTenantOfItsOwner checks that no role can refer to the rows of another tenant. A
// foreign key ignores row-level security.
func TestARowHasTheTenantOfItsOwner(t *testing.T) {
	d := newDatabase(t)
	victim, mine := newRecord("victim", v1.KindCluster, "one"), newRecord("mallory", v1.KindCluster, "two")
	pool := newRecord("mallory", v1.KindNodePool, "pool")
	pool.ParentID = mine.ID
	insert(t, d.Store, victim, mine, pool)
	for name, scope := range map[string]postgres.Scope{
		"Tenant":  {Tenant: "mallory"},
		"All":     {Role: postgres.RoleAllTenants},
		"Planned": {Role: postgres.RoleAllTenants, Tenant: "victim"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, kind := range []string{v1.KindNodePool, v1.KindManifest, v1.KindWorkload, v1.KindCluster} {
				if err := d.as(t, scope, insertOwned, kind, "mallory", victim.ID); postgres.SQLState(err) != codeForeignKey {
					t.Errorf("a %s is put under the cluster of another tenant: %v", kind, err)
				}
			}
			if err := d.as(t, scope, insertReport, victim.ID, "mallory"); postgres.SQLState(err) != codeForeignKey {
				t.Errorf("a report is put on the cluster of another tenant: %v", err)
			}
			if err := d.as(t, scope, "update tenant.resources set owner_id = $1 where id = $2", victim.ID, pool.ID); postgres.SQLState(err) != codeForeignKey {
				t.Errorf("a node pool is moved under the cluster of another tenant: %v", err)
			}
			// Rows of the same tenant still work.
			if err := d.as(t, scope, insertOwned, v1.KindNodePool, "mallory", mine.ID); err != nil {
				t.Errorf("a node pool under one's own cluster: %v", err)
			}
			if err := d.as(t, scope, insertReport, mine.ID, "mallory"); err != nil {
				t.Errorf("a report on one's own cluster: %v", err)
			}
		})
	}
	if err := d.as(t, postgres.Scope{Role: postgres.RoleAllTenants}, "update tenant.resources set tenant = 'victim' where id = $1", mine.ID); postgres.SQLState(err) != codeForeignKey {
		t.Errorf("a cluster leaves its node pools behind with another tenant: %v", err)
	}
}

// TestATenantsRoleKeepsTheHistoryOfOthers checks that the role of one tenant cannot remove the
// history of all tenants.
func TestATenantsRoleKeepsTheHistoryOfOthers(t *testing.T) {
	d := newDatabase(t)
	insert(t, d.Store, newRecord("victim", v1.KindCluster, "one"))
	for _, sql := range []string{
		"select tenant.prune_changes('-1 day', 1000)",
		"select timeline.maintain_partitions('-1 day')",
		"select timeline.delete_expired_keys('-1 day', 1000)",
		"select tenant.register_cluster_worker()",
		"select tenant.unregister_cluster_worker(true)",
		"select tenant.count_guarded_clusters()",
		"delete from tenant.resource_changes",
		"delete from timeline.change_event",
		"delete from timeline.change_key",
		"update tenant.rollup set epoch = null",
		"update tenant.rollup_counts set n = n + 1",
		"delete from tenant.rollup_reasons",
		"delete from tenant.rollup_reason_counts",
		"insert into tenant.rollup_syncs (tenant, state, n) values ('victim', 'stuck', 1)",
		"select * from tenant.rollup_rows",
		"select * from tenant.all_cluster_syncs",
	} {
		if err := d.as(t, postgres.Scope{Tenant: "mallory"}, sql); postgres.SQLState(err) != codeNoRight {
			t.Errorf("%s as a tenant's role: %v", sql, err)
		}
	}
}

// TestNobodyInParticularMayCallAFunction checks that PUBLIC may execute none of the functions.
func TestNobodyInParticularMayCallAFunction(t *testing.T) {
	d := newDatabase(t)
	rows, err := d.conn.Query(t.Context(), `
		select p.oid::regprocedure::text from pg_proc p
		where p.pronamespace in ('tenant'::regnamespace, 'timeline'::regnamespace, 'executor'::regnamespace)
			and exists (select from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a where a.grantee = 0)
		order by 1`)
	if err != nil {
		t.Fatal(err)
	}
	open, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{}, open); diff != "" {
		t.Errorf("functions that everybody may call (-want +got):\n%s", diff)
	}
}

// TestClustersJoinTheirSync checks that the role of a tenant reads its own clusters with their
// sync, by the names of the tables.
func TestClustersJoinTheirSync(t *testing.T) {
	d := newDatabase(t)
	mine, theirs := newRecord("a", v1.KindCluster, "one"), newRecord("b", v1.KindCluster, "one")
	insert(t, d.Store, mine, theirs)
	d.exec(t, "update tenant.cluster_sync set shoot_status = 'ready'")
	const join = `
		select array_agg(c.tenant || ' ' || c.name || ' ' || cs.shoot_status order by c.tenant)
		from tenant.clusters c join tenant.cluster_sync cs on cs.cluster_id = c.id`
	for name, tc := range map[string]struct {
		scope postgres.Scope
		want  []string
	}{
		"Mine":   {postgres.Scope{Tenant: "a", Role: postgres.RoleFleetAPI}, []string{"a one ready"}},
		"Theirs": {postgres.Scope{Tenant: "b", Role: postgres.RoleFleetAPI}, []string{"b one ready"}},
		"Nobody": {postgres.Scope{Role: postgres.RoleFleetAPI}, nil},
		"All":    {postgres.Scope{Role: postgres.RoleAllTenants}, []string{"a one ready", "b one ready"}},
	} {
		t.Run(name, func(t *testing.T) {
			tx, err := d.conn.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(t.Context()) }()
			if _, err := tx.Exec(t.Context(), "select set_config('role', $1, true), set_config('fleetloop.tenant', $2, true)", tc.scope.Role, tc.scope.Tenant); err != nil {
				t.Fatal(err)
			}
			var got []string
			if err := tx.QueryRow(t.Context(), join).Scan(&got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("clusters with their sync (-want +got):\n%s", diff)
			}
		})
	}
}

// TestCountsKeepToTheirTenant checks that the role of a tenant reads the counts of that tenant, and
// neither those of others nor the totals.
func TestCountsKeepToTheirTenant(t *testing.T) {
	d := newDatabase(t)
	d.exec(t, `
		insert into tenant.rollup_counts (tenant, kind, label, value, phase, n) values ('a', 'Cluster', '', '', 'Ready', 1), ('b', 'Cluster', '', '', 'Ready', 2), (null, 'Cluster', '', '', 'Ready', 3);
		insert into tenant.rollup_reasons (kind, id, source, tenant, reason, since) values ('Cluster', gen_random_uuid(), 'sync', 'a', 'x', now()), ('Cluster', gen_random_uuid(), 'sync', 'b', 'x', now());
		insert into tenant.rollup_reason_counts (tenant, source, reason, n) values ('a', 'sync', 'x', 1), ('b', 'sync', 'x', 1), (null, 'sync', 'x', 2);
		insert into tenant.rollup_syncs (tenant, state, n) values ('a', 'stuck', 1), ('b', 'stuck', 1), (null, 'stuck', 2)`)
	for _, table := range []string{"rollup_counts", "rollup_reasons", "rollup_reason_counts", "rollup_syncs"} {
		for name, tc := range map[string]struct {
			scope postgres.Scope
			want  []string
		}{
			"Mine":   {postgres.Scope{Tenant: "a", Role: postgres.RoleFleetAPI}, []string{"a"}},
			"Nobody": {postgres.Scope{Role: postgres.RoleFleetAPI}, nil},
		} {
			tx, err := d.conn.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			_, err = tx.Exec(t.Context(), "select set_config('role', $1, true), set_config('fleetloop.tenant', $2, true)", tc.scope.Role, tc.scope.Tenant)
			if err == nil {
				err = tx.QueryRow(t.Context(), "select array_agg(coalesce(tenant, '*')) from tenant."+table).Scan(&got)
			}
			if err := errors.Join(err, tx.Rollback(t.Context())); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s sees in %s (-want +got):\n%s", name, table, diff)
			}
		}
	}
}
