package postgres_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fleetloop/fleetloop/internal/postgres"
	"github.com/fleetloop/fleetloop/internal/postgres/migrations"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// connect opens a connection as the owner of the database.
func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

// insertCluster is a row with only what must be there.
const insertCluster = `
	insert into tenant.resources (id, kind, tenant, name, spec, generation,
		created_time, updated_time, phase, last_updated_time, last_transition_time)
	values (gen_random_uuid(), 'Cluster', $1, $2, '{}', 1, now(), now(), 'Pending', now(), now())`

func countVisible(t *testing.T, p *postgres.Pool, s postgres.Scope) int {
	t.Helper()
	n := -1
	err := p.Read(t.Context(), s, func(b *pgx.Batch) {
		b.Queue("select count(*) from tenant.resources").QueryRow(func(row pgx.Row) error { return row.Scan(&n) })
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestAScopeSeesItsTenantAlone(t *testing.T) {
	url := pgtest.URL(t)
	p := pgtest.Open(t, url)
	owner := connect(t, url)
	for _, row := range [][2]string{{"a", "one"}, {"a", "two"}, {"b", "one"}} {
		if _, err := owner.Exec(t.Context(), insertCluster, row[0], row[1]); err != nil {
			t.Fatal(err)
		}
	}
	cases := map[string]struct {
		reason string
		scope  postgres.Scope
		want   int
	}{
		"Forgotten": {reason: "a scope that nobody set sees nothing", want: 0},
		"Tenant":    {reason: "only the rows of the tenant", scope: postgres.Scope{Tenant: "a"}, want: 2},
		"Other":     {reason: "only the rows of the tenant", scope: postgres.Scope{Tenant: "b"}, want: 1},
		"Nobody":    {reason: "a tenant without rows", scope: postgres.Scope{Tenant: "c"}, want: 0},
		"Star":      {reason: "no tenant name stands for all", scope: postgres.Scope{Tenant: "*"}, want: 0},
		"Quote":     {reason: "the tenant is a value, not SQL", scope: postgres.Scope{Tenant: "a' or true --"}, want: 0},
		"All":       {reason: "the role for all tenants sees them all", scope: postgres.Scope{Role: migrations.RoleAllTenants}, want: 3},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := countVisible(t, p, tc.scope); got != tc.want {
				t.Errorf("sees %d rows, want %d: %s", got, tc.want, tc.reason)
			}
			// The same connection must have forgotten the scope.
			if got := countVisible(t, p, postgres.Scope{}); got != 0 {
				t.Errorf("the next transaction sees %d rows, want none", got)
			}
		})
	}
}
