package audit_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/fleetloop/fleetloop/internal/execution/audit"
)

// rehash makes a row look as if it had been recorded so.
const rehash = `update executor.execution_audit_event e set hash = executor.audit_digest(e) where position = `

// otherValue is another value of a column's type.
func otherValue(t *testing.T, column, dataType string) string {
	t.Helper()
	switch dataType {
	case "text":
		return column + ` || 'x'`
	case "integer", "bigint":
		return column + ` + 100`
	case "timestamp with time zone":
		return column + ` + interval '1 microsecond'`
	case "jsonb":
		return column + ` || '{"more": 1}'`
	case "bytea":
		return `set_byte(` + column + `, 31, (get_byte(` + column + `, 31) + 1) % 256)`
	}
	t.Fatalf("column %s is of another type: %s", column, dataType)
	return ""
}

// Every column is vouched for: those that a later migration adds, too.
func TestAChangeOfAnyColumnIsFound(t *testing.T) {
	b := newStoreBed(t)
	b.append(newRecords("one")...)
	b.append(newRecords("two")...)
	rows, err := b.owner.Query(t.Context(), `select column_name::text, data_type::text from information_schema.columns
		where table_schema = 'executor' and table_name = 'execution_audit_event'`)
	if err != nil {
		t.Fatal(err)
	}
	type column struct{ Name, Type string }
	columns, err := pgx.CollectRows(rows, pgx.RowToStructByPos[column])
	if err != nil || len(columns) < 26 {
		t.Fatalf("%d columns, %v", len(columns), err)
	}
	for _, position := range []int64{1, 6, 12} {
		for _, c := range columns {
			b.tamper(`create table public.kept as select * from executor.execution_audit_event where position = $1`, position)
			b.tamper(`update executor.execution_audit_event set `+c.Name+` = `+otherValue(t, c.Name, c.Type)+` where position = $1`, position)
			got := b.verify().Broken
			switch {
			case got == nil:
				t.Errorf("%s of %d is another, and nothing is found", c.Name, position)
			case got.Position != position:
				t.Errorf("%s of %d is another, and found is %+v", c.Name, position, *got)
			case got.Kind != audit.Changed && c.Name != "position":
				t.Errorf("%s of %d is another, and found is %+v", c.Name, position, *got)
			}
			b.tamper(`delete from executor.execution_audit_event e where e.hash in (select hash from public.kept) or e.position in (select position from public.kept) or e.position = $1`, position+100)
			b.tamper(`insert into executor.execution_audit_event select * from public.kept`)
			b.tamper(`drop table public.kept`)
		}
	}
	b.wantWhole(12)
}

