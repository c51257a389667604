package clusterworker

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fleetloop/fleetloop/internal/postgres"
	"github.com/fleetloop/fleetloop/internal/postgres/pgserver"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// wantAgreementAlone is wantAgreement without anybody on call.
func (e *editor) wantAgreementAlone() {
	e.Helper()
	e.wantAgreementWithin(patience)
}

// TestGardenerAway: while Gardener does not answer nothing is held against any
// cluster, and when it is back all go on by themselves.
func TestGardenerAway(t *testing.T) {
	t.Parallel()
	e := newEditor(t)
	for range 2 {
		e.newWorker(patient()).begin()
	}
	changed := e.made(1)
	e.wantAgreement()
	e.way.away()
	e.changed(changed)
	for range 20 {
		e.made(1)
	}
	for _, w := range e.workers {
		w.now().wantLine(t, "gardener unavailable, sync paused")
	}
	const probes = 4 // that failed, a second apart
	began := time.Now()
	e.await("some time without Gardener", func() error {
		if d := time.Since(began); d < probes*time.Second {
			return fmt.Errorf("%s passed", d)
		}
		if n := ask[int](e.fixture, `select max(sync_attempts) from tenant.cluster_sync`); n != 0 {
			t.Fatalf("%d attempts are held against a cluster", n)
		}
		return nil
	})
	for _, w := range e.workers {
		w.now().wantHealth(t, "/healthz", http.StatusOK)
		w.now().wantHealth(t, "/readyz", http.StatusOK, "[+]cluster-worker ok, with a warning: gardener unavailable since")
	}
	if n := ask[int](e.fixture, `select count(*)::int from tenant.cluster_worker_outages where until > now()`); n != len(e.workers) {
		t.Errorf("%d of %d workers have noted the outage", n, len(e.workers))
	}
	e.way.clear()
	e.wantAgreementAlone()
	for _, w := range e.workers {
		if len(w.processes()) != 1 || w.now().running() != nil {
			t.Errorf("%s did not outlive it", w.name)
		}
	}
	e.wantNoBreach()
}

// TestSlowGarden: a garden that answers every request late is not down. Edits and a
// deletion, which is three requests, go on as if nothing were wrong.
func TestSlowGarden(t *testing.T) {
	t.Parallel()
	e := newEditor(t)
	w := e.newWorker(map[string]string{"CLUSTER_WORKER_LEASE_DURATION": "60s", "CLUSTER_WORKER_CALL_TIMEOUT": "15s"})
	w.begin()
	for range 10 {
		e.made(1)
	}
	e.wantAgreementAlone()
	e.way.faults(func(q *request) fault {
		if q.watch {
			return fault{}
		}
		return fault{kind: slow, delay: 6 * time.Second}
	})
	for _, c := range e.clusters {
		e.changed(c)
	}
	e.wantAgreementAlone()
	if err := e.remove(t.Context(), e.clusters[0]); err != nil {
		t.Fatal(err)
	}
	e.await("the deletion is sent", func() error {
		x := e.row(e.clusters[0])
		return x.settled()
	})
	for _, c := range e.clusters[1:] {
		e.changed(c)
	}
	e.made(1)
	e.wantAgreementAlone()
	if n := len(w.now().find("gardener unavailable, sync paused")); n != 0 {
		t.Errorf("the worker took it for down %d times", n)
	}
	if n := ask[int](e.fixture, `select max(sync_attempts) from tenant.cluster_sync`); n != 0 {
		t.Errorf("%d attempts are held against a cluster", n)
	}
	e.wantNoBreach()
}

// TestPostgresRestart: workers live on without their database, say that they can
// not work, and go on when it is back, with what was changed meanwhile as well.
func TestPostgresRestart(t *testing.T) {
	t.Parallel()
	cfg := serverConfig(t)
	server := newPostgres(t, cfg)
	cfg.Port = server.LoopbackPort()
	if err := postgres.MigrateSchema(t.Context(), postgres.Config{URL: settings.Secret(server.DatabaseURL())}, quiet()); err != nil {
		t.Fatal(err)
	}
	e := &editor{fixture: newFixtureOn(t, server.DatabaseURL(), 1)}
	e.gardenlet(50 * time.Millisecond)
	e.witness()
	for range 2 {
		e.newWorker(patient()).begin()
	}
	open := make(chan struct{})
	came := e.way.once(writes, fault{kind: slow, until: open})
	for range 10 {
		e.made(1)
	}
	e.wantCame(came)
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	close(open) // so that there is a result that can not be written
	for _, w := range e.workers {
		w.now().wantHealth(t, "/readyz", http.StatusServiceUnavailable, "[-]")
		w.now().wantHealth(t, "/healthz", http.StatusOK)
	}
	newPostgres(t, cfg)
	e.changed(e.clusters[0])
	e.made(1)
	for _, w := range e.workers {
		w.now().wantHealth(t, "/readyz", http.StatusOK)
	}
	e.wantAgreementAlone()
	e.wantNoBreach()
}

// serverConfig is a server that forgets nothing that it confirmed when it ends
// without warning, as far as its machine does not.
func serverConfig(t *testing.T) pgserver.Config {
	t.Helper()
	dir, err := os.MkdirTemp("", "fleetloop-clusterworker-pg-") //nolint:usetesting // TempDir's is closed to the server's own user
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return pgserver.Config{Dir: dir, Throwaway: true, Settings: map[string]string{"synchronous_commit": "on"}}
}

func newPostgres(t *testing.T, cfg pgserver.Config) *pgserver.Server {
	t.Helper()
	server, err := pgserver.Start(t.Context(), cfg, quiet())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return server
}

// TestListenerEnds: a worker whose listener is cut off says so and asks the
// database instead; what is changed meanwhile is not missed.
func TestListenerEnds(t *testing.T) {
	t.Parallel()
	e := newEditor(t)
	env := patient()
	env["POLL_INTERVAL"] = "1h" // so that it is no poll that finds what was missed
	w := e.newWorker(env)
	w.begin()
	c := e.made(1)
	e.wantAgreement()

	// Nobody can connect any more, so that the listener stays away for as long as
	// we want. The owner's connection is there already.
	database := ask[string](e.fixture, `select current_database()`)
	name := pgx.Identifier{database}.Sanitize()
	server, err := pgx.Connect(t.Context(), urlOf(t, e.url, "postgres"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close(context.WithoutCancel(t.Context())) })
	allow := func(yes bool) {
		t.Helper()
		if _, err := server.Exec(t.Context(), fmt.Sprintf("alter database %s with allow_connections %t", name, yes)); err != nil {
			t.Fatal(err)
		}
	}
	allow(false)
	e.exec(`select pg_terminate_backend(pid) from pg_stat_activity where datname = $1 and application_name = 'cluster-worker' and query ~ '^(listen|notify)'`, database)
	w.now().wantHealth(t, "/readyz", http.StatusServiceUnavailable, "[-]cluster-worker listener failed")
	w.now().wantHealth(t, "/healthz", http.StatusOK)
	e.changed(c)
	e.await("the change without a listener", func() error {
		x := e.row(c)
		return x.settled()
	})
	allow(true)
	w.now().wantHealth(t, "/readyz", http.StatusOK)
	e.changed(c)
	e.wantAgreementAlone()
	e.wantNoBreach()
}
