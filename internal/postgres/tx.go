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
	// KeepPlans has the server keep the plan of each statement, because most statements take longer to plan than to
	// run. It suits statements that find rows by a key. One that filters rows needs a plan for its values, and so does
	// one within a tenant: the server plans it for the number of rows of that tenant, and would keep it for all.
	KeepPlans bool
}

const (
	setTenant = "select set_config('" + TenantSetting + "', $1, true), now()"
	setRole   = ", set_config('role', $2, true)"
	// A kept plan can be older than the current size of a table, so it must not read the whole table. Without an index, these
	// settings raise the estimated cost above the threshold of just-in-time compilation, which is therefore disabled.
	keepPlans = ", set_config('plan_cache_mode', 'force_generic_plan', true), set_config('jit', 'off', true)" +
		", set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true)" +
		", set_config('enable_mergejoin', 'off', true), set_config('enable_material', 'off', true)"

	// The maximum number of runs of a transaction that the server aborts because of a conflict.
	maxTries = 5

	rollbackTimeout = 5 * time.Second
)

// queueApplyScope queues the settings of the scope, for the rest of the transaction.
func (s Scope) queueApplyScope(b *pgx.Batch, txTime *time.Time) {
	statement, args := setTenant, []any{s.Tenant}
	if s.Role != "" {
		statement, args = statement+setRole, append(args, s.Role)
	}
	if s.KeepPlans {
		statement += keepPlans
	}
	b.Queue(statement, args...).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			values := make([]any, len(rows.FieldDescriptions())) // nil discards a value
			values[1] = txTime
			if err := rows.Scan(values...); err != nil {
				return err
			}
		}
		return rows.Err()
	})
}

// addRoleTo returns a statement with a comment for the role. A plan is valid for one role, and the server keeps the
// plan of each text.
func (s Scope) addRoleTo(sql string) string {
	if !s.KeepPlans || s.Role == "" {
		return sql
	}
	return "-- as " + s.Role + "\n" + sql
}

func (s Scope) addRoleToAll(statements []*pgx.QueuedQuery) {
	for _, q := range statements {
		q.SQL = s.addRoleTo(q.SQL)
	}
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
		scope.addRoleToAll(b.QueuedQueries[1:])
	})
}

// RunSnapshotBatch is like RunBatch, with one snapshot for all statements.
func (p *Pool) RunSnapshotBatch(ctx context.Context, scope Scope, queue func(*pgx.Batch)) error {
	return p.runBatchRetryingLostConn(ctx, func(b *pgx.Batch, now *time.Time) {
		b.Queue("begin isolation level repeatable read read only")
		scope.queueApplyScope(b, now)
		queue(b)
		scope.addRoleToAll(b.QueuedQueries[2:])
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
func (p *Pool) sendBatch(ctx context.Context, b *pgx.Batch, replayRequirement *standbyRead) error {
	conn, err := p.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	defer conn.Release()
	if replayRequirement != nil {
		if _, err := replayRequirement.requireReplay(ctx, conn); err != nil {
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
func (p *Pool) RunInTx(ctx context.Context, scope Scope, runOnceOrMore func(context.Context, Tx) error) error {
	for try := 1; ; try++ {
		err := p.runTxOnce(ctx, scope, runOnceOrMore)
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
	if !isConnectionLostOrUnusable(ctx, err) {
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
