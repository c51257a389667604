package pubsub

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/fleetloop/fleetloop/internal/cloudevent"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// Defaults of the zero fields of a Config, and the limits of the service.
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
	mostBytes        = 9 << 20 // of the request limit of 10 MB
	longestAttribute = 1024
)

// A Config describes the topic. ProjectID is required; the zero value of every other field is
// usable. Credentials are found as in Google's client libraries, GOOGLE_APPLICATION_CREDENTIALS
// first.
type Config struct {
	// ProjectID is the project of the topic.
	ProjectID string `key:"project_id" alias:"projectID" env:"BROKER_PROJECT_ID" flag:"broker-project-id" doc:"Google Cloud project ID of the topic"`

	// Topic is the topic's name within the project, or its full name
	// projects/<project>/topics/<name>.
	Topic string `key:"topic" env:"BROKER_TOPIC" flag:"broker-topic" default:"hyperfleet-events" doc:"name of the topic"`

	// EmulatorHost is the host:port of an emulator. It is used without TLS and credentials, and the
	// topic is created if it does not exist.
	EmulatorHost string `key:"emulator_host" env:"PUBSUB_EMULATOR_HOST" doc:"host:port of a Pub/Sub emulator, instead of the service"`

	// CredentialsJSON is the key of a service account, as issued by Google's console. Empty means
	// the search described above; an emulator needs none.
	CredentialsJSON settings.Secret

	// Ordering sets the subject of each event as its ordering key: subscriptions with ordering then
	// receive the events of one resource in order.
	Ordering bool `key:"ordering" env:"BROKER_ORDERING" default:"false" doc:"use the subject of the event as ordering key"`

	// Mode is the CloudEvents content mode of messages.
	Mode cloudevent.Mode `key:"event_mode" env:"BROKER_EVENT_MODE" flag:"broker-event-mode" default:"structured" doc:"CloudEvents content mode: structured or binary"`

	// A request is sent when it has BatchCount events or BatchBytes bytes, or BatchDelay after its
	// first event.
	BatchDelay time.Duration `key:"batch_delay" env:"BROKER_BATCH_DELAY" default:"2ms" doc:"how long a publish request waits for more events"`
	BatchCount int           `key:"batch_count" env:"BROKER_BATCH_COUNT" default:"500" doc:"maximum number of events in a publish request (service limit: 1000)"`
	BatchBytes int           `key:"batch_bytes" env:"BROKER_BATCH_BYTES" default:"2097152" doc:"request size in bytes at which a batch is sent"`

	// PublishTimeout is the timeout of one request.
	PublishTimeout time.Duration `key:"publish_timeout" env:"BROKER_PUBLISH_TIMEOUT" default:"15s" doc:"timeout for one publish request"`

	// ConnectTimeout is the timeout of one attempt to connect and of one check of the topic.
	ConnectTimeout time.Duration `key:"connect_timeout" env:"BROKER_CONNECT_TIMEOUT" default:"5s" doc:"timeout for one connection attempt"`

	// StopTimeout is the timeout of the wait for unconfirmed events when Run stops.
	StopTimeout time.Duration `key:"stop_timeout" env:"BROKER_STOP_TIMEOUT" default:"5s" doc:"how long to wait for publisher confirms at shutdown"`

	// Concurrency is the number of events of one subscription that are handled concurrently.
	Concurrency int `key:"concurrency" env:"BROKER_CONCURRENCY" default:"8" doc:"number of events that one subscription handles concurrently"`

	// RedeliveryDelay is the delay before an event whose handling failed is returned; the
	// subscription's retry policy may add to it.
	RedeliveryDelay time.Duration `key:"redelivery_delay" env:"BROKER_REDELIVERY_DELAY" default:"1s" doc:"delay before a failed event is redelivered"`
}

// withDefaultsValidated sets defaults for the zero fields and validates the others.
func (c Config) withDefaultsValidated() (Config, error) {
	c.Topic = cmp.Or(c.Topic, DefaultTopic)
	c.Mode = cmp.Or(c.Mode, cloudevent.Structured)
	c.BatchDelay = cmp.Or(c.BatchDelay, DefaultBatchDelay)
	c.BatchCount = cmp.Or(c.BatchCount, DefaultBatchCount)
	c.BatchBytes = cmp.Or(c.BatchBytes, DefaultBatchBytes)
	c.PublishTimeout = cmp.Or(c.PublishTimeout, DefaultPublishTimeout)
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, DefaultConnectTimeout)
	c.StopTimeout = cmp.Or(c.StopTimeout, DefaultStopTimeout)
	c.Concurrency = cmp.Or(c.Concurrency, DefaultConcurrency)
	c.RedeliveryDelay = cmp.Or(c.RedeliveryDelay, DefaultRedeliveryDelay)
	return c, c.validateSettings()
}

// validateSettings returns an error that lists all invalid settings.
func (c Config) validateSettings() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.ProjectID == "" {
		fail("project_id is required (BROKER_PROJECT_ID)")
	}
	if !isValidTopic(c.Topic) {
		fail("topic %q: a name must have 3 to 255 letters, digits and -._~+%% and begin with a letter, "+
			"or be projects/<project>/topics/<name>", c.Topic)
	}
	durations := map[string]time.Duration{
		"batch_delay":      c.BatchDelay,
		"publish_timeout":  c.PublishTimeout,
		"connect_timeout":  c.ConnectTimeout,
		"stop_timeout":     c.StopTimeout,
		"redelivery_delay": c.RedeliveryDelay,
	}
	for setting, duration := range durations {
		if duration < 0 {
			fail("%s is %s, must be positive", setting, duration)
		}
	}
	if c.BatchCount < 1 || c.BatchCount > mostInBatch {
		fail("batch_count is %d, must be 1 to %d", c.BatchCount, mostInBatch)
	}
	if c.BatchBytes < 1 || c.BatchBytes > mostBytes {
		fail("batch_bytes is %d, must be 1 to %d", c.BatchBytes, mostBytes)
	}
	if c.Concurrency < 1 {
		fail("concurrency is %d, must be at least 1", c.Concurrency)
	}
	errs = append(errs, c.Mode.Validate())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("configure pubsub: %w", err)
	}
	return nil
}

// isValidTopic reports whether a topic is a name, or a full name with its project.
func isValidTopic(topic string) bool {
	if strings.Contains(topic, "/") && !regexp.MustCompile(`^projects/[^/]+/topics/[^/]+$`).MatchString(topic) {
		return false
	}
	name := topic[strings.LastIndexByte(topic, '/')+1:]
	return isValidResourceID(name)
}

// isValidResourceID reports whether the service allows s as a name of topics and subscriptions.
func isValidResourceID(s string) bool {
	return regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._~+%-]{2,254}$`).MatchString(s) &&
		!strings.HasPrefix(strings.ToLower(s), "goog")
}

// fullTopicName returns the full name of the topic.
func (c Config) fullTopicName() string {
	if strings.Contains(c.Topic, "/") {
		return c.Topic
	}
	return "projects/" + c.ProjectID + "/topics/" + c.Topic
}

func (c Config) fullSubscriptionName(shortName string) string {
	return "projects/" + c.ProjectID + "/subscriptions/" + shortName
}
