package audit_test

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/fleetloop/fleetloop/internal/execution/audit"
	"github.com/fleetloop/fleetloop/internal/postgres"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
)

const retention = 90 * 24 * time.Hour

func (b *storeBed) maintain() audit.Maintenance {
	b.Helper()
	m, err := b.store.Maintain(b.Context(), retention)
	if err != nil {
		b.Fatal(err)
	}
	return m
}

func (b *storeBed) partitions() []string {
	b.Helper()
	rows, err := b.owner.Query(b.Context(), `select right(c.relname, 7) from pg_inherits i join pg_class c on c.oid = i.inhrelid
		where i.inhparent = 'executor.execution_audit_event'::regclass order by 1`)
	if err != nil {
		b.Fatal(err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		b.Fatal(err)
	}
	return list
}

// newYear is a bed with an execution in each month from January to June of 2031,
// of which the one of January goes on in March, and that of February is not
// deleted.
func newYear(t *testing.T) *storeBed {
	t.Helper()
	b := newStoreBed(t)
	// The partitions of the test's own time are in the way.
	for _, p := range b.partitions() {
		b.exec(`drop table executor.execution_audit_event_` + p)
	}
	for i, month := range []string{"jan", "feb", "mar", "apr", "may", "jun"} {
		b.at(time.Date(2031, time.Month(i+1), 10, 0, 0, 0, 0, time.UTC))
		b.append(newRecords(month)...)
		if month != "feb" && month != "jan" {
			b.append(deletedRecord(month))
		}
		if month == "mar" {
			b.append(deletedRecord("jan"))
		}
	}
	b.wantWhole(6*6 + 5)
	return b
}

func TestOnlyWholeMonthsGoThatAreOld(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		now    time.Time
		gone   []string
		left   []string
		events int64
	}{
		"NoneIsOld":     {"the last of January is younger than 90 days", time.Date(2031, 5, 1, 0, 0, 0, 0, time.UTC), nil, []string{"2031_01", "2031_02", "2031_03", "2031_04", "2031_05", "2031_06", "2031_07"}, 41},
		"ToTheMoment":   {"all of January is 90 days old", time.Date(2031, 5, 2, 0, 0, 0, 0, time.UTC), []string{"2031_01"}, []string{"2031_02", "2031_03", "2031_04", "2031_05", "2031_06", "2031_07"}, 41 - 6 + 1},
		"SomeAreOld":    {"January and February are", time.Date(2031, 6, 20, 0, 0, 0, 0, time.UTC), []string{"2031_01", "2031_02"}, []string{"2031_03", "2031_04", "2031_05", "2031_06", "2031_07", "2031_08"}, 41 - 12 + 2},
		"AllAreOld":     {"nothing was recorded for a year", time.Date(2032, 6, 20, 0, 0, 0, 0, time.UTC), []string{"2031_01", "2031_02", "2031_03", "2031_04", "2031_05", "2031_06"}, []string{"2032_06", "2032_07", "2032_08"}, 6},
		"LongForgotten": {"and much later", time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC), []string{"2031_01", "2031_02", "2031_03", "2031_04", "2031_05", "2031_06"}, []string{"2040_01", "2040_02", "2040_03"}, 6},
	} {
		t.Run(name, func(t *testing.T) {
			b := newYear(t)
			b.at(tc.now)
			m := b.maintain()
			var gone []string
			for _, p := range m.Pruned {
				gone = append(gone, strings.TrimPrefix(p, "execution_audit_event_"))
			}
			if diff := cmp.Diff(tc.gone, gone); diff != "" {
				t.Errorf("%s: gone (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.left, b.partitions()); diff != "" {
				t.Errorf("%s: left (-want +got):\n%s", tc.reason, diff)
			}
			report := b.wantWhole(tc.events)
			if report.End.String() != m.End.String() {
				t.Errorf("ends at %v, and maintenance says %v", report.End, m.End)
			}
			// It goes on behind, and is pruned again.
			b.append(newRecords("next")...)
			b.wantWhole(tc.events + 6)
			if m := b.maintain(); len(m.Pruned) != 0 {
				t.Errorf("pruned again: %v", m.Pruned)
			}
		})
	}
}

// TestWhatWasPrunedDoesNotComeBack verifies that pruned records of an existing execution are not
// recorded again.
func TestWhatWasPrunedDoesNotComeBack(t *testing.T) {
	b := newYear(t)
	b.at(time.Date(2031, 9, 20, 0, 0, 0, 0, time.UTC))
	b.maintain()
	events := b.wantWhole(7 + 5).End.Position // of June and of the prunings
	wantValue(b, "{feb,jun}", `select array_agg(name order by name)::text from executor.execution_summary`)
	b.append(newRecords("feb")...)
	b.append(newRecords("jun")...)
	if got := b.verify().End.Position; got != events {
		t.Errorf("recorded up to %d, want %d", got, events)
	}
	b.append(deletedRecord("feb"))
	if got := b.verify().End.Position; got != events+1 {
		t.Errorf("recorded up to %d, want %d", got, events+1)
	}
}

