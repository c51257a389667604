package clusterworkerapp_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fleetloop/fleetloop/internal/app/clusterworkerapp"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
	"github.com/fleetloop/fleetloop/internal/processtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func start(t *testing.T, env map[string]string, args ...string) *processtest.RunningCommand {
	t.Helper()
	return processtest.StartCommandInGoroutine(t, clusterworkerapp.NewCommand, env, args...)
}

func connectDB(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

// addCluster adds a cluster and gives its id.
func addCluster(t *testing.T, conn *pgx.Conn, name, spec string) string {
	t.Helper()
	id := uuid.Must(uuid.NewV7()).String()
	_, err := conn.Exec(t.Context(), `
		insert into tenant.resources (id, kind, tenant, name, spec, generation,
			created_time, updated_time, phase, last_updated_time, last_transition_time)
		values ($1, 'Cluster', 't', $2, $3, 1, now(), now(), 'Pending', now(), now())`, id, name, spec)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// wantRow waits until a condition holds for a cluster's sync.
func wantRow(t *testing.T, conn *pgx.Conn, id, condition string) {
	t.Helper()
	processtest.Eventually(t, func() error {
		var holds *bool
		var row string
		err := conn.QueryRow(t.Context(), "select "+condition+", s::text from tenant.cluster_sync s where cluster_id = $1", id).Scan(&holds, &row)
		if err != nil {
			return err
		}
		if holds == nil || !*holds {
			return fmt.Errorf("%s does not hold for %s", condition, row)
		}
		return nil
	})
}

// TestRuns verifies the life of a worker. It waits for the database schema, logs its address, syncs
// existing and new clusters, and ends on request.
func TestRuns(t *testing.T) {
	t.Parallel()
	url := pgtest.NewMigratedDatabaseURL(t)
	conn := connectDB(t, url)
	before := addCluster(t, conn, "before", `{}`)
	c := start(t, map[string]string{"DATABASE_URL": url, "GARDENER_MOCK_CREATE_TIME": "50ms", "POLL_INTERVAL": "10m"})
	health := c.WaitForURLInLog(t, "metrics and health")
	wantRow(t, conn, before, "synced is not null and shoot_status = 'ready'")
	processtest.EventuallyStatus(t, health+"/readyz", http.StatusOK)
	processtest.EventuallyStatus(t, health+"/healthz", http.StatusOK)

	// Long before the interval is over.
	later := addCluster(t, conn, "later", `{}`)
	wantRow(t, conn, later, "synced is not null and shoot_status = 'ready' and sync_attempts = 0 and sync_error is null and sync_last_attempt is not null")
	broken := addCluster(t, conn, "broken", `{"region": 1}`)
	wantRow(t, conn, broken, "synced is null and sync_attempts = 1 and error_class = 'invalid_spec' and sync_error like '%spec.region%' and due_at - sync_last_attempt > '50s'")

	if body := processtest.EventuallyStatus(t, health+"/metrics", http.StatusOK); !strings.Contains(body, "fleetloop_clusterworker_") {
		t.Error("/metrics lacks those of the worker")
	}
	if !strings.Contains(c.Stderr.String(), "no real clusters are created") {
		t.Error("it does not warn that the garden is in memory")
	}
	c.Cancel()
	if err := c.WaitUntilEnded(t); err != nil {
		t.Errorf("told to stop, it ended with %v", err)
	}
}

// TestRefusesVersionsThatTheCloudProfileLacks verifies that a cluster with an unknown Kubernetes
// version is not synced and shows the reason. It is synced once its version is valid.
func TestRefusesVersionsThatTheCloudProfileLacks(t *testing.T) {
	t.Parallel()
	url := pgtest.NewMigratedDatabaseURL(t)
	conn := connectDB(t, url)
	bad := addCluster(t, conn, "bad", `{"version": "9.99"}`)
	start(t, map[string]string{"DATABASE_URL": url, "GARDENER_MOCK_CREATE_TIME": "1ms", "POLL_INTERVAL": "10m"})
	wantRow(t, conn, bad, "synced is null and sync_attempts = 1 and error_class = 'invalid_shoot' and sync_error like '%spec.kubernetes.version%9.99%1.34.3%' and shoot_uid is null")
	if _, err := conn.Exec(t.Context(), `update tenant.clusters set spec = '{"version": "1.34"}' where id = $1`, bad); err != nil {
		t.Fatal(err)
	}
	wantRow(t, conn, bad, "synced is not null and sync_error is null")
}

// TestStartsWithoutItsDatabase holds that a worker whose database is away starts, lives, says so, and
// begins when it has come.
func TestStartsWithoutItsDatabase(t *testing.T) {
	t.Parallel()
	c := start(t, map[string]string{"DATABASE_URL": "postgres://nobody@127.0.0.1:1/none"})
	health := c.WaitForURLInLog(t, "metrics and health")
	body := processtest.EventuallyStatus(t, health+"/readyz?verbose", http.StatusServiceUnavailable)
	if !strings.Contains(body, "listener") {
		t.Errorf("/readyz does not say that nobody listens: %s", body)
	}
	processtest.EventuallyStatus(t, health+"/healthz", http.StatusOK)
	c.Cancel()
	if err := c.WaitUntilEnded(t); err != nil {
		t.Errorf("told to stop, it ended with %v", err)
	}
}

// TestPollsWithoutListening verifies that a worker without notifications finds due clusters.
func TestPollsWithoutListening(t *testing.T) {
	t.Parallel()
	url := pgtest.NewMigratedDatabaseURL(t)
	conn := connectDB(t, url)
	c := start(t, map[string]string{"DATABASE_URL": url, "GARDENER_MOCK_CREATE_TIME": "1ms"}, "--listen=off")
	health := c.WaitForURLInLog(t, "metrics and health")
	processtest.EventuallyStatus(t, health+"/readyz", http.StatusOK)
	id := addCluster(t, conn, "polled", `{}`)
	wantRow(t, conn, id, "synced is not null")
	if body := processtest.EventuallyStatus(t, health+"/readyz?verbose", http.StatusOK); strings.Contains(body, "listener") {
		t.Errorf("/readyz speaks of a listener: %s", body)
	}
}

// TestReadyFollowsTheListener holds that a worker whose notifications are cut off
// says so, connects again, and misses nothing.
func TestReadyFollowsTheListener(t *testing.T) {
	t.Parallel()
	url := pgtest.NewMigratedDatabaseURL(t)
	conn := connectDB(t, url)
	c := start(t, map[string]string{"DATABASE_URL": url, "GARDENER_MOCK_CREATE_TIME": "1ms", "POLL_INTERVAL": "10m"})
	health := c.WaitForURLInLog(t, "metrics and health")
	processtest.EventuallyStatus(t, health+"/readyz", http.StatusOK)
	said := strings.Count(c.Stderr.String(), "LISTEN connection established")
	const kill = `select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()`
	if _, err := conn.Exec(t.Context(), kill); err != nil {
		t.Fatal(err)
	}
	id := addCluster(t, conn, "meanwhile", `{}`)
	wantRow(t, conn, id, "synced is not null")
	processtest.Eventually(t, func() error {
		if n := strings.Count(c.Stderr.String(), "LISTEN connection established"); n <= said {
			return fmt.Errorf("it said %d times that it listens", n)
		}
		return nil
	})
	processtest.EventuallyStatus(t, health+"/readyz", http.StatusOK)
}

// TestStopIsBounded holds that a call that hangs holds up the end no longer than
// the time to stop, and that the cluster stays to be synced, at once.
func TestStopIsBounded(t *testing.T) {
	t.Parallel()
	const latency = 10 * time.Minute
	url := pgtest.NewMigratedDatabaseURL(t)
	conn := connectDB(t, url)
	id := addCluster(t, conn, "hangs", `{}`)
	c := start(t, map[string]string{"DATABASE_URL": url, "GARDENER_MOCK_LATENCY": latency.String(), "SHUTDOWN_TIMEOUT": "2s"})
	wantRow(t, conn, id, "claim_token is not null")
	began := time.Now()
	c.Cancel()
	if err := c.WaitUntilEnded(t); err != nil {
		t.Errorf("told to stop, it ended with %v", err)
	}
	if took := time.Since(began); took >= latency {
		t.Errorf("it took %s to stop: it waited for the call", took)
	}
	wantRow(t, conn, id, "synced is null and claim_token is null and sync_attempts = 0 and due_at <= now()")
}

func TestRefuses(t *testing.T) {
	t.Parallel()
	noFile := filepath.Join(t.TempDir(), "none")
	cases := map[string]struct {
		reason string
		env    map[string]string
		want   []string
	}{
		"NoDatabase":     {"it says what to set", map[string]string{"DATABASE_URL": ""}, []string{"DATABASE_URL is not set"}},
		"Mode":           {"a mode that there is not", map[string]string{"GARDENER_MODE": "foo"}, []string{"GARDENER_MODE", "mock", "real"}},
		"NoKubeconfig":   {"real needs one", map[string]string{"GARDENER_MODE": "real"}, []string{"GARDENER_KUBECONFIG is not set"}},
		"BadKubeconfig":  {"one that is not there", map[string]string{"GARDENER_MODE": "real", "GARDENER_KUBECONFIG": noFile}, []string{noFile}},
		"Duration":       {"the variable is named", map[string]string{"POLL_INTERVAL": "abc"}, []string{"POLL_INTERVAL", "abc"}},
		"Number":         {"the variable is named", map[string]string{"STATUS_POLL_BATCH_SIZE": "many"}, []string{"STATUS_POLL_BATCH_SIZE", "many"}},
		"NameTooLong":    {"a DNS label has 63", map[string]string{"GARDENER_MAX_SHOOT_NAME_LEN": "100"}, []string{"GARDENER_MAX_SHOOT_NAME_LEN"}},
		"NameTooShort":   {"there must be some name", map[string]string{"GARDENER_MAX_SHOOT_NAME_LEN": "0"}, []string{"GARDENER_MAX_SHOOT_NAME_LEN"}},
		"Port":           {"a port that there is not", map[string]string{"HEALTH_PORT": "70000"}, []string{"HEALTH_PORT"}},
		"ProviderConfig": {"it is JSON", map[string]string{"GARDENER_INFRASTRUCTURE_CONFIG": "{"}, []string{"infrastructure config"}},
		"Lease":          {"it would be over at once", map[string]string{"CLUSTER_WORKER_LEASE_DURATION": "0s"}, []string{"CLUSTER_WORKER_LEASE_DURATION"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := map[string]string{"DATABASE_URL": "postgres://nobody@127.0.0.1:1/none"} // what is wrong is found without it
			maps.Copy(env, tc.env)
			err := start(t, env).WaitUntilEnded(t)
			if err == nil {
				t.Fatalf("%s: it started", tc.reason)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %v lacks %q", tc.reason, err, want)
				}
			}
		})
	}
}

// TestDefaults holds the specified defaults.
func TestDefaults(t *testing.T) {
	t.Parallel()
	c := start(t, map[string]string{"METRICS_BIND_ADDRESS": "", "HEALTH_PROBE_BIND_ADDRESS": ""}, "config", "show")
	if err := c.WaitUntilEnded(t); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"gardener_mode: mock", "namespace: garden-fundament", "provider_type: local", "cloud_profile: local", "gardener_max_shoot_name_len: 21",
		"level: info", "poll_interval: 30s", "reconcile_interval: 5m0s", "status_poll_interval: 30s", "status_poll_batch_size: 50",
		`health_probe_bind_address: :8097`, "stop_timeout: 30s", "role: cluster_worker",
	} {
		if !strings.Contains(c.Stdout.String(), want) {
			t.Errorf("config show lacks %q:\n%s", want, c.Stdout.String())
		}
	}
}

