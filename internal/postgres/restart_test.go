package postgres_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fleetloop/fleetloop/internal/postgres"
	"github.com/fleetloop/fleetloop/internal/postgres/pgserver"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// newServer returns a server that the test may stop and start.
func newServer(t *testing.T) (*pgserver.Server, string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "postgres-restart-") //nolint:usetesting // t.TempDir is closed to the user that a root's server runs as
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return startServer(t, dir, 0), dir
}

func startServer(t *testing.T, dir string, port int) *pgserver.Server {
	t.Helper()
	s, err := pgserver.Start(t.Context(), pgserver.Config{
		Dir: dir, Port: port, Settings: map[string]string{"fsync": "off"},
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := postgres.MigrateSchema(t.Context(), owner(s.DatabaseURL()), slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	return s
}

func newPool(t *testing.T, url string) *postgres.Pool {
	t.Helper()
	p, err := postgres.New(postgres.Config{URL: settings.Secret(url), Role: postgres.RoleFleetAPI}, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// runPool runs the pool until the test ends.
func runPool(t *testing.T, p *postgres.Pool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(30 * time.Second)
	defer deadline.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}

func TestARestartUnderLoad(t *testing.T) {
	server, dir := newServer(t)
	p := newPool(t, server.DatabaseURL())
	runPool(t, p)
	await(t, "ready at first", func() bool { return p.Ready() == nil })

	var wg sync.WaitGroup
	var stop atomic.Bool
	var served, failed atomic.Int64
	scope := postgres.Scope{Tenant: "t"}
	load := func(call func(context.Context) error) {
		wg.Go(func() {
			for !stop.Load() {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				err := call(ctx)
				cancel()
				switch {
				case err == nil:
					served.Add(1)
				case errors.Is(err, postgres.ErrUnavailable):
					failed.Add(1)
				default:
					t.Errorf("neither served nor told why: %v", err)
					return
				}
			}
		})
	}
	for range 4 {
		load(func(ctx context.Context) error {
			return p.RunBatch(ctx, scope, func(b *pgx.Batch) {
				b.Queue("select count(*) from tenant.resources").QueryRow(func(row pgx.Row) error { return row.Scan(new(int)) })
			})
		})
		load(func(ctx context.Context) error {
			return p.RunInTx(ctx, scope, func(ctx context.Context, tx postgres.Tx) error {
				_, err := tx.Exec(ctx, "update tenant.resources set phase = 'Ready'")
				return err
			})
		})
	}
	await(t, "load", func() bool { return served.Load() > 200 })
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	await(t, "not ready, and why", func() bool { return p.Ready() != nil })
	if err := p.Ready(); !strings.Contains(err.Error(), "database unavailable") {
		t.Errorf("ready says %v", err)
	}
	await(t, "calls that fail", func() bool { return failed.Load() > 0 })

	startServer(t, dir, server.LoopbackPort())
	before := served.Load()
	await(t, "calls that are served again", func() bool { return served.Load() > before+200 })
	await(t, "ready again", func() bool { return p.Ready() == nil })
	stop.Store(true)
	wg.Wait()
	t.Logf("%d served, %d failed", served.Load(), failed.Load())
}

// TestARestartBetweenCalls checks that a restart between calls goes unnoticed: dead connections are
// replaced.
func TestARestartBetweenCalls(t *testing.T) {
	server, dir := newServer(t)
	p := newPool(t, server.DatabaseURL())
	calls := map[string]func() error{
		"Read": func() error {
			return p.RunBatch(t.Context(), postgres.Scope{}, func(b *pgx.Batch) { b.Queue("select 1") })
		},
		"ReadSnapshot": func() error {
			return p.RunSnapshotBatch(t.Context(), postgres.Scope{}, func(b *pgx.Batch) { b.Queue("select 1") })
		},
		"InTx": func() error {
			return p.RunInTx(t.Context(), postgres.Scope{}, func(ctx context.Context, tx postgres.Tx) error {
				_, err := tx.Exec(ctx, "select 1")
				return err
			})
		},
	}
	for name, call := range calls {
		t.Run(name, func(tt *testing.T) {
			var wg sync.WaitGroup // fill the pool
			for range 8 {
				wg.Go(func() {
					if err := call(); err != nil {
						tt.Error(err)
					}
				})
			}
			wg.Wait()
			if err := server.Close(); err != nil {
				tt.Fatal(err)
			}
			server = startServer(t, dir, server.LoopbackPort())
			for range 8 {
				if err := call(); err != nil {
					tt.Errorf("after the restart: %v", err)
				}
			}
		})
	}
}

func TestAServerThatTakesNoWritesIsNotUsed(t *testing.T) {
	server, _ := newServer(t)
	p := newPool(t, server.DatabaseURL())
	runPool(t, p)
	await(t, "ready", func() bool { return p.Ready() == nil })
	conn := connect(t, server.DatabaseURL())
	// As a primary that became a standby: connections stay, writes fail.
	set := func(value string) {
		run(t, conn, "alter system set default_transaction_read_only = "+value)
		run(t, conn, "select pg_reload_conf()")
	}
	set("on")
	await(t, "not ready", func() bool { return p.Ready() != nil })
	if err := p.Ready(); !strings.Contains(err.Error(), "read-only") && !strings.Contains(err.Error(), "read only") {
		t.Errorf("ready says %v", err)
	}
	write := func() error {
		return p.RunInTx(t.Context(), postgres.Scope{Tenant: "t"}, func(ctx context.Context, tx postgres.Tx) error {
			_, err := tx.Exec(ctx, "delete from tenant.resources")
			return err
		})
	}
	if err := write(); !errors.Is(err, postgres.ErrUnavailable) {
		t.Errorf("a write says %v", err)
	}
	run(t, conn, "set default_transaction_read_only = off")
	set("off")
	await(t, "ready again", func() bool { return p.Ready() == nil })
	await(t, "writes again", func() bool { return write() == nil })
}

func TestADatabaseThatIsAway(t *testing.T) {
	server, _ := newServer(t)
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	p := newPool(t, server.DatabaseURL())
	runPool(t, p)
	err := p.RunBatch(t.Context(), postgres.Scope{}, func(b *pgx.Batch) { b.Queue("select 1") })
	if !errors.Is(err, postgres.ErrUnavailable) {
		t.Errorf("read says %v", err)
	}
	await(t, "ready says why", func() bool {
		err := p.Ready()
		return err != nil && errors.Is(err, syscall.ECONNREFUSED)
	})
	if err := postgres.MigrateSchema(t.Context(), owner(server.DatabaseURL()), slog.New(slog.DiscardHandler)); !errors.Is(err, postgres.ErrUnavailable) {
		t.Errorf("migrate says %v", err)
	}
}
