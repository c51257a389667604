package nats

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/fleetloop/fleetloop/internal/broker"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// Defaults of the zero fields of a Config.
const (
	DefaultTopic           = "hyperfleet-events"
	DefaultMaxAge          = 24 * time.Hour
	DefaultDuplicateWindow = 2 * time.Minute
	DefaultConnectTimeout  = 5 * time.Second
	DefaultStopTimeout     = 5 * time.Second
	DefaultConcurrency     = 8
	DefaultAckWait         = 30 * time.Second
	DefaultRedeliveryDelay = time.Second
)

// leastAckWait leaves time for progress reports to the server, which are sent every third of it.
const leastAckWait = 100 * time.Millisecond

// A Config describes the JetStream server and the stream. URL is required unless the server is in
// this process; the zero value of every other field is usable.
type Config struct {
	// URL is a server, or several separated by commas: nats://host:4222.
	URL settings.Secret `key:"url" file:"url_file" env:"BROKER_URL" secret:"true" doc:"URL of the NATS server, nats://user:password@host:4222; separate several URLs with commas"`

	// CredentialsFile, Token, or Username with Password authenticate the client.
	CredentialsFile string          `key:"credentials_file" env:"BROKER_CREDENTIALS_FILE" flag:"broker-credentials-file" doc:"NATS credentials file (JWT and seed)"`
	Token           settings.Secret `key:"token" file:"token_file" env:"BROKER_TOKEN" secret:"true" doc:"NATS token"`
	Username        string          `key:"username" env:"BROKER_USERNAME" flag:"broker-username" doc:"user name"`
	Password        settings.Secret `key:"password" file:"password_file" env:"BROKER_PASSWORD" secret:"true" doc:"password"`

	// TLS is used if the URL begins with tls:// or any of its files is set.
	TLS broker.TLS `key:"tls"`

	// Topic is the first part of every subject, and the stream's name unless Stream is set. Empty
	// means DefaultTopic.
	Topic string `key:"topic" env:"BROKER_TOPIC" flag:"broker-topic" default:"hyperfleet-events" doc:"name of the stream, and prefix of the subjects"`

	// Stream is the name of the stream. It is created if it does not exist,
	// and never changed if it does.
	Stream string `key:"stream" env:"BROKER_STREAM" flag:"broker-stream" doc:"name of the stream (default: the topic)"`

	// Subject is the subject of every event. Empty means the topic, a dot and
	// the event's type.
	Subject string `key:"subject" env:"BROKER_ROUTING_KEY" flag:"broker-routing-key" doc:"subject of all events (default: <topic>.<event type>)"`

	// Replicas is the number of servers that store a new stream. Zero means one.
	Replicas int `key:"replicas" env:"BROKER_REPLICAS" default:"1" doc:"number of stream replicas; used when the stream is created"`

	// MaxAge, MaxBytes and MaxMessages limit a new stream. A full stream refuses new events, so
	// that nothing is lost silently. Zero means DefaultMaxAge and no other limit.
	MaxAge      time.Duration `key:"max_age" env:"BROKER_MAX_AGE" default:"24h" doc:"maximum age of events in the stream; used when the stream is created"`
	MaxBytes    int64         `key:"max_bytes" env:"BROKER_MAX_BYTES" default:"0" doc:"maximum size of the stream; a full stream rejects events; 0 means no limit; used when the stream is created"`
	MaxMessages int64         `key:"max_messages" env:"BROKER_MAX_MESSAGES" default:"0" doc:"maximum number of events in the stream; a full stream rejects events; 0 means no limit; used when the stream is created"`

	// DuplicateWindow is the time for which a new stream remembers the ids of events. An event that
	// is repeated within it is confirmed and not stored twice.
	DuplicateWindow time.Duration `key:"duplicate_window" env:"BROKER_DUPLICATE_WINDOW" default:"2m" doc:"deduplication window for events that are published again; used when the stream is created"`

	// Mode is the CloudEvents content mode of messages.
	Mode cloudevent.Mode `key:"event_mode" env:"BROKER_EVENT_MODE" flag:"broker-event-mode" default:"structured" doc:"CloudEvents content mode: structured or binary"`

	// ConnectTimeout is the timeout of one attempt to connect.
	ConnectTimeout time.Duration `key:"connect_timeout" env:"BROKER_CONNECT_TIMEOUT" default:"5s" doc:"timeout for one connection attempt"`

	// StopTimeout is the timeout of the wait for unconfirmed events when Run stops.
	StopTimeout time.Duration `key:"stop_timeout" env:"BROKER_STOP_TIMEOUT" default:"5s" doc:"how long to wait for publisher confirms at shutdown"`

	// Concurrency is the number of events of one subscription that are handled concurrently.
	Concurrency int `key:"concurrency" env:"BROKER_CONCURRENCY" default:"8" doc:"number of events that one subscription handles concurrently"`

	// AckWait is the silence after which an event is delivered again. Its consumer died, or the
	// connection broke during delivery. Handling may take longer; meanwhile the consumer sends
	// progress reports to the server.
	AckWait time.Duration `key:"ack_wait" env:"BROKER_ACK_WAIT" default:"30s" doc:"time without acknowledgement after which an event is redelivered, to another consumer if this one is gone"`

	// RedeliveryDelay is the delay before the first redelivery of an event whose handling failed;
	// it doubles with each failure, up to a minute.
	RedeliveryDelay time.Duration `key:"redelivery_delay" env:"BROKER_REDELIVERY_DELAY" default:"1s" doc:"delay before a failed event is redelivered"`
}

