package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A Querier runs statements.
type Querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// A Tx is a transaction within a Scope.
type Tx struct {
	Querier

	pipelined *pipelinedTx
}

// Queue queues a statement. It runs before the next statement or the commit, in the same round trip. The call that
// sends it returns its error, and so do all later calls and RunInTx. A callback cannot undo the commit: if it returns an
// error when the statement was sent with the commit, RunInTx returns that error but the server has committed.
func (t Tx) Queue(sql string, args ...any) *pgx.QueuedQuery {
	return t.pipelined.queued.Queue(t.pipelined.scope.addRoleTo(sql), args...)
}

// RunBatch runs the statements of a batch, with their callbacks, in one round trip.
func (t Tx) RunBatch(ctx context.Context, b *pgx.Batch) error {
	t.pipelined.scope.addRoleToAll(b.QueuedQueries)
	return t.pipelined.sendQueuedAnd(ctx, b.QueuedQueries...)
}

// RunQueued runs the queued statements.
func (t Tx) RunQueued(ctx context.Context) error { return t.pipelined.sendQueuedIfAny(ctx) }

// ReadBeginTime returns the time of the server's clock when the transaction began.
func (t Tx) ReadBeginTime(ctx context.Context) (time.Time, error) {
	if !t.pipelined.hasBegun() {
		if err := t.pipelined.sendQueuedAnd(ctx); err != nil {
			return time.Time{}, err
		}
	}
	return t.pipelined.beginTime, nil
}

// A pipelinedTx sends the begin and the scope of a transaction with its first statement, and queued statements with
// the next one.
type pipelinedTx struct {
	pool   *Pool
	scope  Scope
	conn   *pgxpool.Conn // nil before the first statement
	queued pgx.Batch
	// beginTime is zero until the server has begun the transaction.
	beginTime time.Time
	// failed is the error of the begin, or of a queued statement that another call has sent. Nothing runs after it.
	failed error
}

// Exec runs a statement.
func (t *pipelinedTx) Exec(ctx context.Context, sql string, args ...any) (tag pgconn.CommandTag, err error) {
	sql = t.scope.addRoleTo(sql)
	if t.hasBegunAndSentAll() {
		return t.conn.Exec(ctx, sql, args...)
	}
	var b pgx.Batch
	b.Queue(sql, args...).Exec(func(answer pgconn.CommandTag) error {
		tag = answer
		return nil
	})
	err = t.sendQueuedAnd(ctx, b.QueuedQueries...)
	return tag, err
}

// Query runs a statement. Its rows are read later, so what is queued takes a round trip before it.
func (t *pipelinedTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if !t.hasBegunAndSentAll() {
		if err := t.sendQueuedAnd(ctx); err != nil {
			return nil, err
		}
	}
	return t.conn.Query(ctx, t.scope.addRoleTo(sql), args...)
}

// QueryRow runs a statement when its row is scanned.
func (t *pipelinedTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	sql = t.scope.addRoleTo(sql)
	return pipelinedRow(func(targets []any) error {
		if t.hasBegunAndSentAll() {
			return t.conn.QueryRow(ctx, sql, args...).Scan(targets...)
		}
		// A row that is missing does not fail the batch, whose statements pgx would prepare again.
		var noRows error
		var b pgx.Batch
		b.Queue(sql, args...).QueryRow(func(row pgx.Row) error {
			err := row.Scan(targets...)
			if errors.Is(err, pgx.ErrNoRows) {
				noRows, err = err, nil
			}
			return err
		})
		return cmp.Or(t.sendQueuedAnd(ctx, b.QueuedQueries...), noRows)
	})
}

// A pipelinedRow runs its statement when it is scanned.
type pipelinedRow func(targets []any) error

// Scan implements pgx.Row.
func (r pipelinedRow) Scan(targets ...any) error { return r(targets) }

func (t *pipelinedTx) hasBegun() bool { return !t.beginTime.IsZero() }

func (t *pipelinedTx) hasBegunAndSentAll() bool {
	return t.hasBegun() && t.failed == nil && t.queued.Len() == 0
}

func (t *pipelinedTx) sendQueuedIfAny(ctx context.Context) error {
	if t.failed != nil || t.queued.Len() == 0 {
		return t.failed
	}
	return t.sendQueuedAnd(ctx)
}

// sendQueuedAnd sends the queued statements, followed by others, in one round trip. It begins the transaction if that
// has not begun.
func (t *pipelinedTx) sendQueuedAnd(ctx context.Context, others ...*pgx.QueuedQuery) error {
	hasQueued := t.queued.Len() > 0
	b := &pgx.Batch{QueuedQueries: append(t.queued.QueuedQueries, others...)}
	t.queued = pgx.Batch{}
	if t.failed != nil {
		return t.failed
	}
	err := t.send(ctx, b)
	if err != nil && (hasQueued || !t.hasBegun()) {
		t.failed = err
	}
	return err
}

// send sends a batch, after the begin if the transaction has not begun.
func (t *pipelinedTx) send(ctx context.Context, b *pgx.Batch) error {
	if t.hasBegun() {
		return t.conn.SendBatch(ctx, b).Close()
	}
	err := t.beginAndSend(ctx, b)
	if !t.hasBegun() && err != nil && t.pool.dropIdleConnsIfLost(ctx, err) {
		t.releaseConn() // it was dead before the transaction, which did nothing yet
		err = t.beginAndSend(ctx, b)
	}
	if !t.hasBegun() {
		t.releaseConn()
	}
	return err
}

func (t *pipelinedTx) beginAndSend(ctx context.Context, first *pgx.Batch) (err error) {
	if t.conn, err = t.pool.pool.Acquire(ctx); err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	var b pgx.Batch
	b.Queue("begin")
	t.scope.queueApplyScope(&b, &t.beginTime)
	for _, q := range first.QueuedQueries {
		// A copy, because pgx keeps in it how the connection has prepared it.
		b.QueuedQueries = append(b.QueuedQueries, &pgx.QueuedQuery{SQL: q.SQL, Arguments: q.Arguments, Fn: q.Fn})
	}
	return t.conn.SendBatch(ctx, &b).Close()
}

// commit sends the queued statements and commits. A transaction without statements never begins.
func (t *pipelinedTx) commit(ctx context.Context) error {
	if !t.hasBegun() {
		// The commit follows apart: what is sent with the begin may be sent twice.
		if err := t.sendQueuedIfAny(ctx); err != nil || !t.hasBegun() {
			return err
		}
	}
	t.queued.Queue("commit").Exec(func(answer pgconn.CommandTag) error {
		if answer.String() == "ROLLBACK" {
			return pgx.ErrTxCommitRollback
		}
		return nil
	})
	return t.sendQueuedAnd(ctx)
}

// rollback rolls back a failed transaction. If it fails, the pool closes the connection, so the error is ignored.
func (t *pipelinedTx) rollback(ctx context.Context) {
	if t.conn == nil || t.conn.Conn().PgConn().TxStatus() == txStatusIdle {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	_, _ = t.conn.Exec(ctx, "rollback")
}

// txStatusIdle is the status of a connection without a transaction.
const txStatusIdle = 'I'

func (t *pipelinedTx) releaseConn() {
	if t.conn != nil {
		t.conn.Release()
		t.conn = nil
	}
}
