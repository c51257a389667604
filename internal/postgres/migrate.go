package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/fleetloop/fleetloop/internal/backoff"
)

const (
	versionTable = "fleetloop_migrations"

	// While a migration waits for a table lock, all later transactions wait behind it. So it waits
	// for a short time, lets them pass, and tries again.
	migrationLockTimeout = 2 * time.Second
	migrationGiveUp      = 5 * time.Minute

	// Another process may be migrating. This is the maximum wait for it, in tries one second apart.
	otherMigrationTries = 600
)

// ErrSchemaBehind means that a migration of this program has not been run.
var ErrSchemaBehind = errors.New("the database schema is not up to date")

// CheckSchemaNotBehindOrAltered returns an error if the schema is behind, or was created by other migrations. A
// schema that is ahead belongs to a newer release, and this program supports it.
func (p *Pool) CheckSchemaNotBehindOrAltered(ctx context.Context) error {
	var have int64
	err := p.pool.QueryRow(ctx, "select coalesce(max(version_id), 0) from "+versionTable+" where is_applied").Scan(&have)
	switch {
	case err == nil, SQLState(err) == codeUndefinedTable:
	case SQLState(err) == codeInsufficientPrivilege: // the second migration grants it
		return fmt.Errorf(
			"%w: the role cannot read its version: run 'fleet-api migrate', or grant select on %s to the role: %w",
			ErrSchemaBehind,
			versionTable,
			err,
		)
	default:
		return fmt.Errorf("read the version of the schema: %w", markIfUnavailable(ctx, err))
	}
	if have > 0 {
		if err := p.checkAppliedFingerprints(ctx); err != nil {
			return err
		}
	}
	if want := LatestSchemaVersion(); have < want {
		return fmt.Errorf("%w: it is at version %d, but version %d is required: run 'fleet-api migrate'", ErrSchemaBehind, have, want)
	}
	return nil
}

// MigrateSchema brings the schema up to date. Any number of processes may call it at once: one migrates,
// the others wait and find nothing left to do.
func MigrateSchema(ctx context.Context, cfg Config, log *slog.Logger) error {
	return runMigrations(ctx, cfg, MigrationFiles(), log)
}

func runMigrations(ctx context.Context, cfg Config, migrations fs.FS, log *slog.Logger) error {
	cfg = cfg.withDefaults()
	url := cfg.MigrationURL
	if url == "" {
		url = cfg.URL
	}
	cc, err := pgx.ParseConfig(url.Reveal())
	if err != nil {
		return fmt.Errorf("read the migration URL: %w", redactConnError(err))
	}
	cfg.applyCommonSettings(cc)
	cc.RuntimeParams["lock_timeout"] = formatMilliseconds(migrationLockTimeout)
	db := stdlib.OpenDB(*cc)
	defer func() { _ = db.Close() }()

	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, otherMigrationTries))
	if err != nil {
		return fmt.Errorf("create the migration lock: %w", err)
	}
	want, err := computeFingerprints(migrations)
	if err != nil {
		return fmt.Errorf("read the migrations: %w", err)
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, migrations,
		goose.WithTableName(versionTable),
		goose.WithSessionLocker(fingerprintStoringLocker{locker: locker, want: want}),
		goose.WithDisableGlobalRegistry(true),
		goose.WithSlog(slog.New(slog.DiscardHandler)), // the applied migrations are logged below
	)
	if err != nil {
		return fmt.Errorf("read the migrations: %w", err)
	}
	policy := backoff.Policy{Initial: time.Second, Max: 10 * time.Second, MaxElapsed: migrationGiveUp}
	return backoff.Retry(ctx, policy, func(ctx context.Context) error {
		// If nothing is pending, Up does not lock, and so the locker does not check.
		if err := checkAppliedMigrationHashes(ctx, db, want); err != nil {
			return backoff.Permanent(fmt.Errorf("migrate the schema: %w", markIfUnavailable(ctx, err)))
		}
		return applyPendingMigrations(ctx, provider, log)
	})
}

// applyPendingMigrations returns a permanent error, unless a migration only did not get the lock of a table.
func applyPendingMigrations(ctx context.Context, provider *goose.Provider, log *slog.Logger) error {
	done, err := provider.Up(ctx)
	for _, r := range done {
		log.InfoContext(ctx, "schema migrated", "migration", r.Source.Path, "took", r.Duration)
	}
	if partial, ok := errors.AsType[*goose.PartialError](err); ok {
		err = fmt.Errorf("%s: %w", partial.Failed.Source.Path, partial.Err)
	}
	switch {
	case err == nil:
		return nil
	case SQLState(err) == codeLockTimeout, SQLState(err) == codeDeadlock:
		log.WarnContext(ctx, "migration waits for a table lock", "err", err)
		return fmt.Errorf("migrate the schema: %w", err)
	default:
		return backoff.Permanent(fmt.Errorf("migrate the schema: %w", markIfUnavailable(ctx, err)))
	}
}
