package consoleapp

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetloop/fleetloop/internal/app/process"
	"github.com/fleetloop/fleetloop/internal/console/hosts"
	"github.com/fleetloop/fleetloop/internal/execution/audit"
	"github.com/fleetloop/fleetloop/internal/lifecycle"
	"github.com/fleetloop/fleetloop/internal/postgres"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// TestAuditOfAHostCluster reads the audit of one execution as the role that may only read it. Another
// execution, whose name is the UID of the first, is not part of it.
func TestAuditOfAHostCluster(t *testing.T) {
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	url := pgtest.NewMigratedDatabaseURL(t)
	writer, err := postgres.New(postgres.Config{URL: settings.Secret(url), Role: postgres.RoleExecutionController}, log)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	record := func(uid, name string, seq int32, kind audit.Type, actor string) audit.Record {
		return audit.Record{
			ExecutionUID: uid, Seq: seq, Time: at, Type: kind, ActorType: audit.User, ActorID: actor, Action: "scale_deployment",
			Namespace: "ops", Name: name, PlanHash: "p1", Reason: "traffic", Payload: []byte(`{}`),
		}
	}
	err = audit.NewPostgresStore(writer).Append(t.Context(), []audit.Record{
		record("uid-1", "web", 1, audit.Requested, "alice"), record("uid-1", "web", 2, audit.Approved, "bob"),
		record("uid-2", "uid-1", 1, audit.Requested, "mallory"),
	})
	if err != nil {
		t.Fatal(err)
	}

	file := filepath.Join(t.TempDir(), "url")
	if err := os.WriteFile(file, []byte(url+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &process.Process{Log: log, Metrics: prometheus.NewRegistry()}
	if _, _, err := newAuditReaderIfConfigured(hosts.Config{Name: "a", AuditDatabaseURL: settings.Secret(url), AuditDatabaseURLFile: file}, p); err == nil {
		t.Error("it took two URLs")
	}
	read, parts, err := newAuditReaderIfConfigured(hosts.Config{Name: "a", AuditDatabaseURLFile: file}, p)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := lifecycle.CloseAll(parts...); err != nil {
			t.Error(err)
		}
	}()
	got, err := read(t.Context(), "uid-1")
	if err != nil || len(got) != 2 {
		t.Fatalf("read %+v, %v", got, err)
	}
	want := hosts.AuditEvent{Position: got[0].Position, At: at, Type: "approved", Actor: "bob", Reason: "traffic", PlanHash: "p1"}
	if !got[0].At.Equal(at) || got[1].Actor != "alice" {
		t.Errorf("read %+v", got)
	}
	if got[0].At = at; got[0] != want {
		t.Errorf("the newest is %+v, want %+v", got[0], want)
	}
}
