package postgres_test

import (
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/internal/postgres"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
)

// before returns the migrations before a later one.
func before(t *testing.T, later string) fstest.MapFS {
	t.Helper()
	all := files(t)
	for name := range all {
		if name >= later {
			delete(all, name)
		}
	}
	return all
}

// insertClusters inserts $1 clusters, of which every hundredth is being deleted.
const insertClusters = `
	insert into tenant.resources (id, kind, tenant, name, spec, generation,
		created_time, updated_time, phase, last_updated_time, last_transition_time, deleted_time)
	select gen_random_uuid(), 'Cluster', 't', 'old-' || i, '{}', 1, now(), now(), 'Pending', now(), now(), case when i % 100 = 0 then now() end
	from generate_series(1, $1::int) i`

// TestOldClustersGetTheirSyncs checks that existing clusters get syncs during concurrent writes,
// without long waits.
func TestOldClustersGetTheirSyncs(t *testing.T) {
	const n, writers = 20_000, 3
	url := pgtest.NewEmptyDatabaseURL(t)
	log := slog.New(slog.DiscardHandler)
	if err := postgres.MigrateFiles(t.Context(), owner(url), before(t, "00004"), log); err != nil {
		t.Fatal(err)
	}
	conn := connect(t, url)
	run(t, conn, insertClusters, n)
	// The triggers exist before the old clusters are filled in.
	if err := postgres.MigrateFiles(t.Context(), owner(url), before(t, "00005"), log); err != nil {
		t.Fatal(err)
	}

	var stop atomic.Bool
	var writes atomic.Int64
	var wg sync.WaitGroup
	for range writers {
		writer := connect(t, url)
		run(t, writer, `set lock_timeout = '5s'`)
		wg.Go(func() {
			for !stop.Load() {
				for _, sql := range []string{
					`update tenant.resources set generation = generation + 1 where id = (select id from tenant.clusters tablesample system(1) order by random() limit 1)`,
					`update tenant.resources set phase = 'Ready' where id = (select id from tenant.clusters tablesample system(1) order by random() limit 1)`,
					`delete from tenant.resources where id = (select id from tenant.clusters tablesample system(1) order by random() limit 1)`,
					insertOne,
				} {
					if _, err := writer.Exec(t.Context(), sql); err != nil {
						t.Errorf("%s: %v", sql, err)
						return
					}
					writes.Add(1)
				}
			}
		})
	}
	err := postgres.MigrateSchema(t.Context(), owner(url), log)
	stop.Store(true)
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d writes meanwhile", writes.Load())
	want := []string{"0 without, 0 too many"}
	got := texts(t, conn, `select count(*) filter (where s.cluster_id is null) || ' without, ' || count(*) filter (where c.id is null) || ' too many'
		from tenant.clusters c full join tenant.cluster_sync s on s.cluster_id = c.id`)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := texts(t, conn, `select count(*)::text from tenant.cluster_sync where synced is not null or due_at > now()`); got[0] != "0" {
		t.Errorf("%s are not due", got[0])
	}
}

// insertOne inserts a cluster.
const insertOne = `
	insert into tenant.resources (id, kind, tenant, name, spec, generation,
		created_time, updated_time, phase, last_updated_time, last_transition_time)
	values (gen_random_uuid(), 'Cluster', 't', gen_random_uuid(), '{}', 1, now(), now(), 'Pending', now(), now())`

// TestALockedClusterHoldsUpNoOther checks that a locked cluster is filled in after its unlock, and
// the others before.
func TestALockedClusterHoldsUpNoOther(t *testing.T) {
	url := pgtest.NewEmptyDatabaseURL(t)
	log := slog.New(slog.DiscardHandler)
	if err := postgres.MigrateFiles(t.Context(), owner(url), before(t, "00005"), log); err != nil {
		t.Fatal(err)
	}
	conn, other := connect(t, url), connect(t, url)
	run(t, conn, insertClusters, 1000)
	run(t, conn, `delete from tenant.cluster_sync`) // as if the clusters had existed before their syncs
	tx, err := other.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `update tenant.resources set phase = 'Ready' where name = 'old-10'`); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- postgres.MigrateSchema(t.Context(), owner(url), log) }()
	await(t, "all others are filled in", func() bool {
		return texts(t, conn, `select count(*)::text from tenant.cluster_sync`)[0] == "999"
	})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := texts(t, conn, `select count(*)::text from tenant.cluster_sync`)[0]; got != "1000" {
		t.Errorf("%s were filled in", got)
	}
}

// TestForeignRowsAreNamed checks that rows under an owner of another tenant fail the migration,
// which names them, and that it succeeds without them.
func TestForeignRowsAreNamed(t *testing.T) {
	url := pgtest.NewEmptyDatabaseURL(t)
	log := slog.New(slog.DiscardHandler)
	if err := postgres.MigrateFiles(t.Context(), owner(url), before(t, "00009"), log); err != nil {
		t.Fatal(err)
	}
	conn := connect(t, url)
	run(t, conn, insertClusters, 2)
	run(t, conn, `insert into tenant.resources (id, kind, tenant, name, owner_id, owner_kind, spec, generation,
			created_time, updated_time, phase, last_updated_time, last_transition_time)
		select '00000000-0000-7000-8000-000000000001', 'NodePool', 'mallory', 'planted', c.id, 'Cluster', '{}', 1, now(), now(), 'Pending', now(), now()
		from tenant.clusters c limit 1`)
	err := postgres.MigrateSchema(t.Context(), owner(url), log)
	if err == nil || !strings.Contains(err.Error(), "NodePool 00000000-0000-7000-8000-000000000001 of tenant mallory") {
		t.Fatalf("the migration ends with %v", err)
	}
	run(t, conn, `delete from tenant.resources where kind = 'NodePool'`)
	if err := postgres.MigrateSchema(t.Context(), owner(url), log); err != nil {
		t.Fatal(err)
	}
	got := texts(t, conn, `select conrelid::regclass || ' ' || convalidated from pg_constraint
		where contype = 'f' and confrelid = 'tenant.resources'::regclass and conparentid = 0 order by 1`)
	want := []string{"tenant.adapter_reports true", "tenant.clusters true", "tenant.manifests true", "tenant.nodepools true", "tenant.resource_revisions true", "tenant.workloads true"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("foreign keys (-want +got):\n%s", diff)
	}
}

// TestAnOldWorkerIsRegistered checks that an installation with existing Shoots counts as one with a
// cluster-worker.
func TestAnOldWorkerIsRegistered(t *testing.T) {
	for name, garden := range map[string]string{"Worker": "'garden.example/garden-prod'", "None": "null"} {
		t.Run(name, func(t *testing.T) {
			url := pgtest.NewEmptyDatabaseURL(t)
			log := slog.New(slog.DiscardHandler)
			if err := postgres.MigrateFiles(t.Context(), owner(url), before(t, "00009"), log); err != nil {
				t.Fatal(err)
			}
			conn := connect(t, url)
			run(t, conn, "update tenant.installation set garden = "+garden)
			if err := postgres.MigrateSchema(t.Context(), owner(url), log); err != nil {
				t.Fatal(err)
			}
			if got := texts(t, conn, "select tenant.has_cluster_worker()::text"); got[0] != strconv.FormatBool(name == "Worker") {
				t.Errorf("a cluster-worker is registered: %s", got[0])
			}
		})
	}
}
