package pgstore_test

import (
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/clusterworker/pgstore"
	"github.com/fleetloop/fleetloop/internal/postgres"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// newPooler starts a PgBouncer that assigns each transaction to one of a few
// connections, and returns a URL to connect through it with a login.
func newPooler(t *testing.T, databaseURL, login string) string {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		if program, err = exec.LookPath("/usr/sbin/pgbouncer"); err != nil {
			t.Fatal("pgbouncer is not installed: run make setup, or apt-get install pgbouncer")
		}
	}
	to, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "pooler-") //nolint:usetesting // the folder of a socket has to have a short name, and be open to the pooler's user
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	config := fmt.Sprintf(`[databases]
* = host=%s port=%s
[pgbouncer]
pool_mode = transaction
default_pool_size = 3
listen_port = 6432
unix_socket_dir = %s
auth_type = trust
auth_file = %s/users
`, to.Hostname(), to.Port(), dir, dir)
	for name, text := range map[string]string{"config": config, "users": fmt.Sprintf("%q \"\"\n", login)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), program, "-q", filepath.Join(dir, "config"))
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	if os.Getuid() == 0 { // it refuses to run as root
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: unprivileged(t, dir)}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	through := url.URL{Scheme: "postgres", User: url.User(login), Path: to.Path, RawQuery: url.Values{
		"host": {dir}, "port": {"6432"}, "default_query_exec_mode": {"exec"},
	}.Encode()}
	return through.String()
}

