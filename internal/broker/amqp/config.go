package amqp

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/fleetloop/fleetloop/internal/broker"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// Defaults of the zero fields of a Config.
const (
	DefaultTopic           = "hyperfleet-events"
	DefaultPort            = 5672
	DefaultTLSPort         = 5671
	DefaultVHost           = "/"
	DefaultExchangeType    = Fanout
	DefaultUsername        = "guest"
	DefaultHeartbeat       = 10 * time.Second
	DefaultConnectTimeout  = 5 * time.Second
	DefaultStopTimeout     = 5 * time.Second
	DefaultConcurrency     = 8
	DefaultRedeliveryDelay = time.Second
)

// An ExchangeType determines how an exchange selects the queues for an event.
type ExchangeType string

// The exchange types that RabbitMQ supports without plugins.
const (
	// Fanout routes every event to every queue, whatever its routing key.
	Fanout ExchangeType = "fanout"
	// Topic routes an event to the queues whose pattern matches the routing key.
	Topic ExchangeType = "topic"
	// Direct routes an event to the queues that are bound with the same routing key.
	Direct ExchangeType = "direct"
	// Headers routes an event to the queues whose arguments match the event's headers.
	Headers ExchangeType = "headers"
)

// A Config describes the RabbitMQ server and the routing of events. Exactly one of URL and Host
// must be set; the zero value of every other field is usable.
type Config struct {
	// URL combines address, credentials and virtual host: amqp://user:password@host:5672/vhost, or
	// amqps:// with TLS.
	URL settings.Secret `key:"url" file:"url_file" env:"BROKER_URL" secret:"true" doc:"URL of RabbitMQ, amqp://user:password@host:5672/vhost or amqps://…"`

	// Host, Port and VHost are the parts of the address.
	Host  string `key:"host" env:"BROKER_HOST" flag:"broker-host" doc:"host of RabbitMQ, if url is not set"`
	Port  int    `key:"port" env:"BROKER_PORT" flag:"broker-port" default:"0" doc:"port of RabbitMQ (default: 5672, or 5671 with TLS)"`
	VHost string `key:"vhost" env:"BROKER_VHOST" flag:"broker-vhost" doc:"virtual host (default: from url, or /)"`

	// Username and Password override those of the URL. A password alone belongs to the URL's user.
	Username string          `key:"username" env:"BROKER_USERNAME" flag:"broker-username" doc:"user name (default: from url, or guest)"`
	Password settings.Secret `key:"password" file:"password_file" env:"BROKER_PASSWORD" secret:"true" doc:"password (default: from url, or guest)"`

	// TLS is used if the URL begins with amqps:// or any of its fields is set.
	TLS broker.TLS `key:"tls"`

	// Topic is the exchange if Exchange is empty. Empty means DefaultTopic.
	Topic string `key:"topic" env:"BROKER_TOPIC" flag:"broker-topic" default:"hyperfleet-events" doc:"name of the exchange, if exchange is not set"`

	// Exchange is declared durable. Without the right to declare it, an existing exchange is
	// sufficient.
	Exchange string `key:"exchange" env:"BROKER_EXCHANGE" flag:"broker-exchange" doc:"name of the exchange (default: the topic)"`

	// ExchangeType is the type of the exchange.
	ExchangeType ExchangeType `key:"exchange_type" env:"BROKER_EXCHANGE_TYPE" flag:"broker-exchange-type" default:"fanout" doc:"type of the exchange: fanout, topic, direct or headers"`

	// RoutingKey is the routing key of every event. Empty means the event's
	// type, NoKey the empty key; a fanout exchange ignores it.
	RoutingKey string `key:"routing_key" env:"BROKER_ROUTING_KEY" flag:"broker-routing-key" doc:"routing key of all events; none means the empty key, as the HyperFleet sentinel uses (default: the event type)"`

	// BindingKey is the key with which Consume binds its queue. Empty means
	// RoutingKey, and on a topic exchange without one everything; NoKey means
	// the empty key.
	BindingKey string `key:"binding_key" env:"BROKER_BINDING_KEY" doc:"binding key of a consumer's queue (default: the routing key, or # on a topic exchange)"`

	// QueueType is the type of the queue that Consume declares. Empty leaves the choice to the
	// server, as other clients of the same queue do.
	QueueType string `key:"queue_type" env:"BROKER_QUEUE_TYPE" doc:"type of a consumer's queue: classic or quorum (default: the default of the server)"`

	// Mode is the CloudEvents content mode of messages.
	Mode cloudevent.Mode `key:"event_mode" env:"BROKER_EVENT_MODE" flag:"broker-event-mode" default:"structured" doc:"CloudEvents content mode: structured or binary"`

	// Heartbeat is the heartbeat interval of an idle connection. After one and a half intervals
	// without a sign of life, the connection counts as lost.
	Heartbeat time.Duration `key:"heartbeat" env:"BROKER_HEARTBEAT" default:"10s" doc:"AMQP heartbeat interval"`

	// ConnectTimeout is the timeout of one attempt to connect.
	ConnectTimeout time.Duration `key:"connect_timeout" env:"BROKER_CONNECT_TIMEOUT" default:"5s" doc:"timeout for one connection attempt"`

	// StopTimeout is the timeout of the wait for unconfirmed events when Run stops.
	StopTimeout time.Duration `key:"stop_timeout" env:"BROKER_STOP_TIMEOUT" default:"5s" doc:"how long to wait for publisher confirms at shutdown"`

	// ConnectionName is the name of the connection in the server's lists.
	ConnectionName string `key:"connection_name" env:"BROKER_CONNECTION_NAME" default:"fleetloop" doc:"connection name that RabbitMQ shows"`

	// Concurrency is the number of events of one subscription that are handled concurrently.
	Concurrency int `key:"concurrency" env:"BROKER_CONCURRENCY" default:"8" doc:"number of events that one subscription handles concurrently"`

	// RedeliveryDelay is the delay before an event whose handling failed returns to its queue.
	RedeliveryDelay time.Duration `key:"redelivery_delay" env:"BROKER_REDELIVERY_DELAY" default:"1s" doc:"delay before a failed event is redelivered"`
}

