// Package onserver tests the store of sessions of package console with a real database.
package onserver

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fleetloop/fleetloop/internal/console"
	"github.com/fleetloop/fleetloop/internal/console/consoletest"
	"github.com/fleetloop/fleetloop/internal/console/session"
	"github.com/fleetloop/fleetloop/internal/postgres"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func open(t *testing.T, url string) *postgres.Pool {
	t.Helper()
	cfg := pgtest.Config(url)
	cfg.Role = postgres.RoleConsole
	pool, err := postgres.New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func TestSessionStore(t *testing.T) {
	consoletest.RunSessionStoreTests(t, func(t *testing.T) session.Store {
		t.Helper()
		return console.NewSessionStore(open(t, pgtest.NewMigratedDatabaseURL(t)))
	})
}

// TestSessionStoreRights covers that the role of the console reaches its sessions and nothing else.
func TestSessionStoreRights(t *testing.T) {
	conn, err := pgx.Connect(t.Context(), pgtest.NewMigratedDatabaseURL(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	rows, err := conn.Query(t.Context(), `
		select format('%s %I.%I', p.privilege, n.nspname, c.relname)
		from pg_class c join pg_namespace n on n.oid = c.relnamespace,
			unnest(array['select', 'insert', 'update', 'delete', 'truncate']) as p(privilege)
		where c.relkind in ('r', 'p', 'v', 'm') and n.nspname not in ('pg_catalog', 'information_schema')
			and has_table_privilege('fleet_console', c.oid, p.privilege)
		order by 1`)
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	want := "delete console.sessions, insert console.sessions, select console.sessions, select public.fleetloop_migration_fingerprints, select public.fleetloop_migrations, update console.sessions"
	if text := strings.Join(got, ", "); err != nil || text != want {
		t.Errorf("rights %s, want %s (%v)", text, want, err)
	}
}
