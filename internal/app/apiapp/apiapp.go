// Package apiapp wires the fleet API: PostgreSQL, the store, the handler, its
// server.
package apiapp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/fleetloop/fleetloop/internal/app/process"
	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
	"github.com/fleetloop/fleetloop/internal/fleetapi/pgstore"
	"github.com/fleetloop/fleetloop/internal/httpserver"
	"github.com/fleetloop/fleetloop/internal/lifecycle"
	"github.com/fleetloop/fleetloop/internal/postgres"
)

// API lends its settings to Part under a name of its own.
type API = fleetapi.Config

// Process lends its settings to Config under a name of its own.
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

	Migrate bool `key:"migrate" env:"FLEET_API_MIGRATE" flag:"migrate" default:"true" doc:"Bring the database schema up to date at start."`
}

// Defaults are the defaults that differ from those of the parts.
func Defaults() Config {
	var cfg Config
	cfg.Server.Addr = "127.0.0.1:8080"
	cfg.MetricsAddr = ":9090"
	cfg.HealthAddr = ":8081"
	return cfg
}

// errNoDatabase says what to do about a missing database.
var errNoDatabase = errors.New("DATABASE_URL is not set; set it to postgres://user:password@host:5432/database, or run 'fleetloop up', which brings a database of its own")

// Parts makes the parts of the fleet API, in the order in which they depend
// on each other, and tells where it listens.
func Parts(ctx context.Context, p *process.Process, cfg Part) (parts []lifecycle.Part, addr string, err error) {
	if cfg.Database.URL == "" {
		return nil, "", errNoDatabase
	}
	pool, err := postgres.New(cfg.Database, p.Log) //nolint:contextcheck // the pool outlives the call
	if err != nil {
		return nil, "", err
	}
	schema := newSchema(cfg, pool, p.Log)

	api, err := fleetapi.New(cfg.API, fleetapi.Deps{
		Store:      pgstore.New(pool),
		Log:        p.Log,
		Metrics:    p.Metrics,
		Tracer:     p.Tracing.Tracer("github.com/fleetloop/fleetloop/internal/fleetapi"),
		ListenAddr: cfg.Server.Addr,
	})
	if err != nil {
		pool.Close()
		return nil, "", err
	}
	server, err := httpserver.New(ctx, cfg.Server, api.Handler(), p.Log)
	if err != nil {
		pool.Close()
		return nil, "", fmt.Errorf("serve the fleet API (--listen-address): %w", err)
	}

	server.OnShutdown(api.EndWatches)

	return []lifecycle.Part{
		{Name: "database", Run: pool.Run, Ready: pool.Ready, Close: func() error { pool.Close(); return nil }},
		{Name: "schema", Run: schema.Run, Ready: schema.Ready},
		{Name: "change feed", Run: pgstore.NewPruner(pool, cfg.ChangeRetention, p.Log).Run},
		{Name: "watches", Run: api.RunWatches},
		{Name: "fleet API", Run: server.Run, Ready: server.Ready, Close: server.Close},
	}, server.Addr(), nil
}

// errNoSchemaYet is why the API is not ready at first.
var errNoSchemaYet = errors.New("whether the database schema is up to date is not known yet")

// A schema is brought up to date, or awaited where that is left to others,
// however long the database takes to come.
type schema struct {
	prepare func(ctx context.Context) error
	log     *slog.Logger
	state   atomic.Pointer[state]
}

type state struct{ err error }

func newSchema(cfg Part, pool *postgres.Pool, log *slog.Logger) *schema {
	s := &schema{prepare: pool.CheckSchema, log: log}
	if cfg.Migrate {
		s.prepare = func(ctx context.Context) error { return bringUp(ctx, cfg.Database, log) }
	}
	s.state.Store(&state{err: errNoSchemaYet})
	return s
}

// bringUp migrates, and marks as permanent what will be the same the next time.
func bringUp(ctx context.Context, cfg postgres.Config, log *slog.Logger) error {
	err := postgres.Migrate(ctx, cfg, log)
	if err != nil && !errors.Is(err, postgres.ErrUnavailable) {
		return backoff.Permanent(fmt.Errorf("bring the schema up to date: %w", err))
	}
	return err
}

// Ready says why the schema is not up to date, or nil.
func (s *schema) Ready() error { return s.state.Load().err }

// Run prepares the schema until that has succeeded once, and then waits for
// ctx.
func (s *schema) Run(ctx context.Context) error {
	err := backoff.Retry(ctx, backoff.Policy{Initial: 200 * time.Millisecond, Max: 10 * time.Second}, s.once)
	if err != nil && ctx.Err() == nil {
		return err
	}
	<-ctx.Done()
	return nil
}

func (s *schema) once(ctx context.Context) error {
	err := s.prepare(ctx)
	if ctx.Err() != nil || backoff.IsPermanent(err) {
		return err
	}
	before := s.state.Swap(&state{err: err}).err
	if err != nil && (before == nil || before.Error() != err.Error()) { // an outage is told once
		s.log.WarnContext(ctx, "schema not up to date, trying again", "err", err)
	}
	return err
}
