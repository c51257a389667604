package pgtest

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/fleetloop/fleetloop/internal/postgres"
	"github.com/fleetloop/fleetloop/internal/postgres/pgserver"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// A ReplicatedServer is a migrated primary and its streaming standby, apart from the server of other tests.
type ReplicatedServer struct {
	Primary, Standby *pgserver.Server

	tb  testing.TB
	dir string
	log *slog.Logger
}

// NewReplicatedServer starts a primary and a standby, which end with the test.
func NewReplicatedServer(tb testing.TB) *ReplicatedServer {
	tb.Helper()
	dir, err := os.MkdirTemp(chooseServerParentDir(), dirPrefix) //nolint:usetesting // in memory, where the servers' user can enter it
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			tb.Error(err)
		}
	})
	r := &ReplicatedServer{tb: tb, dir: dir, log: slog.New(slog.DiscardHandler)}
	if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // passed through by the servers' user
		tb.Fatal(err)
	}
	if r.Primary, err = pgserver.Start(tb.Context(), r.serverConfig("primary", 0), r.log); err != nil {
		tb.Fatal(err)
	}
	r.closeAtCleanup(r.Primary)
	if err := postgres.MigrateSchema(tb.Context(), postgres.Config{URL: settings.Secret(r.Primary.DatabaseURL())}, r.log); err != nil {
		tb.Fatal(err)
	}
	if r.Standby, err = pgserver.StartStandby(tb.Context(), r.serverConfig("standby", 0), r.Primary, r.log); err != nil {
		tb.Fatal(err)
	}
	r.closeAtCleanup(r.Standby)
	return r
}

// StartStoppedStandby starts a stopped standby again, at the same address.
func (r *ReplicatedServer) StartStoppedStandby() {
	r.tb.Helper()
	standby, err := pgserver.Start(r.tb.Context(), r.serverConfig("standby", r.Standby.LoopbackPort()), r.log)
	if err != nil {
		r.tb.Fatal(err)
	}
	r.Standby = standby
	r.closeAtCleanup(standby)
}

func (r *ReplicatedServer) serverConfig(name string, port int) pgserver.Config {
	return pgserver.Config{Dir: filepath.Join(r.dir, name), Port: port, Throwaway: true, Settings: map[string]string{
		"wal_level": "replica", "max_wal_senders": "10", "hot_standby": "on", "synchronous_commit": "on", "max_wal_size": "512MB",
	}}
}

func (r *ReplicatedServer) closeAtCleanup(server *pgserver.Server) {
	r.tb.Helper()
	r.tb.Cleanup(func() {
		if err := server.Close(); err != nil {
			r.tb.Error(err)
		}
	})
}
