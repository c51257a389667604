package amqp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

// writeTimeout is the maximum duration of a write without progress. It is long because the server
// applies back pressure by not reading. Without it, a dead peer would block the writer
// indefinitely, and with it the client's lock.
const writeTimeout = 15 * time.Second

// closeTimeout is the timeout of closing a connection cleanly.
const closeTimeout = time.Second

// A bufferingSocket is the network connection below the client. The client holds a lock while it writes and
// takes the same lock to shut down, so a blocked writer must be unblocked from below: by its
// deadline, by a failed read (the heartbeat's deadline causes one), or by closeIgnoringError.
//
// The client writes each message separately. Between startBuffering and stopBufferingAndFlush a socket
// buffers the writes, so that many messages share one write.
type bufferingSocket struct {
	net.Conn

	mu        sync.Mutex // guards the rest, and is held while writing
	buffering bool
	buffered  []byte
}

// maxBuffered is the maximum number of buffered bytes.
const maxBuffered = 64 << 10

// Read closes the connection if it fails.
func (s *bufferingSocket) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	if err != nil {
		s.closeIgnoringError()
	}
	return n, err
}

// Write writes or buffers the bytes.
func (s *bufferingSocket) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.buffering && len(s.buffered)+len(b) <= maxBuffered {
		s.buffered = append(s.buffered, b...)
		return len(b), nil
	}
	if err := s.writeBuffered(); err != nil {
		return 0, err
	}
	return s.writeWithDeadline(b)
}

// startBuffering starts to buffer writes.
func (s *bufferingSocket) startBuffering() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buffering = true
}

// stopBufferingAndFlush writes the buffered bytes and ends buffering.
func (s *bufferingSocket) stopBufferingAndFlush() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buffering = false
	return s.writeBuffered()
}

func (s *bufferingSocket) writeBuffered() error {
	if len(s.buffered) == 0 {
		return nil
	}
	_, err := s.writeWithDeadline(s.buffered)
	s.buffered = s.buffered[:0]
	return err
}

// writeWithDeadline sets a new deadline for each write.
func (s *bufferingSocket) writeWithDeadline(b []byte) (int, error) {
	if err := s.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return 0, err
	}
	return s.Conn.Write(b)
}

func (s *bufferingSocket) closeIgnoringError() { _ = s.Close() } // an error does not matter

// A link is one connection to the server with one channel, and their notifications from the server.
type link struct {
	conn    *amqp091.Connection
	channel *amqp091.Channel

	dialing sync.Mutex // guards socket until the link is connected
	socket  *bufferingSocket

	connClosed, channelClosed chan *amqp091.Error
}

// dialAndPrepareLink connects, opens a channel and prepares it. It ends early when ctx ends, and at the
// latest after ConnectTimeout.
func (b *Broker) dialAndPrepareLink(
	ctx context.Context, connectionName string, prepare func(*link) error,
) (*link, error) {
	timeoutCause := fmt.Errorf("no response within %s", b.cfg.ConnectTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, b.cfg.ConnectTimeout, timeoutCause)
	defer cancel()
	l := &link{}
	cfg := amqp091.Config{
		Vhost:      b.addr.vhost,
		Heartbeat:  b.cfg.Heartbeat,
		Properties: amqp091.Table{"product": "fleetloop", "connection_name": connectionName},
		Dial: func(network, address string) (net.Conn, error) {
			return l.dialSocket(ctx, network, address)
		},
	}
	if b.cfg.TLS.IsEnabled() {
		tls, err := b.cfg.TLS.LoadClientConfig()
		if err != nil {
			return nil, err
		}
		cfg.TLSClientConfig = tls
	}

	// The client knows no context. When ctx ends, its socket is closed, whatever it waits for.
	stopKill := context.AfterFunc(ctx, l.closeSocketIfDialed)
	err := l.connectAndOpenChannel(b.addr.uri.String(), cfg, prepare)
	if !stopKill() && err == nil { // ctx ended just after the last step
		err = context.Cause(ctx)
	}
	if err == nil {
		return l, nil
	}
	if l.conn != nil {
		l.closeOrKill()
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return nil, fmt.Errorf("connect to %s: %w", b.addr, toOneLineError(err))
}

// dialSocket connects the socket of the link.
func (l *link) dialSocket(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	l.dialing.Lock()
	defer l.dialing.Unlock()
	l.socket = &bufferingSocket{Conn: conn}
	return l.socket, nil
}

// closeSocketIfDialed closes the socket of a link that may still be connecting.
func (l *link) closeSocketIfDialed() {
	l.dialing.Lock()
	defer l.dialing.Unlock()
	if l.socket != nil {
		l.socket.closeIgnoringError()
	}
}

// connectAndOpenChannel connects, opens a channel and prepares it. After an error, conn is set if it
// must be closed.
func (l *link) connectAndOpenChannel(url string, cfg amqp091.Config, prepare func(*link) error) error {
	conn, err := amqp091.DialConfig(url, cfg)
	if err != nil {
		return err
	}
	l.conn = conn
	l.connClosed = conn.NotifyClose(make(chan *amqp091.Error, 1))
	channel, err := conn.Channel()
	if err != nil {
		return err
	}
	l.channel = channel
	l.channelClosed = channel.NotifyClose(make(chan *amqp091.Error, 1))
	return prepare(l)
}

// closeOrKill closes the connection within closeTimeout, by force if necessary.
func (l *link) closeOrKill() {
	force := time.AfterFunc(closeTimeout, l.socket.closeIgnoringError)
	defer force.Stop()
	_ = l.conn.CloseDeadline(time.Now().Add(closeTimeout)) // the socket is closed afterwards in any case
	l.socket.closeIgnoringError()
}

// awaitLost waits until the connection or the channel ends and returns the reason.
func (l *link) awaitLost(ctx context.Context) error {
	var reason *amqp091.Error
	select {
	case reason = <-l.channelClosed:
	case reason = <-l.connClosed:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if reason == nil {
		return errors.New("connection closed")
	}
	return toOneLineError(reason)
}

// toOneLineError formats the client's error in one line.
func toOneLineError(err error) error {
	e, ok := errors.AsType[*amqp091.Error](err)
	if !ok {
		return err
	}
	return fmt.Errorf("%s (code %d)", e.Reason, e.Code)
}
