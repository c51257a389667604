// Package apiapp wires the fleet API: PostgreSQL, the store, the handler and its server.
package apiapp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/fleetloop/fleetloop/internal/app/process"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
	"github.com/fleetloop/fleetloop/internal/fleetapi/pgstore"
	"github.com/fleetloop/fleetloop/internal/httpserver"
	"github.com/fleetloop/fleetloop/internal/lifecycle"
	"github.com/fleetloop/fleetloop/internal/postgres"
)

// API embeds its settings in Part under a distinct name.
type API = fleetapi.Config

// Process embeds its settings in Config under a distinct name.
type Process = process.Config

// Config is the configuration of the fleet-api binary.
type Config struct {
	Part
	Process
}

// Part is the configuration of the fleet API within a process.
type Part struct {
	API

	Server   httpserver.Config `key:"server"`
	Database postgres.Config   `key:"database"`

	Standby postgres.StandbyConfig `key:"database_read"`

	Migrate bool `key:"migrate" env:"FLEET_API_MIGRATE" flag:"migrate" default:"true" doc:"Migrate the database schema at start."`
}

// OverriddenDefaults returns the defaults that differ from those of the parts.
func OverriddenDefaults() Config {
	var cfg Config
	cfg.Server.Addr = "127.0.0.1:8080"
	cfg.MetricsAddr = ":9090"
	cfg.HealthAddr = ":8081"
	return cfg
}

// errNoDatabase means that no database is configured and explains how to set one.
var errNoDatabase = errors.New(
	"DATABASE_URL is not set; set it to postgres://user:password@host:5432/database, or run 'fleetloop up', which starts its own database",
)

// BuildParts returns the parts of the fleet API in order of dependency, and the address on which it
// listens.
func BuildParts(ctx context.Context, p *process.Process, cfg Part) (parts []lifecycle.Part, addr string, err error) {
	if cfg.Database.URL == "" {
		return nil, "", errNoDatabase
	}
	pool, err := postgres.New(cfg.Database, p.Log) //nolint:contextcheck // the pool outlives the call
	if err != nil {
		return nil, "", err
	}
	standby, err := postgres.NewStandby(cfg.Standby, cfg.Database, pool, p.Log, p.Metrics) //nolint:contextcheck // likewise
	if err != nil {
		pool.Close()
		return nil, "", err
	}
	defer func() {
		if err != nil {
			standby.Close()
			pool.Close()
		}
	}()
	tables := newSchema(cfg, pool, p.Log)
	keeper, err := pgstore.NewPartitionMaintainer(pool, cfg.Timeline.Retention, p.Log, p.Metrics)
	if err != nil {
		return nil, "", err
	}

	api, err := fleetapi.New(cfg.API, fleetapi.Deps{
		Store:      pgstore.New(pool, pgstore.WithRevisionLimit(cmp.Or(cfg.RevisionLimit, fleetapi.DefaultRevisionLimit))),
		Timeline:   pgstore.NewTimelineStore(pool),
		Standby:    standby,
		Log:        p.Log,
		Metrics:    p.Metrics,
		Tracer:     p.Tracing.Tracer("github.com/fleetloop/fleetloop/internal/fleetapi"),
		ListenAddr: cfg.Server.Addr,
	})
	if err != nil {
		return nil, "", err
	}
	server, err := httpserver.NewListeningServer(ctx, cfg.Server, api.Handler(), p.Log)
	if err != nil {
		return nil, "", fmt.Errorf("listen for requests to the fleet API (--listen-address or LISTEN_ADDRESS): %w", err)
	}

	server.OnShutdown(api.StopWatches)

	return []lifecycle.Part{
		{Name: "database", Run: pool.Run, Ready: pool.Ready, Close: func() error { pool.Close(); return nil }},
		{Name: "schema", Run: tables.Run, Ready: tables.Ready},
		{Name: "standby", Run: standby.Run, Close: func() error { standby.Close(); return nil }},
		{Name: "change feed", Run: pgstore.NewPruner(pool, cfg.ChangeRetention, p.Log).Run},
		{Name: "summary", Run: pgstore.NewRollupCounter(pool, cfg.SummaryLabels, p.Log).Run},
		{Name: "timeline", Run: keeper.Run},
		{Name: "watches", Run: api.RunWatchHubs},
		{Name: "cluster sync", Run: api.RunClusterStatusUpdates},
		{Name: "fleet API", Run: server.Run, Ready: server.Ready, Close: server.Close},
	}, server.Addr(), nil
}

// newSchema returns a schema that migrates, or waits where another process migrates.
func newSchema(cfg Part, pool *postgres.Pool, log *slog.Logger) *postgres.Schema {
	if !cfg.Migrate {
		return postgres.NewSchemaWaiter(pool, log)
	}
	return postgres.NewSchemaMigrator(cfg.Database, log)
}
