package main

import (
	"context"
	"log/slog"

	"github.com/fleetloop/fleetloop/devstack/proof/history"
	"github.com/fleetloop/fleetloop/internal/broker/amqp"
	"github.com/fleetloop/fleetloop/internal/broker/nats"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// Types of brokers, and the names of the groups of their servers.
const (
	brokerNATS     = "nats"
	brokerRabbitMQ = "rabbitmq"
)

const (
	brokerServers = 3
	brokerTopic   = nats.DefaultTopic
	recorderName  = "proof-recorder"
)

// startBroker starts the servers of the broker.
func (t *topology) startBroker(ctx context.Context) error {
	if t.broker == brokerRabbitMQ {
		return t.startRabbitMQ(ctx)
	}
	return t.startNATSWithStream(ctx)
}

// An eventBroker receives events.
type eventBroker interface {
	Run(ctx context.Context) error
	Consume(ctx context.Context, subscription string, handle func(context.Context, cloudevent.Event) error) error
}

func (t *topology) openBroker() (eventBroker, error) {
	log := slog.New(slog.DiscardHandler)
	if t.broker == brokerRabbitMQ {
		return amqp.New(amqp.Config{URL: settings.Secret(t.brokerURL), Topic: brokerTopic, QueueType: quorumQueue}, log)
	}
	return nats.New(nats.Config{URL: settings.Secret(t.brokerURL), Topic: brokerTopic, Replicas: brokerServers}, log)
}

// recordEvents records every event of the broker until ctx ends.
func (t *topology) recordEvents(ctx context.Context) error {
	b, err := t.openBroker()
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	go func() { failed <- b.Run(ctx) }()
	err = b.Consume(ctx, recorderName, func(_ context.Context, e cloudevent.Event) error {
		t.file.Add(history.Record{Event: history.ParseEvent(recorderName, e.ID, e.Time, e.Data)})
		return nil
	})
	if ctx.Err() != nil {
		err = nil
	}
	if ran := <-failed; err == nil {
		err = ran
	}
	return err
}
