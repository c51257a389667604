package pubsub

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/fleetloop/fleetloop/internal/cloudevent"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// What the zero fields of a Config mean, and the service's own limits.
const (
	DefaultTopic           = "hyperfleet-events"
	DefaultBatchDelay      = 2 * time.Millisecond
	DefaultBatchCount      = 500
	DefaultBatchBytes      = 2 << 20
	DefaultPublishTimeout  = 15 * time.Second
	DefaultConnectTimeout  = 5 * time.Second
	DefaultStopTimeout     = 5 * time.Second
	DefaultConcurrency     = 8
	DefaultRedeliveryDelay = time.Second

	mostInBatch      = 1000
	mostBytes        = 9 << 20 // of the 10 MB that a request may have
	longestAttribute = 1024
)

// A Config says which topic is published to. ProjectID is given; the zero
// value of every other field is usable. Credentials are found as the vendor's
// libraries find them, GOOGLE_APPLICATION_CREDENTIALS first.
type Config struct {
	// ProjectID is the project of the topic.
	ProjectID string `key:"project_id" alias:"projectID" env:"BROKER_PROJECT_ID" flag:"broker-project-id" doc:"Google Cloud project of the topic"`

	// Topic is its name within the project, or its full name
	// projects/<project>/topics/<name>.
	Topic string `key:"topic" env:"BROKER_TOPIC" flag:"broker-topic" default:"hyperfleet-events" doc:"name of the topic"`

	// EmulatorHost is host:port of an emulator, which is used without TLS and
	// credentials, and in which the topic is created if it does not exist.
	EmulatorHost string `key:"emulator_host" env:"PUBSUB_EMULATOR_HOST" doc:"host:port of a Pub/Sub emulator to use instead of the service"`

	// CredentialsJSON is the key of a service account, as Google's console
	// hands it out. Empty means that credentials are found as said above; an
	// emulator needs none.
	CredentialsJSON settings.Secret

	// Ordering gives each event its subject as ordering key: subscriptions
	// with ordering then receive the events of one resource in order.
	Ordering bool `key:"ordering" env:"BROKER_ORDERING" default:"false" doc:"publish with the event's subject as ordering key"`

	// Mode is how an event is laid out in a message.
	Mode cloudevent.Mode `key:"event_mode" env:"BROKER_EVENT_MODE" flag:"broker-event-mode" default:"structured" doc:"CloudEvents mode of the messages: structured or binary"`

	// A request goes out when it has BatchCount events or BatchBytes bytes, or
	// BatchDelay after its first event.
	BatchDelay time.Duration `key:"batch_delay" env:"BROKER_BATCH_DELAY" default:"2ms" doc:"how long a request waits for more events"`
	BatchCount int           `key:"batch_count" env:"BROKER_BATCH_COUNT" default:"500" doc:"events in a request at most (1000 is the service's limit)"`
	BatchBytes int           `key:"batch_bytes" env:"BROKER_BATCH_BYTES" default:"2097152" doc:"size at which a request goes out"`

	// PublishTimeout bounds one request.
	PublishTimeout time.Duration `key:"publish_timeout" env:"BROKER_PUBLISH_TIMEOUT" default:"15s" doc:"how long one publish request may take"`

	// ConnectTimeout bounds one attempt to connect and one look at the topic.
	ConnectTimeout time.Duration `key:"connect_timeout" env:"BROKER_CONNECT_TIMEOUT" default:"5s" doc:"how long one attempt to connect may take"`

	// StopTimeout bounds the wait for unconfirmed events when Run is told to
	// stop.
	StopTimeout time.Duration `key:"stop_timeout" env:"BROKER_STOP_TIMEOUT" default:"5s" doc:"how long to wait for confirms when stopping"`

	// Concurrency is how many events of one subscription are handled at once.
	Concurrency int `key:"concurrency" env:"BROKER_CONCURRENCY" default:"8" doc:"events of one subscription handled at once"`

	// RedeliveryDelay is the wait before an event whose handling failed is
	// given back; the subscription's retry policy may add to it.
	RedeliveryDelay time.Duration `key:"redelivery_delay" env:"BROKER_REDELIVERY_DELAY" default:"1s" doc:"wait before an event that failed is delivered again"`
}

// withDefaults fills in the zero fields and checks the rest.
func (c Config) withDefaults() (Config, error) {
	for p, d := range map[*time.Duration]time.Duration{
		&c.BatchDelay:      DefaultBatchDelay,
		&c.PublishTimeout:  DefaultPublishTimeout,
		&c.ConnectTimeout:  DefaultConnectTimeout,
		&c.StopTimeout:     DefaultStopTimeout,
		&c.RedeliveryDelay: DefaultRedeliveryDelay,
	} {
		if *p == 0 {
			*p = d
		}
	}
	for p, d := range map[*int]int{
		&c.BatchCount:  DefaultBatchCount,
		&c.BatchBytes:  DefaultBatchBytes,
		&c.Concurrency: DefaultConcurrency,
	} {
		if *p == 0 {
			*p = d
		}
	}
	if c.Topic == "" {
		c.Topic = DefaultTopic
	}
	if c.Mode == "" {
		c.Mode = cloudevent.Structured
	}
	return c, c.validate()
}

func (c Config) validate() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.ProjectID == "" {
		fail("project_id is not given (BROKER_PROJECT_ID): it says in which project the topic is")
	}
	name := c.Topic[strings.LastIndexByte(c.Topic, '/')+1:]
	if full := strings.Contains(c.Topic, "/"); full && !regexp.MustCompile(`^projects/[^/]+/topics/[^/]+$`).MatchString(c.Topic) || !isID(name) {
		fail("topic %q: want a name of 3 to 255 letters, digits and -._~+%%, beginning with a letter, or projects/<project>/topics/<name>", c.Topic)
	}
	for name, d := range map[string]time.Duration{
		"batch_delay": c.BatchDelay, "publish_timeout": c.PublishTimeout, "connect_timeout": c.ConnectTimeout,
		"stop_timeout": c.StopTimeout, "redelivery_delay": c.RedeliveryDelay,
	} {
		if d < 0 {
			fail("%s is %s, want more than nothing", name, d)
		}
	}
	if c.BatchCount < 1 || c.BatchCount > mostInBatch {
		fail("batch_count is %d, want 1 to %d", c.BatchCount, mostInBatch)
	}
	if c.BatchBytes < 1 || c.BatchBytes > mostBytes {
		fail("batch_bytes is %d, want 1 to %d", c.BatchBytes, mostBytes)
	}
	if c.Concurrency < 1 {
		fail("concurrency is %d, want 1 or more", c.Concurrency)
	}
	errs = append(errs, c.Mode.Validate())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("configure pubsub: %w", err)
	}
	return nil
}

// isID reports whether s is a name as the service allows for topics and
// subscriptions.
func isID(s string) bool {
	return regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._~+%-]{2,254}$`).MatchString(s) && !strings.HasPrefix(strings.ToLower(s), "goog")
}

// topicName is the full name of the topic.
func (c Config) topicName() string {
	if strings.Contains(c.Topic, "/") {
		return c.Topic
	}
	return "projects/" + c.ProjectID + "/topics/" + c.Topic
}

func (c Config) subscriptionName(id string) string {
	return "projects/" + c.ProjectID + "/subscriptions/" + id
}
