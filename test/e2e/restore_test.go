package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

// TestRestoreDrill backs up and restores the database with the commands of
// docs/how-to/back-up-and-restore.md. After it, nothing acts on stale state without
// saying so: no Shoot is reverted or deleted, one that is created again is logged, and
// whoever follows changes learns that it has to list again.
func TestRestoreDrill(t *testing.T) {
	t.Parallel()
	d := newDrill(t)
	edited, gone, same := d.createSynced(t, "eu-2"), d.createSynced(t, "gone"), d.createSynced(t, "same")
	sameBefore := d.shoot(t, same.shootName)
	d.wantAttempted(t, 3)
	pending := d.sink.idsOf(false)
	d.run(t, "pg_dump")

	// What the backup does not have. The sink accepts the events that wait for it.
	d.sink.accept.Store(true)
	d.edit(t, edited, 5)
	d.wantMachines(t, edited, 5)
	if _, err := d.api.Clusters().Delete(t.Context(), gone.id); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, func() error {
		if _, err := d.api.Clusters().Get(t.Context(), gone.id); statusOf(err) != http.StatusNotFound {
			return fmt.Errorf("the deleted cluster is there: %w", err)
		}
		return nil
	})
	late := d.createSynced(t, "late")
	lateBefore := d.shoot(t, late.shootName)
	d.wantDelivered(t, pending)
	cursor := d.cursor(t)

	if code := d.worker.stop(t, syscall.SIGTERM, patience); code != 0 {
		t.Errorf("the worker ended with %d", code)
	}
	if code := d.stop(t, syscall.SIGTERM, patience); code != 0 {
		t.Errorf("the fleet API ended with %d", code)
	}
	d.sink.forget()
	d.run(t, "pg_restore")
	d.run(t, "fleet-api migrate")
	d.startAPI(t)

	d.wantPreflight(t, gone)
	// The edit gets the generation that the lost one had.
	published := d.countPublished(edited, 2)
	d.edit(t, edited, 4)
	d.wantResync(t, cursor)
	d.wantPublished(t, edited, 2, published+1)
	d.startWorker(t)
	d.wantConflict(t, edited)
	d.wantCreatedAgain(t, gone)
	d.wantOrphan(t, late)
	d.wantDelivered(t, pending)
	for _, was := range []*unstructured.Unstructured{sameBefore, lateBefore} {
		if is := d.shoot(t, was.GetName()); is.GetUID() != was.GetUID() || is.GetGeneration() != was.GetGeneration() || is.GetDeletionTimestamp() != nil {
			t.Errorf("Shoot %s was at generation %d, and is %s at %d", was.GetName(), was.GetGeneration(), is.GetUID(), is.GetGeneration())
		}
	}

	d.run(t, "overwrite_shoot")
	d.wantMachines(t, edited, 4)
	d.wantPhase(t, edited.id, v1.PhaseReady)
	if n := d.worker.metrics(t).sum("fleetloop_clusterworker_orphan_shoots_deleted_total"); n != 0 {
		t.Errorf("%g orphans were deleted", n)
	}
	d.wantAllRun(t)
}

// lostMessage is the error of a sync that would replace changes that a restore has lost.
const lostMessage = "the Shoot has changes that the database lost when it was restored"

// A drill is an installation whose database is restored.
type drill struct {
	*fleet
	env      map[string]string // of the commands and of all processes
	folder   string            // of the commands
	garden   *garden
	worker   *process
	sentinel *process
	queue    *queue
	sink     *drillSink
	shoots   dynamic.ResourceInterface
	blocks   []string // of the page that are still to be run
}

// A drillCluster is a cluster with one node pool and a Shoot.
type drillCluster struct {
	id, name, pool, shootName string
}

