package nats

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

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

func reconnects() backoff.Policy {
	return backoff.Policy{Initial: firstReconnect, Max: lastReconnect}
}

// newConnection creates the client, which then connects and reconnects on its own.
func (b *Broker) newConnection(server Server) (*nats.Conn, error) {
	policy := reconnects()
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
		nats.ConnectHandler(func(*nats.Conn) { b.wakeConnectionWatch() }),
		nats.ReconnectHandler(func(*nats.Conn) { b.wakeConnectionWatch() }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { b.failSentOnDisconnect(err) }),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { b.failSentOnDisconnect(err) }),
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
	opts, err := b.withTLSAndCredentials(opts)
	if err != nil {
		return nil, err
	}
	conn, err := nats.Connect(b.cfg.URL.Reveal(), opts...)
	if err != nil {
		return nil, fmt.Errorf("configure nats: %w", err)
	}
	b.prefix = conn.NewInbox() + "."
	if _, err := conn.Subscribe(b.prefix+"*", b.handlePublishReply); err != nil {
		conn.Close()
		return nil, fmt.Errorf("configure nats: subscribe to acknowledgements: %w", err)
	}
	b.mu.Lock()
	b.conn = conn
	b.mu.Unlock()
	return conn, nil
}

func (b *Broker) withTLSAndCredentials(opts []nats.Option) ([]nats.Option, error) {
	if b.cfg.TLS.Enabled() {
		cfg, err := b.cfg.TLS.ClientConfig()
		if err != nil {
			return nil, fmt.Errorf("configure nats: %w", err)
		}
		opts = append(opts, nats.Secure(cfg))
	}
	if b.cfg.CredentialsFile != "" {
		opts = append(opts, nats.UserCredentials(b.cfg.CredentialsFile))
	}
	if b.cfg.Token != "" {
		opts = append(opts, nats.Token(b.cfg.Token.Reveal()))
	}
	if b.cfg.Username != "" {
		opts = append(opts, nats.UserInfo(b.cfg.Username, b.cfg.Password.Reveal()))
	}
	return opts, nil
}

