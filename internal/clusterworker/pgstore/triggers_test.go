package pgstore_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestWhatMakesAClusterUnsynced covers the writes that cause a sync.
func TestWhatMakesAClusterUnsynced(t *testing.T) {
	cases := map[string]struct {
		reason string
		sql    string // $1 is the cluster, $2 its pool, $3 a pool that is being deleted
		want   int64  // increase of the generation
	}{
		"Spec":            {"another spec, as the API writes it", `update tenant.resources set generation = generation + 1, spec = '{"v": 2}' where id = $1`, 1},
		"SpecByHand":      {"somebody writes past the API", `update tenant.clusters set spec = '{"v": 2}' where id = $1`, 1},
		"SoftDelete":      {"it is to go", `update tenant.resources set deleted_time = now() where id = $1`, 1},
		"Name":            {"its Shoot carries the name", `update tenant.resources set name = 'other' where id = $1`, 1},
		"Touch":           {"a new generation of the same spec", `update tenant.resources set generation = generation + 1 where id = $1`, 1},
		"Status":          {"a report changes nothing of what it should be", `update tenant.resources set phase = 'Ready', observed_generation = 1, conditions = '[{}]', last_updated_time = now(), updated_time = now() where id = $1`, 0},
		"Labels":          {"nor do labels", `update tenant.resources set labels = '{"a": "b"}', display_name = 'x' where id = $1`, 0},
		"NothingNew":      {"an update that changes nothing", `update tenant.resources set spec = spec, name = name, generation = generation where id = $1`, 0},
		"PoolAdded":       {"another node pool", insertResourceOf("NodePool"), 1},
		"PoolAddedAside":  {"another node pool, past the API", strings.Replace(insertResourceOf("NodePool"), "tenant.resources", "tenant.nodepools", 1), 1},
		"PoolsAdded":      {"many at once are one change", insertPools, 1},
		"PoolAddedGoing":  {"one that is to go at once", strings.NewReplacer("last_transition_time)", "last_transition_time, deleted_time)", "now(), now())", "now(), now(), now())").Replace(insertResourceOf("NodePool")), 0},
		"PoolSpec":        {"a node pool's spec", `update tenant.resources set generation = generation + 1, spec = '{"replicas": 2}' where id = $2`, 1},
		"PoolByHand":      {"a node pool's spec, past the API", `update tenant.nodepools set spec = '{"replicas": 2}' where id = $2`, 1},
		"PoolStatus":      {"a report on a node pool", `update tenant.resources set phase = 'Ready', conditions = '[{}]' where id = $2`, 0},
		"PoolSoftDelete":  {"a node pool is to go", `update tenant.resources set deleted_time = now() where id = $2`, 1},
		"PoolDelete":      {"a node pool goes at once", `delete from tenant.resources where id = $2`, 1},
		"PoolGone":        {"a pool that is to go was taken out already", `delete from tenant.resources where id = $3`, 0},
		"PoolGoing":       {"nor does it matter what it would have been", `update tenant.resources set generation = generation + 1, spec = '{"replicas": 9}' where id = $3`, 0},
		"PoolComesBack":   {"a pool that is not to go after all", `update tenant.resources set deleted_time = null where id = $3`, 1},
		"Manifest":        {"what is no part of the Shoot", insertResourceOf("Manifest"), 0},
		"Everything":      {"a cluster and its pool in one statement", `update tenant.resources set generation = generation + 1 where id in ($1, $2)`, 2},
		"NothingAtAll":    {"a statement without rows", `update tenant.resources set generation = generation + 1 where false`, 0},
		"ALockAloneWaits": {"a lock is no change", `select from tenant.resources where id in ($1, $2, $3) for update`, 0},
	}
	b := newBed(t)
	i := 0
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := b.of(t)
			i++
			id := b.cluster(fmt.Sprintf("cluster-%d", i))
			pool, going := b.pool(id, "pool"), b.pool(id, "going")
			b.exec(`update tenant.resources set deleted_time = now() where id = $1`, going)
			b.complete(done(b.claimOne()))
			before := b.row(id)
			if !before.Synced {
				t.Fatal("not synced")
			}
			b.exec("with ids as (select $1::uuid, $2::uuid, $3::uuid) "+tc.sql, id, pool, going)
			after := b.row(id)
			if got := after.Generation - before.Generation; got != tc.want {
				t.Errorf("the generation rose by %d, want %d: %s", got, tc.want, tc.reason)
			}
			if after.Synced != (tc.want == 0) {
				t.Errorf("synced is %v: %s", after.Synced, tc.reason)
			}
			if tc.want > 0 {
				b.complete(done(b.claimOne())) // it was due at once
			}
		})
	}
}

