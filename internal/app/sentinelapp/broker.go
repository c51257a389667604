package sentinelapp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/fleetloop/fleetloop/internal/broker/amqp"
	"github.com/fleetloop/fleetloop/internal/broker/nats"
	"github.com/fleetloop/fleetloop/internal/broker/pubsub"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
	"github.com/fleetloop/fleetloop/internal/lifecycle"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// BrokerType is a kind of broker. Its text is also the broker_type label of metrics.
type BrokerType string

// The types of broker.
const (
	RabbitMQ BrokerType = "rabbitmq"
	PubSub   BrokerType = "gcp-pubsub"
	NATS     BrokerType = "nats"
)

// A BrokerKind is a kind of broker: its settings, and how they open a client.
type BrokerKind struct {
	Type  BrokerType
	Title string // in the reference
	// Settings is a pointer to the settings, without values.
	Settings any

	// load reads the settings from env and from explicit into the configuration.
	load func(c *BrokerConfig, env func(string) (string, bool), explicit ExplicitBroker) error
}

// ListBrokerKinds returns all kinds of brokers. A new kind is a line here, a package in
// internal/broker, and the fields of api/sentinel that its SentinelConfigs need.
func ListBrokerKinds() []BrokerKind {
	return []BrokerKind{
		newBrokerKind(RabbitMQ, "RabbitMQ (BROKER_TYPE=rabbitmq)", ExplicitBroker.applyToRabbitMQ, amqp.New),
		newBrokerKind(PubSub, "Google Cloud Pub/Sub (BROKER_TYPE=pubsub)", ExplicitBroker.applyToPubSub, pubsub.New),
		newBrokerKind(NATS, "NATS JetStream (BROKER_TYPE=nats)", ExplicitBroker.applyToNATS, nats.New),
	}
}

// newBrokerKind returns a kind of broker with the settings C and the client B.
func newBrokerKind[C any, B brokerClient](
	brokerType BrokerType, title string, applyExplicit func(ExplicitBroker, *C), open func(C, *slog.Logger) (B, error),
) BrokerKind {
	load := func(c *BrokerConfig, env func(string) (string, bool), explicit ExplicitBroker) error {
		var cfg C
		report, err := settings.Load(&cfg, settings.Source{Env: env})
		if err != nil {
			return err
		}
		applyExplicit(explicit, &cfg)
		c.reports = append(c.reports, report)
		c.open = func(log *slog.Logger) (brokerClient, error) { return open(cfg, log) }
		return nil
	}
	return BrokerKind{Type: brokerType, Title: title, Settings: new(C), load: load}
}

// UnmarshalText reads a type. "pubsub" is another spelling of gcp-pubsub.
func (t *BrokerType) UnmarshalText(text []byte) error {
	given := BrokerType(text)
	if given == "pubsub" {
		given = PubSub
	}
	if !slices.ContainsFunc(ListBrokerKinds(), func(k BrokerKind) bool { return k.Type == given }) {
		return fmt.Errorf("unknown broker type %q: use rabbitmq, pubsub (or gcp-pubsub) or nats", text)
	}
	*t = given
	return nil
}

// BrokerChoice selects the broker.
type BrokerChoice struct {
	Type BrokerType `key:"type" env:"BROKER_TYPE" doc:"broker type: rabbitmq, pubsub (also gcp-pubsub) or nats" validate:"required"`
}

// brokerClient holds the methods that all broker adapters share.
type brokerClient interface {
	Run(ctx context.Context) error
	Ready() error
	Publish(ctx context.Context, e *cloudevent.Event) error
	Consume(ctx context.Context, subscription string, handle func(context.Context, cloudevent.Event) error) error
	InFlight() int
}

// A Broker publishes cloud events to one broker, the one that BROKER_TYPE names or a given one, and
// consumes them.
//
// Broker settings that the caller does not give are read from the environment alone, apart from
// those of the component that uses the broker: the sentinel publishes and adapters consume, and
// both get the same variables.
type Broker struct {
	brokerClient
	// Type is the kind of broker behind it.
	Type BrokerType

	last publishOutcome
}

// Part returns the broker as a part of a process.
func (b *Broker) Part() lifecycle.Part {
	return lifecycle.Part{Name: "broker", Run: b.Run, Ready: b.Ready}
}

