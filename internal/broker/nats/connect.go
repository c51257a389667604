package nats

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/broker"
)

// How a dead connection is detected, and how often a new one is tried.
const (
	pingInterval   = 5 * time.Second
	pingsLost      = 2
	firstReconnect = 100 * time.Millisecond
	lastReconnect  = 5 * time.Second
	closeGrace     = 200 * time.Millisecond
	clientName     = "fleetloop"
)

func reconnectBackoff() backoff.Policy {
	return backoff.Policy{Initial: firstReconnect, Max: lastReconnect}
}

// startConnectingAndSubscribe creates the client, which then connects and reconnects on its own.
func (b *Broker) startConnectingAndSubscribe(server Server) (*nats.Conn, error) {
	policy := reconnectBackoff()
	opts := []nats.Option{
		nats.Name(clientName),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.CustomReconnectDelay(policy.Delay),
		nats.IgnoreAuthErrorAbort(), // rights can be granted while the client waits
		nats.ReconnectBufSize(-1),   // the caller retries events that cannot be sent now
		nats.Timeout(b.cfg.ConnectTimeout),
		nats.FlusherTimeout(b.cfg.ConnectTimeout),
		nats.ReconnectOnFlusherError(),
		nats.PingInterval(pingInterval),
		nats.MaxPingsOutstanding(pingsLost),
		nats.ConnectHandler(func(*nats.Conn) { b.signalConnectionCheck() }),
		nats.ReconnectHandler(func(*nats.Conn) { b.signalConnectionCheck() }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { b.failUnansweredOnDisconnect(err) }),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { b.failUnansweredOnDisconnect(err) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			b.log.Warn("nats client error", "err", err)
		}),
	}
	if server != nil {
		opts = append(opts, nats.InProcessServer(server))
	} else {
		b.raw.dialer.Timeout = b.cfg.ConnectTimeout
		opts = append(opts, nats.SetCustomDialer(&b.raw))
	}
	securityOpts, err := b.cfg.newSecurityOptions()
	if err != nil {
		return nil, err
	}
	opts = append(opts, securityOpts...)
	conn, err := nats.Connect(b.cfg.URL.Reveal(), opts...)
	if err != nil {
		return nil, fmt.Errorf("configure nats: %w", err)
	}
	b.replyPrefix = conn.NewInbox() + "."
	if _, err := conn.Subscribe(b.replyPrefix+"*", b.handlePublishReply); err != nil {
		conn.Close()
		return nil, fmt.Errorf("configure nats: subscribe to acknowledgements: %w", err)
	}
	b.mu.Lock()
	b.conn = conn
	b.mu.Unlock()
	return conn, nil
}

// signalConnectionCheck signals maintainStreamAndStatus that the connection changed.
func (b *Broker) signalConnectionCheck() {
	select {
	case b.changed <- struct{}{}:
	default: // it is signalled already
	}
}

// failUnansweredOnDisconnect is called when the connection breaks and after each attempt to reconnect.
func (b *Broker) failUnansweredOnDisconnect(err error) {
	if err != nil {
		b.lostReason.Store(&err)
	}
	b.status.SetNotReadyReason(b.newNotConnectedError())
	b.unanswered.finishAll(fmt.Errorf("%w: connection lost", broker.ErrUnknownOutcome))
	b.signalConnectionCheck()
}

func (b *Broker) newNotConnectedError() error {
	if err := b.lostReason.Load(); err != nil {
		return fmt.Errorf("not connected: %w", *err)
	}
	return errors.New("not connected")
}

// maintainStreamAndStatus keeps the status up to date until ctx ends. After each change of the
// connection it verifies the stream, and retries while that fails.
func (b *Broker) maintainStreamAndStatus(ctx context.Context, conn *nats.Conn, server Server) {
	policy := reconnectBackoff()
	s := stream{cfg: b.cfg, log: b.log, server: server}
	lastLogged := ""
	attempt := 0
	for ctx.Err() == nil {
		err := b.newNotConnectedError()
		if conn.Status() == nats.CONNECTED {
			err = s.createIfMissingAndCheck(ctx, conn)
		}
		if ctx.Err() != nil {
			return
		}
		b.status.SetNotReadyReason(err)
		lastLogged = b.logStatusChange(ctx, err, lastLogged)

		if err == nil {
			attempt = 0
			select {
			case <-ctx.Done():
			case <-b.changed:
			}
			continue
		}
		retry := time.NewTimer(policy.Delay(attempt))
		select {
		case <-ctx.Done():
		case <-b.changed:
			attempt = 0
		case <-retry.C:
			attempt++
		}
		retry.Stop()
	}
}

// logStatusChange logs a change of the status once.
func (b *Broker) logStatusChange(ctx context.Context, err error, lastLogged string) (logged string) {
	text := "ready"
	if err != nil {
		text = err.Error()
	}
	if text == lastLogged {
		return text
	}
	if err == nil {
		b.log.InfoContext(ctx, "broker ready", "broker", "nats", "stream", b.cfg.Stream)
	} else {
		b.log.WarnContext(ctx, "broker not ready", "broker", "nats", "err", err)
	}
	return text
}

// A rawConn gives access to the socket below the client.
type rawConn struct {
	dialer net.Dialer

	mu   sync.Mutex
	conn net.Conn
}

// Dial implements nats.CustomDialer.
func (r *rawConn) Dial(network, address string) (net.Conn, error) {
	conn, err := r.dialer.Dial(network, address)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conn = conn
	return conn, nil
}

// closeOrKill closes the client's connection. The client holds a lock while it writes, so a
// blocked write must be broken off first.
func (r *rawConn) closeOrKill(conn *nats.Conn) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		conn.Close()
	}()
	stuck := time.NewTimer(closeGrace)
	defer stuck.Stop()
	select {
	case <-closed:
	case <-stuck.C:
		r.mu.Lock()
		if r.conn != nil {
			_ = r.conn.Close() // an error does not matter
		}
		r.mu.Unlock()
		<-closed
	}
}
