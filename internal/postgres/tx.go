package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fleetloop/fleetloop/internal/postgres/migrations"
)

// A Scope is what row-level security lets a transaction see. The zero value
// is nothing.
type Scope struct {
	// Tenant is the tenant whose rows the pool's role sees.
	Tenant string
	// Role works as another role than the pool's, which the login must be a
	// member of.
	Role string
}

// A Tx is a transaction within a Scope.
type Tx struct {
	pgx.Tx
	// Now is the server's clock when the transaction began.
	Now time.Time
}

const (
	setScope = "select set_config('" + migrations.TenantSetting + "', $1, true), now()"
	// Two texts, because a plan is made for one role: under the other it would
	// have to be made anew.
	setScopeAndRole = "select set_config('role', $2, true), set_config('" + migrations.TenantSetting + "', $1, true), now()"

	// How often a transaction is run that the server gives up for the sake of
	// another one.
	maxTries = 5

	rollbackTimeout = 5 * time.Second
)

// queueScope adds the statement that brings the scope into force to a batch.
func (s Scope) queueScope(b *pgx.Batch, now *time.Time) {
	var discard string
	if s.Role == "" {
		b.Queue(setScope, s.Tenant).QueryRow(func(row pgx.Row) error { return row.Scan(&discard, now) })
		return
	}
	b.Queue(setScopeAndRole, s.Tenant, s.Role).QueryRow(func(row pgx.Row) error { return row.Scan(&discard, &discard, now) })
}

// Read runs the statements that fill queues, with their callbacks, in one
// round trip and one transaction. Each statement has its own snapshot.
//
// A connection that turns out to be dead is replaced once, so fill may be
// called twice; its callbacks have not been called by then.
func (p *Pool) Read(ctx context.Context, s Scope, fill func(*pgx.Batch)) error {
	return p.runRead(ctx, func(b *pgx.Batch, now *time.Time) {
		s.queueScope(b, now)
		fill(b)
	})
}

// ReadSnapshot is Read with one snapshot for all statements.
func (p *Pool) ReadSnapshot(ctx context.Context, s Scope, fill func(*pgx.Batch)) error {
	return p.runRead(ctx, func(b *pgx.Batch, now *time.Time) {
		b.Queue("begin isolation level repeatable read read only")
		s.queueScope(b, now)
		fill(b)
		b.Queue("commit")
	})
}

func (p *Pool) runRead(ctx context.Context, fill func(*pgx.Batch, *time.Time)) error {
	for again := false; ; again = true {
		var now time.Time // set by the first answer, before any callback of the caller
		var b pgx.Batch
		fill(&b, &now)
		err := p.sendBatch(ctx, &b)
		if err == nil || again || !now.IsZero() || !p.dropIdleConns(ctx, err) {
			return unavailable(ctx, err)
		}
	}
}

func (p *Pool) sendBatch(ctx context.Context, b *pgx.Batch) error {
	conn, err := p.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	defer conn.Release()
	return conn.SendBatch(ctx, b).Close()
}

// InTx runs fn in a transaction and commits if it returns nil. One that the
// server gives up for the sake of another (serialization, deadlock) is run
// again from the start, so fn must hold no state of its own.
func (p *Pool) InTx(ctx context.Context, s Scope, fn func(context.Context, Tx) error) error {
	for try := 1; ; try++ {
		err := p.tryTx(ctx, s, fn)
		if code := Code(err); try == maxTries || ctx.Err() != nil || code != codeSerialization && code != codeDeadlock {
			return unavailable(ctx, err)
		}
	}
}

func (p *Pool) tryTx(ctx context.Context, s Scope, fn func(context.Context, Tx) error) error {
	tx, err := p.beginTx(ctx, s)
	if err != nil && p.dropIdleConns(ctx, err) {
		tx, err = p.beginTx(ctx, s)
	}
	if err != nil {
		return err
	}
	err = fn(ctx, tx)
	if err == nil {
		err = tx.Commit(ctx)
	}
	if err != nil {
		// Also after a failed commit: it does nothing if there is nothing to undo.
		rollbackTx(ctx, tx)
		p.dropIdleConns(ctx, err)
	}
	return err
}

func (p *Pool) beginTx(ctx context.Context, s Scope) (Tx, error) {
	tx, err := p.pool.Begin(ctx)
	if err != nil {
		return Tx{}, fmt.Errorf("begin transaction: %w", err)
	}
	t := Tx{Tx: tx}
	var b pgx.Batch
	s.queueScope(&b, &t.Now)
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		rollbackTx(ctx, tx)
		return Tx{}, fmt.Errorf("set the scope of a transaction: %w", err)
	}
	return t, nil
}

// rollbackTx ends a transaction that failed. A connection that cannot is closed,
// so its error says no more.
func rollbackTx(ctx context.Context, tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	_ = tx.Rollback(ctx)
}

// dropIdleConns closes the idle connections when err says that the server they led
// to is gone, and reports whether it did: where one is dead, all are.
func (p *Pool) dropIdleConns(ctx context.Context, err error) bool {
	if !isConnectionLost(ctx, err) {
		return false
	}
	p.pool.Reset()
	return true
}

// brokenPipe reports whether err is a failure to talk, as opposed to an answer.
func brokenPipe(err error) bool {
	_, network := errors.AsType[net.Error](err)
	return network || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}