// TestHealthPort verifies that HEALTH_PORT changes the address of health and metrics.
func TestHealthPort(t *testing.T) {
	t.Parallel()
	c := start(t, map[string]string{"METRICS_BIND_ADDRESS": "", "HEALTH_PROBE_BIND_ADDRESS": "", "HEALTH_PORT": "0", "DATABASE_URL": "postgres://nobody@127.0.0.1:1/none"},
		"--health-probe-bind-address=127.0.0.1:0", "--metrics-bind-address=127.0.0.1:0")
	processtest.EventuallyStatus(t, c.WaitForURLInLog(t, "metrics and health")+"/healthz", http.StatusOK)
	cfg := clusterworkerapp.OverriddenDefaults()
	cfg.HealthPort = 9000
	cfg.Move()
	if cfg.HealthAddr != ":9000" || cfg.MetricsAddr != ":9000" {
		t.Errorf("HEALTH_PORT=9000 serves at %s and %s", cfg.HealthAddr, cfg.MetricsAddr)
	}
}

// TestPreflight holds that clusters are checked, and that nothing is changed by it.
func TestPreflight(t *testing.T) {
	t.Parallel()
	url := pgtest.NewMigratedDatabaseURL(t)
	conn := connectDB(t, url)
	good, bad := addCluster(t, conn, "good", `{"version": "1.34"}`), addCluster(t, conn, "bad", `{"version": 1.34}`)
	env := map[string]string{"DATABASE_URL": url}

	c := start(t, env, "preflight")
	if err := c.WaitUntilEnded(t); err == nil {
		t.Error("a cluster would be refused, and it ended well")
	}
	for _, want := range []string{"error   cluster bad (" + bad + "): ", "spec.version", "clusters checked: 2, would be rejected: 1"} {
		if !strings.Contains(c.Stdout.String(), want) {
			t.Errorf("it lacks %q:\n%s", want, c.Stdout.String())
		}
	}
	c = start(t, env, "preflight", "good")
	if err := c.WaitUntilEnded(t); err != nil || !strings.Contains(c.Stdout.String(), "clusters checked: 1, would be rejected: 0") {
		t.Errorf("the good one alone: %v:\n%s", err, c.Stdout.String())
	}
	c = start(t, env, "preflight", "nobody")
	if err := c.WaitUntilEnded(t); err == nil || !strings.Contains(c.Stdout.String(), "cluster nobody: not found") {
		t.Errorf("one that is not there: %v:\n%s", err, c.Stdout.String())
	}
	if strings.Contains(c.Stdout.String(), "missing cluster") {
		t.Errorf("a Shoot that never was is not missing:\n%s", c.Stdout.String())
	}
	gone := addCluster(t, conn, "gone", `{"version": "1.34"}`)
	if _, err := conn.Exec(t.Context(), "update tenant.cluster_sync set synced_generation = 1, shoot_name = 'gone-1' where cluster_id = $1", gone); err != nil {
		t.Fatal(err)
	}
	c = start(t, env, "preflight", "gone")
	if err := c.WaitUntilEnded(t); err != nil || !strings.Contains(c.Stdout.String(), `missing cluster gone (`+gone+`): Shoot "gone-1"`) {
		t.Errorf("one whose Shoot is gone: %v:\n%s", err, c.Stdout.String())
	}
	for _, id := range []string{good, bad} {
		wantRow(t, conn, id, "synced is null and claim_token is null and shoot_name is null and sync_last_attempt is null")
	}
}

