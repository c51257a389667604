package postgres

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/pressly/goose/v3/lock"
)

// ErrSchemaIncompatible means that different migrations with the same version numbers created the
// schema.
var ErrSchemaIncompatible = errors.New("the database schema is incompatible with this version of Fleetloop")

// An IncompatibleSchemaError is an ErrSchemaIncompatible with its reason.
type IncompatibleSchemaError struct {
	Reason string // names the migration
}

// Error returns the reason, and what to do.
func (e *IncompatibleSchemaError) Error() string {
	return fmt.Sprintf("%v: %s: drop and recreate the database, then run 'fleet-api migrate'", ErrSchemaIncompatible, e.Reason)
}

// Unwrap returns ErrSchemaIncompatible.
func (e *IncompatibleSchemaError) Unwrap() error { return ErrSchemaIncompatible }

// The table has one row for each migration. The row is written before the migration runs, and
// rewritten if it did not finish.
const (
	fingerprintTable = "fleetloop_migration_fingerprints"

	createFingerprints = `create table if not exists ` + fingerprintTable + ` (
	version_id bigint primary key,
	sha256     text   not null
)`
	grantFingerprints = `grant select on ` + fingerprintTable + ` to public`

	// Version 0 is a row that goose adds initially. The newest row of a version counts.
	appliedFingerprints = `select v.version_id, coalesce(f.sha256, '') from (
	select distinct on (version_id) version_id, is_applied from ` + versionTable + ` where version_id > 0 order by version_id, id desc
) v left join ` + fingerprintTable + ` f using (version_id) where v.is_applied order by 1`
	applied = `select version_id, '' from ` + versionTable + ` where version_id > 0 and is_applied order by 1 limit 1`

	saveFingerprint = `insert into ` + fingerprintTable + ` (version_id, sha256) values ($1, $2)
on conflict (version_id) do update set sha256 = excluded.sha256`
)

// A fingerprint is the version and the content hash of a migration.
type fingerprint struct {
	version int64
	sha256  string
}

func computeFingerprints(migrations fs.FS) (hashByVersion map[int64]string, err error) {
	names, err := fs.Glob(migrations, "*.sql")
	if err != nil {
		return nil, err
	}
	out := make(map[int64]string, len(names))
	for _, name := range names {
		number, _, _ := strings.Cut(name, "_")
		version, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("migration %q has no version number", name)
		}
		text, err := fs.ReadFile(migrations, name)
		if err != nil {
			return nil, err
		}
		out[version] = hashMigrationIgnoringComments(text)
	}
	return out, nil
}

