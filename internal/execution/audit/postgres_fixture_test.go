package audit_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/fleetloop/fleetloop/internal/execution/audit"
	"github.com/fleetloop/fleetloop/internal/postgres"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// recordsBegin is when the executions of the tests happen.
var recordsBegin = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// A storeBed is a database with a store on it.
type storeBed struct {
	testing.TB
	url   string
	owner *pgx.Conn
	store *audit.PostgresStore
}

func newStoreBed(tb testing.TB) *storeBed {
	tb.Helper()
	url := pgtest.NewMigratedDatabaseURL(tb)
	return &storeBed{TB: tb, url: url, owner: connect(tb, url), store: audit.NewPostgresStore(openAs(tb, url, postgres.RoleExecutionController))}
}

// openAs opens a pool that works as a role.
func openAs(tb testing.TB, url, role string) *postgres.Pool {
	tb.Helper()
	cfg := pgtest.Config(url)
	cfg.Role = role
	pool, err := postgres.New(cfg, slog.New(slog.NewTextHandler(tb.Output(), nil)))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(pool.Close)
	return pool
}

// connect opens a connection as the owner of the schema.
func connect(tb testing.TB, url string) *pgx.Conn {
	tb.Helper()
	conn, err := pgx.Connect(tb.Context(), url)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close(context.WithoutCancel(tb.Context())) })
	return conn
}

// exec runs SQL as the owner.
func (b *storeBed) exec(sql string, args ...any) {
	b.Helper()
	if _, err := b.owner.Exec(b.Context(), sql, args...); err != nil {
		b.Fatalf("%s: %v", sql, err)
	}
}

// tamper runs SQL as an owner who has taken the triggers away.
func (b *storeBed) tamper(sql string, args ...any) {
	b.Helper()
	b.exec(`set session_replication_role = replica`)
	b.exec(sql, args...)
	b.exec(`set session_replication_role = origin`)
}

// at has the database's clock stand at a moment.
func (b *storeBed) at(t time.Time) {
	b.Helper()
	b.exec(fmt.Sprintf(`create or replace function executor.audit_clock() returns timestamptz language sql volatile return timestamptz '%s'`, t.Format(time.RFC3339Nano)))
}

// newRecords are those of an execution from its request to its end.
func newRecords(name string) []audit.Record {
	var list []audit.Record
	for i, t := range []audit.Type{audit.Requested, audit.PolicyDecided, audit.Validated, audit.Started, audit.Result, audit.Finalized} {
		r := audit.Record{
			ExecutionUID: "uid-" + name, Seq: int32(i + 1), Time: recordsBegin.Add(time.Duration(i) * time.Second), Type: t,
			ActorType: audit.Controller, ActorID: audit.ControllerID, Action: "scale_deployment",
			Target:  audit.Target{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "shop", Name: "web", UID: "target-uid"},
			Cluster: "local", Namespace: "kubernaut-executor", Name: name, PolicyHash: "p0", PlanHash: "p1",
			Correlation: "incident-7", Parent: "RemediationRequest/kubernaut-executor/cpu", Payload: []byte(`{"n":` + fmt.Sprint(i) + `}`),
		}
		if t == audit.Requested {
			r.ActorType, r.ActorID = audit.User, "alice@example.com"
		}
		if t == audit.Result {
			r.Payload = []byte(`{"jobName":"kx-1","retries":2}`)
		}
		if t == audit.Finalized {
			r.Outcome, r.Reason = "Succeeded", "none"
		}
		list = append(list, r)
	}
	return list
}

// deletedRecord is the last record of an execution.
func deletedRecord(name string) audit.Record {
	r := newRecords(name)[0]
	r.Seq, r.Type, r.Payload = 73, audit.Deleted, []byte(`{}`)
	return r
}

func (b *storeBed) append(records ...audit.Record) {
	b.Helper()
	if err := b.store.Append(b.Context(), records); err != nil {
		b.Fatal(err)
	}
}

func (b *storeBed) verify(noted ...audit.Position) audit.Report {
	b.Helper()
	report, err := b.store.Verify(b.Context(), noted...)
	if err != nil {
		b.Fatal(err)
	}
	return report
}

// wantWhole wants a chain of so many events.
func (b *storeBed) wantWhole(events int64) audit.Report {
	b.Helper()
	report := b.verify()
	if report.Broken != nil || report.Checked != events {
		b.Fatalf("%d events hold, want %d; broken: %+v", report.Checked, events, report.Broken)
	}
	return report
}

// wantBroken wants a break at a position.
func (b *storeBed) wantBroken(kind audit.BreakKind, position int64, noted ...audit.Position) {
	b.Helper()
	got := b.verify(noted...).Broken
	if got == nil {
		b.Fatalf("it holds, want %s at %d", kind, position)
	}
	if got.Kind != kind || got.Position != position {
		b.Errorf("%+v, want %s at %d", *got, kind, position)
	}
}

// list gives all events from the oldest, as "name/seq".
func (b *storeBed) list(f audit.Filter) []string {
	b.Helper()
	var list []string
	err := b.store.List(b.Context(), f, func(e *audit.Event) error {
		list = append([]string{fmt.Sprintf("%s/%d", e.Name, e.Seq)}, list...)
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	return list
}

// await waits until ok.
func (b *storeBed) await(what string, ok func() bool) {
	b.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			b.Fatalf("not within a minute: %s", what)
		}
	}
}

// queryValue gives the only value of a query.
func queryValue[T any](b *storeBed, sql string, args ...any) T {
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

func wantValue[T any](b *storeBed, w T, sql string, args ...any) {
	b.Helper()
	if diff := cmp.Diff(w, queryValue[T](b, sql, args...)); diff != "" {
		b.Errorf("%s (-want +got):\n%s", strings.TrimSpace(sql), diff)
	}
}
