package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
	"github.com/fleetloop/fleetloop/internal/fleetapi/pgstore"
	"github.com/fleetloop/fleetloop/internal/fleetapi/watch"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
)

// A database is a store, and the owner's connection to its database.
type database struct {
	*pgstore.Store

	url  string
	conn *pgx.Conn
}

func newDatabase(t *testing.T) *database {
	t.Helper()
	url := pgtest.NewMigratedDatabaseURL(t)
	d := &database{pgstore.New(pgtest.Open(t, url)), url, connectTo(t, url)}
	if _, err := d.ReadLatestCursor(t.Context()); err != nil { // the database is a copy, and begins a new epoch
		t.Fatal(err)
	}
	return d
}

func connectTo(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

func (d *database) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	if _, err := d.conn.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// A follower follows the feed and records it.
type follower struct {
	at    watch.Cursor
	kind  string
	scope fleetapi.Scope
	limit int
	rows  map[fleetapi.Key]int64 // revisions
	seen  []string               // the changes in order: +id or -id
}

func (d *database) follower(t *testing.T, kind string, scope fleetapi.Scope) *follower {
	t.Helper()
	at, err := d.ReadLatestCursor(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return &follower{at: at, kind: kind, scope: scope, limit: 100, rows: map[fleetapi.Key]int64{}}
}

// read reads changes, and reports whether there may be more.
func (f *follower) read(ctx context.Context, s *pgstore.Store) (bool, error) {
	next, more, err := s.VisitChanges(ctx, f.scope, fleetapi.ChangeQuery{Kind: f.kind, After: f.at, Limit: f.limit}, func(c *fleetapi.Change) error {
		if c.At.Compare(f.at.Position) <= 0 {
			return fmt.Errorf("a change at %v behind the cursor at %v", c.At, f.at.Position)
		}
		if c.Record == nil {
			delete(f.rows, c.Key)
			f.seen = append(f.seen, "-"+c.Key.ID)
			return nil
		}
		if c.Record.Key != c.Key || c.Record.Tenant != c.Tenant || c.Record.Revision < c.At.Seq {
			return fmt.Errorf("change %+v has the record %+v", c, c.Record)
		}
		f.rows[c.Key] = c.Record.Revision
		f.seen = append(f.seen, "+"+c.Key.ID)
		return nil
	})
	if err == nil && next.Compare(f.at.Position) < 0 {
		err = fmt.Errorf("the cursor went back from %v to %v", f.at.Position, next.Position)
	}
	if err == nil {
		f.at = next
	}
	return more, err
}

// drain reads until there are no more changes, and returns them.
func (f *follower) drain(t *testing.T, s *pgstore.Store) []string {
	t.Helper()
	f.seen = nil
	for more := true; more; {
		var err error
		if more, err = f.read(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	return f.seen
}

func (f *follower) want(t *testing.T, s *pgstore.Store, reason string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, f.drain(t, s)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", reason, diff)
	}
}

func touch(t *testing.T, s *pgstore.Store, r *fleetapi.Record) {
	t.Helper()
	if err := change(t, s, all(), r.Key, func(*fleetapi.Locked) *v1.AdapterStatus { return nil }); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, s *pgstore.Store, r *fleetapi.Record) {
	t.Helper()
	err := s.RunInTx(t.Context(), all(), func(ctx context.Context, tx fleetapi.Tx) error {
		return tx.DeleteAndRecordResource(ctx, r.Key)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestChangesAreToldInOrderAndOnce(t *testing.T) {
	d := newDatabase(t)
	one, two, three := newRecord("a", v1.KindCluster, "one"), newRecord("b", v1.KindCluster, "two"), newRecord("a", v1.KindManifest, "three")
	f := d.follower(t, v1.KindCluster, all())
	every := d.follower(t, "", all())
	tenants := d.follower(t, v1.KindCluster, tenant("a"))
	nobody := d.follower(t, v1.KindCluster, fleetapi.Scope{})

	f.want(t, d.Store, "nothing happened")
	insert(t, d.Store, one, two, three)
	f.want(t, d.Store, "two of the kind came", "+"+one.ID, "+"+two.ID)
	every.want(t, d.Store, "three came", "+"+one.ID, "+"+two.ID, "+"+three.ID)
	tenants.want(t, d.Store, "one of the tenant came", "+"+one.ID)

	touch(t, d.Store, one)
	touch(t, d.Store, two)
	touch(t, d.Store, one)
	f.want(t, d.Store, "a row stands where it changed last", "+"+two.ID, "+"+one.ID)
	f.limit = 2
	touch(t, d.Store, one)
	touch(t, d.Store, one)
	touch(t, d.Store, two)
	f.want(t, d.Store, "the limit is one of changes", "+"+one.ID, "+"+two.ID)

	remove(t, d.Store, one)
	remove(t, d.Store, three)
	f.want(t, d.Store, "a row is gone", "-"+one.ID)
	tenants.want(t, d.Store, "a row of the tenant is gone", "-"+one.ID)
	insert(t, d.Store, one)
	remove(t, d.Store, one)
	f.want(t, d.Store, "it came and went", "-"+one.ID)
	nobody.want(t, d.Store, "a forgotten scope sees nothing")
	if diff := cmp.Diff(map[fleetapi.Key]int64{two.Key: mustGet(t, d.Store, two.Key).Revision}, f.rows); diff != "" {
		t.Errorf("what is left (-want +got):\n%s", diff)
	}
}

// TestAddedRowsAreTold checks that each new row is in the log once, whatever statement adds it.
func TestAddedRowsAreTold(t *testing.T) {
	d := newDatabase(t)
	const columns = ` (id, kind, tenant, name, spec, generation, created_time, updated_time, phase, last_updated_time, last_transition_time) `
	insert := func(into string, kinds ...string) string {
		var rows []string
		for _, kind := range kinds {
			rows = append(rows, "(gen_random_uuid(), '"+kind+"', 'a', gen_random_uuid(), '{}', 1, now(), now(), 'Pending', now(), now())")
		}
		return "insert into tenant." + into + columns + "values " + strings.Join(rows, ", ")
	}
	cases := map[string]struct {
		reason string
		sql    string
		want   int
	}{
		"One":        {"as the API does", insert("resources", v1.KindCluster), 1},
		"Kinds":      {"of whatever kind", insert("resources", v1.KindCluster, v1.KindNodePool, v1.KindManifest, v1.KindWorkload, v1.KindWorkload), 5},
		"Load":       {"a thousand in a statement", "insert into tenant.resources" + columns + "select gen_random_uuid(), 'Cluster', 'a', i, '{}', 1, now(), now(), 'Pending', now(), now() from generate_series(1, 1000) i", 1000},
		"Clusters":   {"a partition by its name", insert("clusters", v1.KindCluster, v1.KindCluster), 2},
		"NodePools":  {"a partition by its name", insert("nodepools", v1.KindNodePool), 1},
		"Manifests":  {"a partition by its name", insert("manifests", v1.KindManifest), 1},
		"Workloads":  {"a partition by its name", insert("workloads", v1.KindWorkload), 1},
		"TwoAtOnce":  {"two statements in one", "with a as (" + insert("workloads", v1.KindWorkload) + ") " + insert("resources", v1.KindCluster, v1.KindWorkload), 3},
		"Nothing":    {"nothing is nothing", "insert into tenant.resources select * from tenant.resources", 0},
		"TakenBack":  {"nor is what fails", "do $$ begin begin " + insert("resources", v1.KindCluster) + "; raise 'no'; exception when raise_exception then null; end; end $$", 0},
		"AddAndDrop": {"it goes in the same transaction", "do $$ begin " + insert("resources", v1.KindCluster) + "; delete from tenant.resources; end $$", 2},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			d.exec(t, "delete from tenant.resources")
			count := func() (n int) {
				if err := d.conn.QueryRow(t.Context(), "select count(*) from tenant.resource_changes").Scan(&n); err != nil {
					t.Fatal(err)
				}
				return n
			}
			before := count()
			d.exec(t, tc.sql)
			added, odd := count()-before, 0
			if err := d.conn.QueryRow(t.Context(), `select count(*) from tenant.resources r
				where not exists (select from tenant.resource_changes c where c.id = r.id and c.kind = r.kind and c.tenant = r.tenant and c.seq = r.revision and not c.labels_changed)`).Scan(&odd); err != nil {
				t.Fatal(err)
			}
			if added != tc.want || odd != 0 {
				t.Errorf("%s: %d changes, want %d; %d rows of which nothing is told", tc.reason, added, tc.want, odd)
			}
		})
	}
}

// TestChangesOfOthersAreTold checks that the log has the changes of any writer, even to a partition
// and without a revision. It also has changed labels.
func TestChangesOfOthersAreTold(t *testing.T) {
	d := newDatabase(t)
	r := newRecord("a", v1.KindCluster, "one")
	insert(t, d.Store, r)
	steps := map[string]struct {
		sql                     string
		gone, relabelled, quiet bool
	}{
		"Partition":     {sql: "update tenant.clusters set phase = 'Ready' where id = $1"},
		"Parent":        {sql: "update tenant.resources set phase = 'Ready' where id = $1"},
		"RevisionKept":  {sql: "update tenant.clusters set revision = revision where id = $1"},
		"RevisionBack":  {sql: "update tenant.clusters set revision = 1 where id = $1"},
		"SameLabels":    {sql: `update tenant.clusters set labels = '{"region": "eu"}' where id = $1`},
		"Labels":        {sql: `update tenant.clusters set labels = '{"region": "us"}' where id = $1`, relabelled: true},
		"LabelsAndBack": {sql: `with a as (select 1) update tenant.clusters set labels = '{}' where id = $1`, relabelled: true},
		"NoRow":         {sql: "update tenant.clusters set phase = 'Ready' where id = $1 and false", quiet: true},
		"Deleted":       {sql: "delete from tenant.clusters where id = $1", gone: true, relabelled: true},
	}
	for name, tc := range steps {
		t.Run(name, func(t *testing.T) {
			d.exec(t, "delete from tenant.clusters where id = $1", r.ID)
			insert(t, d.Store, r)
			at, err := d.ReadLatestCursor(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			d.exec(t, tc.sql, r.ID)
			told := 0
			_, _, err = d.VisitChanges(t.Context(), all(), fleetapi.ChangeQuery{After: at, Limit: 10}, func(c *fleetapi.Change) error {
				told++
				if c.Key != r.Key || (c.Record == nil) != tc.gone || c.Relabelled != tc.relabelled {
					t.Errorf("told %+v", c)
				}
				if c.Record != nil && (c.Record.Revision <= r.Revision || c.At.Seq != c.Record.Revision) {
					t.Errorf("revision %d after %d, at %v", c.Record.Revision, r.Revision, c.At)
				}
				return nil
			})
			if err != nil || (told == 0) != tc.quiet {
				t.Errorf("told %d times, %v", told, err)
			}
		})
	}
}

// TestTheLogIsNotWrittenByHand checks that only the trigger writes the log.
func TestTheLogIsNotWrittenByHand(t *testing.T) {
	d := newDatabase(t)
	insert(t, d.Store, newRecord("a", v1.KindCluster, "one"))
	for _, role := range []string{"fleet_api", "fleet_api_all_tenants"} {
		for _, sql := range []string{
			"insert into tenant.resource_changes (seq, kind, id, tenant, labels_changed) values (1, 'Cluster', gen_random_uuid(), 'a', false)",
			"update tenant.resource_changes set tenant = 'b'",
			"delete from tenant.resource_changes",
			"truncate tenant.resource_changes",
			"update tenant.change_feed set epoch = gen_random_uuid()",
			"delete from tenant.pruned_changes",
		} {
			d.exec(t, "set role "+role)
			if _, err := d.conn.Exec(t.Context(), sql); err == nil {
				t.Errorf("%s may %s", role, sql)
			}
			d.exec(t, "reset role")
		}
	}
}

// TestALaterChangeWaitsForAnEarlierOne checks that changes wait for a running transaction with an
// earlier place, so that none is missed.
func TestALaterChangeWaitsForAnEarlierOne(t *testing.T) {
	d := newDatabase(t)
	early, late := newRecord("a", v1.KindCluster, "early"), newRecord("a", v1.KindCluster, "late")
	f := d.follower(t, v1.KindCluster, all())

	slow, err := connectTo(t, d.url).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	insert(t, d.Store, early, late)
	f.want(t, d.Store, "both came", "+"+early.ID, "+"+late.ID)
	if _, err := slow.Exec(t.Context(), "update tenant.clusters set phase = 'Ready' where id = $1", early.ID); err != nil {
		t.Fatal(err)
	}
	touch(t, d.Store, late)
	f.want(t, d.Store, "an earlier change may come yet")
	if err := slow.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.want(t, d.Store, "both are settled", "+"+early.ID, "+"+late.ID)
}

// TestAFollowerEndsUpWithWhatThereIs checks that a follower ends with the current rows after many
// concurrent writes.
func TestAFollowerEndsUpWithWhatThereIs(t *testing.T) {
	d := newDatabase(t)
	f := d.follower(t, v1.KindCluster, all())
	f.limit = 7
	const writers, steps = 6, 60
	var running atomic.Int64
	running.Store(writers)
	var g errgroup.Group
	for w := range writers {
		g.Go(func() error {
			defer running.Add(-1)
			return write(t.Context(), d.Store, rand.New(rand.NewPCG(uint64(w), 7)), w, steps)
		})
	}
	g.Go(func() error {
		for running.Load() > 0 {
			if _, err := f.read(t.Context(), d.Store); err != nil {
				return err
			}
		}
		return nil
	})
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	f.drain(t, d.Store)
	want := map[fleetapi.Key]int64{}
	for _, r := range list(t, d.Store, all(), fleetapi.Query{Kind: v1.KindCluster}) {
		want[r.Key] = r.Revision
	}
	if diff := cmp.Diff(want, f.rows); diff != "" {
		t.Errorf("what the follower has (-want +got):\n%s", diff)
	}
	if len(want) < writers {
		t.Errorf("only %d rows are left; that proves little", len(want))
	}
}

// write runs transactions of a few changes each, and rolls some of them back.
func write(ctx context.Context, s *pgstore.Store, random *rand.Rand, writer, steps int) error {
	var mine []fleetapi.Key
	undo := errors.New("undo")
	for step := range steps {
		var after []fleetapi.Key
		err := s.RunInTx(ctx, all(), func(ctx context.Context, tx fleetapi.Tx) (err error) {
			after, err = writeSome(ctx, tx, random, mine, fmt.Sprintf("w%d-s%d", writer, step))
			if err == nil && random.IntN(5) == 0 {
				return undo
			}
			return err
		})
		switch {
		case err == nil:
			mine = after
		case !errors.Is(err, undo):
			return err
		}
	}
	return nil
}

func writeSome(ctx context.Context, tx fleetapi.Tx, random *rand.Rand, mine []fleetapi.Key, name string) ([]fleetapi.Key, error) {
	after := append([]fleetapi.Key(nil), mine...)
	for i := range 1 + random.IntN(3) {
		at := 0
		if len(after) > 0 {
			at = random.IntN(len(after))
		}
		switch action := random.IntN(5); {
		case len(after) == 0 || action < 2:
			r := newRecord("a", v1.KindCluster, fmt.Sprintf("%s-%d", name, i))
			if err := tx.InsertAndRecordResource(ctx, r); err != nil {
				return nil, err
			}
			after = append(after, r.Key)
		case action < 4:
			l, err := tx.LockAndReadResource(ctx, after[at])
			if err != nil {
				return nil, err
			}
			if err := tx.SaveLockedResource(ctx, &l.Record, nil); err != nil {
				return nil, err
			}
		default:
			if err := tx.DeleteAndRecordResource(ctx, after[at]); err != nil {
				return nil, err
			}
			after = append(after[:at], after[at+1:]...)
		}
	}
	return after, nil
}

// TestAPageAndItsChangesLeaveNoGap checks that a page and all changes since its cursor give the
// collection.
func TestAPageAndItsChangesLeaveNoGap(t *testing.T) {
	d := newDatabase(t)
	early, late := newRecord("a", v1.KindCluster, "early"), newRecord("a", v1.KindCluster, "late")
	insert(t, d.Store, early, late)
	slow, err := connectTo(t, d.url).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := slow.Exec(t.Context(), "update tenant.clusters set phase = 'Ready' where id = $1", early.ID); err != nil {
		t.Fatal(err)
	}
	touch(t, d.Store, late)
	page, err := d.List(t.Context(), all(), fleetapi.Query{Kind: v1.KindCluster, Limit: 10}, func(*fleetapi.Record) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if err := slow.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	f := &follower{at: page.State.CursorBeforePending(), kind: v1.KindCluster, scope: all(), limit: 10, rows: map[fleetapi.Key]int64{}}
	f.want(t, d.Store, "the page shows the one and not yet the other", "+"+early.ID, "+"+late.ID)
}
