package postgres

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/fleetloop/fleetloop/internal/backoff"
)

// errSchemaUnchecked means that the process is not ready because the schema is not checked yet.
var errSchemaUnchecked = errors.New("database schema not checked yet")

// Schema is the process part that migrates the database schema, or waits until another process has.
// It waits for as long as the database is unavailable.
type Schema struct {
	prepare func(ctx context.Context) error
	log     *slog.Logger
	state   atomic.Pointer[schemaAttempt]
}

type schemaAttempt struct{ err error }

// NewSchemaWaiter returns a schema that another process migrates. Run fails at once if the database
// has foreign migrations.
func NewSchemaWaiter(pool *Pool, log *slog.Logger) *Schema {
	return newSchema(func(ctx context.Context) error {
		err := pool.CheckSchemaNotBehindOrAltered(ctx)
		if errors.Is(err, ErrSchemaIncompatible) {
			return backoff.Permanent(err)
		}
		return err
	}, log)
}

// NewSchemaMigrator returns a schema that this process migrates.
func NewSchemaMigrator(cfg Config, log *slog.Logger) *Schema {
	return newSchema(func(ctx context.Context) error { return migrateMarkingPermanentErrors(ctx, cfg, log) }, log)
}

func newSchema(prepare func(context.Context) error, log *slog.Logger) *Schema {
	s := &Schema{prepare: prepare, log: log}
	s.state.Store(&schemaAttempt{err: errSchemaUnchecked})
	return s
}

// migrateMarkingPermanentErrors migrates the schema and marks errors that a retry cannot solve as permanent.
func migrateMarkingPermanentErrors(ctx context.Context, cfg Config, log *slog.Logger) error {
	err := MigrateSchema(ctx, cfg, log)
	if err != nil && !errors.Is(err, ErrUnavailable) {
		return backoff.Permanent(err)
	}
	return err
}

// Ready reports why the schema is not up to date, or nil.
func (s *Schema) Ready() error { return s.state.Load().err }

// Run prepares the schema until it succeeds once, then waits for ctx.
func (s *Schema) Run(ctx context.Context) error {
	err := backoff.Retry(ctx, backoff.Policy{Initial: 200 * time.Millisecond, Max: 10 * time.Second}, s.prepareAndStoreResult)
	if err != nil && ctx.Err() == nil {
		return err
	}
	<-ctx.Done()
	return nil
}

func (s *Schema) prepareAndStoreResult(ctx context.Context) error {
	err := s.prepare(ctx)
	if ctx.Err() != nil || backoff.IsPermanent(err) {
		return err
	}
	before := s.state.Swap(&schemaAttempt{err: err}).err
	if err != nil && (before == nil || before.Error() != err.Error()) { // log each outage once
		s.log.WarnContext(ctx, "database schema not ready, retrying", "err", err)
	}
	return err
}