// unprivileged returns a user who may write to a folder.
func unprivileged(t *testing.T, dir string) *syscall.Credential {
	t.Helper()
	u, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	if err := os.Chown(dir, uid, gid); err != nil {
		t.Fatal(err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

// TestThroughAPooler covers that a worker that does not listen requires no dedicated
// connection, however the login gets its rights.
func TestThroughAPooler(t *testing.T) {
	cases := map[string]struct{ reason, login string }{
		"Inherits": {"the login has the rights of the role", `create role %[1]s login inherit; grant cluster_worker to %[1]s`},
		"Becomes":  {"the login becomes the role when it connects", `create role %[1]s login noinherit; grant cluster_worker to %[1]s; alter role %[1]s set role = 'cluster_worker'`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			login := "pooled_" + strings.ToLower(name)
			b.exec(fmt.Sprintf(tc.login, login))
			through := newPooler(t, b.url, login)
			open := func(databaseURL string) *postgres.Pool {
				pool, err := postgres.New(postgres.Config{URL: settings.Secret(databaseURL), Role: "cluster_worker"}, slog.New(slog.NewTextHandler(t.Output(), nil)))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(pool.Close)
				return pool
			}
			pool := open(through)
			b.await("the pooler answers", func() bool { return pool.CheckSchemaNotBehindOrAltered(t.Context()) == nil })
			workThroughAPooler(b, pool)

			// With prepared statements and session settings the connection is rejected,
			// rather than failing at random.
			direct := open(strings.Replace(through, "default_query_exec_mode=exec", "default_query_exec_mode=cache_statement", 1))
			if err := direct.CheckSchemaNotBehindOrAltered(t.Context()); err == nil || !strings.Contains(err.Error(), "unsupported startup parameter") {
				t.Errorf("as if it were the server itself: %v", err)
			}
		})
	}
}

func workThroughAPooler(b *bed, pool *postgres.Pool) {
	b.Helper()
	const n, workers = 60, 6
	store := pgstore.New(pool)
	b.exec(insertMany, n)
	b.pool(ask[string](b, `select id::text from tenant.clusters limit 1`), "pool")
	var wg sync.WaitGroup
	var synced atomic.Int64
	for i := range workers {
		wg.Go(func() {
			for synced.Load() < n {
				claims, err := store.ClaimRows(b.Context(), fmt.Sprint("worker-", i), room(4), lease)
				if err != nil {
					b.Error(err)
					return
				}
				var results []clusterworker.Result
				for _, c := range claims {
					taken, skipped, err := store.StoreNames(b.Context(), []clusterworker.ProposedName{{ClusterID: c.ClusterID, Token: c.Token, ShootName: c.Name}})
					if err != nil || len(taken)+len(skipped) != 0 {
						b.Error(taken, skipped, err)
						return
					}
					results = append(results, done(c))
				}
				if lost, err := store.WriteResults(b.Context(), results); err != nil || len(lost) != 0 {
					b.Error(lost, err)
					return
				}
				synced.Add(int64(len(results)))
			}
		})
	}
	wg.Wait()
	want(b, n, `select count(*)::int from tenant.cluster_sync where synced is not null and shoot_name is not null`)

	id := b.cluster("failing")
	claims, err := store.ClaimRows(b.Context(), "test", room(1), lease)
	if err != nil || len(claims) != 1 {
		b.Fatal(claims, err)
	}
	if _, err := store.WriteResults(b.Context(), []clusterworker.Result{failed(claims[0], `it's "{no}"`, true, time.Minute)}); err != nil {
		b.Fatal(err)
	}
	if r := b.row(id); r.SyncError != `it's "{no}"` || r.Attempts != 1 {
		b.Errorf("the row is %+v", r)
	}
	term, err := store.Observations.AcquireOrExtendTerm(b.Context(), "me", lease)
	if err != nil || !term.Held {
		b.Fatal(term, err)
	}
	rows, err := store.Observations.ListRows(b.Context(), "", 10)
	if err != nil || len(rows) != 10 {
		b.Fatal(rows, err)
	}
	saved, err := store.Observations.SaveStatus(b.Context(), term.Fence, []clusterworker.StatusChange{{ClusterID: rows[0].ClusterID, WasStatus: rows[0].Status, Status: "ready", Message: "well"}})
	if err != nil || len(saved) != 1 {
		b.Errorf("saved %v, %v", saved, err)
	}
	unchanged := []clusterworker.UnchangedStatus{{ClusterID: id, ShootUID: "uid"}}
	if _, err := store.Observations.RecordUnchanged(b.Context(), term.Fence, unchanged); err != nil {
		b.Error(err)
	}
	if err := store.RecordReports(b.Context(), []clusterworker.Reported{{ClusterID: id, Version: 1, Next: time.Hour}}); err != nil {
		b.Error(err)
	}
	if _, err := store.ListDueReports(b.Context(), 10); err != nil {
		b.Error(err)
	}
	if _, err := store.Observations.ListStalestRows(b.Context(), 10); err != nil {
		b.Error(err)
	}
	if _, err := store.CountClusters(b.Context()); err != nil {
		b.Error(err)
	}
	if _, err := store.GetInstallationID(b.Context()); err != nil {
		b.Error(err)
	}
	if err := store.Observations.ReleaseTerm(b.Context(), term.Fence); err != nil {
		b.Error(err)
	}
	// The settings of a transaction are gone in the next one on the same connection.
	err = pool.RunBatch(b.Context(), postgres.Scope{Tenant: "leak"}, func(batch *pgx.Batch) { batch.Queue("select 1") })
	if err != nil {
		b.Error(err)
	}
	for range 10 {
		var got string
		err := pool.RunBatch(b.Context(), postgres.Scope{}, func(batch *pgx.Batch) {
			batch.Queue("select current_setting('fleetloop.tenant') || current_setting('enable_bitmapscan')").QueryRow(func(row pgx.Row) error { return row.Scan(&got) })
		})
		if err != nil || got != "on" {
			b.Errorf("%q was left over, %v", got, err)
		}
	}
}

// TestAListenerThroughAPooler covers that a listener without notifications reports the
// cause and the remedy. A notification on its own connection would reach it.
func TestAListenerThroughAPooler(t *testing.T) {
	b := newBed(t)
	b.exec(`create role pooled_listener login inherit; grant cluster_worker to pooled_listener`)
	l := newListener(t, newPooler(t, b.url, "pooled_listener"))
	b.await("it says that it hears nothing", func() bool {
		return strings.Contains(l.Ready().Error(), "set CLUSTER_WORKER_LISTEN=off or connect to the database directly")
	})
	if !l.LastPingTime().IsZero() {
		t.Error("it heard itself")
	}
}
