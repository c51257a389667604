package console

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fleetloop/fleetloop/internal/console/session"
	"github.com/fleetloop/fleetloop/internal/postgres"
)

// A SessionStore stores the sessions of the console in PostgreSQL, so that replicas share them. Its pool needs
// the role postgres.RoleConsole. A call fails with postgres.ErrUnavailable while the database is unavailable.
type SessionStore struct{ pool *postgres.Pool }

var _ session.Store = (*SessionStore)(nil)

// NewSessionStore returns a store that uses a pool with a migrated schema.
func NewSessionStore(pool *postgres.Pool) *SessionStore { return &SessionStore{pool} }

const (
	insertSession     = "insert into console.sessions (hash, sealed, seen_at, expires_at) values ($1, $2, $3, $4)"
	selectSession     = "select sealed, seen_at, expires_at from console.sessions where hash = $1"
	lockSession       = selectSession + " for update"
	updateSession     = "update console.sessions set sealed = $2, seen_at = $3, expires_at = $4 where hash = $1"
	deleteSession     = "delete from console.sessions where hash = $1"
	deleteOldSessions = "delete from console.sessions where expires_at <= $1 or seen_at < $2"
)

// CreateSession implements session.Store.
func (s *SessionStore) CreateSession(ctx context.Context, record session.Record) error {
	return s.execStatement(ctx, insertSession, record.Hash[:], record.Sealed, record.Seen, record.Expires)
}

// Get implements session.Store.
func (s *SessionStore) Get(ctx context.Context, idHash session.Hash) (session.Record, error) {
	r := session.Record{Hash: idHash}
	err := s.pool.RunBatch(ctx, postgres.Scope{}, func(b *pgx.Batch) {
		b.Queue(selectSession, idHash[:]).QueryRow(func(row pgx.Row) error { return row.Scan(&r.Sealed, &r.Seen, &r.Expires) })
	})
	return r, translateNoRows(err)
}

// UpdateLocked implements session.Store. The row is locked while change runs, which may call the issuer.
func (s *SessionStore) UpdateLocked(
	ctx context.Context, idHash session.Hash, change func(context.Context, session.Record) (session.Record, error),
) error {
	err := s.pool.RunInTx(ctx, postgres.Scope{}, func(ctx context.Context, tx postgres.Tx) error {
		r := session.Record{Hash: idHash}
		if err := tx.QueryRow(ctx, lockSession, idHash[:]).Scan(&r.Sealed, &r.Seen, &r.Expires); err != nil {
			return fmt.Errorf("lock session: %w", err)
		}
		changed, err := change(ctx, r)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, updateSession, idHash[:], changed.Sealed, changed.Seen, changed.Expires); err != nil {
			return fmt.Errorf("update session: %w", err)
		}
		return nil
	})
	return translateNoRows(err)
}

// DeleteSession implements session.Store.
func (s *SessionStore) DeleteSession(ctx context.Context, idHash session.Hash) error {
	return s.execStatement(ctx, deleteSession, idHash[:])
}

// DeleteExpiredAndIdle implements session.Store.
func (s *SessionStore) DeleteExpiredAndIdle(ctx context.Context, now, idleBefore time.Time) error {
	return s.execStatement(ctx, deleteOldSessions, now, idleBefore)
}

func (s *SessionStore) execStatement(ctx context.Context, sql string, args ...any) error {
	return s.pool.RunBatch(ctx, postgres.Scope{}, func(b *pgx.Batch) { b.Queue(sql, args...) })
}

func translateNoRows(err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return session.ErrNone
	}
	return err
}