// withDefaultsValidated sets defaults for the zero fields and validates the others.
func (c Config) withDefaultsValidated() (Config, error) {
	c.Topic = cmp.Or(c.Topic, DefaultTopic)
	c.Stream = cmp.Or(c.Stream, strings.ReplaceAll(c.Topic, ".", "_"))
	c.Mode = cmp.Or(c.Mode, cloudevent.Structured)
	c.Replicas = cmp.Or(c.Replicas, 1)
	c.MaxAge = cmp.Or(c.MaxAge, DefaultMaxAge)
	c.DuplicateWindow = cmp.Or(c.DuplicateWindow, min(DefaultDuplicateWindow, c.MaxAge))
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, DefaultConnectTimeout)
	c.StopTimeout = cmp.Or(c.StopTimeout, DefaultStopTimeout)
	c.Concurrency = cmp.Or(c.Concurrency, DefaultConcurrency)
	c.AckWait = cmp.Or(c.AckWait, DefaultAckWait)
	c.RedeliveryDelay = cmp.Or(c.RedeliveryDelay, DefaultRedeliveryDelay)
	return c, c.validateSettings()
}

// validateSettings returns an error that lists all invalid settings.
func (c Config) validateSettings() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if !areServerURLs(c.URL.Reveal()) {
		fail("url: must be nats://user:password@host:4222, or several separated by commas")
	}
	if strings.ContainsAny(c.Stream, ". *>/\\\t\r\n") {
		fail("stream %q: a name must not contain spaces, dots, slashes, * or >", c.Stream)
	}
	if !isPublishSubject(c.Topic) {
		fail("topic %q: a subject must be words separated by single dots, without spaces, * or >", c.Topic)
	}
	if c.Subject != "" && !isPublishSubject(c.Subject) {
		fail("subject %q: a subject must be words separated by single dots, without spaces, * or >", c.Subject)
	}
	durations := map[string]time.Duration{
		"max_age":          c.MaxAge,
		"duplicate_window": c.DuplicateWindow,
		"connect_timeout":  c.ConnectTimeout,
		"stop_timeout":     c.StopTimeout,
		"ack_wait":         c.AckWait,
		"redelivery_delay": c.RedeliveryDelay,
	}
	for setting, duration := range durations {
		if duration < 0 {
			fail("%s is %s, must be positive", setting, duration)
		}
	}
	if c.AckWait >= 0 && c.AckWait < leastAckWait {
		fail("ack_wait is %s, must be at least %s", c.AckWait, leastAckWait)
	}
	if c.DuplicateWindow > c.MaxAge {
		fail("duplicate_window is %s, must be at most max_age (%s)", c.DuplicateWindow, c.MaxAge)
	}
	if c.Password != "" && c.Username == "" {
		fail("password requires username (BROKER_USERNAME)")
	}
	if c.Replicas < 0 || c.Replicas > 5 {
		fail("replicas is %d, must be 1 to 5", c.Replicas)
	}
	if c.Concurrency < 0 || c.MaxBytes < 0 || c.MaxMessages < 0 {
		fail("concurrency, max_bytes and max_messages must not be negative")
	}
	if _, err := c.TLS.LoadClientConfig(); err != nil {
		errs = append(errs, err)
	}
	errs = append(errs, c.Mode.Validate())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("configure nats: %w", err)
	}
	return nil
}

// areServerURLs reports whether the client can parse s. The client's own error would show the password
// that s may contain.
func areServerURLs(commaSeparated string) bool {
	for server := range strings.SplitSeq(commaSeparated, ",") {
		server = strings.TrimSpace(server)
		if server != "" && !strings.Contains(server, "://") {
			server = "nats://" + server
		}
		parsed, err := url.Parse(server)
		if err != nil || server != "" && parsed.Hostname() == "" {
			return false
		}
	}
	return true
}

// isPublishSubject reports whether s is a subject that events can be published to.
func isPublishSubject(s string) bool {
	if s == "" || strings.ContainsAny(s, " *>\t\r\n\x00") {
		return false
	}
	return !strings.HasPrefix(s, ".") && !strings.HasSuffix(s, ".") && !strings.Contains(s, "..")
}

// subjectFor returns the subject of events of a type. Characters of the type that are invalid in a
// subject become "_".
func (c Config) subjectFor(eventType string) string {
	if c.Subject != "" {
		return c.Subject
	}
	s := c.Topic + "." + eventType
	if isPublishSubject(s) {
		return s
	}
	words := strings.Split(s, ".")
	for i, word := range words {
		word = strings.Map(func(r rune) rune {
			if r <= ' ' || r == '*' || r == '>' {
				return '_'
			}
			return r
		}, word)
		words[i] = cmp.Or(word, "_")
	}
	return strings.Join(words, ".")
}

// newStreamSubjects returns the subjects of a new stream.
func (c Config) newStreamSubjects() []string {
	if c.Subject != "" {
		return []string{c.Subject}
	}
	return []string{c.Topic + ".>"}
}

// newSecurityOptions returns the options for TLS and the credentials.
func (c Config) newSecurityOptions() (opts []nats.Option, err error) {
	if c.TLS.IsEnabled() {
		cfg, err := c.TLS.LoadClientConfig()
		if err != nil {
			return nil, fmt.Errorf("configure nats: %w", err)
		}
		opts = append(opts, nats.Secure(cfg))
	}
	if c.CredentialsFile != "" {
		opts = append(opts, nats.UserCredentials(c.CredentialsFile))
	}
	if c.Token != "" {
		opts = append(opts, nats.Token(c.Token.Reveal()))
	}
	if c.Username != "" {
		opts = append(opts, nats.UserInfo(c.Username, c.Password.Reveal()))
	}
	return opts, nil
}
