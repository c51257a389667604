package postgres_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fleetloop/fleetloop/internal/postgres"
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

// insertCluster inserts a row with only the required columns.
const insertCluster = `
	insert into tenant.resources (id, kind, tenant, name, spec, generation,
		created_time, updated_time, phase, last_updated_time, last_transition_time)
	values (gen_random_uuid(), 'Cluster', $1, $2, '{}', 1, now(), now(), 'Pending', now(), now())`

func countVisible(t *testing.T, p *postgres.Pool, s postgres.Scope) int {
	t.Helper()
	n := -1
	err := p.RunBatch(t.Context(), s, func(b *pgx.Batch) {
		b.Queue("select count(*) from tenant.resources").QueryRow(func(row pgx.Row) error { return row.Scan(&n) })
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestAScopeSeesItsTenantAlone(t *testing.T) {
	url := pgtest.NewMigratedDatabaseURL(t)
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
		"All":       {reason: "the role for all tenants sees them all", scope: postgres.Scope{Role: postgres.RoleAllTenants}, want: 3},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := countVisible(t, p, tc.scope); got != tc.want {
				t.Errorf("sees %d rows, want %d: %s", got, tc.want, tc.reason)
			}
			// The same connection must have lost the scope.
			if got := countVisible(t, p, postgres.Scope{}); got != 0 {
				t.Errorf("the next transaction sees %d rows, want none", got)
			}
		})
	}
}

func TestTheViewOfAllTenantsIsForTheirRole(t *testing.T) {
	url := pgtest.NewMigratedDatabaseURL(t)
	run(t, connect(t, url), insertCluster, "a", "one")
	p := pgtest.Open(t, url)
	n := 0
	read := func(s postgres.Scope) error {
		return p.RunBatch(t.Context(), s, func(b *pgx.Batch) {
			b.Queue("select count(*) from tenant.all_resources").QueryRow(func(row pgx.Row) error { return row.Scan(&n) })
		})
	}
	if err := read(postgres.Scope{Tenant: "a"}); postgres.SQLState(err) != "42501" {
		t.Errorf("a tenant's role may read it: %v", err)
	}
	if err := read(postgres.Scope{Role: postgres.RoleAllTenants}); err != nil || n != 1 {
		t.Errorf("the role for all tenants sees %d rows, %v", n, err)
	}
}

