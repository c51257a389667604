package pgstore_test

import (
	"log/slog"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi/pgstore"
	"github.com/fleetloop/fleetloop/internal/postgres"
	"github.com/fleetloop/fleetloop/internal/postgres/pgserver"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// TestACrashTakesNumbersBack checks that a follower misses nothing after a crash. A crashed server
// forgets the last rolled-back transactions and reuses their numbers, even if a follower has passed
// them.
func TestACrashTakesNumbersBack(t *testing.T) {
	url := ownServer(t)
	d := &database{pgstore.New(pgtest.Open(t, url)), url, connectTo(t, url)}
	d.state(t, v1.KindCluster)
	r := newRecord("a", v1.KindCluster, "one")
	insert(t, d.Store, r)
	var pid int
	if err := d.conn.QueryRow(t.Context(), "select pg_backend_pid()").Scan(&pid); err != nil {
		t.Fatal(err)
	}
	undone := connectTo(t, d.url)
	const lost = 20
	for range lost {
		for _, sql := range []string{"begin", "select pg_current_xact_id()", "rollback"} {
			if _, err := undone.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
		}
	}
	f := d.follower(t, v1.KindCluster, all())
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	d.crashed(t, undone)
	touch(t, d.Store, r)
	other := newRecord("a", v1.KindCluster, "other")
	insert(t, d.Store, other)
	for range 2 * lost { // until the numbers exceed the previous ones
		touch(t, d.Store, other)
	}
	f.want(t, d.Store, "it took the number of one that was undone", "+"+r.ID, "+"+other.ID)
}

// ownServer starts a server for one test, which may crash it, and returns the URL of its migrated
// database.
func ownServer(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fleetloop-pgstore-") //nolint:usetesting // TempDir's is closed to other users
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	log := slog.New(slog.DiscardHandler)
	server, err := pgserver.Start(t.Context(), pgserver.Config{Dir: dir}, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := postgres.MigrateSchema(t.Context(), postgres.Config{URL: settings.Secret(server.DatabaseURL())}, log); err != nil {
		t.Fatal(err)
	}
	return server.DatabaseURL()
}

// crashed waits until the server works again. The end of another process's connection shows that
// the crash has begun.
func (d *database) crashed(t *testing.T, other *pgx.Conn) {
	t.Helper()
	for other.Ping(t.Context()) == nil {
		pause(t)
	}
	for {
		conn, err := pgx.Connect(t.Context(), d.url)
		if err == nil {
			_ = conn.Close(t.Context())
			return
		}
		pause(t)
	}
}

func pause(t *testing.T) {
	t.Helper()
	timer := time.NewTimer(20 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
		t.Fatal("the server does not come back")
	}
}
