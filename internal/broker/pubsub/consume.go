package pubsub

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/broker"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
)

const (
	// prefetchFactor is the number of prefetched events for each concurrent one: events that wait
	// for their redelivery must not hold up the others.
	prefetchFactor = 8
	// ackDeadline is the time after which the event of a dead consumer is redelivered.
	ackDeadline = 30 * time.Second
	// refusalTime is the time after which a subscription counts as ready: the client reports errors, but no success.
	refusalTime = 2 * time.Second
)

// Consume passes the events of a subscription to handle, Concurrency at once, until ctx ends. The
// subscription is created if it does not exist and the client has the right, and is shared by all
// consumers that use its name. An event is done when handle returns nil; after an error it is
// returned, after RedeliveryDelay or the delay that the error asks for. An event whose error is
// permanent is returned if the subscription has a dead-letter policy, whose maximum of attempts then
// applies, and is otherwise logged and dropped. A message that is not an event is logged and
// dropped, because a returned one would be redelivered without end.
func (b *Broker) Consume(
	ctx context.Context, subscription string, handle func(context.Context, cloudevent.Event) error,
) error {
	if !isValidResourceID(subscription) {
		return fmt.Errorf("consume %q: a subscription name must have 3 to 255 letters, digits and -._~+%% "+
			"and begin with a letter", subscription)
	}
	defer b.subscriptions.SetNotReadyReason(subscription, errors.New("not subscribed: stopped"))
	policy := reconnectBackoff()
	for attempt := 0; ; attempt++ {
		began := time.Now()
		err := b.consumeUntilError(ctx, subscription, handle)
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

// consumeUntilError consumes until an error occurs from which the client does not recover.
func (b *Broker) consumeUntilError(
	ctx context.Context, subscription string, handle func(context.Context, cloudevent.Event) error,
) error {
	client, err := b.newClient(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }() // the client is no longer needed
	if err := b.ensureSubscription(ctx, client, subscription); err != nil {
		return err
	}
	c := &consumer{broker: b, handle: handle, slots: make(chan struct{}, b.cfg.Concurrency)}
	subscriber := client.Subscriber(subscription)
	subscriber.ReceiveSettings.MaxOutstandingMessages = prefetchFactor * b.cfg.Concurrency
	subscriber.ReceiveSettings.NumGoroutines = 1
	subscriber.ReceiveSettings.ShutdownOptions = &pubsub.ShutdownOptions{
		Timeout:  b.cfg.StopTimeout,
		Behavior: pubsub.ShutdownBehaviorNackImmediately,
	}
	accepted := time.AfterFunc(refusalTime, func() { b.subscriptions.SetNotReadyReason(subscription, nil) })
	defer accepted.Stop()
	if err := subscriber.Receive(ctx, c.handleAndAcknowledge); err != nil {
		return fmt.Errorf("receive from %q: %w", subscription, err)
	}
	return nil
}

// ensureSubscription creates the subscription if it is missing. A client that may receive but not
// read the subscription continues, and any error shows in receiving.
func (b *Broker) ensureSubscription(ctx context.Context, client *pubsub.Client, id string) error {
	ctx, cancel := context.WithTimeout(ctx, b.cfg.ConnectTimeout)
	defer cancel()
	name, topic := b.cfg.fullSubscriptionName(id), b.cfg.fullTopicName()
	if b.cfg.EmulatorHost != "" { // an emulator may be empty; an existing topic is fine
		_, _ = client.TopicAdminClient.CreateTopic(ctx, &pubsubpb.Topic{Name: topic})
	}
	subscriptions := client.SubscriptionAdminClient
	existing, err := subscriptions.GetSubscription(ctx, &pubsubpb.GetSubscriptionRequest{Subscription: name})
	if status.Code(err) == codes.NotFound {
		existing, err = subscriptions.CreateSubscription(ctx, &pubsubpb.Subscription{
			Name:                  name,
			Topic:                 topic,
			AckDeadlineSeconds:    int32(ackDeadline / time.Second),
			EnableMessageOrdering: b.cfg.Ordering,
		})
		if s := b.session.Load(); s != nil {
			s.requestTopicCheck() // the topic may have waited for a subscription
		}
	}
	switch code := status.Code(err); {
	case code == codes.PermissionDenied:
		return nil
	case err != nil:
		return fmt.Errorf("find or create subscription %q of topic %q: %w", name, topic, err)
	case existing.GetTopic() != topic:
		return fmt.Errorf("subscription %q belongs to topic %q, not %q: use another name",
			name, existing.GetTopic(), topic)
	}
	return nil
}

// A consumer handles the messages of one subscription.
type consumer struct {
	broker *Broker
	handle func(context.Context, cloudevent.Event) error
	slots  chan struct{} // one for each event that is being handled
}

// handleAndAcknowledge handles one message and acknowledges or returns it.
func (c *consumer) handleAndAcknowledge(ctx context.Context, m *pubsub.Message) {
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		m.Nack()
		return
	}
	e, err := decodeMessage(m.Attributes, m.Data)
	if err != nil {
		<-c.slots
		c.broker.log.ErrorContext(ctx, "message dropped, not a CloudEvent", "message_id", m.ID, "err", err)
		m.Ack()
		return
	}
	err = c.handle(ctx, e)
	<-c.slots // before any delay: events that wait for their redelivery must not hold up the others
	if err == nil {
		m.Ack()
		return
	}
	if broker.MustNotRedeliver(err) {
		hasDeadLetterPolicy := m.DeliveryAttempt != nil
		c.broker.log.ErrorContext(ctx, "event rejected",
			"event", e.ID, "dead_letter_policy", hasDeadLetterPolicy, "err", err)
		if !hasDeadLetterPolicy {
			m.Ack()
			return
		}
	}
	if ctx.Err() == nil {
		delay := broker.RedeliveryDelay(err, c.broker.cfg.RedeliveryDelay)
		c.broker.log.DebugContext(ctx, "event handling failed, redelivering", "event", e.ID, "delay", delay, "err", err)
		_ = backoff.Sleep(ctx, delay) // if interrupted, the event returns at once
	}
	m.Nack()
}