// An address is the address of the server, without credentials.
type address struct {
	uri   amqp091.URI
	vhost string
}

// String returns the address in a form that is safe to log.
func (a address) String() string {
	hostPort := net.JoinHostPort(a.uri.Host, strconv.Itoa(a.uri.Port))
	return fmt.Sprintf("%s://%s/%s", a.uri.Scheme, hostPort, strings.TrimPrefix(a.vhost, "/"))
}

// withDefaultsValidated sets defaults for the zero fields and validates the others.
func (c Config) withDefaultsValidated() (Config, address, error) {
	c.Topic = cmp.Or(c.Topic, DefaultTopic)
	c.Exchange = cmp.Or(c.Exchange, c.Topic)
	c.ExchangeType = cmp.Or(c.ExchangeType, DefaultExchangeType)
	c.Mode = cmp.Or(c.Mode, cloudevent.Structured)
	c.ConnectionName = cmp.Or(c.ConnectionName, "fleetloop")
	c.Heartbeat = cmp.Or(c.Heartbeat, DefaultHeartbeat)
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, DefaultConnectTimeout)
	c.StopTimeout = cmp.Or(c.StopTimeout, DefaultStopTimeout)
	c.Concurrency = cmp.Or(c.Concurrency, DefaultConcurrency)
	c.RedeliveryDelay = cmp.Or(c.RedeliveryDelay, DefaultRedeliveryDelay)

	// The default of the binding key depends on other settings.
	if c.BindingKey == "" {
		c.BindingKey = c.RoutingKey
	}
	if c.BindingKey == "" && c.ExchangeType == Topic {
		c.BindingKey = "#"
	}
	if c.BindingKey == NoKey {
		c.BindingKey = ""
	}
	addr, err := c.parseAddress()
	if err := errors.Join(append(c.findInvalidSettings(), err)...); err != nil {
		return c, addr, fmt.Errorf("configure rabbitmq: %w", err)
	}
	return c, addr, nil
}

