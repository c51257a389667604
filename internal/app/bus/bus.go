// Package bus opens the broker that BROKER_TYPE names, or one that is given.
//
// Where nobody gives them, broker settings are read from the environment alone, apart from those of
// the component that uses the broker: the sentinel publishes and adapters
// consume, and both are given the same variables.
package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

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
		return fmt.Errorf("unknown broker type %q: use rabbitmq, pubsub (or gcp-pubsub) or nats", text)
	}
	return nil
}

// Choice says which broker to use.
type Choice struct {
	Type Type `key:"type" env:"BROKER_TYPE" doc:"broker type: rabbitmq, pubsub (also gcp-pubsub) or nats" validate:"required"`
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

	last publishOutcome
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
var ErrNoType = errors.New("BROKER_TYPE is required: set it to rabbitmq, pubsub or nats")

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
	return c.loadClientConfig(env, Explicit{})
}

// Explicit are settings that are given, and not found in the environment.
// What is empty is not given.
type Explicit struct {
	Type  Type
	Topic string

	// ProjectID and KeyJSON, the key of a service account, are for Pub/Sub.
	ProjectID string
	KeyJSON   settings.Secret

	// URL is the address of RabbitMQ or NATS. It stands for all that the
	// environment says of the address, and if it says who we are, of that as well.
	URL settings.Secret

	// Exchange is RabbitMQ's.
	Exchange string
}

// LoadExplicit reads from env what e, which has a type, does not say.
func LoadExplicit(e Explicit, env func(string) (string, bool)) (*Config, error) {
	c := &Config{choice: Choice{Type: e.Type}}
	return c.loadClientConfig(env, e)
}

// loadClientConfig reads the settings of the chosen kind of broker.
func (c *Config) loadClientConfig(env func(string) (string, bool), e Explicit) (*Config, error) {
	switch c.choice.Type {
	case RabbitMQ:
		return loadClient(c, env, e.rabbitMQ, func(cfg amqp.Config, log *slog.Logger) (client, error) { return amqp.New(cfg, log) })
	case PubSub:
		return loadClient(c, env, e.pubSub, func(cfg pubsub.Config, log *slog.Logger) (client, error) { return pubsub.New(cfg, log) })
	case NATS:
		return loadClient(c, env, e.applyToNATS, func(cfg nats.Config, log *slog.Logger) (client, error) { return nats.New(cfg, log) })
	}
	return nil, fmt.Errorf("open broker: unknown broker type %q", c.choice.Type)
}

func (e Explicit) rabbitMQ(cfg *amqp.Config) {
	setIfGiven(&cfg.Topic, e.Topic)
	setIfGiven(&cfg.Exchange, e.Exchange)
	if e.URL != "" {
		cfg.URL, cfg.Host, cfg.Port, cfg.VHost = e.URL, "", 0, ""
	}
	if e.hasUser() {
		cfg.Username, cfg.Password = "", ""
	}
}

func (e Explicit) pubSub(cfg *pubsub.Config) {
	setIfGiven(&cfg.Topic, e.Topic)
	setIfGiven(&cfg.ProjectID, e.ProjectID)
	setIfGiven(&cfg.CredentialsJSON, e.KeyJSON)
}

func (e Explicit) applyToNATS(cfg *nats.Config) {
	setIfGiven(&cfg.Topic, e.Topic)
	setIfGiven(&cfg.URL, e.URL)
	if e.hasUser() {
		cfg.CredentialsFile, cfg.Token, cfg.Username, cfg.Password = "", "", "", ""
	}
}

// hasUser reports whether the URL says who we are.
func (e Explicit) hasUser() bool { return strings.Contains(e.URL.Reveal(), "@") }

// setIfGiven sets a setting to what is given.
func setIfGiven[T ~string](setting *T, given T) {
	if given != "" {
		*setting = given
	}
}

// loadClient reads the settings of one kind of broker.
func loadClient[C any](c *Config, env func(string) (string, bool), explicit func(*C), open func(C, *slog.Logger) (client, error)) (*Config, error) {
	var cfg C
	report, err := settings.Load(&cfg, settings.Source{Env: env})
	if err != nil {
		return nil, err
	}
	explicit(&cfg)
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
