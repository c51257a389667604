package pgstore_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fleetloop/fleetloop/internal/postgres"
)

const noRight = "42501"

// TestTheRightsOfAWorker covers that it can write only its own tables.
func TestTheRightsOfAWorker(t *testing.T) {
	b := newBed(t)
	b.pool(b.cluster("one"), "pool")
	worker := connect(t, b.url)
	if _, err := worker.Exec(t.Context(), "set role cluster_worker"); err != nil {
		t.Fatal(err)
	}
	for sql, want := range map[string]string{
		`select from tenant.clusters`:                                             "",
		`select from tenant.nodepools`:                                            "",
		`select from tenant.cluster_sync for update`:                              "",
		`update tenant.cluster_sync set shoot_name = 'x'`:                         "",
		`select nextval('tenant.cluster_sync_token')`:                             "",
		`select from tenant.installation`:                                         "",
		`select from fleetloop_migrations`:                                        "",
		`select tenant.oldest_transaction()`:                                      "",
		`select tenant.add_missing_cluster_syncs(10)`:                             "",
		`delete from tenant.cluster_worker_outages`:                               "",
		`delete from tenant.cluster_change_events`:                                "",
		`update tenant.clusters set spec = '{}'`:                                  noRight,
		`delete from tenant.clusters`:                                             noRight,
		`insert into tenant.clusters select * from tenant.clusters`:               noRight,
		`select from tenant.clusters for update`:                                  noRight,
		`update tenant.nodepools set spec = '{}'`:                                 noRight,
		`select from tenant.resources`:                                            noRight,
		`select from tenant.manifests`:                                            noRight,
		`select from tenant.workloads`:                                            noRight,
		`select from tenant.adapter_reports`:                                      noRight,
		`select from tenant.resource_changes`:                                     noRight,
		`select from tenant.all_resources`:                                        noRight,
		`insert into tenant.cluster_sync (cluster_id) values (gen_random_uuid())`: noRight,
		`delete from tenant.cluster_sync`:                                         noRight,
		`truncate tenant.cluster_sync`:                                            noRight,
		`delete from tenant.cluster_worker_leader`:                                noRight,
		`update tenant.installation set id = gen_random_uuid()`:                   noRight,
		`select nextval('tenant.cluster_sync_notified')`:                          noRight,
		`select nextval('tenant.cluster_sync_notifier')`:                          noRight,
		`select setval('tenant.cluster_sync_token', 1)`:                           noRight,
		`select tenant.mark_unsynced(gen_random_uuid())`:                          noRight,
		`select tenant.retry_cluster_sync(gen_random_uuid())`:                     noRight,
	} {
		_, err := worker.Exec(t.Context(), sql)
		if got := postgres.SQLState(err); got != want || want == "" && err != nil {
			t.Errorf("%s: %v, want code %q", sql, err, want)
		}
	}
	// It can read the clusters of every tenant.
	b.exec(insertResource, "00000000-0000-7000-8000-000000000001", "Cluster", "b", "other", nil, "{}")
	var n int
	if err := worker.QueryRow(t.Context(), `select count(*) from tenant.clusters join tenant.cluster_sync on cluster_id = id`).Scan(&n); err != nil || n != 2 {
		t.Errorf("sees %d of 2 clusters, %v", n, err)
	}
}