func TestWhatIsDoneToTheChainIsFound(t *testing.T) {
	const insert = `insert into executor.execution_audit_event
		select (jsonb_populate_record(e, '{"execution_uid": "forged", "seq": 1, "position": %d, "name": "forged"}')).* from executor.execution_audit_event e where position = %d`
	cases := map[string]struct {
		reason   string
		sql      string
		kind     audit.BreakKind
		position int64
	}{
		"RemovedFirst":       {"the chain begins where it was begun", `delete from executor.execution_audit_event where position = 1`, audit.Missing, 1},
		"RemovedInTheMiddle": {"positions have no gaps", `delete from executor.execution_audit_event where position = 5`, audit.Missing, 5},
		"RemovedMany":        {"the first is named", `delete from executor.execution_audit_event where position between 4 and 9`, audit.Missing, 4},
		"RemovedLast":        {"the head says where the end is", `delete from executor.execution_audit_event where position = 12`, audit.Missing, 12},
		"RemovedAll":         {"the head says where the end is", `delete from executor.execution_audit_event`, audit.Missing, 1},
		"RemovedLastAndHead": {"the summary says of it", `delete from executor.execution_audit_event where position = 12;
			update executor.execution_audit_head set (position, hash) = (select position, hash from executor.execution_audit_event where position = 11)`, audit.Missing, 12},
		"HeadGone":    {"there is no end without it", `delete from executor.execution_audit_head`, audit.Missing, 0},
		"AnchorGone":  {"there is no beginning without it", `delete from executor.execution_audit_anchor`, audit.Missing, 0},
		"HeadChanged": {"its hash is the last event's", `update executor.execution_audit_head set hash = sha256('x')`, audit.Changed, 12},
		"AnchorForged": {"what is gone was pruned, or it was removed", `delete from executor.execution_audit_event where position <= 3;
			insert into executor.execution_audit_anchor select position - 1, prev_hash, '', 3, now() from executor.execution_audit_event where position = 4`, audit.Missing, 3},
		"Renumbered": {"hashes have the positions", `delete from executor.execution_audit_event where position = 5;
			update executor.execution_audit_event set position = position - 1 where position > 5;
			update executor.execution_audit_head set position = 11`, audit.Changed, 5},
		"Rehashed":          {"the next event has its old hash", `update executor.execution_audit_event set actor_id = 'mallory' where position = 7; ` + rehash + `7`, audit.Changed, 7},
		"LastRehashed":      {"the head has its old hash", `update executor.execution_audit_event set actor_id = 'mallory' where position = 12; ` + rehash + `12`, audit.Changed, 12},
		"RelinkedRehashed":  {"the next event has its old hash", `update executor.execution_audit_event set prev_hash = sha256('x') where position = 7; ` + rehash + `7`, audit.Changed, 7},
		"InsertedBehind":    {"the head says where the end is", fmt.Sprintf(insert, 13, 6), audit.Inserted, 13},
		"InsertedFarBehind": {"the head says where the end is", fmt.Sprintf(insert, 1300, 6), audit.Inserted, 1300},
		"InsertedBefore":    {"the anchor says where the beginning is", fmt.Sprintf(insert, 0, 6), audit.Inserted, 0},
		"InsertedFarBefore": {"the anchor says where the beginning is", fmt.Sprintf(insert, -7, 6), audit.Inserted, -7},
		"InsertedAppended":  {"the head says where the end is, whatever hash there is", fmt.Sprintf(insert, 13, 12) + `; update executor.execution_audit_event set prev_hash = (select hash from executor.execution_audit_event where position = 12) where position = 13; ` + rehash + `13`, audit.Inserted, 13},
		"Swapped": {"hashes have the positions", `update executor.execution_audit_event set position = 100 where position = 3;
			update executor.execution_audit_event set position = 3 where position = 4; update executor.execution_audit_event set position = 4 where position = 100`, audit.Changed, 3},
		"OfAnotherMonth": {"times are vouched for", `select executor.ensure_audit_partition('2031-05-01'); update executor.execution_audit_event set recorded_at = '2031-05-05' where position = 4`, audit.Changed, 4},
		"Infinite":       {"even one that is no time", `update executor.execution_audit_event set event_time = 'infinity' where position = 4`, audit.Changed, 4},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := newStoreBed(t)
			b.append(newRecords("one")...)
			b.append(newRecords("two")...)
			b.wantWhole(12)
			b.tamper(tc.sql)
			b.wantBroken(tc.kind, tc.position)
		})
	}
}

// TestAnInsertedEventIsTheOneThatIsNamed verifies that an inserted event is distinguished from the
// original at its position, whichever is read first.
func TestAnInsertedEventIsTheOneThatIsNamed(t *testing.T) {
	for _, shift := range []string{"- interval '1 second'", "+ interval '1 second'"} {
		b := newStoreBed(t)
		b.append(newRecords("one")...)
		b.tamper(`update executor.execution_audit_event set recorded_at = recorded_at where position = 1;
			insert into executor.execution_audit_event
			select (jsonb_populate_record(e, jsonb_build_object('execution_uid', 'forged', 'recorded_at', e.recorded_at ` + shift + `))).*
			from executor.execution_audit_event e where position = 4`)
		got := b.verify().Broken
		if got == nil || got.Kind != audit.Inserted || got.Position != 4 || got.ExecutionUID != "forged" {
			t.Errorf("%s: %+v", shift, got)
		}
	}
}

