// Package postgres connects to PostgreSQL and brings its schema up to date.
//
// A Pool uses a role that row-level security binds. Every transaction has a Scope that selects the
// visible rows; the zero Scope sees none. A Pool survives restarts and failovers of the server:
// while the server is unavailable, calls fail with ErrUnavailable and Ready returns the reason, and
// the first call after its return succeeds.
//
// MigrateSchema runs the migrations; any number of processes may do so at once. A Schema runs or awaits
// them before the process uses the database.
package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fleetloop/fleetloop/internal/backoff"
)

const (
	// The interval at which Run probes an unavailable database.
	probeAgain   = 250 * time.Millisecond
	probeTimeout = 3 * time.Second
)

// A Pool holds the connections of one process to one database.
type Pool struct {
	pool       *pgxpool.Pool
	probeEvery time.Duration
	log        *slog.Logger
	state      atomic.Pointer[state]
}

// A state is the result of the last probe.
type state struct{ err error }

// New returns a pool. It does not connect yet; an unavailable database is not an error. The caller
// must call Run, which closes the pool, or Close.
func New(cfg Config, log *slog.Logger) (*Pool, error) {
	if cfg.URL == "" {
		return nil, errors.New("read the database URL: it is not set; set DATABASE_URL")
	}
	pc, err := cfg.withDefaults().newPoolConfig()
	if err != nil {
		return nil, err
	}
	// The context only limits the creation of idle connections, of which there are none.
	pool, err := pgxpool.NewWithConfig(context.Background(), pc)
	if err != nil {
		return nil, fmt.Errorf("create the connection pool: %w", err)
	}
	p := &Pool{pool: pool, probeEvery: cmp.Or(cfg.ProbeEvery, DefaultProbeEvery), log: log}
	p.state.Store(&state{err: errors.New("not yet connected to the database")})
	return p, nil
}

// Close waits until all connections have been returned and closes them.
func (p *Pool) Close() { p.pool.Close() }

// Ready returns why the database cannot be used at present, or nil. Run keeps the answer up to
// date.
func (p *Pool) Ready() error { return p.state.Load().err }

// Run probes the database until ctx ends, then closes the pool.
func (p *Pool) Run(ctx context.Context) error {
	defer p.Close()
	w := prober{cfg: p.pool.Config().ConnConfig}
	defer w.closeAndForgetConn(ctx)

	for {
		err := w.probeWithTimeout(ctx)
		if ctx.Err() != nil {
			return nil
		}
		p.storeAndLogProbeResult(ctx, err)
		pause := p.probeEvery
		if err != nil {
			pause = probeAgain
		}
		if backoff.Sleep(ctx, pause) != nil {
			return nil
		}
	}
}

func (p *Pool) storeAndLogProbeResult(ctx context.Context, err error) {
	before := p.state.Swap(&state{err: err}).err
	switch {
	case err != nil && (before == nil || before.Error() != err.Error()):
		p.log.WarnContext(ctx, "database unavailable", "err", err)
	case err == nil && before != nil:
		p.log.InfoContext(ctx, "database available")
	}
}

// A prober probes the database on a separate connection. A pool whose connections are all busy
// must not look like a dead server.
type prober struct {
	cfg  *pgx.ConnConfig
	conn *pgx.Conn
}

func (w *prober) probeWithTimeout(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, probeTimeout, fmt.Errorf("no response within %s", probeTimeout))
	defer cancel()
	err := w.connectOrPing(ctx)
	if err != nil {
		w.closeAndForgetConn(ctx)
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("database unavailable: %w", err)
	}
	return nil
}

func (w *prober) connectOrPing(ctx context.Context) error {
	if w.conn == nil {
		conn, err := pgx.ConnectConfig(ctx, w.cfg.Copy())
		if err != nil {
			return err
		}
		w.conn = conn
		return checkRoleBoundByRLS(ctx, conn)
	}
	var readOnly bool
	if err := w.conn.QueryRow(ctx, "select current_setting('transaction_read_only')::bool").Scan(&readOnly); err != nil {
		return err
	}
	if readOnly {
		return errReadOnly
	}
	return nil
}

func (w *prober) closeAndForgetConn(ctx context.Context) {
	closeConn(ctx, w.conn)
	w.conn = nil
}

// closeConn closes a connection that is not needed any more, so an error does not matter. Nil is none.
func closeConn(ctx context.Context, conn *pgx.Conn) {
	if conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTimeout)
	defer cancel()
	_ = conn.Close(ctx)
}
