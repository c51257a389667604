package pgserver_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/fleetloop/fleetloop/internal/postgres/pgserver"
)

// TestAStandbyFollows copies a server with a password, and reads on the copy what was written since.
func TestAStandbyFollows(t *testing.T) {
	primary := start(t, pgserver.Config{Dir: newDir(t)})
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	standby, err := pgserver.StartStandby(t.Context(), pgserver.Config{Dir: newDir(t)}, primary, log)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := standby.Close(); err != nil {
			t.Error(err)
		}
	}()
	exec(t, primary.DatabaseURL(), "create table kept (n int)")
	for end := time.Now().Add(time.Minute); query(t, standby.DatabaseURL(), "select (to_regclass('kept') is not null)::text || pg_is_in_recovery()::text") != "truetrue"; {
		if time.Now().After(end) {
			t.Fatal("the standby does not have the table")
		}
	}
}
