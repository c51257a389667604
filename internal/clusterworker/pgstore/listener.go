package pgstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/postgres"
)

// Channel is where the database says that there is something to do.
const Channel = "cluster_sync"

const (
	pingEvery   = 30 * time.Second
	pingTimeout = 5 * time.Second
	// endTimeout bounds saying goodbye.
	endTimeout = time.Second
)

var (
	errNotListening = errors.New("LISTEN connection not established yet")
	errNotNotified  = errors.New("no response from database")
	errNoPing       = fmt.Errorf("test notification not received within %s; if a connection pooler in transaction mode "+
		"is used, set CLUSTER_WORKER_LISTEN=off or connect to the database directly", pingTimeout)
)

// A Listener hears of changes on a connection of its own. From time to time it
// notifies itself from another connection, as those who change clusters do: so a
// connection that only seems to live, or only seems to listen, is noticed, and is
// replaced.
type Listener struct {
	cfg       postgres.Config
	log       *slog.Logger
	pings     string // the channel of our own
	pingEvery time.Duration

	wakes         chan struct{}
	err           atomic.Pointer[error] // why it does not listen; nil before the first try
	notifications atomic.Uint64
	lastPing      atomic.Pointer[time.Time]
}

// NewListener makes a listener. It connects to nothing yet.
func NewListener(cfg postgres.Config, log *slog.Logger) *Listener {
	l := &Listener{cfg: cfg, log: log, pings: "ping_" + rand.Text(), pingEvery: pingEvery, wakes: make(chan struct{}, 1)}
	l.err.Store(&errNotListening)
	return l
}

// Wakes gives a value after notifications, however many there were; and
// whenever listening has begun, for those that were missed.
func (l *Listener) Wakes() <-chan struct{} { return l.wakes }

// Ready reports why the listener hears nothing just now, or nil.
func (l *Listener) Ready() error { return *l.err.Load() }

// Notifications is how many there have been of changes.
func (l *Listener) Notifications() uint64 { return l.notifications.Load() }

// LastPing is when the listener last heard itself, zero if never.
func (l *Listener) LastPing() time.Time {
	if at := l.lastPing.Load(); at != nil {
		return *at
	}
	return time.Time{}
}

// Run listens until ctx ends. A connection that breaks is replaced.
func (l *Listener) Run(ctx context.Context) error {
	cc, err := l.cfg.ConnConfig()
	if err != nil {
		return fmt.Errorf("start database listener: %w", err)
	}
	dialer := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}}
	cc.DialFunc = dialer.DialContext
	again := backoff.Policy{Initial: 100 * time.Millisecond, Max: 3 * time.Second}
	for failed := 0; ctx.Err() == nil; failed++ {
		before := l.Ready()
		err := l.listenOnce(ctx, cc.Copy())
		if l.Ready() == nil {
			failed = 0
		}
		if ctx.Err() == nil && (l.Ready() == nil || before.Error() != err.Error()) {
			l.log.WarnContext(ctx, "LISTEN connection lost, reconnecting", "err", err)
		}
		l.noteError(err)
		_ = backoff.Sleep(ctx, again.Delay(failed))
	}
	return nil
}

func (l *Listener) noteError(err error) { l.err.Store(&err) }

func (l *Listener) wakeWorker() {
	select {
	case l.wakes <- struct{}{}:
	default: // there is one already
	}
}

// listenOnce serves one connection until it breaks.
func (l *Listener) listenOnce(ctx context.Context, cc *pgx.ConnConfig) error {
	conn, err := pgx.ConnectConfig(ctx, cc)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer cancel()
		_ = conn.Close(ctx) // it is given up
	}()
	begin, cancel := context.WithTimeoutCause(ctx, pingTimeout, errNoPing)
	defer cancel()
	if _, err := conn.Exec(begin, "listen "+Channel+"; listen "+pgx.Identifier{l.pings}.Sanitize()); err != nil {
		return fmt.Errorf("listen: %w", contextCause(begin, err))
	}
	// What was committed before is not told of.
	l.wakeWorker()
	for {
		if err := l.pingSelf(ctx, conn, cc.Copy()); err != nil {
			return err
		}
		if l.Ready() != nil {
			l.log.InfoContext(ctx, "LISTEN connection established")
			l.noteError(nil)
		}
		next := time.Now().Add(l.pingEvery)
		for time.Now().Before(next) {
			if _, err := l.waitNotification(ctx, conn, next); err != nil {
				return err
			}
		}
	}
}

// pingSelf notifies ourselves from another connection, and waits until that is heard. On
// the same one a pooler gives back what it would not bring from others.
func (l *Listener) pingSelf(ctx context.Context, conn *pgx.Conn, cc *pgx.ConnConfig) error {
	if err := l.notifySelf(ctx, cc); err != nil {
		return err
	}
	deadline := time.Now().Add(pingTimeout)
	for time.Now().Before(deadline) {
		channel, err := l.waitNotification(ctx, conn, deadline)
		if err != nil {
			return err
		}
		if channel == l.pings {
			now := time.Now()
			l.lastPing.Store(&now)
			return nil
		}
	}
	return errNoPing
}

// notifySelf sends a notification to ourselves on a connection that is closed again.
func (l *Listener) notifySelf(ctx context.Context, cc *pgx.ConnConfig) error {
	within, cancel := context.WithTimeoutCause(ctx, pingTimeout, errNotNotified)
	defer cancel()
	conn, err := pgx.ConnectConfig(within, cc)
	if err != nil {
		return fmt.Errorf("connect to notify: %w", contextCause(within, err))
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer cancel()
		_ = conn.Close(ctx) // it is not needed any more
	}()
	if _, err := conn.Exec(within, "notify "+pgx.Identifier{l.pings}.Sanitize()); err != nil {
		return fmt.Errorf("notify: %w", contextCause(within, err))
	}
	return nil
}

// waitNotification waits for one notification, which may have come long before, and tells
// its channel; "" if there is none until a time.
func (l *Listener) waitNotification(ctx context.Context, conn *pgx.Conn, until time.Time) (channel string, err error) {
	within, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	n, err := conn.WaitForNotification(within)
	switch {
	case err == nil:
	case ctx.Err() == nil && within.Err() != nil && !conn.IsClosed():
		return "", nil
	default:
		return "", fmt.Errorf("listen: %w", err)
	}
	if n.Channel == Channel {
		l.notifications.Add(1)
		l.wakeWorker()
	}
	return n.Channel, nil
}

// contextCause tells why a context ended rather than that it did.
func contextCause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