// TestTenantsSeeTheSyncOfTheirClusters covers that row-level security on the clusters
// applies to their syncs.
func TestTenantsSeeTheSyncOfTheirClusters(t *testing.T) {
	b := newBed(t)
	const theirs = "00000000-0000-7000-8000-000000000001"
	mine := b.cluster("one")
	b.exec(insertResource, theirs, "Cluster", "b", "one", nil, "{}")
	api := openAs(t, b.url, postgres.RoleFleetAPI)
	scopes := map[string]struct {
		reason string
		scope  postgres.Scope
		want   map[string]bool
	}{
		"Mine":      {"a tenant has its own", postgres.Scope{Tenant: "a"}, map[string]bool{mine: true, theirs: false}},
		"Theirs":    {"and no other's", postgres.Scope{Tenant: "b"}, map[string]bool{mine: false, theirs: true}},
		"Nobody":    {"who says no tenant has none", postgres.Scope{}, map[string]bool{mine: false, theirs: false}},
		"Everybody": {"who serves all has all", postgres.Scope{Role: postgres.RoleAllTenants}, map[string]bool{mine: true, theirs: true}},
	}
	for name, tc := range scopes {
		t.Run(name, func(t *testing.T) {
			for id, want := range tc.want {
				c := caller{t, api, tc.scope}
				if seen := c.is(`select exists (select from tenant.cluster_sync where cluster_id = $1)`, id); seen != want {
					t.Errorf("sees %s: %v, want %v: %s", id, seen, want, tc.reason)
				}
				const join = `select exists (
					select c.name, cs.shoot_status from tenant.clusters c join tenant.cluster_sync cs on cs.cluster_id = c.id where c.id = $1)`
				if seen := c.is(join, id); seen != want {
					t.Errorf("sees %s by the join: %v, want %v: %s", id, seen, want, tc.reason)
				}
				for _, function := range []string{"retry", "pause", "resume"} {
					if was := c.is(`select tenant.`+function+`_cluster_sync($1)`, id); was != want {
						t.Errorf("%s of %s says %v, want %v: %s", function, id, was, want, tc.reason)
					}
				}
			}
		})
	}
	for _, sql := range []string{
		`update tenant.cluster_sync set shoot_name = 'x'`,
		`update tenant.cluster_sync set synced = now()`,
		`update tenant.cluster_sync set claim_token = null`,
		`update tenant.cluster_sync set reported_shoot_uid = 'x'`,
		`update tenant.cluster_sync set sent = '{}'`,
		`update tenant.cluster_sync set status_generation = 1`,
		`delete from tenant.cluster_sync`,
		`select from tenant.installation`,
		`select from tenant.cluster_worker_leader`,
		`select tenant.mark_unsynced(gen_random_uuid())`,
		`select nextval('tenant.cluster_sync_token')`,
	} {
		for _, scope := range []postgres.Scope{{Tenant: "a"}, {Role: postgres.RoleAllTenants}} {
			err := api.RunBatch(t.Context(), scope, func(batch *pgx.Batch) { batch.Queue(sql) })
			if postgres.SQLState(err) != noRight {
				t.Errorf("%s as %+v: %v", sql, scope, err)
			}
		}
	}
}

// A caller works in a scope.
type caller struct {
	*testing.T
	pool  *postgres.Pool
	scope postgres.Scope
}

// is returns the single value of a query about a cluster.
func (c caller) is(sql, cluster string) (value bool) {
	c.Helper()
	err := c.pool.RunBatch(c.Context(), c.scope, func(batch *pgx.Batch) {
		batch.Queue(sql, cluster).QueryRow(func(row pgx.Row) error { return row.Scan(&value) })
	})
	if err != nil {
		c.Fatalf("%s: %v", sql, err)
	}
	return value
}

func TestSteering(t *testing.T) {
	b := newBed(t)
	user := caller{t, openAs(t, b.url, postgres.RoleFleetAPI), postgres.Scope{Tenant: "a"}}
	steer := func(what, id string) {
		t.Helper()
		if !user.is(`select tenant.`+what+`_cluster_sync($1)`, id) {
			t.Errorf("%s says there is no such row", what)
		}
	}
	id := b.cluster("one")

	// A retry does not wait for the end of the delay.
	b.complete(failed(b.claimOne(), "no", true, lease))
	b.wantNothingDue("it waits")
	steer("retry", id)
	c := b.claimOne()
	if c.Attempts != 0 {
		t.Errorf("%d attempts", c.Attempts)
	}

	// A claimed row is not affected.
	b.exec(`update tenant.cluster_sync set sync_attempts = 3`)
	steer("retry", id)
	b.wantNothingDue("a worker is at it")
	if got := b.row(id).Attempts; got != 3 {
		t.Errorf("%d attempts", got)
	}

	// Nor is a paused row, but the call is finished.
	steer("pause", id)
	b.complete(failed(c, "no", false, 0))
	b.wantNothingDue("it is paused")
	b.edit(id)
	steer("retry", id)
	b.wantNothingDue("it is paused still")
	since := ask[string](b, `select paused_at::text from tenant.cluster_sync`)
	steer("pause", id)
	want(b, since, `select paused_at::text from tenant.cluster_sync`)
	steer("resume", id)
	c = b.claimOne()
	if c.Generation != 2 {
		t.Errorf("generation %d", c.Generation)
	}
	steer("resume", id)
	b.wantNothingDue("a worker is at it")
	b.complete(done(c))
	steer("retry", id)
	steer("resume", id)
	b.wantNothingDue("there is nothing to do")
}