// wakeConnectionWatch signals watchConnection that the connection changed.
func (b *Broker) wakeConnectionWatch() {
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

// failSentOnDisconnect is called when the connection breaks and after each attempt to reconnect.
func (b *Broker) failSentOnDisconnect(err error) {
	if err != nil {
		b.lost.Store(&err)
	}
	b.status.Set(b.notConnectedError())
	b.failSent(fmt.Errorf("%w: connection lost", broker.ErrUnknownOutcome))
	b.wakeConnectionWatch()
}

func (b *Broker) notConnectedError() error {
	if err := b.lost.Load(); err != nil {
		return fmt.Errorf("not connected: %w", *err)
	}
	return errors.New("not connected")
}

// watchConnection keeps the status up to date until ctx ends. After each change of the connection
// it verifies the stream, and retries while that fails.
func (b *Broker) watchConnection(ctx context.Context, conn *nats.Conn, server Server) {
	policy := reconnects()
	var said string
	for attempt := 0; ; attempt++ {
		err := b.ensureStream(ctx, conn, server)
		if ctx.Err() != nil {
			return
		}
		b.status.Set(err)
		said = b.logStatusChange(ctx, err, said)
		again := time.NewTimer(policy.Delay(attempt))
		if err == nil {
			again.Stop()
			attempt = -1
		}
		select {
		case <-ctx.Done():
			again.Stop()
			return
		case <-b.changed:
			again.Stop()
			attempt = -1
		case <-again.C:
		}
	}
}

// logStatusChange logs a change of the status once.
func (b *Broker) logStatusChange(ctx context.Context, err error, lastLogged string) (logged string) {
	text := "ready"
	if err != nil {
		text = err.Error()
	}
	switch {
	case text == lastLogged:
	case err == nil:
		b.log.InfoContext(ctx, "broker ready", "broker", "nats", "stream", b.cfg.Stream)
	default:
		b.log.WarnContext(ctx, "broker not ready", "broker", "nats", "err", err)
	}
	return text
}

// ensureStream checks the connection. It creates the stream if it is missing, and checks that the
// stream stores the events it acknowledges.
func (b *Broker) ensureStream(ctx context.Context, conn *nats.Conn, server Server) error {
	if conn.Status() != nats.CONNECTED {
		return b.notConnectedError()
	}
	ctx, cancel := context.WithTimeout(ctx, b.cfg.ConnectTimeout)
	defer cancel()
	js, err := jetstream.New(conn)
	if err != nil {
		return fmt.Errorf("stream %q: %w", b.cfg.Stream, err)
	}
	stream, err := js.Stream(ctx, b.cfg.Stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if server != nil && server.HasData(b.cfg.Stream) {
			return fmt.Errorf("stream %q: data in %q is corrupt: move the directory away, or restore a backup",
				b.cfg.Stream, server.Dir())
		}
		// Not ctx: if an embedded server is stopped while it creates the stream, it abandons the
		// stream and goes on writing to the folder.
		making, done := context.WithTimeout(context.WithoutCancel(ctx), b.cfg.ConnectTimeout)
		defer done()
		stream, err = js.CreateStream(making, b.streamConfig())
	}
	if err != nil {
		return fmt.Errorf("stream %q: %w", b.cfg.Stream, err)
	}
	return b.checkStream(ctx, js, stream.CachedInfo().Config)
}

func (b *Broker) streamConfig() jetstream.StreamConfig {
	unlimited := func(n int64) int64 {
		if n == 0 {
			return -1
		}
		return n
	}
	return jetstream.StreamConfig{
		Name:        b.cfg.Stream,
		Description: "Fleetloop cloud events",
		Subjects:    b.cfg.streamSubjects(),
		Storage:     jetstream.FileStorage,
		Retention:   jetstream.LimitsPolicy,
		Discard:     jetstream.DiscardNew,
		Replicas:    b.cfg.Replicas,
		MaxAge:      b.cfg.MaxAge,
		MaxBytes:    unlimited(b.cfg.MaxBytes),
		MaxMsgs:     unlimited(b.cfg.MaxMessages),
		Duplicates:  b.cfg.DuplicateWindow,
	}
}

// checkStream refuses a stream whose acknowledgement does not mean that it stored the event. It
// warns about a stream that can lose the event later.
func (b *Broker) checkStream(ctx context.Context, js jetstream.JetStream, have jetstream.StreamConfig) error {
	sample := b.cfg.subjectOf("com.redhat.hyperfleet.cluster.reconcile")
	owner, err := js.StreamNameBySubject(ctx, sample)
	switch {
	case err != nil && !errors.Is(err, jetstream.ErrStreamNotFound):
		return fmt.Errorf("stream %q: find stream of subject %q: %w", b.cfg.Stream, sample, err)
	case owner != b.cfg.Stream:
		return fmt.Errorf("stream %q does not have the subject %q (it has %s): add the subject, or set another stream or topic",
			b.cfg.Stream, sample, strings.Join(have.Subjects, ", "))
	case have.NoAck:
		return fmt.Errorf("stream %q does not acknowledge events: turn no_ack off", b.cfg.Stream)
	case have.Retention == jetstream.InterestPolicy:
		return fmt.Errorf("stream %q acknowledges events that it does not store (retention %q): use retention limits", b.cfg.Stream, "interest")
	}
	if have.Discard == jetstream.DiscardOld && (have.MaxMsgs > 0 || have.MaxBytes > 0) {
		b.log.WarnContext(ctx, "stream discards its oldest events when it is full", "stream", b.cfg.Stream)
	}
	if have.Storage != jetstream.FileStorage {
		b.log.WarnContext(ctx, "stream is stored in memory only and is lost with its server", "stream", b.cfg.Stream)
	}
	return nil
}

// closeOrKill closes the connection. The client holds a lock while it writes, so a blocked write must
// be broken off first.
func (b *Broker) closeOrKill(conn *nats.Conn) {
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
		b.raw.killConnection()
		<-closed
	}
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

func (r *rawConn) killConnection() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conn != nil {
		_ = r.conn.Close() // an error does not matter
	}
}
