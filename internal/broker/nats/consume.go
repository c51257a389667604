package nats

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/broker"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
)

// maxRedeliveryDelay is the maximum delay of a failed event's redelivery.
const maxRedeliveryDelay = time.Minute

// Consume passes the events of the stream to handle, Concurrency at once, until ctx ends. The
// subscription is durable: it begins with the oldest event of the stream, resumes where it stopped,
// and is shared by all consumers that use its name. An event is done when handle returns nil; after
// an error it is redelivered, later each time or after the delay that the error asks for. An event
// whose error is permanent, and a message that is not an event, are logged and terminated: the
// server publishes the advisory MSG_TERMINATED, and the stream keeps the message.
func (b *Broker) Consume(
	ctx context.Context, subscription string, handle func(context.Context, cloudevent.Event) error,
) error {
	if subscription == "" || b.cfg.replaceInvalidNameChars(subscription) != subscription {
		return fmt.Errorf("consume %q: a subscription name must have only letters, digits, - and _", subscription)
	}
	c := &consumer{broker: b, subscription: subscription, handle: handle, slots: make(chan struct{}, b.cfg.Concurrency)}
	defer c.work.Wait()
	defer b.subscriptions.SetNotReadyReason(subscription, errors.New("not subscribed: stopped"))
	policy := reconnectBackoff()
	for attempt := 0; ; attempt++ {
		began := time.Now()
		err := c.consumeUntilError(ctx)
		if ctx.Err() != nil {
			return nil // told to stop
		}
		b.subscriptions.SetNotReadyReason(subscription, fmt.Errorf("not subscribed: %w", err))
		if time.Since(began) > lastReconnect {
			attempt = 0
		}
		if !errors.Is(err, broker.ErrNotReady) { // which Run logs already
			b.log.WarnContext(ctx, "subscription interrupted, reconnecting", "subscription", subscription, "err", err)
		}
		if err := backoff.Sleep(ctx, policy.Delay(attempt)); err != nil {
			return nil // told to stop
		}
	}
}

// replaceInvalidNameChars replaces the characters of s that are invalid in a durable name.
func (Config) replaceInvalidNameChars(s string) string {
	out := []rune(s)
	for i, r := range out {
		if r <= ' ' || r == '.' || r == '*' || r == '>' || r == '/' || r == '\\' {
			out[i] = '_'
		}
	}
	return string(out)
}

// A consumer handles the messages of one subscription, also those of earlier connections.
type consumer struct {
	broker       *Broker
	subscription string
	handle       func(context.Context, cloudevent.Event) error
	slots        chan struct{} // has an element for each message that is being pulled or handled
	work         sync.WaitGroup
}

// consumeUntilError consumes until an error occurs. Handlers may still run when it returns.
func (c *consumer) consumeUntilError(ctx context.Context) error {
	b := c.broker
	if err := b.status.NotReadyReason(); err != nil {
		return fmt.Errorf("%w: %w", broker.ErrNotReady, err)
	}
	b.mu.Lock()
	conn := b.conn
	b.mu.Unlock()
	js, err := jetstream.New(conn)
	if err != nil {
		return fmt.Errorf("consume %q: %w", c.subscription, err)
	}
	durable, err := js.CreateOrUpdateConsumer(ctx, b.cfg.Stream, jetstream.ConsumerConfig{
		Durable:       c.subscription,
		AckPolicy:     jetstream.AckExplicitPolicy,
		DeliverPolicy: jetstream.DeliverAllPolicy,
		AckWait:       b.cfg.AckWait,
		MaxAckPending: -1, // events that wait for their redelivery do not hold up the others
	})
	if err != nil {
		return fmt.Errorf("consume %q: create consumer: %w", c.subscription, err)
	}
	for {
		if err := c.pullIntoFreeSlots(ctx, conn, durable); err != nil {
			return fmt.Errorf("consume %q: %w", c.subscription, err)
		}
	}
}