func newDrill(t *testing.T) *drill {
	t.Helper()
	text, err := os.ReadFile("../../docs/how-to/back-up-and-restore.md")
	if err != nil {
		t.Fatal(err)
	}
	d := &drill{folder: t.TempDir(), garden: newGarden(t, "restore"), sink: newDrillSink(t)}
	for _, m := range regexp.MustCompile("(?ms)<!-- run: drill -->\n *```sh\n(.*?)^ *```$").FindAllStringSubmatch(string(text), -1) {
		d.blocks = append(d.blocks, m[1])
	}
	client, err := dynamic.NewForConfig(d.garden.bed.Config())
	if err != nil {
		t.Fatal(err)
	}
	d.shoots = client.Resource(schema.GroupVersionResource{Group: "core.gardener.cloud", Version: "v1beta1", Resource: "shoots"}).Namespace(d.garden.namespace)

	admin, database := newFleetDatabase(t)
	d.env = map[string]string{"ADMIN_URL": admin, "DATABASE_URL": database, "FLEET_API_REQUIRED_ADAPTERS_CLUSTERS": "gardener", "FLEET_API_REQUIRED_ADAPTERS_NODEPOOLS": "gardener"}
	d.fleet = newFleet(t, d.env)
	d.env["LISTEN_ADDRESS"] = strings.TrimPrefix(d.url, "http://") // clients find it again after the restore
	d.startWorker(t)
	exchange := exchangeOf(t)
	d.queue = openQueue(t, binding{url: rabbit(t).URL(), exchange: exchange, queue: exchange + "-test"})
	d.sentinel = newSentinel(t, d.url, "resource_type: clusters\nhyperfleet_api: {endpoint: API}\npoll_interval: 1s\nmessage_data: {generation: .generation}\n", rabbitEnv(rabbit(t).Addr(), exchange))
	d.sentinel.wantReady(t)
	return d
}

// newFleetDatabase makes the database of the page, with its owner, and returns the URLs of
// an administrator and of the owner.
func newFleetDatabase(t *testing.T) (admin, owner string) {
	t.Helper()
	u, err := url.Parse(pgtest.NewEmptyDatabaseURL(t))
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/postgres"
	admin = u.String()
	runSQL := func(ctx context.Context, statements ...string) {
		conn, err := pgx.Connect(ctx, admin)
		if err != nil {
			t.Fatal(err)
		}
		for _, sql := range statements {
			_, errExec := conn.Exec(ctx, sql)
			err = errors.Join(err, errExec)
		}
		if err := errors.Join(err, conn.Close(ctx)); err != nil {
			t.Fatal(err)
		}
	}
	runSQL(t.Context(), "create role fleet login createrole password 'secret'",
		"grant fleet_api, fleet_api_all_tenants, cluster_worker, execution_controller, execution_auditor, fleet_console to fleet",
		"create database fleet owner fleet")
	t.Cleanup(func() {
		runSQL(context.WithoutCancel(t.Context()), "drop database if exists fleet with (force)", "drop database if exists fleet_before_restore with (force)", "drop role fleet")
	})
	u.User, u.Path = url.UserPassword("fleet", "secret"), "/fleet"
	return admin, u.String()
}