// TestAChainThatWasMadeAnew verifies that a completely rebuilt chain is detected by a position
// noted elsewhere, and only by that.
func TestAChainThatWasMadeAnew(t *testing.T) {
	b := newStoreBed(t)
	b.append(newRecords("one")...)
	first := b.wantWhole(6).End
	b.append(newRecords("two")...)
	second := b.wantWhole(12).End
	b.tamper(`do $$
		declare
			last bytea;
			e executor.execution_audit_event;
		begin
			update executor.execution_audit_event set actor_id = 'mallory' where position = 8;
			select prev_hash into last from executor.execution_audit_event where position = 8;
			for e in select * from executor.execution_audit_event where position >= 8 order by position loop
				e.prev_hash := last;
				e.hash := executor.audit_digest(e);
				update executor.execution_audit_event set prev_hash = e.prev_hash, hash = e.hash where position = e.position;
				last := e.hash;
			end loop;
			update executor.execution_audit_head set hash = last;
		end $$`)
	b.wantWhole(12)
	if got := b.verify(first); got.Broken != nil {
		t.Errorf("what was noted before holds: %+v", got.Broken)
	}
	b.wantBroken(audit.Changed, 12, first, second)
	behind := second
	behind.Position = 20
	b.wantBroken(audit.Missing, 13, behind)
}

// TestVerifyingWhileOthersAppend verifies that verification neither blocks writers nor is disturbed
// by them.
func TestVerifyingWhileOthersAppend(t *testing.T) {
	b := newStoreBed(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 100 {
			if err := b.store.Append(context.WithoutCancel(t.Context()), newRecords(fmt.Sprintf("ke-%d", i))); err != nil {
				t.Error(err)
			}
		}
	}()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		if report := b.verify(); report.Broken != nil {
			t.Fatalf("%+v", report.Broken)
		}
	}
	b.wantWhole(600)
}

// More than one page, in bounded memory.
func TestALongChain(t *testing.T) {
	b := newStoreBed(t)
	var all []audit.Record
	for i := range 500 {
		all = append(all, newRecords(fmt.Sprintf("ke-%d", i))...)
	}
	b.append(all...)
	b.wantWhole(3000)
	b.tamper(`update executor.execution_audit_event set outcome = 'x' where position in (2001, 2500)`)
	b.wantBroken(audit.Changed, 2001)
}

// The program's encoding is the database's, whatever the fields say.
func TestBothSidesEncodeAlike(t *testing.T) {
	b := newStoreBed(t)
	n := 0
	text := rapid.StringMatching(`[a-zA-Z0-9 :,{}"'\\/äß€\x{1F600}\n\t%-]{0,40}`)
	rapid.Check(t, func(rt *rapid.T) {
		n++
		r := newRecords(fmt.Sprintf("ke-%d", n))[0]
		for _, field := range []*string{&r.ActorID, &r.Action, &r.Target.Name, &r.Reason, &r.PlanHash, &r.Correlation, &r.Parent, &r.Cluster} {
			*field = text.Draw(rt, "field")
		}
		r.Seq = rapid.Int32().Draw(rt, "seq")
		r.Time = time.UnixMicro(rapid.Int64Range(-1e15, 1e16).Draw(rt, "time"))
		r.Payload = []byte(rapid.SampledFrom([]string{
			`{}`, `{"b":1,"a":[1.0,1.00,1e3,-0,true,null]}`, `{"a":"\u00e4\u20ac\"\\\n\u0001"}`, `{"long key":{"z":{},"aa":[[]]},"k":"  "}`, `{"n":12345678901234567890123.5e-3}`,
		}).Draw(rt, "payload"))
		b.append(r)
		if report := b.verify(); report.Broken != nil {
			rt.Fatalf("%+v: %+v", r, report.Broken)
		}
	})
}