// findInvalidSettings returns an error for each invalid setting.
func (c Config) findInvalidSettings() []error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	switch c.ExchangeType {
	case Fanout, Topic, Direct, Headers:
	default:
		fail("exchange_type is %q, must be fanout, topic, direct or headers", string(c.ExchangeType))
	}
	if c.QueueType != "" && c.QueueType != "classic" && c.QueueType != "quorum" {
		fail("queue_type is %q, must be classic or quorum", c.QueueType)
	}
	names := map[string]string{
		"exchange":    c.Exchange,
		"routing_key": c.RoutingKey,
		"binding_key": c.BindingKey,
	}
	for setting, name := range names {
		if len(name) > longestName {
			fail("%s has %d bytes; AMQP allows %d", setting, len(name), longestName)
		}
	}
	durations := map[string]time.Duration{
		"connect_timeout":  c.ConnectTimeout,
		"stop_timeout":     c.StopTimeout,
		"redelivery_delay": c.RedeliveryDelay,
	}
	for setting, duration := range durations {
		if duration < 0 {
			fail("%s is %s, must be positive", setting, duration)
		}
	}
	if c.Heartbeat < 2*time.Second {
		fail("heartbeat is %s, must be at least 2s", c.Heartbeat)
	}
	if c.Concurrency < 0 {
		fail("concurrency is %d, must be at least 1", c.Concurrency)
	}
	if _, err := c.TLS.LoadClientConfig(); err != nil {
		errs = append(errs, err)
	}
	return append(errs, c.Mode.Validate())
}

// parseAddress parses the address. Its errors never contain the URL, which may hold a password.
func (c Config) parseAddress() (address, error) {
	uri := amqp091.URI{
		Scheme:   "amqp",
		Host:     c.Host,
		Username: DefaultUsername,
		Password: DefaultUsername,
		Vhost:    DefaultVHost,
	}

	// The scheme and the host, from the URL or the single settings.
	switch {
	case c.URL == "" && c.Host == "":
		return address{}, errors.New("url or host is required (BROKER_URL, BROKER_HOST)")
	case c.URL != "" && c.Host != "":
		return address{}, errors.New("url and host are both set: remove one of them")
	case c.URL != "":
		parsed, err := amqp091.ParseURI(c.URL.Reveal())
		if err != nil {
			return address{}, errors.New("url: must be amqp://user:password@host:5672/vhost or amqps://…")
		}
		uri = parsed
	case c.TLS.IsEnabled():
		uri.Scheme = "amqps"
	}
	if c.TLS.IsEnabled() && uri.Scheme != "amqps" {
		return address{}, errors.New("url: must begin with amqps://, because TLS is configured")
	}

	// The port, which a URL always has.
	if c.Port < 0 || c.Port > 65535 {
		return address{}, fmt.Errorf("port is %d, must be 1 to 65535", c.Port)
	}
	switch {
	case c.URL == "" && c.Port != 0:
		uri.Port = c.Port
	case c.URL == "" && uri.Scheme == "amqps":
		uri.Port = DefaultTLSPort
	case c.URL == "":
		uri.Port = DefaultPort
	}

	// The credentials and the virtual host override those of the URL.
	switch {
	case c.Username != "":
		uri.Username, uri.Password = c.Username, c.Password.Reveal()
	case c.Password != "":
		uri.Password = c.Password.Reveal()
	}
	if c.VHost != "" {
		uri.Vhost = c.VHost
	}
	return address{uri: uri, vhost: uri.Vhost}, nil
}

// longestName is the maximum length of a name in AMQP, in bytes.
const longestName = 255

// queueNameFor returns the queue of a subscription.
func (c Config) queueNameFor(subscription string) string { return c.Exchange + "-" + subscription }

// NoKey stands for the empty key, because an empty setting counts as unset.
const NoKey = "none"

// routingKeyFor returns the routing key of events of a type.
func (c Config) routingKeyFor(eventType string) string {
	switch c.RoutingKey {
	case "":
		return eventType
	case NoKey:
		return ""
	}
	return c.RoutingKey
}