// pullIntoFreeSlots pulls a message for each free slot and handles it. It pulls no more, because the server would give
// messages that wait here for longer than AckWait to other consumers, too.
func (c *consumer) pullIntoFreeSlots(ctx context.Context, conn *nats.Conn, durable jetstream.Consumer) error {
	taken, err := c.takeFreeSlots(ctx)
	defer func() {
		for range taken {
			<-c.slots
		}
	}()
	if err != nil {
		return err
	}
	messages, err := durable.Messages(jetstream.PullMaxMessages(taken), jetstream.StopAfter(taken))
	if err != nil {
		return err
	}
	defer messages.Stop()
	if conn.Status() != nats.CONNECTED { // messages repeats its pull only after a connection that it saw break
		return fmt.Errorf("%w: %w", broker.ErrNotReady, c.broker.newNotConnectedError())
	}
	c.broker.subscriptions.SetNotReadyReason(c.subscription, nil)
	for taken > 0 {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return err
		}
		taken--
		c.work.Go(func() {
			defer func() { <-c.slots }()
			c.broker.handleAndAcknowledge(ctx, m, c.handle)
		})
	}
	return nil
}

// takeFreeSlots waits for a free slot and takes all that are free.
func (c *consumer) takeFreeSlots(ctx context.Context) (taken int, err error) {
	select {
	case c.slots <- struct{}{}:
		taken = 1
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	for {
		select {
		case c.slots <- struct{}{}:
			taken++
		default:
			return taken, nil
		}
	}
}

// handleAndAcknowledge handles one message and acknowledges it. If the acknowledgement is lost, the
// message comes again, which handlers must tolerate anyway.
func (b *Broker) handleAndAcknowledge(
	ctx context.Context, m jetstream.Msg, handle func(context.Context, cloudevent.Event) error,
) {
	e, err := decodeMessage(m.Headers(), m.Data())
	if err != nil {
		b.log.ErrorContext(ctx, "message dropped, not a CloudEvent", "subject", m.Subject(), "err", err)
		logAcknowledgeError(ctx, b.log, m.Term())
		return
	}
	stop := startInProgressReports(m, b.cfg.AckWait/3)
	err = handle(ctx, e)
	stop()
	if err == nil {
		logAcknowledgeError(ctx, b.log, m.Ack())
		return
	}
	if broker.MustNotRedeliver(err) {
		b.log.ErrorContext(ctx, "event terminated", "event", e.ID, "err", err)
		logAcknowledgeError(ctx, b.log, m.TermWithReason(err.Error()))
		return
	}
	if ctx.Err() != nil {
		logAcknowledgeError(ctx, b.log, m.Nak()) // this consumer stops: others can take it now
		return
	}
	delay := broker.RedeliveryDelay(err, b.redeliveryBackoff(m))
	b.log.DebugContext(ctx, "event handling failed, redelivering", "event", e.ID, "delay", delay, "err", err)
	logAcknowledgeError(ctx, b.log, m.NakWithDelay(delay))
}

// redeliveryBackoff returns the delay before a message is redelivered, which grows with each delivery.
func (b *Broker) redeliveryBackoff(m jetstream.Msg) time.Duration {
	deliveries := uint64(1)
	if meta, err := m.Metadata(); err == nil {
		deliveries = min(meta.NumDelivered, 64) // then the delay has long reached its maximum
	}
	policy := backoff.Policy{Initial: b.cfg.RedeliveryDelay, Max: maxRedeliveryDelay}
	return policy.Delay(int(deliveries) - 1)
}

// startInProgressReports regularly reports to the server that m is being handled, until stop is called.
func startInProgressReports(m jetstream.Msg, every time.Duration) (stop func()) {
	done := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_ = m.InProgress() // if it is lost, the next one counts
			case <-done:
				return
			}
		}
	})
	return func() {
		close(done)
		work.Wait()
	}
}

func logAcknowledgeError(ctx context.Context, log *slog.Logger, err error) {
	if err != nil {
		log.DebugContext(ctx, "message acknowledgement failed, redelivering", "err", err)
	}
}

// decodeMessage decodes the event of a message. A message with neither a content type nor an
// attribute is structured, the only mode of NATS before it had headers.
func decodeMessage(h nats.Header, body []byte) (cloudevent.Event, error) {
	contentType, _ := findHeaderIgnoringCase(h, contentTypeHeader)
	_, hasVersion := findHeaderIgnoringCase(h, attributePrefix+"specversion")
	if !hasVersion && contentType == "" {
		contentType = cloudevent.ContentType
	}
	findAttribute := func(name string) (string, bool) {
		value, found := findHeaderIgnoringCase(h, attributePrefix+name)
		return unescapeHeader(value), found
	}
	return cloudevent.Decode(contentType, findAttribute, body)
}
