// Package amqp publishes and receives cloud events through RabbitMQ, by AMQP 0-9-1.
//
// Publish returns nil only after the server confirmed the event. The server confirms it when it is
// in every queue that it is routed to, on disk where the queue is durable. An event that is routed
// to no queue is not published: the server returns it, and the error of Publish asks to bind a
// queue. A server that is down or that blocks publishers is not an error: the broker reconnects
// until it is stopped, and Ready returns why it cannot publish. Without a connection, publishes
// fail at once; while the server blocks, they wait as long as their context allows.
package amqp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/broker"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
)

// Delays between attempts to connect.
const (
	firstReconnect = 100 * time.Millisecond
	lastReconnect  = 10 * time.Second
)

func reconnectBackoff() backoff.Policy {
	return backoff.Policy{Initial: firstReconnect, Max: lastReconnect}
}

// A Broker publishes to one exchange.
type Broker struct {
	cfg  Config
	addr address
	log  *slog.Logger

	status        broker.Status
	window        broker.PublishWindow
	subscriptions broker.Subscriptions
	session       atomic.Pointer[session] // nil without a connection
	bodies        sync.Pool               // of *[]byte
}

// New returns a broker after checking the configuration. It starts nothing.
func New(cfg Config, log *slog.Logger) (*Broker, error) {
	cfg, addr, err := cfg.withDefaultsValidated()
	if err != nil {
		return nil, err
	}
	return &Broker{
		cfg:    cfg,
		addr:   addr,
		log:    log,
		bodies: sync.Pool{New: func() any { return new([]byte) }},
	}, nil
}

// Run connects and reconnects until ctx ends. Then it waits up to StopTimeout for publishes in
// progress and closes the connection. It is called once.
func (b *Broker) Run(ctx context.Context) error {
	defer b.status.SetNotReadyReason(errors.New("not connected: stopped"))
	policy := reconnectBackoff()
	lastLogged := ""
	for attempt := 0; ctx.Err() == nil; attempt++ {
		began := time.Now()
		err := b.connectAndServeUntilLost(ctx)
		if ctx.Err() != nil {
			break
		}
		if time.Since(began) > lastReconnect {
			attempt, lastLogged = 0, ""
		}
		if err.Error() != lastLogged { // an outage is logged once
			b.log.WarnContext(ctx, "broker not ready", "broker", "rabbitmq", "err", err)
			lastLogged = err.Error()
		}
		_ = backoff.Sleep(ctx, policy.Delay(attempt)) // the loop checks ctx
	}
	// No publish is in progress without a connection; this refuses new ones.
	return b.window.CloseAndWaitEmpty(context.WithoutCancel(ctx))
}

// connectAndServeUntilLost runs one connection from its beginning to its end. The error is the
// reason of the end.
func (b *Broker) connectAndServeUntilLost(ctx context.Context) error {
	s, err := b.openPublishSession(ctx)
	if err != nil {
		err = fmt.Errorf("not connected: %w", err)
		b.status.SetNotReadyReason(err)
		return err
	}
	b.log.InfoContext(ctx, "broker ready", "broker", "rabbitmq", "address", b.addr.String(), "exchange", b.cfg.Exchange)

	// Publish on the connection.
	b.status.SetNotReadyReason(nil)
	b.session.Store(s)
	reason := s.serveUntilLost(ctx)
	if reason == nil { // ctx has ended
		b.stopPublishing(ctx)
		reason = errors.New("stopped")
	}

	// Refuse new publishes, and then fail those that have no outcome.
	err = fmt.Errorf("not connected: %w", reason)
	b.session.Store(nil)
	b.status.SetNotReadyReason(err)
	s.closeAndFailSent()
	b.status.SetNotReadyReason(err) // again: the session may have changed it until its end
	return err
}

// stopPublishing refuses new publishes, and waits up to StopTimeout for those in progress.
func (b *Broker) stopPublishing(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.cfg.StopTimeout)
	defer cancel()
	if err := b.window.CloseAndWaitEmpty(ctx); err != nil {
		b.log.WarnContext(ctx, "stopped before all events were confirmed", "err", err)
	}
}

// Ready returns why events cannot be published at present, or nil.
func (b *Broker) Ready() error { return b.status.NotReadyReason() }

// SubscriptionReady returns why a subscription of Consume receives no events at present, or nil.
func (b *Broker) SubscriptionReady(subscription string) error {
	return b.subscriptions.NotReadyReason(subscription)
}

// InFlight returns the number of publishes that wait for their confirm.
func (b *Broker) InFlight() int { return b.window.Len() }

// Publish sends e and waits until the server has confirmed it. Many goroutines may call it; their
// number limits the unconfirmed events.
func (b *Broker) Publish(ctx context.Context, e *cloudevent.Event) error {
	err := b.validateEvent(e)
	if err == nil {
		err = b.publishOnce(ctx, e)
	}
	if err != nil {
		return fmt.Errorf("publish cloud event %q: %w", e.ID, err)
	}
	return nil
}

// validateEvent refuses an event that no attempt can publish.
func (b *Broker) validateEvent(e *cloudevent.Event) error {
	if err := e.Validate(); err != nil {
		return backoff.Permanent(err)
	}
	if len(e.ID) > longestName || len(e.Type) > longestName {
		return backoff.Permanent(fmt.Errorf("id or type is longer than the AMQP limit of %d bytes", longestName))
	}
	return nil
}

// publishOnce passes an event to the current session and waits for its outcome.
func (b *Broker) publishOnce(ctx context.Context, e *cloudevent.Event) error {
	if !b.window.BeginPublish() {
		return fmt.Errorf("%w: stopped", broker.ErrNotReady)
	}
	defer b.window.EndPublish()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s := b.session.Load()
	if s == nil {
		return broker.NewNotReadyError(b.status.NotReadyReason())
	}
	p := b.encodePublication(e)
	select {
	case s.queue <- p:
	case <-s.ended:
		return broker.ErrNotReady
	case <-ctx.Done():
		return fmt.Errorf("not sent: %w", context.Cause(ctx))
	}
	return p.AwaitOutcomeOrAbandon(ctx, s.ended)
}