// run runs the next commands of the page, which mention a text.
func (d *drill) run(t *testing.T, mention string) {
	t.Helper()
	if len(d.blocks) == 0 || !strings.Contains(d.blocks[0], mention) {
		t.Fatalf("the next commands of the page are not about %q: %q", mention, d.blocks)
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", d.blocks[0])
	d.blocks = d.blocks[1:]
	cmd.Dir = d.folder
	cmd.Env = []string{"PATH=" + filepath.Dir(binary(t, "fleet-api")) + ":" + postgresPath(t) + ":" + os.Getenv("PATH"), "HOME=" + d.folder}
	for key, value := range d.env {
		cmd.Env = append(cmd.Env, key+"="+value)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", mention, err, out)
	}
}

// wantAllRun fails if commands of the page were not run.
func (d *drill) wantAllRun(t *testing.T) {
	t.Helper()
	if len(d.blocks) > 0 {
		t.Errorf("commands of the page that were not run: %q", d.blocks)
	}
}

// postgresPath is the folder of PostgreSQL's clients, the newest if there are several.
func postgresPath(t *testing.T) string {
	t.Helper()
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/pg_restore")
	if err != nil {
		t.Fatal(err)
	}
	if path, err := exec.LookPath("pg_restore"); err == nil && len(found) == 0 {
		found = []string{path}
	}
	if len(found) == 0 {
		t.Fatal("pg_restore is not installed: install PostgreSQL")
	}
	return filepath.Dir(found[len(found)-1])
}

func (d *drill) startAPI(t *testing.T) {
	t.Helper()
	d.fleet = newFleet(t, d.env)
}

func (d *drill) startWorker(t *testing.T) {
	t.Helper()
	d.worker = start(t, "cluster-worker", mergeEnv(d.env, d.garden.env(), d.workerEnv()))
	d.worker.wantReady(t)
}

// workerEnv has a worker look for orphans often, and delete them.
func (d *drill) workerEnv() map[string]string {
	return map[string]string{
		"HYPERFLEET_API_ENDPOINT": d.url, "RECONCILE_INTERVAL": "1s", "RECONCILE_ORPHAN_MIN_AGE": "1s", "RECONCILE_DELETE_ORPHANS": "true",
		"CHANGE_EVENTS_ENABLED": "true", "CHANGE_EVENTS_CLUSTER_NAME": "drill", "CHANGE_EVENTS_ENDPOINT": d.sink.URL,
		"CHANGE_EVENTS_FORMAT": "cloudevents", "CHANGE_EVENTS_ALLOW_HTTP": "true", "CHANGE_EVENTS_ALLOW_ADDRESSES": "127.0.0.0/8",
	}
}

// createSynced creates a cluster with three machines, and waits until it is Ready.
func (d *drill) createSynced(t *testing.T, name string) drillCluster {
	t.Helper()
	c, err := d.api.Clusters().Create(t.Context(), v1.CreateRequest{Name: name, Spec: json.RawMessage(`{"version": "1.34.1"}`)})
	if err != nil {
		t.Fatal(err)
	}
	pool, err := d.pools(c.ID).Create(t.Context(), v1.CreateRequest{Name: "workers", Spec: json.RawMessage(`{"replicas": 3}`)})
	if err != nil {
		t.Fatal(err)
	}
	out := drillCluster{id: c.ID, name: name, pool: pool.ID}
	eventually(t, patience, func() error {
		row, err := d.api.Syncs().Get(t.Context(), c.ID)
		if err != nil || row.State != v1.SyncSynced || row.ShootStatus != v1.ShootReady {
			return fmt.Errorf("cluster %s: %+v, %w", name, row, err)
		}
		out.shootName = row.ShootName
		return nil
	})
	d.wantMachines(t, out, 3)
	return out
}

func (d *drill) pools(cluster string) *fleetclient.Collection {
	return d.api.Collection(fleetclient.Nested(v1.CollectionClusters, cluster, v1.CollectionNodePools))
}

// edit changes a cluster and its node pool.
func (d *drill) edit(t *testing.T, c drillCluster, n int) {
	t.Helper()
	of := json.RawMessage(fmt.Sprintf(`{"version": "1.34.1", "machines": %d}`, n))
	if _, err := d.api.Clusters().Patch(t.Context(), c.id, v1.PatchRequest{Spec: of}); err != nil {
		t.Fatal(err)
	}
	spec := json.RawMessage(fmt.Sprintf(`{"replicas": %d}`, n))
	if _, err := d.pools(c.id).Patch(t.Context(), c.pool, v1.PatchRequest{Spec: spec}); err != nil {
		t.Fatal(err)
	}
}

// shoot reads a Shoot.
func (d *drill) shoot(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	o, err := d.shoots.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// machines is how many machines the Shoot of a cluster has at most.
func (d *drill) machines(ctx context.Context, c drillCluster) (int64, error) {
	o, err := d.shoots.Get(ctx, c.shootName, metav1.GetOptions{})
	if err != nil {
		return 0, err
	}
	workers, _, err := unstructured.NestedSlice(o.Object, "spec", "provider", "workers")
	if err != nil || len(workers) != 1 {
		return 0, fmt.Errorf("the Shoot has the pools %v: %w", workers, err)
	}
	pool, ok := workers[0].(map[string]any)
	if !ok {
		return 0, fmt.Errorf("the pool is %v", workers[0])
	}
	n, _, err := unstructured.NestedInt64(pool, "maximum")
	return n, err
}

func (d *drill) wantMachines(t *testing.T, c drillCluster, want int64) {
	t.Helper()
	eventually(t, patience, func() error {
		if n, err := d.machines(t.Context(), c); err != nil || n != want {
			return fmt.Errorf("the Shoot of %s has %d machines, want %d: %w", c.name, n, want, err)
		}
		return nil
	})
}

// cursor is the position of a client that has read all changes.
func (d *drill) cursor(t *testing.T) string {
	t.Helper()
	for e, err := range d.api.Clusters().Watch(t.Context(), fleetclient.ListOptions{}, "") {
		if err != nil {
			t.Fatal(err)
		}
		return e.Cursor
	}
	t.Fatal("the watch ended")
	return ""
}

// countPublished is the number of the sentinel's events about a generation of a cluster.
func (d *drill) countPublished(c drillCluster, generation int64) int {
	n := 0
	for _, e := range d.queue.of(c.id) {
		if e.str("generation") == strconv.FormatInt(generation, 10) {
			n++
		}
	}
	return n
}

// wantPublished waits until there are n events about a generation of a cluster.
func (d *drill) wantPublished(t *testing.T, c drillCluster, generation int64, n int) {
	t.Helper()
	eventually(t, patience, func() error {
		if got := d.countPublished(c, generation); got < n {
			return fmt.Errorf("%d events about generation %d of %s, want %d", got, generation, c.name, n)
		}
		return nil
	})
}

// wantResync waits until a client with a cursor from before the restore and the sentinel
// have learned of the restore.
func (d *drill) wantResync(t *testing.T, cursor string) {
	t.Helper()
	for e, err := range d.api.Clusters().Watch(t.Context(), fleetclient.ListOptions{}, cursor) {
		if !fleetclient.IsExpired(err) {
			t.Errorf("a watch from before the restore: %+v, %v, want 410", e, err)
		}
		break
	}
	wantMetric(t, d.sentinel, "hyperfleet_sentinel_resyncs_total", 1)
}

// wantPreflight checks that preflight tells of what a worker would do, before one starts.
func (d *drill) wantPreflight(t *testing.T, gone drillCluster) {
	t.Helper()
	p := start(t, "cluster-worker", mergeEnv(d.env, d.garden.env(), d.workerEnv()), "preflight")
	<-p.done
	for _, want := range []string{
		"error   cluster eu-2 (", lostMessage,
		fmt.Sprintf("missing cluster %s (%s): Shoot %q", gone.name, gone.id, gone.shootName),
		"clusters checked: 3, would be rejected: 1",
	} {
		if err := p.log.mentions(want); err != nil {
			t.Errorf("preflight: %v:\n%s", err, p.log.tail())
		}
	}
}

// wantConflict waits until the sync of an edited cluster says that its Shoot has changes that
// the database lost, and checks that they are still there.
func (d *drill) wantConflict(t *testing.T, c drillCluster) {
	t.Helper()
	eventually(t, patience, func() error {
		row, err := d.api.Syncs().Get(t.Context(), c.id)
		if err != nil || row.State != v1.SyncBackingOff || row.ErrorClass != string(shoot.ClassConflict) || !strings.Contains(row.Error, lostMessage) {
			return fmt.Errorf("the sync of the edited cluster: %+v, %w", row, err)
		}
		return nil
	})
	out, err := exec.CommandContext(t.Context(), binary(t, "fleetloop"), "--server", d.url, "stuck", "clusters", "--older-than", "1ms", "-o", "json").CombinedOutput()
	if err != nil || !strings.Contains(string(out), c.name) || !strings.Contains(string(out), "the Shoot has changes that the database lost") {
		t.Errorf("fleetloop stuck: %v\n%s", err, out)
	}
	if n, err := d.machines(t.Context(), c); err != nil || n != 5 {
		t.Errorf("the Shoot of the edited cluster has %d machines, %v, want the 5 that the database lost", n, err)
	}
}

// wantCreatedAgain waits until the worker has created the Shoot of a cluster again that was deleted
// after the backup, and has logged it.
func (d *drill) wantCreatedAgain(t *testing.T, c drillCluster) {
	t.Helper()
	d.wantMachines(t, c, 3)
	wantMetric(t, d.worker, "fleetloop_clusterworker_shoot_drift_total", 1, "reason", "missing")
	d.wantLogged(t, map[string]any{"msg": "shoot drifted, cluster requeued", "level": "warn", "reason": "missing", "cluster_id": c.id})
}

// wantOrphan waits until the worker has reported the Shoot of a cluster that was created after the
// backup.
func (d *drill) wantOrphan(t *testing.T, c drillCluster) {
	t.Helper()
	wantMetric(t, d.worker, "fleetloop_clusterworker_orphan_shoots", 1)
	d.wantLogged(t, map[string]any{"msg": "orphan shoot found", "level": "warn", "cluster_id": c.id, "from_other_history": true})
}

// wantLogged waits until the worker has logged a line with the given fields.
func (d *drill) wantLogged(t *testing.T, want map[string]any) {
	t.Helper()
	eventually(t, patience, func() error {
		if !slices.ContainsFunc(d.worker.log.lines(), func(line map[string]any) bool {
			for key, value := range want {
				if line[key] != value {
					return false
				}
			}
			return true
		}) {
			return fmt.Errorf("the worker did not log %v", want)
		}
		return nil
	})
}
