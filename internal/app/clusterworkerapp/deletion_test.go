package clusterworkerapp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/app/apiapp"
	"github.com/fleetloop/fleetloop/internal/app/clusterworkerapp"
	"github.com/fleetloop/fleetloop/internal/app/process"
	"github.com/fleetloop/fleetloop/internal/gardener/memory"
	"github.com/fleetloop/fleetloop/internal/postgres"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
	"github.com/fleetloop/fleetloop/internal/processtest"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// fleetAPI is the part of the fleet API that the worker uses.
type fleetAPI struct {
	*testing.T
	base string
}

func startAPI(t *testing.T, url string) fleetAPI {
	t.Helper()
	c := processtest.StartCommandInGoroutine(t, apiapp.NewCommand, map[string]string{"DATABASE_URL": url})
	return fleetAPI{t, c.WaitForURLInLog(t, "fleet API") + v1.BasePath}
}

func (f fleetAPI) sendRequest(method, path, body string, want int) string {
	f.Helper()
	status, answer := processtest.SendRequest(f.T, method, f.base+path, body)
	if status != want {
		f.Fatalf("%s %s gives %d, want %d: %s", method, path, status, want, answer)
	}
	return answer
}

func (f fleetAPI) createCluster(name string) string {
	f.Helper()
	var c v1.Resource
	if err := json.Unmarshal([]byte(f.sendRequest(http.MethodPost, "/clusters", `{"name":"`+name+`","spec":{}}`, http.StatusCreated)), &c); err != nil {
		f.Fatal(err)
	}
	return c.ID
}

// finalizeCluster reports the cluster as finalized by each of the default adapters.
func (f fleetAPI) finalizeCluster(id string) {
	f.Helper()
	for _, adapter := range []string{"validation", "dns", "provisioning"} {
		f.sendRequest(http.MethodPut, "/clusters/"+id+"/statuses", `{"adapter":"`+adapter+`","observed_generation":2,"conditions":[
			{"type":"Available","status":"False"},{"type":"Applied","status":"False"},{"type":"Health","status":"True"},{"type":"Finalized","status":"True"}]}`,
			http.StatusCreated)
	}
}

// wantKept fails unless the cluster is there and says that it waits for the worker.
func (f fleetAPI) wantKept(id string) {
	f.Helper()
	body := f.sendRequest(http.MethodGet, "/clusters/"+id, "", http.StatusOK)
	var c v1.Resource
	if err := json.Unmarshal([]byte(body), &c); err != nil {
		f.Fatal(err)
	}
	said, explained := false, false
	for _, condition := range c.Status.Conditions {
		said = said || condition.Type == "Reconciled" && strings.Contains(condition.Message, "gardener")
		explained = explained || condition.Type == "GardenerSuccessful" && condition.Status == v1.ConditionFalse && strings.Contains(condition.Message, "The deletion of the Shoot is not confirmed")
	}
	if !said || !explained {
		f.Errorf("the body does not say that the deletion waits for gardener: %s", body)
	}
}

func (f fleetAPI) wantGone(id string) {
	f.Helper()
	processtest.Eventually(f.T, func() error {
		if status, body := processtest.SendRequest(f.T, http.MethodGet, f.base+"/clusters/"+id, ""); status != http.StatusNotFound {
			return fmt.Errorf("the cluster gives %d: %s", status, body)
		}
		return nil
	})
}

