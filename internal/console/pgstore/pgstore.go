// Package pgstore stores the sessions of the console in PostgreSQL, so that replicas share them.
//
// A call fails with postgres.ErrUnavailable while the database is unavailable.
package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fleetloop/fleetloop/internal/console/session"
	"github.com/fleetloop/fleetloop/internal/postgres"
)

// A Store stores sessions. Its pool needs the role postgres.RoleConsole.
type Store struct{ pool *postgres.Pool }

var _ session.Store = (*Store)(nil)

// New returns a store that uses a pool with a migrated schema.
func New(pool *postgres.Pool) *Store { return &Store{pool} }

const (
	insertSession = "insert into console.sessions (hash, sealed, seen_at, expires_at) values ($1, $2, $3, $4)"
	selectSession = "select sealed, seen_at, expires_at from console.sessions where hash = $1"
	lockSession   = selectSession + " for update"
	updateSession = "update console.sessions set sealed = $2, seen_at = $3, expires_at = $4 where hash = $1"
	deleteSession = "delete from console.sessions where hash = $1"
	deleteOld     = "delete from console.sessions where expires_at <= $1 or seen_at < $2"
)

// Create implements session.Store.
func (s *Store) Create(ctx context.Context, r session.Record) error {
	return s.exec(ctx, insertSession, r.Hash[:], r.Sealed, r.Seen, r.Expires)
}

// Get implements session.Store.
func (s *Store) Get(ctx context.Context, h session.Hash) (session.Record, error) {
	r := session.Record{Hash: h}
	err := s.pool.RunBatch(ctx, postgres.Scope{}, func(b *pgx.Batch) {
		b.Queue(selectSession, h[:]).QueryRow(func(row pgx.Row) error { return row.Scan(&r.Sealed, &r.Seen, &r.Expires) })
	})
	return r, explainNoRows(err)
}

// Update implements session.Store. The row is locked while change runs, which may call the issuer.
func (s *Store) Update(ctx context.Context, h session.Hash, change func(context.Context, session.Record) (session.Record, error)) error {
	err := s.pool.InTx(ctx, postgres.Scope{}, func(ctx context.Context, tx postgres.Tx) error {
		r := session.Record{Hash: h}
		if err := tx.QueryRow(ctx, lockSession, h[:]).Scan(&r.Sealed, &r.Seen, &r.Expires); err != nil {
			return fmt.Errorf("lock session: %w", err)
		}
		changed, err := change(ctx, r)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, updateSession, h[:], changed.Sealed, changed.Seen, changed.Expires); err != nil {
			return fmt.Errorf("update session: %w", err)
		}
		return nil
	})
	return explainNoRows(err)
}

// Delete implements session.Store.
func (s *Store) Delete(ctx context.Context, h session.Hash) error {
	return s.exec(ctx, deleteSession, h[:])
}

// DeleteOld implements session.Store.
func (s *Store) DeleteOld(ctx context.Context, now, seenBefore time.Time) error {
	return s.exec(ctx, deleteOld, now, seenBefore)
}

func (s *Store) exec(ctx context.Context, sql string, args ...any) error {
	return s.pool.RunBatch(ctx, postgres.Scope{}, func(b *pgx.Batch) { b.Queue(sql, args...) })
}

func explainNoRows(err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return session.ErrNone
	}
	return err
}
