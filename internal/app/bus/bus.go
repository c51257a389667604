// Package bus opens the broker that BROKER_TYPE names, or a given one.
//
// Broker settings that the caller does not give are read from the environment alone, apart from
// those of the component that uses the broker: the sentinel publishes and adapters consume, and
// both get the same variables.
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

// Type is a kind of broker. Its text is also the broker_type label of metrics.
type Type string

// The types of broker.
const (
	RabbitMQ Type = "rabbitmq"
	PubSub   Type = "gcp-pubsub"
	NATS     Type = "nats"
)

// UnmarshalText reads a type. "pubsub" is another spelling of gcp-pubsub.
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

// Choice selects the broker.
type Choice struct {
	Type Type `key:"type" env:"BROKER_TYPE" doc:"broker type: rabbitmq, pubsub (also gcp-pubsub) or nats" validate:"required"`
}

// client holds the methods that all broker adapters share.
type client interface {
	Run(ctx context.Context) error
	Ready() error
	Publish(ctx context.Context, e *cloudevent.Event) error
	Consume(ctx context.Context, subscription string, handle func(context.Context, cloudevent.Event) error) error
	InFlight() int
}

// Bus publishes cloud events to one broker and consumes them.
type Bus struct {
	client
	// Type is the kind of broker behind it.
	Type Type

	last publishOutcome
}

// Part returns the bus as a part of a process.
func (b *Bus) Part() lifecycle.Part {
	return lifecycle.Part{Name: "broker", Run: b.Run, Ready: b.Ready}
}

// Config is the configuration of a broker that is not open yet.
type Config struct {
	choice  Choice
	reports []*settings.Report
	open    func(log *slog.Logger) (client, error)
}

// Reports returns the settings in force and their origins.
func (c *Config) Reports() []*settings.Report { return c.reports }

// Type returns the kind of broker that the configuration is for.
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

// Explicit holds settings that the caller gives instead of the environment. An empty field is not
// given.
type Explicit struct {
	Type  Type
	Topic string

	// ProjectID and KeyJSON, the key of a service account, are for Pub/Sub.
	ProjectID string
	KeyJSON   settings.Secret

	// URL is the address of RabbitMQ or NATS. It replaces every address variable of the environment
	// and, if it holds a user, the credentials too.
	URL settings.Secret

	// Exchange is the exchange of RabbitMQ.
	Exchange string
}

// LoadExplicit reads the settings that e leaves out from env. e must have a type.
func LoadExplicit(e Explicit, env func(string) (string, bool)) (*Config, error) {
	c := &Config{choice: Choice{Type: e.Type}}
	return c.loadClientConfig(env, e)
}

// loadClientConfig reads the settings of the chosen kind of broker.
func (c *Config) loadClientConfig(env func(string) (string, bool), e Explicit) (*Config, error) {
	switch c.choice.Type {
	case RabbitMQ:
		return loadClient(c, env, e.applyToRabbitMQ, func(cfg amqp.Config, log *slog.Logger) (client, error) { return amqp.New(cfg, log) })
	case PubSub:
		return loadClient(c, env, e.applyToPubSub, func(cfg pubsub.Config, log *slog.Logger) (client, error) { return pubsub.New(cfg, log) })
	case NATS:
		return loadClient(c, env, e.applyToNATS, func(cfg nats.Config, log *slog.Logger) (client, error) { return nats.New(cfg, log) })
	}
	return nil, fmt.Errorf("open broker: unknown broker type %q", c.choice.Type)
}

func (e Explicit) applyToRabbitMQ(cfg *amqp.Config) {
	setIfGiven(&cfg.Topic, e.Topic)
	setIfGiven(&cfg.Exchange, e.Exchange)
	if e.URL != "" {
		cfg.URL, cfg.Host, cfg.Port, cfg.VHost = e.URL, "", 0, ""
	}
	if e.hasUser() {
		cfg.Username, cfg.Password = "", ""
	}
}

func (e Explicit) applyToPubSub(cfg *pubsub.Config) {
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

// hasUser reports whether the URL holds a user.
func (e Explicit) hasUser() bool { return strings.Contains(e.URL.Reveal(), "@") }

// setIfGiven overwrites a setting unless the given value is empty.
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

// Open builds the bus. Its part connects, Open does not.
func (c *Config) Open(log *slog.Logger) (*Bus, error) {
	opened, err := c.open(log)
	if err != nil {
		return nil, fmt.Errorf("open broker %s: %w", c.choice.Type, err)
	}
	return New(c.choice.Type, opened), nil
}

// New returns a bus on a broker that the caller has opened.
func New(t Type, opened client) *Bus { return &Bus{client: opened, Type: t} }