// insertPools adds fifty node pools to the cluster $1.
const insertPools = `insert into tenant.resources (id, kind, tenant, name, owner_id, owner_kind, spec, generation,
		created_time, updated_time, phase, last_updated_time, last_transition_time)
	select gen_random_uuid(), 'NodePool', 'a', 'added-' || i, $1, 'Cluster', '{}', 1, now(), now(), 'Pending', now(), now() from generate_series(1, 50) i`

// insertResourceOf adds a child of the cluster $1.
func insertResourceOf(kind string) string {
	return `insert into tenant.resources (id, kind, tenant, name, owner_id, owner_kind, spec, generation,
		created_time, updated_time, phase, last_updated_time, last_transition_time)
	values (gen_random_uuid(), '` + kind + `', 'a', 'added', $1, 'Cluster', '{}', 1, now(), now(), 'Pending', now(), now())`
}

// TestWhateverAddsClusters covers that every added cluster has a sync, whatever
// statement adds it.
func TestWhateverAddsClusters(t *testing.T) {
	const columns = `(id, kind, tenant, name, owner_id, owner_kind, spec, generation, created_time, updated_time, phase, last_updated_time, last_transition_time)`
	row := func(kind, name, owner string) string {
		return `(gen_random_uuid(), '` + kind + `', 'a', '` + name + `', ` + owner + `::uuid, case when ` + owner + ` is not null then 'Cluster' end, '{}'::json, 1, now(), now(), 'Pending', now(), now())`
	}
	const id = `'00000000-0000-0000-0000-000000000001'`
	given := strings.Replace(row("Cluster", "given", "null"), "gen_random_uuid()", id, 1)
	cases := map[string]struct {
		reason string
		sql    string
		added  int
	}{
		"One":           {"as the API does", `insert into tenant.resources ` + columns + ` values ` + row("Cluster", "one", "null"), 1},
		"Several":       {"as a load does", `insert into tenant.resources ` + columns + ` values ` + row("Cluster", "one", "null") + `, ` + row("Cluster", "two", "null") + `, ` + row("Cluster", "three", "null"), 3},
		"Partition":     {"by its own name", `insert into tenant.clusters ` + columns + ` values ` + row("Cluster", "one", "null") + `, ` + row("Cluster", "two", "null"), 2},
		"NotAll":        {"a name that is in use", `insert into tenant.resources ` + columns + ` values ` + row("Cluster", "there", "null") + `, ` + row("Cluster", "two", "null") + ` on conflict (tenant, owner_id, name, kind) where deleted_time is null do nothing`, 1},
		"OrUpdate":      {"what is there is changed", `insert into tenant.resources ` + columns + ` values ` + row("Cluster", "there", "null") + `, ` + row("Cluster", "two", "null") + ` on conflict (tenant, owner_id, name, kind) where deleted_time is null do update set generation = 2`, 1},
		"None":          {"all are in use", `insert into tenant.resources ` + columns + ` values ` + row("Cluster", "there", "null") + ` on conflict (tenant, owner_id, name, kind) where deleted_time is null do nothing`, 0},
		"Merge":         {"as others write it", `merge into tenant.resources r using (values ` + row("Cluster", "there", "null") + `, ` + row("Cluster", "two", "null") + `) as n ` + columns + ` on r.name = n.name when not matched then insert ` + columns + ` values (n.id, n.kind, n.tenant, n.name, n.owner_id, n.owner_kind, n.spec, n.generation, n.created_time, n.updated_time, n.phase, n.last_updated_time, n.last_transition_time)`, 1},
		"WithItsPools":  {"and what belongs to it", `insert into tenant.resources ` + columns + ` values ` + given + `, ` + row("NodePool", "p", id) + `, ` + row("NodePool", "q", id), 1},
		"TwoStatements": {"in one", `with a as (insert into tenant.resources ` + columns + ` values ` + row("Cluster", "one", "null") + `) insert into tenant.clusters ` + columns + ` values ` + row("Cluster", "two", "null"), 2},
		"Others":        {"what is no cluster has no sync", `insert into tenant.resources ` + columns + ` values ` + row("Workload", "one", "null") + `, ` + row("Manifest", "two", "null"), 0},
	}
	b := newBed(t)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := b.of(t)
			b.exec(`delete from tenant.resources`)
			b.cluster("there")
			b.exec(tc.sql)
			want(b, 1+tc.added, `select count(*)::int from tenant.clusters`)
			if got := ask[int](b, `select count(*)::int from tenant.clusters c join tenant.cluster_sync s on s.cluster_id = c.id where s.synced is null and s.due_at <= now()`); got != 1+tc.added {
				t.Errorf("%s: %d clusters are due, want %d", tc.reason, got, 1+tc.added)
			}
		})
	}
}