// TestARoleThatNothingBindsIsRefused refuses a role that sees everything, because the pool would
// show all rows to all tenants.
func TestARoleThatNothingBindsIsRefused(t *testing.T) {
	url := pgtest.NewMigratedDatabaseURL(t)
	conn := connect(t, url)
	run(t, conn, `create role unbound_owner; grant usage on schema tenant to unbound_owner; alter table tenant.resources owner to unbound_owner`)
	t.Cleanup(func() {
		_, err := conn.Exec(context.WithoutCancel(t.Context()), `reassign owned by unbound_owner to postgres; drop owned by unbound_owner; drop role unbound_owner`)
		if err != nil {
			t.Error(err)
		}
	})
	for _, role := range []string{"", "postgres", postgres.RoleAllTenants, "unbound_owner"} {
		t.Run("as "+role, func(t *testing.T) {
			cfg := pgtest.Config(url)
			cfg.Role = role
			p, err := postgres.New(cfg, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(p.Close)
			err = p.RunBatch(t.Context(), postgres.Scope{}, func(b *pgx.Batch) { b.Queue("select 1") })
			if err == nil || !strings.Contains(err.Error(), "bypasses row-level security") {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestASecretStaysOutOfErrors(t *testing.T) {
	for name, url := range map[string]string{
		"BadPort":  "postgres://user:hunter2@host:port/db",
		"BadValue": "host=h password=hunter2 port=none",
		"BadURL":   "postgres://user:hunter2@[host/db",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := postgres.New(owner(url), slog.New(slog.DiscardHandler))
			if err == nil || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("new: %v", err)
			}
			err = postgres.MigrateSchema(t.Context(), owner(url), slog.New(slog.DiscardHandler))
			if err == nil || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("migrate: %v", err)
			}
		})
	}
}

// TestQueuedStatementsRunInOrder checks that queued statements run before the next one or the commit, and that their
// failure rolls back.
func TestQueuedStatementsRunInOrder(t *testing.T) {
	p := pgtest.New(t)
	read := func(ctx context.Context, tx postgres.Tx) (value string) {
		if err := tx.QueryRow(ctx, "select current_setting('fleetloop.test', true)").Scan(&value); err != nil {
			t.Error(err)
		}
		return value
	}
	const set = "select set_config('fleetloop.test', $1, true)"
	committed := false
	err := p.RunInTx(t.Context(), postgres.Scope{}, func(ctx context.Context, tx postgres.Tx) error {
		tx.Queue(set, "first")
		tx.Queue(set, "second")
		if got := read(ctx, tx); got != "second" {
			t.Errorf("the next statement sees %q", got)
		}
		tx.Queue("select 1").Exec(func(pgconn.CommandTag) error {
			committed = true
			return nil
		})
		return nil
	})
	if err != nil || !committed {
		t.Errorf("got %v, and ran the last statement: %t", err, committed)
	}
	err = p.RunInTx(t.Context(), postgres.Scope{}, func(ctx context.Context, tx postgres.Tx) error {
		read(ctx, tx)
		tx.Queue("select 1 / $1::int", 0)
		return nil
	})
	if postgres.SQLState(err) != "22012" {
		t.Errorf("a queued statement that fails: got %v", err)
	}
	err = p.RunInTx(t.Context(), postgres.Scope{}, func(ctx context.Context, tx postgres.Tx) error {
		_, err := tx.Exec(ctx, "select 1 / $1::int", 0)
		if postgres.SQLState(err) != "22012" {
			t.Errorf("got %v", err)
		}
		return nil
	})
	if !errors.Is(err, pgx.ErrTxCommitRollback) {
		t.Errorf("the commit of a failed transaction: got %v", err)
	}
}

func TestTimesAreUTCAndStatementsAreBounded(t *testing.T) {
	cfg := pgtest.Config(pgtest.NewMigratedDatabaseURL(t))
	cfg.StatementTimeout = 50 * time.Millisecond
	p, err := postgres.New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	err = p.RunInTx(t.Context(), postgres.Scope{}, func(ctx context.Context, tx postgres.Tx) error {
		if now, err := tx.ReadBeginTime(ctx); err != nil || now.IsZero() || now.Location() != time.UTC {
			t.Errorf("now is %s, %v", now, err)
		}
		_, err := tx.Exec(ctx, "select pg_sleep(10)")
		return err
	})
	if postgres.SQLState(err) != "57014" {
		t.Errorf("got %v", err)
	}
}

func TestTheRolesOfComponentsAreTaken(t *testing.T) {
	url := pgtest.NewMigratedDatabaseURL(t)
	for _, role := range []string{postgres.RoleFleetAPI, postgres.RoleClusterWorker} {
		cfg := pgtest.Config(url)
		cfg.Role = role
		p, err := postgres.New(cfg, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		if err := p.CheckSchemaNotBehindOrAltered(t.Context()); err != nil {
			t.Errorf("as %s: %v", role, err)
		}
	}
}

// TestAPoolProbesAsOftenAsItIsTold checks the probe interval.
func TestAPoolProbesAsOftenAsItIsTold(t *testing.T) {
	url := pgtest.NewMigratedDatabaseURL(t)
	for name, every := range map[string]time.Duration{"often": time.Millisecond, "seldom": time.Hour} {
		cfg := pgtest.Config(url)
		cfg.ApplicationName, cfg.ProbeEvery = name, every
		p, err := postgres.New(cfg, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		runPool(t, p)
		await(t, "ready", func() bool { return p.Ready() == nil })
	}
	conn := connect(t, url)
	probes := func(name string) []string {
		return texts(t, conn, `select pid::text from pg_stat_activity where application_name = '`+name+`'`)
	}
	for range 3 {
		was := probes("often")
		run(t, conn, `select pg_terminate_backend(pid) from pg_stat_activity where application_name in ('often', 'seldom')`)
		await(t, "it has noticed", func() bool {
			now := probes("often")
			return len(now) == 1 && !cmp.Equal(was, now)
		})
	}
	if got := probes("seldom"); len(got) != 0 {
		t.Errorf("it has noticed, too: %v", got)
	}
}