// hashMigrationIgnoringComments returns the hash of a migration without comments and empty lines, which have no
// effect on the database.
func hashMigrationIgnoringComments(text []byte) string {
	h := sha256.New()
	for line := range bytes.Lines(text) {
		line = bytes.TrimRight(line, " \t\r\n")
		comment := bytes.TrimLeft(line, " \t")
		if len(comment) == 0 || bytes.HasPrefix(comment, []byte("--")) && !bytes.HasPrefix(comment, []byte("-- +goose")) {
			continue
		}
		h.Write(append(line, '\n'))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// compareFingerprints returns an error if the content of an applied migration differs from that of
// this program. It ignores versions of a newer release.
func compareFingerprints(applied []fingerprint, expected map[int64]string) error {
	for _, f := range applied {
		switch hash, known := expected[f.version]; {
		case !known, f.sha256 == hash:
			// A newer release, or the same content.
		case f.sha256 == "":
			return &IncompatibleSchemaError{Reason: fmt.Sprintf("migration %d has no fingerprint, so an older version applied it", f.version)}
		default:
			return &IncompatibleSchemaError{Reason: fmt.Sprintf("migration %d was applied with other content", f.version)}
		}
	}
	return nil
}

// checkAppliedFingerprints compares the applied migrations with those of this program.
func (p *Pool) checkAppliedFingerprints(ctx context.Context) error {
	want, err := computeFingerprints(MigrationFiles())
	if err != nil {
		return err
	}
	have, err := p.queryFingerprints(ctx, appliedFingerprints)
	if SQLState(err) == codeUndefinedTable {
		have, err = p.queryFingerprints(ctx, applied)
	}
	if err != nil {
		return fmt.Errorf("read the fingerprints of the migrations: %w", markIfUnavailable(ctx, err))
	}
	return compareFingerprints(have, want)
}

func (p *Pool) queryFingerprints(ctx context.Context, query string) (found []fingerprint, err error) {
	rows, err := p.pool.Query(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var f fingerprint
		if err := rows.Scan(&f.version, &f.sha256); err != nil {
			return nil, err
		}
		found = append(found, f)
	}
	return found, rows.Err()
}

// A fingerprintStoringLocker checks and records the fingerprints as soon as it has the
// lock under which migrations run.
type fingerprintStoringLocker struct {
	locker lock.SessionLocker
	want   map[int64]string
}

// SessionLock takes the lock. It fails if the applied migrations have other content.
func (l fingerprintStoringLocker) SessionLock(ctx context.Context, conn *sql.Conn) error {
	if err := l.locker.SessionLock(ctx, conn); err != nil {
		return err
	}
	if err := l.checkAndStoreFingerprints(ctx, conn); err != nil {
		return errors.Join(err, l.SessionUnlock(context.WithoutCancel(ctx), conn))
	}
	return nil
}

// SessionUnlock releases the lock.
func (l fingerprintStoringLocker) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	return l.locker.SessionUnlock(ctx, conn)
}

// checkAndStoreFingerprints records the fingerprints of the pending migrations.
func (l fingerprintStoringLocker) checkAndStoreFingerprints(ctx context.Context, conn *sql.Conn) error {
	have, err := readAppliedFingerprints(ctx, conn)
	if err == nil {
		err = compareFingerprints(have, l.want)
	}
	if err != nil {
		return err
	}
	for _, statement := range []string{createFingerprints, grantFingerprints} {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("create table %s: %w", fingerprintTable, err)
		}
	}
	done := make(map[int64]bool, len(have))
	for _, f := range have {
		done[f.version] = true
	}
	for version, hash := range l.want {
		if done[version] {
			continue
		}
		if _, err := conn.ExecContext(ctx, saveFingerprint, version, hash); err != nil {
			return fmt.Errorf("save the fingerprint of migration %d: %w", version, err)
		}
	}
	return nil
}

// checkAppliedMigrationHashes compares the applied migrations with the expected ones. It does not need the
// migration lock, because a fingerprint is written before its migration.
func checkAppliedMigrationHashes(ctx context.Context, db *sql.DB, expectedHashes map[int64]string) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	have, err := readAppliedFingerprints(ctx, conn)
	if err != nil {
		return err
	}
	return compareFingerprints(have, expectedHashes)
}

// readAppliedFingerprints returns the applied migrations with their fingerprints, if recorded.
func readAppliedFingerprints(ctx context.Context, conn *sql.Conn) (recorded []fingerprint, err error) {
	var migrated, fingerprinted bool
	const tables = "select to_regclass($1) is not null, to_regclass($2) is not null"
	if err := conn.QueryRowContext(ctx, tables, versionTable, fingerprintTable).Scan(&migrated, &fingerprinted); err != nil {
		return nil, fmt.Errorf("read the fingerprints of the migrations: %w", err)
	}
	query := appliedFingerprints
	switch {
	case !migrated:
		return nil, nil
	case !fingerprinted:
		query = applied
	}
	rows, err := conn.QueryContext(ctx, query)
	if err != nil {
		return nil, fmt.Errorf("read the fingerprints of the migrations: %w", err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var f fingerprint
		if err := rows.Scan(&f.version, &f.sha256); err != nil {
			return nil, err
		}
		recorded = append(recorded, f)
	}
	return recorded, rows.Err()
}
