// Package bus opens the broker that BROKER_TYPE names.
//
// Broker settings are read from the environment alone, apart from those of
// the component that uses the broker: the sentinel publishes and adapters
// consume, and both are given the same variables.
package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/fleetloop/fleetloop/internal/broker/amqp"
	"github.com/fleetloop/fleetloop/internal/broker/nats"
	"github.com/fleetloop/fleetloop/internal/broker/pubsub"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
	"github.com/fleetloop/fleetloop/internal/lifecycle"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// A Type names a kind of broker. Its text is also the broker_type label of
// metrics.
type Type string

// The types of broker.
const (
	RabbitMQ Type = "rabbitmq"
	PubSub   Type = "gcp-pubsub"
	NATS     Type = "nats"
)

// UnmarshalText reads a type; "pubsub" is another spelling of gcp-pubsub.
func (t *Type) UnmarshalText(text []byte) error {
	switch Type(text) {
	case RabbitMQ, NATS, PubSub:
		*t = Type(text)
	case "pubsub":
		*t = PubSub
	default:
		return fmt.Errorf("%q is not a type of broker; use rabbitmq, pubsub (or gcp-pubsub) or nats", text)
	}
	return nil
}

// Choice says which broker to use.
type Choice struct {
	Type Type `key:"type" env:"BROKER_TYPE" doc:"which broker: rabbitmq, pubsub (the same as gcp-pubsub) or nats" validate:"required"`
}

// client is what the broker adapters have in common.
type client interface {
	Run(ctx context.Context) error
	Ready() error
	Publish(ctx context.Context, e *cloudevent.Event) error
	Consume(ctx context.Context, subscription string, handle func(context.Context, cloudevent.Event) error) error
	InFlight() int
}

// A Bus publishes cloud events to one broker, and consumes them.
type Bus struct {
	client
	// Type is the kind of broker behind it.
	Type Type
}

// Part is the bus as a part of a process.
func (b *Bus) Part() lifecycle.Part {
	return lifecycle.Part{Name: "broker", Run: b.Run, Ready: b.Ready}
}

// Config is a broker's configuration as read, not yet opened.
type Config struct {
	choice  Choice
	reports []*settings.Report
	open    func(log *slog.Logger) (client, error)
}

// Reports say what is in force and where it came from.
func (c *Config) Reports() []*settings.Report { return c.reports }

// Type is the kind of broker that the configuration is for.
func (c *Config) Type() Type { return c.choice.Type }

// ErrNoType means that BROKER_TYPE is not set.
var ErrNoType = errors.New("BROKER_TYPE is not set; set it to rabbitmq, pubsub or nats")

// Load reads the broker's configuration from env.
func Load(env func(string) (string, bool)) (*Config, error) {
	if v, ok := env("BROKER_TYPE"); !ok || v == "" {
		return nil, ErrNoType
	}
	c := &Config{}
	report, err := settings.Load(&c.choice, settings.Source{Env: env})
	if err != nil {
		return nil, err
	}
	c.reports = append(c.reports, report)
	switch c.choice.Type {
	case RabbitMQ:
		return load(c, env, func(cfg amqp.Config, log *slog.Logger) (client, error) { return amqp.New(cfg, log) })
	case PubSub:
		return load(c, env, func(cfg pubsub.Config, log *slog.Logger) (client, error) { return pubsub.New(cfg, log) })
	case NATS:
		return load(c, env, func(cfg nats.Config, log *slog.Logger) (client, error) { return nats.New(cfg, log) })
	}
	return nil, fmt.Errorf("open broker: unknown type %q", c.choice.Type)
}

// load reads the settings of one kind of broker.
func load[C any](c *Config, env func(string) (string, bool), open func(C, *slog.Logger) (client, error)) (*Config, error) {
	var cfg C
	report, err := settings.Load(&cfg, settings.Source{Env: env})
	if err != nil {
		return nil, err
	}
	c.reports = append(c.reports, report)
	c.open = func(log *slog.Logger) (client, error) { return open(cfg, log) }
	return c, nil
}

// Open makes the bus. It connects to nothing yet; its part does.
func (c *Config) Open(log *slog.Logger) (*Bus, error) {
	opened, err := c.open(log)
	if err != nil {
		return nil, fmt.Errorf("open broker %s: %w", c.choice.Type, err)
	}
	return New(c.choice.Type, opened), nil
}

// New makes a bus of a broker that was opened elsewhere.
func New(t Type, opened client) *Bus { return &Bus{client: opened, Type: t} }
