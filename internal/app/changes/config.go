package changes

import (
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// DefaultSink is the name of the sink that Config itself describes.
const DefaultSink = "default"

// Config lists the sinks for change events. The defaults have none.
type Config struct {
	Enabled     bool   `key:"enabled" env:"CHANGE_EVENTS_ENABLED" flag:"change-events-enabled" doc:"Send change events to sinks."`
	ClusterName string `key:"cluster_name" env:"CHANGE_EVENTS_CLUSTER_NAME" flag:"change-events-cluster-name" doc:"Name of this cluster in change events."`

	Product string `key:"product" env:"CHANGE_EVENTS_PRODUCT" default:"Fleetloop" doc:"Product name in summaries, as in \"Fleetloop cordoned node gpu-node-01\". It does not change the source of an event."`

	// Default is the sink that the environment can give.
	Default

	ShutdownTimeout time.Duration `key:"shutdown_timeout" env:"CHANGE_EVENTS_SHUTDOWN_TIMEOUT" flag:"change-events-shutdown-timeout" default:"10s" validate:"min=0" doc:"How long the process waits for pending events when it stops. 0s means 10s."`

	AllowHosts []string `key:"allow_hosts" env:"CHANGE_EVENTS_ALLOW_HOSTS" doc:"Services in the same network, each as host:port. A sink with exactly that host and port may use plain http and a private address."`

	Sinks []SinkConfig `key:"sinks" validate:"dive" doc:"Additional sinks. Each receives the same events. A sink has the same keys as change_events, and a name for metrics, logs and NodeFaults."`
}

// Default is a Target that environment variables can configure.
type Default struct {
	Endpoint     string             `key:"endpoint" env:"CHANGE_EVENTS_ENDPOINT" flag:"change-events-endpoint" doc:"URL of the sink. Some formats append the cluster name to its path."`
	EndpointFile string             `key:"endpoint_file" env:"CHANGE_EVENTS_ENDPOINT_FILE" doc:"File with the URL of the sink, if the URL is secret, such as for Slack."`
	Format       changeevent.Format `key:"format" env:"CHANGE_EVENTS_FORMAT" flag:"change-events-format" default:"nvsentinel" doc:"Format of events, such as nvsentinel, cloudevents, pagerduty or slack."`
	Timeout      time.Duration      `key:"timeout" env:"CHANGE_EVENTS_TIMEOUT" flag:"change-events-timeout" default:"10s" validate:"min=0" doc:"Timeout of one request. 0s means 10s."`

	AuthHeader     string          `key:"auth_header" env:"CHANGE_EVENTS_AUTH_HEADER" doc:"HTTP header for the token (default: the header of the format, usually Authorization)."`
	AuthScheme     string          `key:"auth_scheme" env:"CHANGE_EVENTS_AUTH_SCHEME" doc:"Authentication scheme before the token, such as Bearer (default: the scheme of the format, usually none)."`
	AuthToken      settings.Secret `key:"auth_token" env:"CHANGE_EVENTS_AUTH_TOKEN" secret:"true" doc:"Authentication token."`
	AuthTokenFile  string          `key:"auth_token_file" env:"CHANGE_EVENTS_AUTH_TOKEN_FILE" doc:"File with the token. The process reads it again when it changes."`
	RoutingKeyFile string          `key:"routing_key_file" env:"CHANGE_EVENTS_ROUTING_KEY_FILE" doc:"File with the key for the request body, such as the PagerDuty routing key."`
	SigningKeyFile string          `key:"signing_key_file" env:"CHANGE_EVENTS_SIGNING_KEY_FILE" doc:"File with the key that signs requests (HMAC-SHA256, header X-Fleetloop-Signature)."`

	BaseFieldsOnly bool `key:"base_fields_only" env:"CHANGE_EVENTS_BASE_FIELDS_ONLY" doc:"Send only the fields of the original NVSentinel schema (ADR-026), for a sink that rejects unknown fields. Requires the format nvsentinel."`

	Actions                []string `key:"actions" env:"CHANGE_EVENTS_ACTIONS" doc:"Actions to send, such as cordon and uncordon (default: all but the optional actions)."`
	IncludeOptionalActions bool     `key:"include_optional_actions" env:"CHANGE_EVENTS_INCLUDE_OPTIONAL_ACTIONS" doc:"Also send the optional actions override-detected and budget-exhausted."`

	AllowHTTP      bool            `key:"allow_http" env:"CHANGE_EVENTS_ALLOW_HTTP" doc:"Allow a URL with plain http."`
	AllowAddresses []string        `key:"allow_addresses" env:"CHANGE_EVENTS_ALLOW_ADDRESSES" doc:"Private addresses and networks that a sink may have, such as 10.0.0.0/8."`
	CAFile         string          `key:"ca_file" env:"CHANGE_EVENTS_CA_FILE" doc:"PEM file with the CA certificates for the sink (default: those of the system)."`
	ProxyURL       settings.Secret `key:"proxy_url" secret:"true" env:"CHANGE_EVENTS_PROXY_URL" doc:"URL of the proxy (default: HTTPS_PROXY and NO_PROXY)."`

	Tuning
}

// SinkConfig is an additional sink.
type SinkConfig struct {
	Name string `key:"name" validate:"required" doc:"Name of the sink: lower case letters, digits and hyphens."`
	Target
}

// Target holds the address, format and credentials of a sink. It has the fields of Default.
type Target struct {
	Endpoint     string             `key:"endpoint" doc:"URL of the sink."`
	EndpointFile string             `key:"endpoint_file" doc:"File with the URL of the sink."`
	Format       changeevent.Format `key:"format" default:"nvsentinel" doc:"Format of events."`
	Timeout      time.Duration      `key:"timeout" default:"10s" validate:"min=0" doc:"Timeout of one request. 0s means 10s."`

	AuthHeader     string          `key:"auth_header" doc:"HTTP header for the token."`
	AuthScheme     string          `key:"auth_scheme" doc:"Authentication scheme before the token."`
	AuthToken      settings.Secret `key:"auth_token" secret:"true" doc:"Authentication token."`
	AuthTokenFile  string          `key:"auth_token_file" doc:"File with the token."`
	RoutingKeyFile string          `key:"routing_key_file" doc:"File with the key for the request body."`
	SigningKeyFile string          `key:"signing_key_file" doc:"File with the key that signs requests."`

	BaseFieldsOnly bool `key:"base_fields_only" doc:"Send only the fields of the original NVSentinel schema (ADR-026)."`

	Actions                []string `key:"actions" doc:"Actions to send (default: all but the optional actions)."`
	IncludeOptionalActions bool     `key:"include_optional_actions" doc:"Also send the optional actions."`

	AllowHTTP      bool            `key:"allow_http" doc:"Allow a URL with plain http."`
	AllowAddresses []string        `key:"allow_addresses" doc:"Private addresses and networks that the sink may have."`
	CAFile         string          `key:"ca_file" doc:"PEM file with the CA certificates for the sink."`
	ProxyURL       settings.Secret `key:"proxy_url" secret:"true" doc:"URL of the proxy."`

	Tuning
}

// Tuning holds rarely needed settings.
type Tuning struct {
	AppendCluster *bool         `key:"append_cluster" doc:"Append the cluster name to the path of the URL (default: depends on the format)."`
	QueueSize     int           `key:"queue_size" default:"0" validate:"min=0,max=65536" doc:"Maximum number of events in each queue of the sink. If a queue is full, its oldest event is dropped. 0 means 1024 in all queues."`
	MaxAge        time.Duration `key:"max_age" default:"12h" validate:"min=0" doc:"Maximum age of an event. Older events are dropped. 0s means 12h."`
	BatchWait     time.Duration `key:"batch_wait" default:"0s" validate:"min=0" doc:"How long to collect events into one request, for formats with several events per request. 0s means 1s for slack."`
	Retry         RetryConfig   `key:"retry"`
	Links         []Link        `key:"links" validate:"dive" doc:"Links to add to events."`
}

// RetryConfig limits the attempts to send an event.
type RetryConfig struct {
	MaxAttempts     int           `key:"max_attempts" default:"0" validate:"min=0" doc:"Maximum number of attempts. 1 means no retry; 0 means no limit but max_elapsed_time."`
	InitialInterval time.Duration `key:"initial_interval" default:"1s" validate:"min=0" doc:"Maximum delay after the first attempt. It doubles with each attempt. 0s means 1s."`
	MaxInterval     time.Duration `key:"max_interval" default:"30s" validate:"min=0" doc:"Maximum delay between attempts. 0s means 30s."`
	MaxElapsedTime  time.Duration `key:"max_elapsed_time" default:"5m" validate:"min=0" doc:"Maximum time for all attempts of an event, unless the sink asks for a longer delay (Retry-After). 0s means 5m."`
}

// Link is a link added to events, such as to the dashboard of their node.
type Link struct {
	Href    string   `key:"href" validate:"required" doc:"https URL of the link, with placeholders for values of the event: {node}, {cluster}, {action}, {checkName}, {session} and others."`
	Text    string   `key:"text" doc:"Text of the link."`
	Actions []string `key:"actions" doc:"Actions whose events get the link (default: all)."`
}

// sinksIfEnabled returns the sinks by name. The default sink comes first if it has an endpoint.
func (c Config) sinksIfEnabled() []SinkConfig {
	if !c.Enabled {
		return nil
	}
	var list []SinkConfig
	if c.Endpoint != "" || c.EndpointFile != "" {
		list = append(list, SinkConfig{Name: DefaultSink, Target: Target(c.Default)})
	}
	return append(list, c.Sinks...)
}

// errNoSink means that change events are enabled without a sink.
var errNoSink = errors.New("change events are enabled without a sink: set CHANGE_EVENTS_ENDPOINT")

// errNoSource means that the process has no name to use as the source.
var errNoSource = errors.New("change events require a source: set the name of the sending component")

var sinkName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// validateSinkNames rejects invalid and duplicate names of sinks, because metrics and delivery
// positions are keyed by name.
func (c Config) validateSinkNames() error {
	seen := map[string]bool{}
	for _, s := range c.sinksIfEnabled() {
		switch {
		case !sinkName.MatchString(s.Name):
			return fmt.Errorf("change event sink name %q is invalid: use 1 to 63 lower case letters, digits and hyphens", s.Name)
		case seen[s.Name]:
			return fmt.Errorf("change event sink name %q is used twice: give each sink its own name", s.Name)
		}
		seen[s.Name] = true
	}
	return nil
}