// wantRefused fails unless the API's role cannot remove the row by SQL.
func wantRefused(t *testing.T, conn *pgx.Conn, id string) {
	t.Helper()
	for _, role := range []string{"fleet_api", "fleet_api_all_tenants"} {
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, err = tx.Exec(t.Context(), "select set_config('role', $1, true), set_config('fleetloop.tenant', 'default', true)", role)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = tx.Exec(t.Context(), "delete from tenant.resources where id = $1", id); postgres.ViolatedConstraint(err) != "clusters_shoot_guard" {
			t.Errorf("%s removes the row of a cluster that has a Shoot: %v", role, err)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// startWorker runs a worker on a garden that outlives it. Only the settings of
// the specification are set: fleet API endpoint not set, no status is reported.
func startWorker(t *testing.T, url string, garden *memory.Garden) (stop func()) {
	t.Helper()
	cfg := clusterworkerapp.OverriddenDefaults()
	if _, err := settings.Load(&cfg, settings.Source{Env: func(name string) (string, bool) {
		value, ok := map[string]string{
			"DATABASE_URL": url, "METRICS_BIND_ADDRESS": "127.0.0.1:0", "HEALTH_PROBE_BIND_ADDRESS": "127.0.0.1:0",
		}[name]
		return value, ok
	}}); err != nil {
		t.Fatal(err)
	}
	p, err := process.New(t.Context(), "cluster-worker", cfg.Process, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	parts, live, err := clusterworkerapp.BuildParts(t.Context(), p, cfg.Part, cfg.StopTimeout, clusterworkerapp.Overrides{Garden: garden})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx, live, parts...) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the worker ended with %v", err)
		}
	}
	t.Cleanup(stop)
	return stop
}

// TestADeletedClusterKeepsItsRowWhileGardenerIsAway holds that the row of a
// cluster with a Shoot stays until the Shoot is confirmed gone: while Gardener is
// away, and while no worker runs. It then goes, although nothing is reported.
func TestADeletedClusterKeepsItsRowWhileGardenerIsAway(t *testing.T) {
	t.Parallel()
	url := pgtest.NewMigratedDatabaseURL(t)
	conn := connectDB(t, url)
	api := startAPI(t, url)
	garden := memory.New(memory.Options{})
	stop := startWorker(t, url, garden)
	id := api.createCluster("precious")
	wantRow(t, conn, id, "synced is not null and shoot_status = 'ready'")

	garden.SetOutage(true)
	api.sendRequest(http.MethodDelete, "/clusters/"+id, "", http.StatusAccepted)
	api.finalizeCluster(id)
	api.wantKept(id)
	wantRefused(t, conn, id)
	api.sendRequest(http.MethodPost, "/clusters/"+id+"/force-delete", `{"reason":"in a hurry"}`, http.StatusConflict)
	stop()
	api.sendRequest(http.MethodDelete, "/clusters/"+id, "", http.StatusAccepted)
	api.wantKept(id)
	wantRefused(t, conn, id)
	_, err := conn.Exec(t.Context(), "truncate tenant.resources cascade")
	for postgres.SQLState(err) == "40P01" { // a deadlock with the API, which locks these tables in another order
		_, err = conn.Exec(t.Context(), "truncate tenant.resources cascade")
	}
	if postgres.ViolatedConstraint(err) != "clusters_shoot_guard" {
		t.Errorf("all rows can be removed at once: %v", err)
	}

	garden.SetOutage(false)
	startWorker(t, url, garden)
	api.wantGone(id)
}

// TestAClusterThatGardenerNeverTookKeepsItsRow holds that the guard is up from
// the first start of a worker, though Gardener has never answered it.
func TestAClusterThatGardenerNeverTookKeepsItsRow(t *testing.T) {
	t.Parallel()
	down := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "down for maintenance", http.StatusServiceUnavailable)
	}))
	t.Cleanup(down.Close)
	kubeconfig := filepath.Join(t.TempDir(), "garden.kubeconfig")
	content := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"g","contexts":[{"name":"g","context":{"cluster":"g","user":"g"}}],
		"clusters":[{"name":"g","cluster":{"server":%q,"insecure-skip-tls-verify":true}}],"users":[{"name":"g","user":{"token":"t"}}]}`, down.URL)
	if err := os.WriteFile(kubeconfig, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	url := pgtest.NewMigratedDatabaseURL(t)
	conn := connectDB(t, url)
	api := startAPI(t, url)
	worker := start(t, map[string]string{"DATABASE_URL": url, "GARDENER_MODE": "real", "GARDENER_KUBECONFIG": kubeconfig})
	processtest.Eventually(t, func() error {
		if !strings.Contains(worker.Stderr.String(), "startup blocked, retrying") {
			return fmt.Errorf("the worker has not met Gardener yet")
		}
		return nil
	})
	id := api.createCluster("precious")
	api.sendRequest(http.MethodDelete, "/clusters/"+id, "", http.StatusAccepted)
	api.finalizeCluster(id)
	api.wantKept(id)
	wantRefused(t, conn, id)
	worker.Cancel()
	if err := worker.WaitUntilEnded(t); err != nil {
		t.Error(err)
	}
	api.sendRequest(http.MethodDelete, "/clusters/"+id, "", http.StatusAccepted)
	api.wantKept(id)
	wantRefused(t, conn, id)
}

// TestDeletionNeedsNoWorkerWhereThereWasNone verifies that an installation that never had a worker
// deletes its clusters without one.
func TestDeletionNeedsNoWorkerWhereThereWasNone(t *testing.T) {
	t.Parallel()
	api := startAPI(t, pgtest.NewMigratedDatabaseURL(t))
	id := api.createCluster("plain")
	api.sendRequest(http.MethodDelete, "/clusters/"+id, "", http.StatusAccepted)
	api.finalizeCluster(id)
	api.wantGone(id)
}

// TestUnregister verifies that only the command removes the guard, and only while no worker runs.
// It leaves Shoots behind only with the explicit flag.
func TestUnregister(t *testing.T) {
	t.Parallel()
	url := pgtest.NewMigratedDatabaseURL(t)
	conn := connectDB(t, url)
	api := startAPI(t, url)
	env := map[string]string{"DATABASE_URL": url}
	stop := startWorker(t, url, memory.New(memory.Options{}))
	id := api.createCluster("precious")
	wantRow(t, conn, id, "synced is not null and shoot_status = 'ready'")
	unregister := func(says string, args ...string) {
		t.Helper()
		c := start(t, env, append([]string{"unregister"}, args...)...)
		if err := c.WaitUntilEnded(t); says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("unregister %v ends with %v, want %q", args, err, says)
		}
	}
	unregister("is still running", "--abandon-shoots")
	stop()
	unregister("1 cluster")
	wantRefused(t, conn, id)
	unregister("", "--abandon-shoots")
	api.sendRequest(http.MethodDelete, "/clusters/"+id, "", http.StatusAccepted)
	api.finalizeCluster(id)
	api.wantGone(id)
	unregister("")
}

// TestAClusterShowsItsShoot verifies that a cluster carries the status of its Shoot with the
// settings of the specification alone. A new status changes the body and the tag, and watches
// receive it. The phase differs from that of a cluster that has not been observed.
func TestAClusterShowsItsShoot(t *testing.T) {
	t.Parallel()
	url := pgtest.NewMigratedDatabaseURL(t)
	conn := connectDB(t, url)
	api := startAPI(t, url)
	id := api.createCluster("shown")
	get := func() (c v1.Resource, tag string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, api.base+"/clusters/"+id, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		if err := json.NewDecoder(resp.Body).Decode(&c); err != nil {
			t.Fatal(err)
		}
		return c, resp.Header.Get("Etag")
	}
	before, old := get()
	if before.Status.ShootStatus != "" || before.Status.Phase != v1.PhasePending {
		t.Errorf("nobody has looked at it: %+v", before.Status)
	}
	startWorker(t, url, memory.New(memory.Options{CreateTime: 50 * time.Millisecond}))
	wantRow(t, conn, id, "synced is not null and shoot_status = 'ready'")
	if c, tag := get(); c.Status.ShootStatus != v1.ShootReady || tag == old {
		t.Errorf("the Shoot is ready, and the cluster says %+v with tag %s, before %s", c.Status, tag, old)
	}
	// From its creation on a cluster waits for its Shoot, too.
	if body := api.sendRequest(http.MethodPost, "/clusters", `{"name":"later","spec":{}}`, http.StatusCreated); !strings.Contains(body, "provisioning, gardener") {
		t.Errorf("a new cluster does not wait for gardener: %s", body)
	}
	processtest.Eventually(t, func() error {
		if c, _ := get(); c.Status.Phase == v1.PhasePending {
			return fmt.Errorf("the Shoot is ready and the phase is %s", c.Status.Phase)
		}
		return nil
	})
}
