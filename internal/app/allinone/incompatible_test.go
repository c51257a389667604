package allinone_test

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fleetloop/fleetloop/internal/postgres"
	"github.com/fleetloop/fleetloop/internal/postgres/pgserver"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// TestUpRejectsDataOfAnOlderVersion starts on a data folder whose database was
// made without fingerprints.
func TestUpRejectsDataOfAnOlderVersion(t *testing.T) {
	t.Parallel()
	dir, log := newDir(t), slog.New(slog.DiscardHandler)
	server, err := pgserver.Start(t.Context(), pgserver.Config{Dir: filepath.Join(dir, "postgresql")}, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	if err := postgres.MigrateSchema(t.Context(), postgres.Config{URL: settings.Secret(server.DatabaseURL())}, log); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), server.DatabaseURL())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "drop table fleetloop_migration_fingerprints"); err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}

	err = startProgram(t, map[string]string{"DATABASE_URL": ""}, "--data-dir", dir).waitForExit(t)
	if err == nil || !strings.Contains(err.Error(), `remove the data folder "`+dir+`"`) {
		t.Errorf("got %v, want an error that names the folder to remove", err)
	}
}
