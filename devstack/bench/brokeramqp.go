package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/fleetloop/fleetloop/internal/broker/amqp"
	"github.com/fleetloop/fleetloop/internal/broker/brokertest/rabbitmq"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// rabbitMQQueueType is the type that keeps events when a server is lost.
const rabbitMQQueueType = amqp091.QueueTypeQuorum

const (
	exchange = "bench"
	startup  = time.Minute
	// oneAtATime is the number of events in a turn in which each event waits for the previous one.
	oneAtATime = 1000
)

// A rabbitMQBed is a server with an exchange and a queue, an adapter, and a separate client.
type rabbitMQBed struct {
	server *rabbitmq.Server
	broker *amqp.Broker
	stop   func()
	conn   *amqp091.Connection
	admin  *amqp091.Channel
}

// startRabbitMQBed starts the server, declares a queue and connects.
func startRabbitMQBed(ctx context.Context) (*rabbitMQBed, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*startup)
	defer cancel()
	server, err := rabbitmq.Start(ctx, rabbitmq.Options{})
	if err != nil {
		return nil, err
	}
	b := &rabbitMQBed{server: server, stop: func() {}}
	if err := b.declareQueueAndStartAdapter(ctx); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

func (b *rabbitMQBed) declareQueueAndStartAdapter(ctx context.Context) error {
	var err error
	if b.conn, err = amqp091.Dial(b.server.URL()); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	if b.admin, err = b.conn.Channel(); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	_, errQueue := b.admin.QueueDeclare(exchange, true, false, false, false, amqp091.Table{amqp091.QueueTypeArg: rabbitMQQueueType})
	err = errors.Join(b.admin.ExchangeDeclare(exchange, "fanout", true, false, false, false, nil), errQueue,
		b.admin.QueueBind(exchange, "", exchange, false, nil))
	if err != nil {
		return fmt.Errorf("declare: %w", err)
	}
	if b.broker, err = amqp.New(amqp.Config{URL: settings.Secret(b.server.URL()), Topic: exchange}, slog.New(slog.DiscardHandler)); err != nil {
		return err
	}
	stop, err := startRunnerAndAwaitReady(ctx, b.broker)
	if err != nil {
		return err
	}
	b.stop = stop
	return nil
}

// Close stops everything that startRabbitMQBed started.
func (b *rabbitMQBed) Close() {
	b.stop()
	if b.conn != nil {
		_ = b.conn.Close() // the server stops as well
	}
	b.server.Stop()
}

// URL returns the URL of the server.
func (b *rabbitMQBed) URL() string { return b.server.URL() }

// Topic returns the exchange of the queue.
func (b *rabbitMQBed) Topic() string { return exchange }

// NewAdapterSide returns the side that publishes through the adapter.
func (b *rabbitMQBed) NewAdapterSide() publishFunc { return newConcurrentPublishFunc(b.broker) }

// PublishRaw is the tight loop: one goroutine sends the same messages, built in advance, on one channel,
// and continues as confirms arrive.
func (b *rabbitMQBed) PublishRaw(ctx context.Context, n, window int) error {
	p, err := newPipelinedPublisher(b.conn, window)
	if err != nil {
		return err
	}
	defer func() { _ = p.channel.Close() }() // each turn has its own
	for _, m := range newAMQPMessages(n) {
		if err := p.publish(ctx, exchange, m); err != nil {
			return err
		}
	}
	return p.awaitConfirms()
}

// A pipelinedPublisher sends messages on one channel, and continues as confirms arrive.
type pipelinedPublisher struct {
	channel     *amqp091.Channel
	confirms    chan amqp091.Confirmation
	unconfirmed int
}

// newPipelinedPublisher returns a publisher with at most window unconfirmed messages.
func newPipelinedPublisher(conn *amqp091.Connection, window int) (*pipelinedPublisher, error) {
	channel, err := conn.Channel()
	if err != nil {
		return nil, err
	}
	if err := channel.Confirm(false); err != nil {
		return nil, err
	}
	return &pipelinedPublisher{channel: channel, confirms: channel.NotifyPublish(make(chan amqp091.Confirmation, window))}, nil
}

func (p *pipelinedPublisher) publish(ctx context.Context, topic string, m amqp091.Publishing) error {
	if p.unconfirmed == cap(p.confirms) {
		if err := p.awaitConfirm(); err != nil {
			return err
		}
	}
	const mandatory, immediate = true, false
	p.unconfirmed++
	return p.channel.PublishWithContext(ctx, topic, m.Type, mandatory, immediate, m)
}

func (p *pipelinedPublisher) awaitConfirm() error {
	c, ok := <-p.confirms
	if !ok || !c.Ack {
		return errors.New("an event was not confirmed")
	}
	p.unconfirmed--
	return nil
}

// awaitConfirms waits until all messages are confirmed.
func (p *pipelinedPublisher) awaitConfirms() error {
	for p.unconfirmed > 0 {
		if err := p.awaitConfirm(); err != nil {
			return err
		}
	}
	return nil
}

// newAMQPMessages returns events encoded as the adapter encodes them.
func newAMQPMessages(n int) []amqp091.Publishing {
	out := make([]amqp091.Publishing, n)
	for i := range out {
		out[i] = newAMQPMessage(newCloudEvent(i))
	}
	return out
}

func newAMQPMessage(e *cloudevent.Event) amqp091.Publishing {
	return amqp091.Publishing{
		ContentType:  cloudevent.ContentType,
		DeliveryMode: amqp091.Persistent,
		MessageId:    e.ID,
		Timestamp:    e.Time,
		Type:         e.Type,
		Body:         e.AppendJSON(nil),
	}
}

// PurgeMessages purges the queue.
func (b *rabbitMQBed) PurgeMessages(context.Context) error {
	_, err := b.admin.QueuePurge(exchange, false)
	return err
}

// benchmarkRabbitMQPublish runs the benchmarks and writes one line for each result.
func benchmarkRabbitMQPublish(ctx context.Context, w io.Writer) ([]publishResult, error) {
	b, err := startRabbitMQBed(ctx)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	var results []publishResult
	for _, m := range []publishComparison{
		{Name: "broker.amqp_vs_raw", Want: 0.85, Ours: b.NewAdapterSide(), Theirs: b.PublishRaw, Between: b.PurgeMessages},
		{Name: "broker.amqp_vs_one_at_a_time", Want: 10, Ours: b.NewAdapterSide(), Theirs: b.PublishRaw, TheirEvents: oneAtATime, TheirWindow: 1, Between: b.PurgeMessages},
	} {
		r, err := m.Run(ctx)
		if err != nil {
			return results, err
		}
		if _, err := fmt.Fprintf(w, "%s\n", r); err != nil {
			return results, err
		}
		results = append(results, r)
	}
	return results, nil
}
