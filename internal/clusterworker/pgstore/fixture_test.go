package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/clusterworker/pgstore"
	"github.com/fleetloop/fleetloop/internal/postgres"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// lease is longer than any test.
const lease = 10 * time.Minute

// A bed is a database with a store on it.
type bed struct {
	*testing.T
	url   string
	owner *pgx.Conn // not subject to row-level security
	store *pgstore.Store
}

func newBed(t *testing.T) *bed {
	t.Helper()
	url := pgtest.NewMigratedDatabaseURL(t)
	return &bed{T: t, url: url, owner: connect(t, url), store: pgstore.New(openAs(t, url, postgres.RoleClusterWorker))}
}

// of returns the same bed for a subtest.
func (b *bed) of(t *testing.T) *bed {
	t.Helper()
	return &bed{T: t, url: b.url, owner: b.owner, store: b.store}
}

// openAs opens a pool with a role.
func openAs(t *testing.T, url, role string) *postgres.Pool {
	t.Helper()
	cfg := pgtest.Config(url)
	cfg.Role = role
	pool, err := postgres.New(cfg, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

// insertResource inserts a row with the required columns only.
const insertResource = `
	insert into tenant.resources (id, kind, tenant, name, owner_id, owner_kind, spec, generation,
		created_time, updated_time, phase, last_updated_time, last_transition_time)
	values ($1, $2, $3, $4, $5, case when $5::uuid is not null then 'Cluster' end, $6, 1, now(), now(), 'Pending', now(), now())`

func (b *bed) exec(sql string, args ...any) {
	b.Helper()
	if _, err := b.owner.Exec(b.Context(), sql, args...); err != nil {
		b.Fatalf("%s: %v", sql, err)
	}
}

// cluster adds a cluster.
func (b *bed) cluster(name string) string {
	b.Helper()
	id := uuid.Must(uuid.NewV7()).String()
	b.exec(insertResource, id, "Cluster", "a", name, nil, `{"v": 1}`)
	return id
}

// clusters adds n clusters.
func (b *bed) clusters(n int) []string {
	b.Helper()
	ids := make([]string, n)
	for i := range ids {
		ids[i] = b.cluster(fmt.Sprintf("cluster-%d", i))
	}
	return ids
}

// pool adds a node pool.
func (b *bed) pool(cluster, name string) string {
	b.Helper()
	id := uuid.Must(uuid.NewV7()).String()
	b.exec(insertResource, id, "NodePool", "a", name, cluster, `{"replicas": 1}`)
	return id
}

// edit changes the spec of a cluster.
func (b *bed) edit(id string) {
	b.Helper()
	b.exec(`update tenant.resources set generation = generation + 1, spec = json_build_object('v', generation + 1) where id = $1`, id)
}

// room returns room for rows, timed-out ones included.
func room(slots int) clusterworker.ClaimLimits {
	return clusterworker.ClaimLimits{Slots: slots, TimedOut: slots}
}

func (b *bed) claim(slots int) []clusterworker.Claim {
	b.Helper()
	return b.claimFor(slots, lease)
}

func (b *bed) claimFor(slots int, d time.Duration) []clusterworker.Claim {
	b.Helper()
	claims, err := b.store.ClaimRows(b.Context(), "test", room(slots), d)
	if err != nil {
		b.Fatal(err)
	}
	return claims
}

// claimOne claims the only row that is due.
func (b *bed) claimOne() clusterworker.Claim {
	b.Helper()
	claims := b.claim(10)
	if len(claims) != 1 {
		b.Fatalf("%d rows are due, want 1", len(claims))
	}
	return claims[0]
}

// wantNothingDue claims, and expects no rows.
func (b *bed) wantNothingDue(why string) {
	b.Helper()
	if claims := b.claim(10); len(claims) != 0 {
		b.Fatalf("%d rows are due: %s", len(claims), why)
	}
}

// done returns the result of a successful claim.
func done(c clusterworker.Claim) clusterworker.Result {
	r := clusterworker.Result{
		ClusterID: c.ClusterID, Token: c.Token, Generation: c.Generation, ClusterGeneration: c.ClusterGeneration, Deleting: c.Deleting,
	}
	if !c.Deleting {
		r.Applied.UID, r.Applied.Generation = "uid-"+c.ClusterID, c.Generation
	}
	return r
}

// failed returns the result of a failed claim.
func failed(c clusterworker.Claim, why string, spend bool, delay time.Duration) clusterworker.Result {
	return clusterworker.Result{
		ClusterID: c.ClusterID, Token: c.Token, Generation: c.Generation, ClusterGeneration: c.ClusterGeneration, Deleting: c.Deleting,
		Err: errors.New(why), Class: clusterworker.ClassBadSpec, CountsAttempt: spend, Delay: delay,
	}
}

// complete writes results, and expects none to be lost.
func (b *bed) complete(results ...clusterworker.Result) {
	b.Helper()
	lost, err := b.store.WriteResults(b.Context(), results)
	if err != nil {
		b.Fatal(err)
	}
	if len(lost) != 0 {
		b.Fatalf("lost the claims of %v", lost)
	}
}

// await waits until ok.
func (b *bed) await(what string, ok func() bool) {
	b.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(30 * time.Second)
	defer deadline.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			b.Fatalf("not within 30 s: %s", what)
		}
	}
}

// row returns the row of one cluster.
func (b *bed) row(id string) clusterworker.Row {
	b.Helper()
	rows, err := b.store.Observations.ListRowsOfClusters(b.Context(), []string{id})
	if err != nil {
		b.Fatal(err)
	}
	if len(rows) != 1 {
		b.Fatalf("%d rows, want 1", len(rows))
	}
	return rows[0]
}

// ask returns the single value of a query.
func ask[T any](b *bed, sql string, args ...any) T {
	b.Helper()
	rows, err := b.owner.Query(b.Context(), sql, args...)
	if err != nil {
		b.Fatal(err)
	}
	v, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	if err != nil {
		b.Fatalf("%s: %v", sql, err)
	}
	return v
}

// want compares the answer of a query.
func want[T any](b *bed, w T, sql string, args ...any) {
	b.Helper()
	if diff := cmp.Diff(w, ask[T](b, sql, args...)); diff != "" {
		b.Errorf("%s (-want +got):\n%s", sql, diff)
	}
}
