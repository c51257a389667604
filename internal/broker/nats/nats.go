// Package nats publishes and receives cloud events through NATS JetStream, on an external server or
// on one in this process.
//
// Publish returns nil only after the stream acknowledged the event; with the embedded server that
// means that it is synced to disk. The event's id is the message's id, so an event that is
// published again within the stream's duplicate window is acknowledged and stored once. A full
// stream refuses new events. A server that is down is not an error: the broker reconnects until it
// is stopped. Meanwhile Ready returns why it cannot publish, and publishes fail at once.
package nats

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/broker"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
)

// A Broker is one connection to a JetStream.
type Broker struct {
	cfg   Config
	start func() (Server, error) // nil for an external server
	log   *slog.Logger

	status        broker.Status
	window        broker.PublishWindow
	subscriptions broker.Subscriptions
	queue         chan *publication // from the callers of Publish to the writer
	stopped       chan struct{}     // closed when queued publications are no longer accepted
	changed       chan struct{}     // has an element when the connection must be checked
	bodies        sync.Pool         // of *[]byte

	mu   sync.Mutex
	conn *nats.Conn
	addr string // of the embedded server

	lastToken   atomic.Uint64 // of publications
	unanswered  publications
	replyPrefix string // of the subjects of acknowledgements

	raw        rawConn
	lostReason atomic.Pointer[error] // reason of the missing connection
}

// A Server is a NATS server in this process, as started by package natsserver.
type Server interface {
	nats.InProcessConnProvider
	URL() string
	Dir() string
	HasData(stream string) bool
	Stop()
}

// New returns a broker after checking the configuration. It starts nothing.
func New(cfg Config, log *slog.Logger) (*Broker, error) {
	if cfg.URL == "" {
		return nil, errors.New("url is required (BROKER_URL)")
	}
	return newBroker(cfg, nil, log)
}

// NewEmbedded is like New, for a server in this process. Run starts the server, and stops it at the
// end.
func NewEmbedded(cfg Config, start func() (Server, error), log *slog.Logger) (*Broker, error) {
	if cfg.URL != "" {
		return nil, errors.New("url is set: use either an external or an embedded server")
	}
	return newBroker(cfg, start, log)
}

func newBroker(cfg Config, start func() (Server, error), log *slog.Logger) (*Broker, error) {
	cfg, err := cfg.withDefaultsValidated()
	if err != nil {
		return nil, err
	}
	return &Broker{
		cfg:     cfg,
		start:   start,
		log:     log,
		queue:   make(chan *publication, queueLength),
		stopped: make(chan struct{}),
		changed: make(chan struct{}, 1),
		bodies:  sync.Pool{New: func() any { return new([]byte) }},

		unanswered: publications{sent: make(map[uint64]*publication)},
	}, nil
}

// queueLength is the capacity of the queue between the callers and the writing goroutine.
const queueLength = 256

// Run connects, and maintains the connection and the stream until ctx ends. Then it waits up to
// StopTimeout for publishes in progress, and closes the connection and the embedded server. It is
// called once. It returns an error only if the embedded server cannot start.
func (b *Broker) Run(ctx context.Context) error {
	defer close(b.stopped)
	var server Server // nil for an external server
	if b.start != nil {
		started, err := b.start()
		if err != nil {
			b.status.SetNotReadyReason(err)
			return err
		}
		defer started.Stop()
		server = started
		b.mu.Lock()
		b.addr = server.URL()
		b.mu.Unlock()
	}
	conn, err := b.startConnectingAndSubscribe(server)
	if err != nil {
		b.status.SetNotReadyReason(err)
		return err
	}

	// The writer outlives ctx, so that queued events are still sent.
	var work sync.WaitGroup
	stop := make(chan struct{})
	work.Go(func() { b.publishQueuedUntilStopped(conn, stop) })
	b.maintainStreamAndStatus(ctx, conn, server)

	// Wait for the publishes in progress, and fail those that get no answer.
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.cfg.StopTimeout)
	defer cancel()
	if err := b.window.CloseAndWaitEmpty(drain); err != nil {
		b.log.WarnContext(ctx, "stopped before all events were confirmed", "err", err)
	}
	b.status.SetNotReadyReason(errors.New("not connected: stopped"))
	close(stop)
	b.raw.closeOrKill(conn)
	b.unanswered.finishAll(broker.ErrUnknownOutcome)
	work.Wait()
	return nil
}

// URL returns the address of the embedded server for other processes, once Run has started it;
// empty without one.
func (b *Broker) URL() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.addr
}

// Ready returns why events cannot be published at present, or nil.
func (b *Broker) Ready() error { return b.status.NotReadyReason() }

// SubscriptionReady returns why a subscription of Consume receives no events at present, or nil.
func (b *Broker) SubscriptionReady(subscription string) error {
	return b.subscriptions.NotReadyReason(subscription)
}

// InFlight returns the number of publishes that wait for their confirm.
func (b *Broker) InFlight() int { return b.window.Len() }

// Publish sends e and waits until the stream has stored it. Many goroutines may call it; their
// number limits the unconfirmed events.
func (b *Broker) Publish(ctx context.Context, e *cloudevent.Event) error {
	if err := b.publishOnce(ctx, e); err != nil {
		return fmt.Errorf("publish cloud event %q: %w", e.ID, err)
	}
	return nil
}

// publishOnce passes an event to the writer and waits for its outcome.
func (b *Broker) publishOnce(ctx context.Context, e *cloudevent.Event) error {
	if err := e.Validate(); err != nil {
		return backoff.Permanent(err)
	}
	if !b.window.BeginPublish() {
		return fmt.Errorf("%w: stopped", broker.ErrNotReady)
	}
	defer b.window.EndPublish()
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	if err := b.status.NotReadyReason(); err != nil {
		return fmt.Errorf("%w: %w", broker.ErrNotReady, err)
	}
	p := b.encodePublication(e)
	select {
	case b.queue <- p:
	case <-b.stopped:
		return broker.ErrNotReady
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	err := p.AwaitOutcomeOrAbandon(ctx, b.stopped)
	if errors.Is(err, broker.ErrUnknownOutcome) {
		b.removeAbandoned(p)
	}
	return err
}
