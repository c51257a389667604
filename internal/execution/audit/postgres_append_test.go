package audit_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/internal/execution/audit"
)

func TestWhatIsAppendedIsThere(t *testing.T) {
	b := newStoreBed(t)
	b.append(newRecords("one")...)
	report := b.wantWhole(6)
	if report.Begin.Position != 0 || report.End.Position != 6 {
		t.Errorf("from %v to %v", report.Begin, report.End)
	}
	var got []audit.Record
	err := b.store.List(t.Context(), audit.Filter{}, func(e *audit.Event) error {
		r := e.Record
		r.Payload = nil
		got = append(got, r)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := newRecords("one")
	slices.Reverse(want)
	for i := range want {
		want[i].Payload = nil
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWhatWasAppendedIsNotAppendedAgain(t *testing.T) {
	b := newStoreBed(t)
	all := newRecords("one")
	b.append(all[:2]...)
	b.append(all[:2]...)
	b.wantWhole(2)
	b.append(all...)
	b.append(append(newRecords("two"), all...)...)
	b.append(append(newRecords("three"), newRecords("three")...)...)
	b.wantWhole(18)
	// An older number that comes late is as new as any.
	late := all[0]
	late.Seq = 30
	b.append(late)
	late.Seq = 20
	b.append(late, late)
	b.wantWhole(20)
}

func TestTheSummaryOfAnExecution(t *testing.T) {
	b := newStoreBed(t)
	all := newRecords("one")
	for _, step := range []struct {
		records []audit.Record
		want    string
	}{
		{all[:1], "|||0|alice@example.com|web|{1}|f|f"},
		{all[:3], "validated|||0|alice@example.com|web|{1,2,3}|f|f"},
		{all[:4], "executing|||0|alice@example.com|web|{1,2,3,4}|f|f"},
		{all, "completed|Succeeded|kx-1|2|alice@example.com|web|{1,2,3,4,5,6}|t|f"},
		{[]audit.Record{deletedRecord("one")}, "completed|Succeeded|kx-1|2|alice@example.com|web|{1,2,3,4,5,6,73}|t|t"},
	} {
		b.append(step.records...)
		wantValue(b, step.want, `select concat_ws('|', phase, outcome, job_name, retries, requested_by, target_name, recorded_seqs, ended_at is not null, deleted_at is not null)
			from executor.execution_summary`)
	}
}

// Whatever fails within a call, nothing of it is there, and the next call brings
// all of it.
func TestACrashBetweenAnyTwoStatements(t *testing.T) {
	const fail = `create function public.fail() returns trigger language plpgsql as $$
		begin
			if tg_argv[0] = '' or (to_jsonb(new) ->> 'position') = tg_argv[0] then
				raise exception 'crash' using errcode = 'XX000';
			end if;
			return new;
		end $$`
	crashes := map[string]string{
		"BeforeTheFirstEvent": `create trigger crash before insert on executor.execution_audit_event for each row execute function public.fail('7')`,
		"AfterTheFirstEvent":  `create trigger crash after insert on executor.execution_audit_event for each row execute function public.fail('7')`,
		"BeforeAnother":       `create trigger crash before insert on executor.execution_audit_event for each row execute function public.fail('11')`,
		"AfterTheLast":        `create trigger crash after insert on executor.execution_audit_event for each row execute function public.fail('18')`,
		"BeforeTheSummary":    `create trigger crash before insert on executor.execution_summary for each row execute function public.fail('')`,
		"AfterTheSummary":     `create trigger crash after insert on executor.execution_summary for each row execute function public.fail('')`,
		"BeforeTheHead":       `create trigger crash before update on executor.execution_audit_head for each row execute function public.fail('')`,
		"AfterTheHead":        `create trigger crash after update on executor.execution_audit_head for each row execute function public.fail('')`,
		"AtTheCommit":         `create constraint trigger crash after insert on executor.execution_summary deferrable initially deferred for each row execute function public.fail('')`,
	}
	for name, crash := range crashes {
		t.Run(name, func(t *testing.T) {
			b := newStoreBed(t)
			b.append(newRecords("before")...)
			b.exec(fail)
			b.exec(crash)
			both := append(newRecords("one"), newRecords("two")...)
			if err := b.store.Append(t.Context(), both); err == nil {
				t.Fatal("nothing crashed")
			}
			b.wantWhole(6)
			wantValue(b, int64(1), `select count(*) from executor.execution_summary`)
			b.exec(`drop function public.fail cascade`)
			b.append(both...)
			b.wantWhole(18)
		})
	}
}

// A server that ends connections takes no record with it, and keeps none twice.
func TestConnectionsThatEnd(t *testing.T) {
	b := newStoreBed(t)
	stop := make(chan struct{})
	var killer sync.WaitGroup
	conn := connect(t, b.url)
	ended := 0
	killer.Go(func() {
		// Only some of the calls, and only so many: a fast killer must not end every try of a slow writer.
		for ended < 100 {
			select {
			case <-stop:
				return
			default:
				tag, err := conn.Exec(t.Context(), `select pg_terminate_backend(pid) from pg_stat_activity
					where datname = current_database() and pid <> pg_backend_pid() and query like '%append_audit%' and random() < 0.2`)
				if err != nil {
					t.Error(err)
					return
				}
				ended += int(tag.RowsAffected())
			}
		}
	})
	const executions = 40
	failures := 0
	for i := range executions {
		for b.store.Append(t.Context(), newRecords(fmt.Sprintf("ke-%d", i))) != nil {
			failures++
		}
	}
	close(stop)
	killer.Wait()
	if ended == 0 {
		t.Error("no connection was ended")
	}
	t.Logf("%d connections ended, %d calls failed", ended, failures)
	b.wantWhole(6 * executions)
}

func TestManyWritersAtOnce(t *testing.T) {
	b := newStoreBed(t)
	const writers, executions = 8, 40
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range executions {
				// Half of them are brought by all.
				name := fmt.Sprintf("shared-%d", i)
				if i%2 == 0 {
					name = fmt.Sprintf("own-%d-%d", w, i)
				}
				if err := b.store.Append(t.Context(), newRecords(name)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	b.wantWhole(6 * (writers*executions/2 + executions/2))
	wantValue(b, int64(0), `select count(*) from (select from executor.execution_audit_event group by execution_uid, seq having count(*) > 1) twice`)
}

// One execution that goes on in another month is one execution.
func TestAMonthEnds(t *testing.T) {
	b := newStoreBed(t)
	all := newRecords("one")
	b.at(time.Date(2027, 1, 31, 23, 59, 59, 999_000_000, time.UTC))
	b.append(all[:3]...)
	b.at(time.Date(2027, 2, 1, 0, 0, 0, 0, time.UTC))
	b.append(all...)
	b.at(time.Date(2027, 5, 5, 0, 0, 0, 0, time.UTC))
	b.append(all...)
	b.append(deletedRecord("one"))
	b.wantWhole(7)
	for _, p := range []struct {
		part   string
		events int64
	}{{"2027_01", 3}, {"2027_02", 3}, {"2027_05", 1}} {
		wantValue(b, p.events, `select count(*) from executor.execution_audit_event_`+p.part)
	}
	wantValue(b, "{1,2,3,4,5,6,73}", `select recorded_seqs::text from executor.execution_summary`)
	// A clock that goes back does not take the chain with it.
	b.at(time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC))
	b.append(newRecords("two")...)
	b.wantWhole(13)
	wantValue(b, int64(7), `select count(*) from executor.execution_audit_event_2027_05`)
}

// An event's place is given by the database, whatever the caller says.
func TestNobodyChoosesAPlace(t *testing.T) {
	b := newStoreBed(t)
	b.append(newRecords("one")...)
	conn := connect(t, b.url)
	for _, sql := range []string{
		`set role execution_controller`,
		`select executor.append_audit((select jsonb_agg(to_jsonb(e) || '{"execution_uid": "forged", "position": 3, "recorded_at": "2020-01-01T00:00:00Z", "hash": "\\x00", "prev_hash": "\\x00"}')
			from executor.execution_audit_event e))`,
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	b.wantWhole(12)
	for name, sql := range map[string]string{
		"Pruned":    `select executor.append_audit((select jsonb_agg(to_jsonb(e) || '{"execution_uid": "x", "type": "pruned"}') from executor.execution_audit_event e))`,
		"Nobody":    `select executor.append_audit((select jsonb_agg(to_jsonb(e) || '{"execution_uid": ""}') from executor.execution_audit_event e))`,
		"NoPayload": `select executor.append_audit((select jsonb_agg(to_jsonb(e) - 'payload' || '{"execution_uid": "y"}') from executor.execution_audit_event e))`,
	} {
		if _, err := conn.Exec(t.Context(), sql); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	b.wantWhole(12)
}
