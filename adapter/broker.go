package adapter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/fleetloop/fleetloop/internal/broker/amqp"
	"github.com/fleetloop/fleetloop/internal/broker/nats"
	"github.com/fleetloop/fleetloop/internal/broker/pubsub"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// waitFactor is the number of events that the broker delivers for each concurrent Reconcile. Some of
// them wait for another event of their resource.
const waitFactor = 4

// BrokerConfig selects the broker. An empty field is read from the environment, like all the other
// settings of the broker: BROKER_HOST, BROKER_USERNAME, BROKER_PASSWORD, BROKER_TLS_CA_FILE and so on.
type BrokerConfig struct {
	// Type is rabbitmq, pubsub (also gcp-pubsub) or nats. Empty means BROKER_TYPE.
	Type string

	// URL is the address of RabbitMQ or NATS. Empty means BROKER_URL.
	URL string

	// Topic is the exchange of RabbitMQ, the topic of Pub/Sub, or the stream of NATS. Empty means
	// BROKER_TOPIC, or else hyperfleet-events.
	Topic string

	// ProjectID is the Google Cloud project of Pub/Sub. Empty means BROKER_PROJECT_ID.
	ProjectID string
}

// overrideEnv returns an environment in which the given fields come first.
func (c BrokerConfig) overrideEnv(env func(string) (string, bool)) func(string) (string, bool) {
	given := map[string]string{"BROKER_URL": c.URL, "BROKER_TOPIC": c.Topic, "BROKER_PROJECT_ID": c.ProjectID}
	return func(name string) (string, bool) {
		if v := given[name]; v != "" {
			return v, true
		}
		return env(name)
	}
}

// An openBroker is one of the supported brokers. It runs once.
type openBroker struct {
	client       brokerClient
	subscription string
	ran          atomic.Bool
}

type brokerClient interface {
	Run(ctx context.Context) error
	Ready() error
	SubscriptionReady(subscription string) error
	Consume(ctx context.Context, subscription string, handle func(context.Context, cloudevent.Event) error) error
}

// newBroker returns the broker of the configuration. It does not connect.
func newBroker(c BrokerConfig, env func(string) (string, bool), concurrency int, log *slog.Logger) (*openBroker, error) {
	env = c.overrideEnv(env)
	open := func() (brokerClient, error) {
		return nil, errors.New("BROKER_TYPE is required: rabbitmq, pubsub or nats")
	}
	switch c.Type {
	case "rabbitmq":
		open = newBrokerOpenerFromEnv(env, amqp.New, log, func(c *amqp.Config) { c.Concurrency = concurrency })
	case "pubsub", "gcp-pubsub":
		open = newBrokerOpenerFromEnv(env, pubsub.New, log, func(c *pubsub.Config) { c.Concurrency = concurrency })
	case "nats":
		open = newBrokerOpenerFromEnv(env, nats.New, log, func(c *nats.Config) { c.Concurrency = concurrency })
	case "":
	default:
		return nil, fmt.Errorf("the broker type is %q: use rabbitmq, pubsub or nats", c.Type)
	}
	client, err := open()
	if err != nil {
		return nil, err
	}
	return &openBroker{client: client}, nil
}

// newBrokerOpenerFromEnv returns a function that reads the settings C from env and opens a broker B.
func newBrokerOpenerFromEnv[C any, B brokerClient](
	env func(string) (string, bool), open func(C, *slog.Logger) (B, error), log *slog.Logger, adjustSettings func(*C),
) func() (brokerClient, error) {
	return func() (brokerClient, error) {
		var cfg C
		if _, err := settings.Load(&cfg, settings.Source{Env: env}); err != nil {
			return nil, err
		}
		adjustSettings(&cfg)
		return open(cfg, log)
	}
}

// Run connects until ctx ends.
func (b *openBroker) Run(ctx context.Context) error { return b.client.Run(ctx) }

// Ready returns why the broker is not connected or delivers no events, or nil.
func (b *openBroker) Ready() error {
	if err := b.client.Ready(); err != nil {
		return err
	}
	return b.client.SubscriptionReady(b.subscription)
}

// Consume implements Consumer.
func (b *openBroker) Consume(ctx context.Context, subscription string, handle func(context.Context, Event) error) error {
	return b.client.Consume(ctx, subscription, func(ctx context.Context, e cloudevent.Event) error {
		return handle(ctx, Event{ID: e.ID, Type: e.Type, Data: e.Data, TraceParent: e.TraceParent, TraceState: e.TraceState})
	})
}
