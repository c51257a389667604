package main

import (
	"context"
	"errors"
	"log/slog"
	"os"

	"github.com/fleetloop/fleetloop/internal/postgres"
	"github.com/fleetloop/fleetloop/internal/postgres/pgserver"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// tempDir creates a folder that a database server can traverse, whatever user it runs as.
func tempDir() (dir string, remove func(), err error) {
	if dir, err = os.MkdirTemp("", "fleetloop-bench-"); err != nil {
		return "", nil, err
	}
	remove = func() { _ = os.RemoveAll(dir) }
	if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // passed through, not looked into
		remove()
		return "", nil, err
	}
	return dir, remove, nil
}

// A database is a migrated database on a separate server.
type database struct {
	server *pgserver.Server
	cfg    postgres.Config
}

// startMigratedDatabase creates a database in a folder. A database that is not durable never waits for the
// disk, and loses its data when the machine crashes.
func startMigratedDatabase(ctx context.Context, dir string, durable bool) (*database, error) {
	log := slog.New(slog.DiscardHandler)
	server, err := pgserver.Start(ctx, pgserver.Config{
		Dir: dir, Throwaway: !durable, Settings: map[string]string{"shared_buffers": "512MB"},
	}, log)
	if err != nil {
		return nil, err
	}
	d := &database{server: server, cfg: postgres.Config{URL: settings.Secret(server.DatabaseURL())}}
	_, err = settings.Load(&d.cfg, settings.Source{})
	if err == nil {
		err = postgres.MigrateSchema(ctx, d.cfg, log)
	}
	if err != nil {
		return nil, errors.Join(err, d.stopServer())
	}
	return d, nil
}

func (d *database) stopServer() error { return d.server.Close() }
