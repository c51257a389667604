package apiapp_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
)

// TestIncompatibleDatabaseIsRejected verifies that the server ends, with and without its own
// migration.
func TestIncompatibleDatabaseIsRejected(t *testing.T) {
	t.Parallel()
	url := pgtest.NewMigratedDatabaseURL(t)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "update fleetloop_migration_fingerprints set sha256 = 'older' where version_id = 7"); err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"Serve":           nil,
		"ServeNoMigrate":  {"--migrate=false"},
		"MigrateAndLeave": {"migrate"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := startAPI(t, map[string]string{"DATABASE_URL": url}, args...).WaitUntilEnded(t)
			if err == nil || !strings.Contains(err.Error(), "migration 7 was applied with other content: drop and recreate the database, then run 'fleet-api migrate'") {
				t.Errorf("got %v, want an error that says what to do", err)
			}
		})
	}
}