func TestAClusterComesAndGoesWithItsRow(t *testing.T) {
	b := newBed(t)
	id := b.cluster("one")
	want(b, "null 0 1 0 t t", `select concat_ws(' ', coalesce(synced::text, 'null'), sync_attempts, generation, synced_generation,
		due_at <= now(), unsynced_since is not null) from tenant.cluster_sync where cluster_id = $1`, id)
	b.exec(`delete from tenant.resources where id = $1`, id)
	want(b, 0, `select count(*)::int from tenant.cluster_sync`)
}

// TestAClusterGoesWithItsPools: a cluster that is deleted with all its pools in one
// statement leaves no rows.
func TestAClusterGoesWithItsPools(t *testing.T) {
	b := newBed(t)
	id := b.cluster("one")
	b.pool(id, "one")
	b.pool(id, "two")
	b.exec(`delete from tenant.resources`)
	want(b, 0, `select count(*)::int from tenant.cluster_sync`)
}

func TestAPoolThatMovesChangesBothClusters(t *testing.T) {
	b := newBed(t)
	from, to := b.cluster("from"), b.cluster("to")
	pool := b.pool(from, "pool")
	for _, c := range b.claim(10) {
		b.complete(done(c))
	}
	b.exec(`update tenant.resources set owner_id = $1 where id = $2`, to, pool)
	if b.row(from).Synced || b.row(to).Synced {
		t.Error("one of them is still synced")
	}
}

func TestABulkEditMarksEveryCluster(t *testing.T) {
	b := newBed(t)
	const n = 500
	b.exec(insertMany, n)
	b.exec(`update tenant.cluster_sync set synced = now(), unsynced_since = null`)
	b.exec(`update tenant.resources set generation = generation + 1`)
	want(b, n, `select count(*)::int from tenant.cluster_sync where synced is null and generation = 2 and unsynced_since is not null and due_at <= now()`)
}

// insertMany adds $1 clusters.
const insertMany = `
	insert into tenant.resources (id, kind, tenant, name, spec, generation,
		created_time, updated_time, phase, last_updated_time, last_transition_time)
	select gen_random_uuid(), 'Cluster', 'a', 'many-' || i, '{"v": 1}', 1, now(), now(), 'Pending', now(), now() from generate_series(1, $1::int) i`

// TestAReportOnAClusterCostsNothing: a report on a cluster is still an update in place, unless it
// changes the phase, which is in an index, and does not write its sync.
func TestAReportOnAClusterCostsNothing(t *testing.T) {
	b := newBed(t)
	id := b.cluster("one")
	before := ask[string](b, `select ctid::text || xmin from tenant.cluster_sync`)
	for range 6 {
		b.exec(`update tenant.resources set phase = 'Ready', observed_generation = observed_generation + 1, conditions = '[{}]' where id = $1`, id)
	}
	want(b, before, `select ctid::text || xmin from tenant.cluster_sync`)
	b.exec(`select pg_stat_force_next_flush()`)
	want(b, "6 5", `select n_tup_upd || ' ' || n_tup_hot_upd from pg_stat_user_tables where relname = 'clusters'`)
}

func TestAnEditKeepsWhatWentWrongAndForgetsHowOften(t *testing.T) {
	b := newBed(t)
	id := b.cluster("one")
	c := b.claimOne()
	b.complete(failed(c, "no such version", true, lease))
	b.wantNothingDue("it waits after its failure")
	b.edit(id)
	r := b.row(id)
	if r.Attempts != 0 || r.SyncError != "no such version" {
		t.Errorf("%d attempts, error %q", r.Attempts, r.SyncError)
	}
	if again := b.claimOne(); again.Attempts != 0 || again.Token <= c.Token || !again.UnsyncedSince.Equal(c.UnsyncedSince) {
		t.Errorf("claimed with %d attempts, token %d after %d, unsynced since %s, was %s", again.Attempts, again.Token, c.Token, again.UnsyncedSince, c.UnsyncedSince)
	}
}

// TestAnEditThatIsRolledBackNeverWas: a rollback reverts everything.
func TestAnEditThatIsRolledBackNeverWas(t *testing.T) {
	b := newBed(t)
	id := b.cluster("one")
	b.complete(done(b.claimOne()))
	tx, err := b.owner.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `update tenant.resources set generation = generation + 1 where id = $1`, id); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := b.row(id); !r.Synced || r.Generation != 1 {
		t.Errorf("synced is %v, generation %d", r.Synced, r.Generation)
	}
}
