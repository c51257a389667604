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
)

// A Scope selects the rows that a transaction may see. The zero value sees none.
type Scope struct {
	// Tenant is the tenant whose rows are visible to the pool's role.
	Tenant string
	// Role replaces the pool's role. The login must be a member of it.
	Role string
}

const (
	setScope = "select set_config('" + TenantSetting + "', $1, true), now()"
	// Two texts, because a plan is valid for one role: with the other it would have to be made
	// again.
	setScopeAndRole = "select set_config('role', $2, true), set_config('" + TenantSetting + "', $1, true), now()"

	// The maximum number of runs of a transaction that the server aborts because of a conflict.
	maxTries = 5

	rollbackTimeout = 5 * time.Second
)

func (s Scope) queueApplyScope(b *pgx.Batch, txTime *time.Time) {
	var discard string
	if s.Role == "" {
		b.Queue(setScope, s.Tenant).QueryRow(func(row pgx.Row) error { return row.Scan(&discard, txTime) })
		return
	}
	b.Queue(setScopeAndRole, s.Tenant, s.Role).QueryRow(func(row pgx.Row) error { return row.Scan(&discard, &discard, txTime) })
}

// RunBatch runs the statements that queue adds to the batch, with their callbacks, in one round trip and one
// transaction. Each statement has its own snapshot.
//
// A dead connection is replaced once, so queue may be called twice; its callbacks have not been
// called by then.
func (p *Pool) RunBatch(ctx context.Context, scope Scope, queue func(*pgx.Batch)) error {
	return p.runBatchRetryingLostConn(ctx, func(b *pgx.Batch, now *time.Time) {
		scope.queueApplyScope(b, now)
		queue(b)
	})
}

// RunSnapshotBatch is like RunBatch, with one snapshot for all statements.
func (p *Pool) RunSnapshotBatch(ctx context.Context, scope Scope, queue func(*pgx.Batch)) error {
	return p.runBatchRetryingLostConn(ctx, func(b *pgx.Batch, now *time.Time) {
		b.Queue("begin isolation level repeatable read read only")
		scope.queueApplyScope(b, now)
		queue(b)
		b.Queue("commit")
	})
}

func (p *Pool) runBatchRetryingLostConn(ctx context.Context, queue func(*pgx.Batch, *time.Time)) error {
	read := standbyReadOf(ctx)
	if read != nil {
		p = read.pool
	}
	answered, err := p.queueAndSendBatch(ctx, queue, read)
	if err != nil && !answered && p.dropIdleConnsIfLost(ctx, err) {
		_, err = p.queueAndSendBatch(ctx, queue, read)
	}
	return markIfUnavailable(ctx, err)
}

// queueAndSendBatch runs a batch. answered is false if no callback was called.
func (p *Pool) queueAndSendBatch(ctx context.Context, queue func(*pgx.Batch, *time.Time), read *standbyRead) (answered bool, err error) {
	var now time.Time // set by the first answer, before any callback of the caller
	var b pgx.Batch
	queue(&b, &now)
	err = p.sendBatch(ctx, &b, read)
	return !now.IsZero(), err
}

// sendBatch runs a batch on a connection that fulfils what a read requires, nil for nothing.
func (p *Pool) sendBatch(ctx context.Context, b *pgx.Batch, read *standbyRead) error {
	conn, err := p.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	defer conn.Release()
	if read != nil {
		if _, err := read.requireReplay(ctx, conn); err != nil {
			return err
		}
	}
	return conn.SendBatch(ctx, b).Close()
}

// RunInTx calls run in a transaction and commits if it returns nil. A transaction that the server aborts
// because of a conflict (serialization, deadlock) is run again from the start, so run must keep no
// state between runs.
//
// The transaction begins with its first statement, in the same round trip. Statements that run queues are sent
// with the next one, or with the commit.
func (p *Pool) RunInTx(ctx context.Context, scope Scope, run func(context.Context, Tx) error) error {
	for try := 1; ; try++ {
		err := p.runTxOnce(ctx, scope, run)
		code := SQLState(err)
		isConflict := code == codeSerialization || code == codeDeadlock
		if !isConflict || try == maxTries || ctx.Err() != nil {
			return markIfUnavailable(ctx, err)
		}
	}
}

func (p *Pool) runTxOnce(ctx context.Context, scope Scope, run func(context.Context, Tx) error) error {
	t := &pipelinedTx{pool: p, scope: scope}
	defer t.releaseConn()
	err := run(ctx, Tx{Querier: t, pipelined: t})
	if err == nil {
		err = t.commit(ctx)
	}
	if err != nil {
		// Also after a failed commit: it has no effect if there is nothing to roll back.
		t.rollback(ctx)
		p.dropIdleConnsIfLost(ctx, err)
	}
	return err
}

// dropIdleConnsIfLost closes the idle connections if err means that their server is gone, because then
// all of them are dead. It reports whether it closed them.
func (p *Pool) dropIdleConnsIfLost(ctx context.Context, err error) (dropped bool) {
	if !isConnectionLost(ctx, err) {
		return false
	}
	p.pool.Reset()
	return true
}

// isNetworkError reports whether err is a communication failure and not an answer.
func isNetworkError(err error) bool {
	_, network := errors.AsType[net.Error](err)
	return network || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}
