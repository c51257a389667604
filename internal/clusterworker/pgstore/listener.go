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

// Channel is the channel of notifications about due rows.
const Channel = "cluster_sync"

const (
	pingEvery   = 30 * time.Second
	pingTimeout = 5 * time.Second
	// endTimeout limits the closing of a connection.
	endTimeout = time.Second
)

var (
	errNotListening = errors.New("LISTEN connection not established yet")
	errNotNotified  = errors.New("no response from database")
	errNoPing       = fmt.Errorf("test notification not received within %s; if a connection pooler in transaction mode "+
		"is used, set CLUSTER_WORKER_LISTEN=off or connect to the database directly", pingTimeout)
)

// A Listener receives notifications of changes on a dedicated connection. From time to
// time it notifies itself from another connection, in the way that clients notify after
// a change. So it detects and replaces a connection that only seems to be alive, or
// only seems to listen.
type Listener struct {
	cfg       postgres.Config
	log       *slog.Logger
	pings     string // the channel of this listener's pings
	pingEvery time.Duration

	wakes         chan struct{}
	err           atomic.Pointer[error] // why it does not listen, never nil before the first success
	notifications atomic.Uint64
	lastPing      atomic.Pointer[time.Time]
}

// NewListener returns a listener. It does not connect yet.
func NewListener(cfg postgres.Config, log *slog.Logger) *Listener {
	l := &Listener{cfg: cfg, log: log, pings: "ping_" + rand.Text(), pingEvery: pingEvery, wakes: make(chan struct{}, 1)}
	l.err.Store(&errNotListening)
	return l
}

// NotificationChannel returns a channel that receives one value for any number of notifications. It
// also receives one whenever listening starts, for missed notifications.
func (l *Listener) NotificationChannel() <-chan struct{} { return l.wakes }

// Ready returns why the listener receives no notifications at present, or nil.
func (l *Listener) Ready() error { return *l.err.Load() }

// CountNotifications returns the number of notifications of changes.
func (l *Listener) CountNotifications() uint64 { return l.notifications.Load() }

// LastPingTime returns when the listener last received its ping, zero if never.
func (l *Listener) LastPingTime() time.Time {
	if at := l.lastPing.Load(); at != nil {
		return *at
	}
	return time.Time{}
}

// Run listens until ctx ends. It replaces a broken connection.
func (l *Listener) Run(ctx context.Context) error {
	connConfig, err := l.cfg.NewConnConfig()
	if err != nil {
		return fmt.Errorf("start database listener: %w", err)
	}
	dialer := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}}
	connConfig.DialFunc = dialer.DialContext
	policy := backoff.Policy{Initial: 100 * time.Millisecond, Max: 3 * time.Second}
	failures := 0
	for ctx.Err() == nil {
		lastErr := l.Ready()
		err := l.listenUntilError(ctx, connConfig.Copy())
		wasListening := l.Ready() == nil
		if wasListening {
			failures = 0
		}
		isNewError := wasListening || lastErr.Error() != err.Error()
		if isNewError && ctx.Err() == nil {
			l.log.WarnContext(ctx, "LISTEN connection lost, reconnecting", "err", err)
		}
		l.storeReadyError(err)
		_ = backoff.Sleep(ctx, policy.Delay(failures)) // the loop checks ctx
		failures++
	}
	return nil
}

func (l *Listener) storeReadyError(err error) { l.err.Store(&err) }

func (l *Listener) notifyWorker() {
	select {
	case l.wakes <- struct{}{}:
	default: // a value is already waiting
	}
}

// listenUntilError listens on one connection until it breaks.
func (l *Listener) listenUntilError(ctx context.Context, config *pgx.ConnConfig) error {
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer closeConnection(ctx, conn)
	listenCtx, cancel := context.WithTimeoutCause(ctx, pingTimeout, errNoPing)
	defer cancel()
	if _, err := conn.Exec(listenCtx, "listen "+Channel+"; listen "+pgx.Identifier{l.pings}.Sanitize()); err != nil {
		return fmt.Errorf("listen: %w", contextCauseOr(listenCtx, err))
	}
	// Earlier commits send no notification to this connection.
	l.notifyWorker()
	for {
		if err := l.sendPingAndWaitForArrival(ctx, conn, config.Copy()); err != nil {
			return err
		}
		if l.Ready() != nil {
			l.log.InfoContext(ctx, "LISTEN connection established")
			l.storeReadyError(nil)
		}
		next := time.Now().Add(l.pingEvery)
		for time.Now().Before(next) {
			if _, err := l.waitAndForwardNotification(ctx, conn, next); err != nil {
				return err
			}
		}
	}
}

// sendPingAndWaitForArrival sends a notification from another connection and waits until it arrives. On
// the same connection, a pooler would return a notification that it does not deliver
// from other connections.
func (l *Listener) sendPingAndWaitForArrival(ctx context.Context, conn *pgx.Conn, config *pgx.ConnConfig) error {
	if err := l.sendPingOnNewConnection(ctx, config); err != nil {
		return err
	}
	deadline := time.Now().Add(pingTimeout)
	for time.Now().Before(deadline) {
		channel, err := l.waitAndForwardNotification(ctx, conn, deadline)
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

// sendPingOnNewConnection sends a notification to this listener on a new connection, and closes it.
func (l *Listener) sendPingOnNewConnection(ctx context.Context, config *pgx.ConnConfig) error {
	notifyCtx, cancel := context.WithTimeoutCause(ctx, pingTimeout, errNotNotified)
	defer cancel()
	conn, err := pgx.ConnectConfig(notifyCtx, config)
	if err != nil {
		return fmt.Errorf("connect to notify: %w", contextCauseOr(notifyCtx, err))
	}
	defer closeConnection(ctx, conn)
	if _, err := conn.Exec(notifyCtx, "notify "+pgx.Identifier{l.pings}.Sanitize()); err != nil {
		return fmt.Errorf("notify: %w", contextCauseOr(notifyCtx, err))
	}
	return nil
}

// closeConnection closes a connection that is not used any more, so errors do not matter.
func closeConnection(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	_ = conn.Close(ctx)
}

// waitAndForwardNotification waits for one notification, which may be long queued, and returns
// its channel. It returns the empty string if none arrives until the given time.
func (l *Listener) waitAndForwardNotification(ctx context.Context, conn *pgx.Conn, until time.Time) (channel string, err error) {
	waitCtx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	notification, err := conn.WaitForNotification(waitCtx)
	if err != nil {
		isTimeout := ctx.Err() == nil && waitCtx.Err() != nil
		if isTimeout && !conn.IsClosed() {
			return "", nil
		}
		return "", fmt.Errorf("listen: %w", err)
	}
	if notification.Channel == Channel {
		l.notifications.Add(1)
		l.notifyWorker()
	}
	return notification.Channel, nil
}

// contextCauseOr returns the cause of ctx if it has ended, and err otherwise.
func contextCauseOr(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