// TestConfigFile holds that what the environment can say a file can say, too.
func TestConfigFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "worker.yaml")
	if err := os.WriteFile(file, []byte("max_concurrent_syncs: 7\ngardener: {namespace: garden-other}\nshoots: {region: eu}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := start(t, nil, "config", "show", "--config", file)
	if err := c.WaitUntilEnded(t); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"max_concurrent_syncs: 7", "namespace: garden-other", "region: eu"} {
		if !strings.Contains(c.Stdout.String(), want) {
			t.Errorf("config show lacks %q:\n%s", want, c.Stdout.String())
		}
	}
	// There is one namespace, and a second place to say it would be passed over.
	if err := os.WriteFile(file, []byte("shoots: {namespace: garden-other}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := start(t, nil, "config", "show", "--config", file).WaitUntilEnded(t); err == nil || !strings.Contains(err.Error(), "shoots.namespace") {
		t.Errorf("a namespace in the wrong place: %v", err)
	}
}

// TestAnotherGarden verifies that a worker with another garden than the one with the Shoots does
// nothing and logs the reason. A setting can confirm the change of garden.
func TestAnotherGarden(t *testing.T) {
	t.Parallel()
	url := pgtest.NewMigratedDatabaseURL(t)
	conn := connectDB(t, url)
	if _, err := conn.Exec(t.Context(), "update tenant.installation set garden = 'garden.example/garden-prod'"); err != nil {
		t.Fatal(err)
	}
	id := addCluster(t, conn, "precious", `{}`)
	c := start(t, map[string]string{"DATABASE_URL": url})
	health := c.WaitForURLInLog(t, "metrics and health")
	processtest.Eventually(t, func() error {
		status, body := processtest.SendRequest(t, http.MethodGet, health+"/readyz?verbose", "")
		if status != http.StatusServiceUnavailable || !strings.Contains(body, "garden.example/garden-prod") || !strings.Contains(body, "CLUSTER_WORKER_RECREATE_SHOOTS") {
			return fmt.Errorf("/readyz gives %d %s", status, body)
		}
		return nil
	})
	wantRow(t, conn, id, "synced is null and sync_last_attempt is null and claim_token is null")
	if err := start(t, map[string]string{"DATABASE_URL": url}, "preflight").WaitUntilEnded(t); err == nil || !strings.Contains(err.Error(), "garden.example/garden-prod") {
		t.Errorf("preflight: %v", err)
	}
	c.Cancel()
	if err := c.WaitUntilEnded(t); err != nil {
		t.Error(err)
	}
	start(t, map[string]string{"DATABASE_URL": url, "GARDENER_MOCK_CREATE_TIME": "1ms", "CLUSTER_WORKER_RECREATE_SHOOTS": "true"})
	wantRow(t, conn, id, "synced is not null")
}
