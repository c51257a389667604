package pgstore_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi/pgstore"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
)

// TestACrashTakesNumbersBack: a server that crashes forgets the transactions
// that were undone last, and gives their numbers to others. A follower who was
// told that they are settled is told of those, too.
func TestACrashTakesNumbersBack(t *testing.T) {
	url := pgtest.URL(t)
	if _, err := connectTo(t, url).Exec(t.Context(), "do $$ begin execute format('alter database %I set synchronous_commit = on', current_database()); end $$"); err != nil {
		t.Fatal(err)
	}
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
	d.crashed(t)
	touch(t, d.Store, r)
	other := newRecord("a", v1.KindCluster, "other")
	insert(t, d.Store, other)
	for range 2 * lost { // until the numbers are beyond those of before
		touch(t, d.Store, other)
	}
	f.want(t, d.Store, "it took the number of one that was undone", "+"+r.ID, "+"+other.ID)
}

// crashed waits until the server works again.
func (d *database) crashed(t *testing.T) {
	t.Helper()
	for d.conn.Ping(t.Context()) == nil {
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
