// Package schema is the part of a process that brings the database's schema up
// to date, or waits until others have, however long the database takes to
// come.
package schema

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/postgres"
)

// errNotYet is why a process is not ready at first.
var errNotYet = errors.New("database schema not checked yet")

// A Schema is what the process needs of the database before it can work.
type Schema struct {
	prepare func(ctx context.Context) error
	log     *slog.Logger
	state   atomic.Pointer[lastAttempt]
}

type lastAttempt struct{ err error }

// Awaited is a schema that others migrate. Run fails at once if other migrations made it.
func Awaited(pool *postgres.Pool, log *slog.Logger) *Schema {
	return newSchema(func(ctx context.Context) error {
		err := pool.CheckSchema(ctx)
		if errors.Is(err, postgres.ErrSchemaIncompatible) {
			return backoff.Permanent(err)
		}
		return err
	}, log)
}

// Migrated is a schema that we bring up to date.
func Migrated(cfg postgres.Config, log *slog.Logger) *Schema {
	return newSchema(func(ctx context.Context) error { return bringUp(ctx, cfg, log) }, log)
}

func newSchema(prepare func(context.Context) error, log *slog.Logger) *Schema {
	s := &Schema{prepare: prepare, log: log}
	s.state.Store(&lastAttempt{err: errNotYet})
	return s
}

// bringUp migrates, and marks as permanent what will be the same the next time.
func bringUp(ctx context.Context, cfg postgres.Config, log *slog.Logger) error {
	err := postgres.Migrate(ctx, cfg, log)
	if err != nil && !errors.Is(err, postgres.ErrUnavailable) {
		return backoff.Permanent(err)
	}
	return err
}

// Ready says why the schema is not up to date, or nil.
func (s *Schema) Ready() error { return s.state.Load().err }

// Run prepares the schema until that has succeeded once, and then waits for
// ctx.
func (s *Schema) Run(ctx context.Context) error {
	err := backoff.Retry(ctx, backoff.Policy{Initial: 200 * time.Millisecond, Max: 10 * time.Second}, s.prepareOnce)
	if err != nil && ctx.Err() == nil {
		return err
	}
	<-ctx.Done()
	return nil
}

func (s *Schema) prepareOnce(ctx context.Context) error {
	err := s.prepare(ctx)
	if ctx.Err() != nil || backoff.IsPermanent(err) {
		return err
	}
	before := s.state.Swap(&lastAttempt{err: err}).err
	if err != nil && (before == nil || before.Error() != err.Error()) { // an outage is told once
		s.log.WarnContext(ctx, "database schema not ready, retrying", "err", err)
	}
	return err
}