// BrokerConfig is the configuration of a broker that is not open yet.
type BrokerConfig struct {
	choice  BrokerChoice
	reports []*settings.Report
	open    func(log *slog.Logger) (brokerClient, error)
}

// Reports returns the settings in force and their origins.
func (c *BrokerConfig) Reports() []*settings.Report { return c.reports }

// Type returns the kind of broker that the configuration is for.
func (c *BrokerConfig) Type() BrokerType { return c.choice.Type }

// ErrNoBrokerType means that BROKER_TYPE is not set.
var ErrNoBrokerType = errors.New("BROKER_TYPE is required: set it to rabbitmq, pubsub or nats")

// LoadBrokerConfig reads the broker's configuration from env.
func LoadBrokerConfig(env func(string) (string, bool)) (*BrokerConfig, error) {
	if v, ok := env("BROKER_TYPE"); !ok || v == "" {
		return nil, ErrNoBrokerType
	}
	c := &BrokerConfig{}
	report, err := settings.Load(&c.choice, settings.Source{Env: env})
	if err != nil {
		return nil, err
	}
	c.reports = append(c.reports, report)
	return c.loadClientConfigFromEnv(env, ExplicitBroker{})
}

// ExplicitBroker holds settings that the caller gives instead of the environment. An empty field is not
// given.
type ExplicitBroker struct {
	Type  BrokerType
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

// LoadExplicitBrokerConfig reads the settings that e leaves out from env. e must have a type.
func LoadExplicitBrokerConfig(e ExplicitBroker, env func(string) (string, bool)) (*BrokerConfig, error) {
	c := &BrokerConfig{choice: BrokerChoice{Type: e.Type}}
	return c.loadClientConfigFromEnv(env, e)
}

// loadClientConfigFromEnv reads the settings of the chosen kind of broker.
func (c *BrokerConfig) loadClientConfigFromEnv(env func(string) (string, bool), explicit ExplicitBroker) (*BrokerConfig, error) {
	for _, kind := range ListBrokerKinds() {
		if kind.Type != c.choice.Type {
			continue
		}
		if err := kind.load(c, env, explicit); err != nil {
			return nil, err
		}
		return c, nil
	}
	return nil, fmt.Errorf("open broker: unknown broker type %q", c.choice.Type)
}

func (e ExplicitBroker) applyToRabbitMQ(cfg *amqp.Config) {
	setIfGiven(&cfg.Topic, e.Topic)
	setIfGiven(&cfg.Exchange, e.Exchange)
	if e.URL != "" {
		cfg.URL = e.URL
		cfg.Host, cfg.Port, cfg.VHost = "", 0, "" // the URL has them
	}
	if e.hasUser() {
		cfg.Username, cfg.Password = "", ""
	}
}

func (e ExplicitBroker) applyToPubSub(cfg *pubsub.Config) {
	setIfGiven(&cfg.Topic, e.Topic)
	setIfGiven(&cfg.ProjectID, e.ProjectID)
	setIfGiven(&cfg.CredentialsJSON, e.KeyJSON)
}

func (e ExplicitBroker) applyToNATS(cfg *nats.Config) {
	setIfGiven(&cfg.Topic, e.Topic)
	setIfGiven(&cfg.URL, e.URL)
	if e.hasUser() {
		cfg.CredentialsFile, cfg.Token, cfg.Username, cfg.Password = "", "", "", ""
	}
}

// hasUser reports whether the URL holds a user.
func (e ExplicitBroker) hasUser() bool { return strings.Contains(e.URL.Reveal(), "@") }

// setIfGiven overwrites a setting unless the given value is empty.
func setIfGiven[T ~string](setting *T, given T) {
	if given != "" {
		*setting = given
	}
}

// BuildBroker builds the broker. Its part connects, BuildBroker does not.
func (c *BrokerConfig) BuildBroker(log *slog.Logger) (*Broker, error) {
	opened, err := c.open(log)
	if err != nil {
		return nil, fmt.Errorf("open broker %s: %w", c.choice.Type, err)
	}
	return NewBroker(c.choice.Type, opened), nil
}

// NewBroker returns a Broker on a client that the caller has opened.
func NewBroker(t BrokerType, opened brokerClient) *Broker {
	return &Broker{brokerClient: opened, Type: t}
}
