package pgstore_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
	"github.com/fleetloop/fleetloop/internal/fleetapi/pgstore"
	"github.com/fleetloop/fleetloop/internal/postgres"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
)

func newRoller(pool *postgres.Pool, keys ...string) *pgstore.RollupCounter {
	return pgstore.NewRollupCounter(pool, keys, slog.New(slog.DiscardHandler))
}

// countAll counts until the counts include everything that was committed before. A transaction of
// another test may hold up the log for a moment, and so may one whose client is gone.
func (d *database) countAll(t require, r *pgstore.RollupCounter) {
	t.Helper()
	var began time.Time
	if err := d.conn.QueryRow(t.Context(), "select clock_timestamp()").Scan(&began); err != nil {
		t.Fatal(err)
	}
	for done := false; !done; {
		if time.Since(began) > time.Minute {
			t.Fatal("the counts stay old")
		}
		_, err := pgstore.CountOnce(r, t.Context())
		if err == nil {
			err = d.conn.QueryRow(t.Context(), "select coalesce(as_of > $1 and syncs_as_of > $1, false) from tenant.rollup", began).Scan(&done)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// require is the common part of *testing.T and *rapid.T.
type require interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Context() context.Context
}

// counted and actual select the counts and what they must be, as rows of text.
const (
	counted = `select format('%s|%s|%s|%s|%s|%s', tenant, kind, label, value, phase, n) from tenant.rollup_counts where n <> 0
		union all select format('%s|%s|%s', tenant, state, n) from tenant.rollup_syncs`
	actual = `with row as (
		select r.tenant, r.kind, '' as label, '' as value, r.phase from tenant.resources r where r.kind in ('Cluster', 'NodePool')
		union all
		select r.tenant, r.kind, l.key, l.value, r.phase from tenant.resources r, jsonb_each_text(r.labels) l
		where r.kind = 'Cluster' and l.key = any (select unnest(label_keys) from tenant.rollup)
	), sync as (
		select r.tenant, case when s.paused_at is not null then 'paused' when s.claim_token is not null and s.due_at > now() then 'running'
			when s.sync_attempts >= 8 then 'stuck' when s.sync_attempts > 0 and s.due_at > now() then 'backing_off' else 'pending' end as state
		from tenant.cluster_sync s join tenant.clusters r on r.id = s.cluster_id where s.synced is null or s.paused_at is not null
	)
	select format('%s|%s|%s|%s|%s|%s', tenant, kind, label, value, phase, count(*)) from row
	group by grouping sets ((tenant, kind, label, value, phase), (kind, label, value, phase))
	having count(*) > 0
	union all
	select format('%s|%s|%s', tenant, state, count(*)) from sync group by grouping sets ((tenant, state), (state)) having count(*) > 0`
)

func (d *database) texts(t require, sql string) []string {
	t.Helper()
	rows, err := d.conn.Query(t.Context(), sql)
	if err != nil {
		t.Fatal(err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(list)
	return list
}

// wantExactCounts checks that the counts are those of the rows.
func (d *database) wantExactCounts(t require) {
	t.Helper()
	if diff := cmp.Diff(d.texts(t, actual), d.texts(t, counted), cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("counts (-rows +counted):\n%s", diff)
	}
	if diff := cmp.Diff(d.actualReasons(t), d.countedReasons(t), cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("reasons (-rows +counted):\n%s", diff)
	}
	d.wantErrorsRead(t)
}

// wantErrorsRead checks that each error of a sync was counted as it is, so that it is not read again.
func (d *database) wantErrorsRead(t require) {
	t.Helper()
	if again := d.texts(t, `select s.sync_error from tenant.cluster_sync s left join tenant.rollup_reasons p on p.id = s.cluster_id and p.source = 'sync'
		where s.synced is null and s.sync_error is not null and p.digest is distinct from md5(s.sync_error)::uuid`); len(again) > 0 {
		t.Fatalf("these errors are read in every round: %q", again)
	}
}

// actualReasons counts the reasons of all rows in Go.
func (d *database) actualReasons(t require) map[string]int {
	t.Helper()
	want := map[string]int{}
	rows, err := d.conn.Query(t.Context(), `select r.tenant, r.name, a.adapter, a.conditions from tenant.adapter_reports a
		join tenant.resources r on r.id = a.resource_id and r.kind = a.kind where r.phase <> 'Ready' and r.kind in ('Cluster', 'NodePool')`)
	if err != nil {
		t.Fatal(err)
	}
	var tenant, name, adapter, message string
	var conditions []v1.AdapterCondition
	_, err = pgx.ForEachRow(rows, []any{&tenant, &name, &adapter, &conditions}, func() error {
		if c, failed := fleetapi.FindFailedCondition(conditions); failed {
			reason := fleetapi.NormalizeFailedCondition(c, name)
			want[tenant+"|adapter:"+adapter+"|"+reason]++
			want["|adapter:"+adapter+"|"+reason]++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	rows, err = d.conn.Query(t.Context(), `select r.tenant, r.name, s.sync_error from tenant.cluster_sync s join tenant.clusters r on r.id = s.cluster_id
		where s.synced is null and s.sync_error is not null`)
	if err != nil {
		t.Fatal(err)
	}
	_, err = pgx.ForEachRow(rows, []any{&tenant, &name, &message}, func() error {
		reason := fleetapi.NormalizeMessage(message, name)
		want[tenant+"|sync|"+reason]++
		want["|sync|"+reason]++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return want
}

func (d *database) countedReasons(t require) map[string]int {
	t.Helper()
	got := map[string]int{}
	rows, err := d.conn.Query(t.Context(), `select coalesce(tenant, ''), source, reason, n from tenant.rollup_reason_counts where n <> 0`)
	if err != nil {
		t.Fatal(err)
	}
	var tenant, source, reason string
	var n int
	if _, err := pgx.ForEachRow(rows, []any{&tenant, &source, &reason, &n}, func() error {
		got[tenant+"|"+source+"|"+reason] = n
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return got
}

// A fleetUnderTest is a random fleet, and its roller.
type fleetUnderTest struct {
	*database

	t      *testing.T
	pool   *postgres.Pool
	roller *pgstore.RollupCounter
	held   pgx.Tx // an open transaction with a change of a row
	heldID string
	serial int
}

// act does one random operation.
func (f *fleetUnderTest) act(rt *rapid.T) {
	rows := slices.DeleteFunc(list(f.t, f.Store, all(), fleetapi.Query{Kind: v1.KindCluster}), func(r fleetapi.Record) bool { return r.ID == f.heldID })
	pools := list(f.t, f.Store, all(), fleetapi.Query{Kind: v1.KindNodePool})
	any1 := func(list []fleetapi.Record) fleetapi.Record { return rapid.SampledFrom(list).Draw(rt, "row") }
	op := rapid.IntRange(0, 13).Draw(rt, "op")
	if op > 1 && len(rows) == 0 {
		op = 0
	}
	switch op {
	case 0, 1:
		f.serial++
		r := newRecord(rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "tenant"), v1.KindCluster, fmt.Sprintf("row-%c", 'a'+rune(f.serial%26))+fmt.Sprint(f.serial))
		r.Labels = json.RawMessage(rapid.SampledFrom([]string{`{}`, `{"region":"eu"}`, `{"region":"us","env":""}`}).Draw(rt, "labels"))
		insert(f.t, f.Store, r)
	case 2:
		r := any1(rows)
		f.serial++
		pool := newRecord(r.Tenant, v1.KindNodePool, fmt.Sprintf("pool-%d", f.serial))
		pool.ParentID = r.ID
		insert(f.t, f.Store, pool)
	case 3, 4, 5: // a report, and a phase
		r := any1(append(rows, pools...))
		phase := rapid.SampledFrom([]v1.Phase{v1.PhaseReady, v1.PhasePending, v1.PhaseFailed}).Draw(rt, "phase")
		status := rapid.SampledFrom([]v1.ConditionStatus{v1.ConditionTrue, v1.ConditionFalse}).Draw(rt, "status")
		message := rapid.SampledFrom([]string{"quota of 5", "quota of 7", "no zone"}).Draw(rt, "message")
		adapter := rapid.SampledFrom([]string{"dns", "validation"}).Draw(rt, "adapter")
		f.mustChange(change(f.t, f.Store, all(), r.Key, func(l *fleetapi.Locked) *v1.AdapterStatus {
			l.Record.Status.Phase, l.Record.Status.LastTransitionTime = phase, l.Now
			return &v1.AdapterStatus{Adapter: adapter, CreatedTime: l.Now, LastReportTime: l.Now, ObservedGeneration: 1, Conditions: []v1.AdapterCondition{
				{ReportCondition: v1.ReportCondition{Type: v1.ConditionAvailable, Status: status, Reason: "Said", Message: message}, LastTransitionTime: l.Now},
			}}
		}))
	case 6:
		r := any1(rows)
		labels := rapid.SampledFrom([]string{`{}`, `{"region":"eu"}`, `{"region":"us","env":"x"}`}).Draw(rt, "labels")
		f.mustChange(change(f.t, f.Store, all(), r.Key, func(l *fleetapi.Locked) *v1.AdapterStatus {
			l.Record.Labels = json.RawMessage(labels)
			return nil
		}))
	case 7: // whatever it is, with its children, or to another tenant
		r := any1(rows)
		if rapid.Bool().Draw(rt, "delete") {
			f.mayFail("delete from tenant.resources where owner_id = $1", r.ID)
			f.mayFail("delete from tenant.resources where id = $1", r.ID)
		} else {
			f.mayFail("update tenant.resources set tenant = 'c' where id = $1", r.ID)
		}
	case 8:
		r := any1(rows)
		f.mayFail("update tenant.cluster_sync set "+rapid.SampledFrom([]string{
			"synced = now(), unsynced_since = null, sync_error = null, sync_attempts = 0",
			"synced = null, sync_error = 'quota of 9', sync_attempts = 9, unsynced_since = now()",
			"synced = null, sync_error = 'row is gone', sync_attempts = 1, due_at = now() + interval '1 day'",
			"synced = null, sync_error = null, claim_token = 7, due_at = now() + interval '1 day'",
			"paused_at = now()", "paused_at = null",
		}).Draw(rt, "sync")+" where cluster_id = $1", r.ID)
	case 9: // changes settle only after an open transaction has ended
		f.endHeld(rapid.Bool().Draw(rt, "commit"))
		tx, err := connectTo(f.t, f.url).Begin(rt.Context())
		if err != nil {
			rt.Fatal(err)
		}
		f.held, f.heldID = tx, any1(rows).ID
		if _, err := tx.Exec(rt.Context(), "update tenant.resources set phase = 'Failed' where id = $1", f.heldID); err != nil {
			rt.Fatal(err)
		}
	case 10: // the log is pruned, maybe past the position, or begins anew
		if rapid.Bool().Draw(rt, "epoch") {
			f.exec(f.t, "update tenant.change_feed set epoch = gen_random_uuid()")
		} else {
			f.exec(f.t, "select tenant.prune_changes('-1 day', 1000)")
		}
	case 11:
		f.roller = newRoller(f.pool, rapid.SampledFrom([][]string{{"region"}, {"env", "region"}, {}}).Draw(rt, "keys")...)
	case 12:
		if _, err := pgstore.CountOnce(f.roller, rt.Context()); err != nil {
			rt.Fatal(err)
		}
	case 13:
		syncs, statement, write := rapid.Bool().Draw(rt, "syncs"), rapid.IntRange(0, 9).Draw(rt, "dies at"), rapid.IntRange(0, 9).Draw(rt, "or at write")
		if _, err := f.roller.CountDying(rt.Context(), syncs, statement, write); err != nil {
			rt.Fatal(err)
		}
	}
}

func (f *fleetUnderTest) mustChange(err error) {
	if err != nil {
		f.t.Fatal(err)
	}
}

// mayFail runs a statement that a constraint may refuse.
func (f *fleetUnderTest) mayFail(sql string, args ...any) {
	_, _ = f.conn.Exec(f.t.Context(), sql, args...) // what it changed shows in the rows
}

func (f *fleetUnderTest) endHeld(commit bool) {
	if f.held == nil {
		return
	}
	end := f.held.Rollback
	if commit {
		end = f.held.Commit
	}
	if err := end(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
	_ = f.held.Conn().Close(f.t.Context())
	f.held, f.heldID = nil, ""
}

// TestCountsAreExact checks the counts after any sequence of changes, however often the roller dies
// between two statements, is started again, or loses its place in the log.
func TestCountsAreExact(t *testing.T) {
	d := newDatabase(t)
	if err := pgstore.LetCountersDie(t.Context(), d.conn); err != nil {
		t.Fatal(err)
	}
	pool := pgtest.Open(t, d.url)
	f := &fleetUnderTest{database: d, t: t, pool: pool, roller: newRoller(pool, "region", "env")}
	rapid.Check(t, func(rt *rapid.T) {
		for range rapid.IntRange(1, 25).Draw(rt, "operations") {
			f.act(rt)
		}
		f.endHeld(rapid.Bool().Draw(rt, "commit"))
		d.countAll(rt, f.roller)
		d.wantExactCounts(rt)
	})
}

// TestACountThatStaysIsNotWritten checks that a change that leaves the counts as they are writes only the position. The
// change feed waits for a transaction from its first write.
func TestACountThatStaysIsNotWritten(t *testing.T) {
	d := newDatabase(t)
	r := newRoller(pgtest.Open(t, d.url), "region")
	record := newRecord("a", v1.KindCluster, "one")
	insert(t, d.Store, record)
	d.countAll(t, r)
	const versions = "select xmin::text || ' ' || ctid::text || ' ' || xmax::text from tenant.rollup_rows"
	before := d.texts(t, versions)
	err := change(t, d.Store, all(), record.Key, func(l *fleetapi.Locked) *v1.AdapterStatus {
		l.Record.DisplayName = "Another"
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	d.countAll(t, r)
	if diff := cmp.Diff(before, d.texts(t, versions)); diff != "" || len(before) != 1 {
		t.Errorf("the counted row was written (-before +after):\n%s", diff)
	}
}

// TestErrorOfASyncFollowsItsCluster checks the counted error of a sync whose cluster goes to another tenant.
func TestErrorOfASyncFollowsItsCluster(t *testing.T) {
	d := newDatabase(t)
	r := newRoller(pgtest.Open(t, d.url))
	moved := newRecord("a", v1.KindCluster, "moved")
	insert(t, d.Store, moved)
	d.exec(t, "update tenant.cluster_sync set sync_error = 'no quota', sync_attempts = 1 where cluster_id = '"+moved.ID+"'")
	for _, tenant := range []string{"a", "b"} {
		d.exec(t, "update tenant.resources set tenant = '"+tenant+"' where id = '"+moved.ID+"'")
		d.countAll(t, r)
		d.wantExactCounts(t)
		if got := d.countedReasons(t); got[tenant+"|sync|no quota"] != 1 {
			t.Errorf("want one error of tenant %q, got %v", tenant, got)
		}
	}
}

// TestRollersOfSeveralProcesses checks that the counts stay exact while several processes count and
// others write.
func TestRollersOfSeveralProcesses(t *testing.T) {
	d := newDatabase(t)
	pool := pgtest.Open(t, d.url)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	rollers := []*pgstore.RollupCounter{newRoller(pool, "region"), newRoller(pool, "region"), newRoller(pool, "region")}
	for _, r := range rollers {
		wg.Go(func() {
			for ctx.Err() == nil {
				if _, err := pgstore.CountOnce(r, ctx); err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
			}
		})
	}
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for i := range 25 {
				r := newRecord("a", v1.KindCluster, fmt.Sprintf("row-%d-%d", w, i))
				err := d.RunInTx(ctx, all(), func(ctx context.Context, tx fleetapi.Tx) error {
					return tx.InsertAndRecordResource(ctx, r)
				})
				if err == nil && i%3 == 0 {
					err = d.RunInTx(ctx, all(), func(ctx context.Context, tx fleetapi.Tx) error {
						l, err := tx.LockAndReadResource(ctx, r.Key)
						if err != nil {
							return err
						}
						l.Record.Status.Phase = v1.PhaseReady
						return tx.SaveLockedResource(ctx, &l.Record, nil)
					})
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	cancel()
	wg.Wait()
	d.countAll(t, newRoller(pool, "region"))
	d.wantExactCounts(t)
}
