// Package onserver tests the store of sessions of package console with a real database.
package onserver

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fleetloop/fleetloop/internal/console"
	"github.com/fleetloop/fleetloop/internal/console/consoletest"
	"github.com/fleetloop/fleetloop/internal/console/session"
	"github.com/fleetloop/fleetloop/internal/postgres"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func open(t *testing.T, url string, maxConns int) *postgres.Pool {
	t.Helper()
	cfg := pgtest.Config(url)
	cfg.Role = postgres.RoleConsole
	cfg.MaxConns = maxConns
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
		return console.NewSessionStore(open(t, pgtest.NewMigratedDatabaseURL(t), 16))
	})
}

// TestHangingIssuer covers that requests of one session, which wait for the issuer, leave connections to other sessions.
func TestHangingIssuer(t *testing.T) {
	store := console.NewSessionStore(open(t, pgtest.NewMigratedDatabaseURL(t), 2))
	asked, answer := make(chan struct{}, 10), make(chan struct{})
	limits := session.Config{Idle: time.Hour, Lifetime: time.Hour}
	sessions := session.New(limits, session.NewRandomKey(), store, func(context.Context, string) (session.Tokens, error) {
		asked <- struct{}{}
		<-answer
		return session.Tokens{Bearer: "new"}, nil
	}, slog.New(slog.DiscardHandler))
	start := func(expires time.Time) string {
		id, _, err := sessions.CreateSession(t.Context(), session.User{}, session.Tokens{Bearer: "old", Refresh: "r", Expires: expires})
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	a, b := start(time.Now().Add(30*time.Second)), start(time.Now().Add(time.Hour))
	var waiting sync.WaitGroup
	for range 3 {
		waiting.Go(func() {
			if got, err := sessions.GetAndRecordUse(t.Context(), a); err != nil || got.Tokens.Bearer != "new" {
				t.Errorf("the session that waits: %q, %v", got.Tokens.Bearer, err)
			}
		})
	}
	<-asked
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for range 20 { // the requests of the first session may be on their way to the database
		if _, err := sessions.GetAndRecordUse(ctx, b); err != nil {
			t.Errorf("the other session: %v", err)
			break
		}
	}
	close(answer)
	waiting.Wait()
	if n := len(asked); n != 0 {
		t.Errorf("the issuer was asked %d times more", n)
	}
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