func TestTamperingAndPruning(t *testing.T) {
	cases := map[string]struct {
		reason   string
		sql      string
		kind     audit.BreakKind
		position int64
	}{
		"WithoutPruning": {"nothing says that it was pruned", `drop table executor.execution_audit_event_2031_03`, audit.Missing, 13},
		"AnchorMoved": {"only pruning moves it", `drop table executor.execution_audit_event_2031_03;
			insert into executor.execution_audit_anchor select position - 1, prev_hash, '', 6, now() from executor.execution_audit_event where position = 21`, audit.Missing, 20},
		"AnchorChanged": {"the first event follows it", `update executor.execution_audit_anchor set hash = sha256('x') where position > 6`, audit.Changed, 13},
		"NoteRemoved":   {"it is in the chain", `delete from executor.execution_audit_event where type = 'pruned'`, audit.Missing, 42},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := newYear(t)
			b.at(time.Date(2031, 6, 20, 0, 0, 0, 0, time.UTC))
			b.maintain()
			if got := queryValue[int64](b, `select max(position) from executor.execution_audit_anchor`); got != 12 {
				t.Fatalf("pruned up to %d", got)
			}
			b.tamper(tc.sql)
			b.wantBroken(tc.kind, tc.position)
		})
	}
}

// TestABrokenChainIsNotPruned verifies that records that prove a change of the audit are kept.
func TestABrokenChainIsNotPruned(t *testing.T) {
	b := newYear(t)
	b.tamper(`update executor.execution_audit_event set actor_id = 'mallory' where position = 2`)
	b.at(time.Date(2031, 9, 20, 0, 0, 0, 0, time.UTC))
	m := b.maintain()
	if m.Broken == nil || m.Broken.Position != 2 || len(m.Pruned) != 0 {
		t.Errorf("%+v", m)
	}
	b.wantBroken(audit.Changed, 2)
	// Nor by the function alone, where it looks.
	b.tamper(`delete from executor.execution_audit_event where position = 1`)
	if _, err := b.owner.Exec(t.Context(), `select executor.prune_audit('90 days')`); postgres.SQLState(err) != "XX001" {
		t.Errorf("%v", err)
	}
}

// A crash while pruning leaves all as it was.
func TestPruningIsAllOrNothing(t *testing.T) {
	b := newYear(t)
	b.at(time.Date(2031, 9, 20, 0, 0, 0, 0, time.UTC))
	b.exec(`create function public.fail() returns trigger language plpgsql as $$
		begin
			if new.position > 30 then raise exception 'crash'; end if;
			return new;
		end $$`)
	b.exec(`create trigger crash after insert on executor.execution_audit_anchor for each row execute function public.fail()`)
	if _, err := b.store.Maintain(t.Context(), retention); err == nil {
		t.Fatal("nothing crashed")
	}
	b.wantWhole(41)
	b.exec(`drop function public.fail cascade`)
	b.maintain()
	b.wantWhole(7 + 5)
}

// TestPruningDuringVerification verifies that nothing is pruned during a verification, and that
// pruning does not wait for long.
func TestPruningDuringVerification(t *testing.T) {
	b := newYear(t)
	b.at(time.Date(2031, 9, 20, 0, 0, 0, 0, time.UTC))
	// The last thing that a verification looks at.
	tx, err := connect(t, b.url).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `lock table executor.execution_summary in access exclusive mode`); err != nil {
		t.Fatal(err)
	}
	verified := make(chan audit.Report, 1)
	go func() {
		report, err := b.store.Verify(t.Context())
		if err != nil {
			t.Error(err)
		}
		verified <- report
	}()
	b.await("it waits", func() bool {
		return queryValue[bool](b, `select exists (select from pg_locks where not granted and relation = 'executor.execution_summary'::regclass)`)
	})
	if _, err := b.owner.Exec(t.Context(), `select executor.prune_audit('90 days')`); postgres.SQLState(err) != "55P03" {
		t.Errorf("%v", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if report := <-verified; report.Broken != nil || report.Checked != 41 {
		t.Errorf("%+v", report)
	}
	b.maintain()
	b.wantWhole(7 + 5)
}

// TestPruningWithAnyPlan: PostgreSQL may evaluate the conditions of a query in any
// order, so the name of another relation must not be read as a month.
func TestPruningWithAnyPlan(t *testing.T) {
	b := newYear(t)
	if _, err := b.owner.Exec(t.Context(), `set enable_nestloop = off`); err != nil {
		t.Fatal(err)
	}
	if _, err := b.owner.Exec(t.Context(), `select executor.expired_audit_partitions('90 days')`); err != nil {
		t.Errorf("list the expired partitions by a hash join: %v", err)
	}
}

// A dump that is restored is the same chain, which goes on.
func TestARestoredDump(t *testing.T) {
	dump, err := exec.LookPath("pg_dump")
	if err != nil {
		t.Fatal("there is no pg_dump: install the client programs of PostgreSQL, which come with its server (make setup)")
	}
	b := newYear(t)
	b.at(time.Date(2031, 6, 20, 0, 0, 0, 0, time.UTC))
	b.maintain()
	before := b.wantWhole(31).End
	text, err := exec.CommandContext(t.Context(), dump, "--inserts", b.url).CombinedOutput()
	if err != nil {
		t.Fatalf("dump the audit: %v: %s", err, text)
	}
	url := pgtest.NewEmptyDatabaseURL(t)
	restored := &storeBed{TB: t, url: url, owner: connect(t, url), store: audit.NewPostgresStore(openAs(t, url, postgres.RoleExecutionController))}
	restored.exec(plainSQL(string(text)))
	restored.exec(`reset all`)
	report := restored.wantWhole(31)
	if report.End.String() != before.String() {
		t.Errorf("ends at %v, want %v", report.End, before)
	}
	restored.append(newRecords("jun")...) // they were there
	restored.append(newRecords("after")...)
	restored.wantWhole(37)
	if got := restored.verify(before); got.Broken != nil {
		t.Errorf("%+v", got.Broken)
	}
}

// plainSQL leaves out what only psql understands.
func plainSQL(dump string) string {
	var b strings.Builder
	for line := range strings.Lines(dump) {
		if !strings.HasPrefix(line, `\`) {
			b.WriteString(line)
		}
	}
	return b.String()
}
