package amqp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/broker"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
)

// prefetchFactor is the number of prefetched events for each concurrent one: events that wait for
// their redelivery must not hold up the others.
const prefetchFactor = 8

// Consume passes the events of a durable queue to handle, Concurrency at once, until ctx ends. The
// queue is named <exchange>-<subscription>. It is created and bound if necessary, and shared by all
// consumers that use its name. An event is done when handle returns nil; after an error it returns
// to the queue, after RedeliveryDelay or the delay that the error asks for. An event whose error is
// permanent, and a message that is not an event, are logged and rejected: the server moves them to
// the dead-letter exchange of the queue, or drops them if it has none.
//
// Each call has a separate connection: the server blocks connections that publish, and
// acknowledgements must not wait for that.
func (b *Broker) Consume(
	ctx context.Context, subscription string, handle func(context.Context, cloudevent.Event) error,
) error {
	if subscription == "" || len(b.cfg.queueNameFor(subscription)) > longestName {
		return fmt.Errorf("consume %q: a name is required, with the exchange name at most %d bytes",
			subscription, longestName)
	}
	defer b.subscriptions.SetNotReadyReason(subscription, errors.New("not subscribed: stopped"))
	policy := reconnectBackoff()
	for attempt := 0; ; attempt++ {
		began := time.Now()
		err := b.consumeUntilLost(ctx, subscription, handle)
		if ctx.Err() != nil {
			return nil // told to stop
		}
		b.subscriptions.SetNotReadyReason(subscription, fmt.Errorf("not subscribed: %w", err))
		if time.Since(began) > lastReconnect {
			attempt = 0
		}
		b.log.WarnContext(ctx, "subscription interrupted, reconnecting", "subscription", subscription, "err", err)
		if err := backoff.Sleep(ctx, policy.Delay(attempt)); err != nil {
			return nil // told to stop
		}
	}
}

// consumeUntilLost consumes until the connection is lost.
func (b *Broker) consumeUntilLost(
	ctx context.Context, subscription string, handle func(context.Context, cloudevent.Event) error,
) error {
	// Connect and start the deliveries, both within ConnectTimeout.
	queue := b.cfg.queueNameFor(subscription)
	var deliveries <-chan amqp091.Delivery
	startDeliveries := func(l *link) error {
		if err := errors.Join(b.declareExchange(l.conn), b.declareQueue(l.conn, queue)); err != nil {
			return err
		}
		var err error
		deliveries, err = b.bindQueueAndStartDeliveries(l.channel, queue)
		return err
	}
	l, err := b.dialAndPrepareLink(ctx, b.cfg.ConnectionName+" "+subscription, startDeliveries)
	if err != nil {
		return err
	}

	b.subscriptions.SetNotReadyReason(subscription, nil)

	// Handle deliveries until the connection is lost or the server ends the subscription. The first
	// cause counts.
	c := &consumer{broker: b, handle: handle, slots: make(chan struct{}, b.cfg.Concurrency)}
	ctx, cancel := context.WithCancelCause(ctx)
	c.work.Go(func() { cancel(l.awaitLost(ctx)) })
	c.handleDeliveriesConcurrently(ctx, deliveries)
	cancel(fmt.Errorf("server cancelled the subscription to queue %q; the queue may have been deleted", queue))

	b.subscriptions.SetNotReadyReason(subscription, fmt.Errorf("not subscribed: %w", context.Cause(ctx)))

	// Close the connection last, because results can be acknowledged only while it lasts.
	c.work.Wait()
	l.closeOrKill()
	for range deliveries { // the client delivers its buffered messages before it closes the channel
		continue
	}
	return context.Cause(ctx)
}

// bindQueueAndStartDeliveries binds the queue and starts its delivery.
func (b *Broker) bindQueueAndStartDeliveries(
	ch *amqp091.Channel, queue string,
) (<-chan amqp091.Delivery, error) {
	if err := ch.QueueBind(queue, b.cfg.BindingKey, b.cfg.Exchange, noWait, nil); err != nil {
		return nil, fmt.Errorf("bind queue %q to exchange %q: %w", queue, b.cfg.Exchange, toOneLineError(err))
	}
	if err := ch.Qos(prefetchFactor*b.cfg.Concurrency, 0, false); err != nil {
		return nil, fmt.Errorf("limit deliveries of queue %q: %w", queue, toOneLineError(err))
	}
	const autoAck, noLocal = false, false
	deliveries, err := ch.Consume(queue, "", autoAck, exclusive, noLocal, noWait, nil)
	if err != nil {
		return nil, fmt.Errorf("consume queue %q: %w", queue, toOneLineError(err))
	}
	return deliveries, nil
}

// A consumer handles the deliveries of one connection.
type consumer struct {
	broker *Broker
	handle func(context.Context, cloudevent.Event) error
	slots  chan struct{} // one for each event that is being handled
	work   sync.WaitGroup
}

// handleDeliveriesConcurrently handles deliveries until there are no more or ctx ends. Handlers may
// still run when it returns.
func (c *consumer) handleDeliveriesConcurrently(ctx context.Context, deliveries <-chan amqp091.Delivery) {
	for {
		select {
		case c.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		select {
		case d, ok := <-deliveries:
			if !ok {
				return
			}
			c.work.Go(func() { c.handleAndAcknowledge(ctx, d) })
		case <-ctx.Done():
			return
		}
	}
}

// handleAndAcknowledge handles one delivery and acknowledges or rejects it.
func (c *consumer) handleAndAcknowledge(ctx context.Context, d amqp091.Delivery) {
	e, err := decodeDelivery(&d)
	if err != nil {
		<-c.slots
		c.broker.log.ErrorContext(ctx, "message rejected, not a CloudEvent", "message_id", d.MessageId, "err", err)
		c.logAcknowledgeError(ctx, d.Reject(false))
		return
	}
	err = c.handle(ctx, e)
	<-c.slots // before any delay: events that wait for their redelivery must not hold up the others
	if err == nil {
		c.logAcknowledgeError(ctx, d.Ack(false))
		return
	}
	if broker.MustNotRedeliver(err) {
		c.broker.log.ErrorContext(ctx, "event rejected", "event", e.ID, "err", err)
		c.logAcknowledgeError(ctx, d.Reject(false))
		return
	}
	if ctx.Err() == nil {
		delay := broker.RedeliveryDelay(err, c.broker.cfg.RedeliveryDelay)
		c.broker.log.DebugContext(ctx, "event handling failed, redelivering", "event", e.ID, "delay", delay, "err", err)
		_ = backoff.Sleep(ctx, delay) // if interrupted, the event returns at once
	}
	c.logAcknowledgeError(ctx, d.Nack(false, true))
}

// logAcknowledgeError logs that an acknowledgement could not be sent. The server then delivers the
// message again, which handlers must tolerate anyway.
func (c *consumer) logAcknowledgeError(ctx context.Context, err error) {
	if err != nil && !errors.Is(err, amqp091.ErrClosed) {
		c.broker.log.DebugContext(ctx, "message acknowledgement failed, redelivering", "err", err)
	}
}
