package postgres_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
)

// TestAPartitionCanBeReferredTo checks the properties of partitions that syncs rely on. The table
// of syncs refers to tenant.clusters and is maintained by its triggers, while all writes go to the
// parent table.
func TestAPartitionCanBeReferredTo(t *testing.T) {
	conn := connect(t, pgtest.NewMigratedDatabaseURL(t))
	run(t, conn, `create table tenant.noted_clusters (cluster_id uuid primary key references tenant.clusters (id) on delete cascade)`)
	run(t, conn, insertCluster, "t", "one")
	run(t, conn, `insert into tenant.noted_clusters select id from tenant.resources`)
	if _, err := conn.Exec(t.Context(), `insert into tenant.noted_clusters values (gen_random_uuid())`); err == nil {
		t.Error("a reference to no cluster was taken")
	}
	run(t, conn, `delete from tenant.resources`)
	if got := texts(t, conn, `select cluster_id::text from tenant.noted_clusters`); len(got) != 0 {
		t.Errorf("the reference outlived the cluster: %v", got)
	}
}

func TestWhichTriggersFire(t *testing.T) {
	conn := connect(t, pgtest.NewMigratedDatabaseURL(t))
	run(t, conn, `
		create table fired (seq serial, what text);
		create function note() returns trigger language plpgsql as $$
		begin
			insert into fired (what) values (tg_table_name || ' ' || lower(tg_level) || ' ' || lower(tg_op));
			return null;
		end $$;
		create trigger each_row after insert or update or delete on tenant.clusters for each row execute function note();
		create trigger each_statement after insert or update or delete on tenant.clusters for each statement execute function note();
		create trigger each_statement after insert or update or delete on tenant.resources for each statement execute function note();`)
	run(t, conn, insertCluster, "t", "one")
	run(t, conn, `update tenant.resources set phase = 'Ready'`)
	run(t, conn, `delete from tenant.resources`)
	want := []string{
		// Row triggers fire on the partition; a statement trigger fires on the named table.
		"clusters row insert", "resources statement insert",
		"clusters row update", "resources statement update",
		"clusters row delete", "resources statement delete",
	}
	if diff := cmp.Diff(want, texts(t, conn, `select what from fired order by seq`)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAReportIsAnUpdateInPlace(t *testing.T) {
	conn := connect(t, pgtest.NewMigratedDatabaseURL(t))
	run(t, conn, insertCluster, "t", "one")
	for range 5 {
		run(t, conn, `update tenant.resources set phase = 'Ready', observed_generation = observed_generation + 1,
			revision = nextval('tenant.resource_revision'), last_updated_time = now(), conditions = '[{"type": "Reconciled"}]'`)
	}
	run(t, conn, `select pg_stat_force_next_flush()`)
	got := texts(t, conn, `select n_tup_upd || ' ' || n_tup_hot_upd from pg_stat_user_tables where relname = 'clusters'`)
	if diff := cmp.Diff([]string{"5 4"}, got); diff != "" { // the first one changes the phase, which has indexes
		t.Errorf("updates, and those in place (-want +got):\n%s", diff)
	}
}

// TestEveryTableIsUnderRowLevelSecurity checks that row-level security is enabled on every table. A
// direct read of a partition then sees no rows without a policy.
func TestEveryTableIsUnderRowLevelSecurity(t *testing.T) {
	conn := connect(t, pgtest.NewMigratedDatabaseURL(t))
	got := texts(t, conn, `
		select relname from pg_class c join pg_namespace n on n.oid = c.relnamespace
		where n.nspname = 'tenant' and c.relkind in ('r', 'p') and not c.relrowsecurity`)
	if len(got) != 0 {
		t.Errorf("without row-level security: %v", got)
	}
}

// TestEveryPartitionNotesWhatIsAdded checks the triggers of each partition. A statement trigger
// fires only for the named table, so a new partition needs its own.
func TestEveryPartitionNotesWhatIsAdded(t *testing.T) {
	conn := connect(t, pgtest.NewMigratedDatabaseURL(t))
	got := texts(t, conn, `
		select p.relid::regclass::text from pg_partition_tree('tenant.resources') p
		where not exists (select from pg_trigger g where g.tgrelid = p.relid and g.tgname = 'log_added' and g.tgenabled = 'O')`)
	if len(got) != 0 {
		t.Errorf("what is added to these is in no log: %v", got)
	}
}

// TestAKindStays checks that a row cannot move between partitions.
func TestAKindStays(t *testing.T) {
	conn := connect(t, pgtest.NewMigratedDatabaseURL(t))
	run(t, conn, insertCluster, "t", "one")
	for _, table := range []string{"tenant.resources", "tenant.clusters"} {
		if _, err := conn.Exec(t.Context(), "update "+table+" set kind = 'Workload'"); err == nil {
			t.Errorf("a row of %s has another kind", table)
		}
	}
	if got := texts(t, conn, "select kind from tenant.clusters"); len(got) != 1 {
		t.Errorf("%d clusters are left", len(got))
	}
}

func run(t *testing.T, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func texts(t *testing.T, conn *pgx.Conn, sql string) []string {
	t.Helper()
	rows, err := conn.Query(t.Context(), sql)
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return got
}
