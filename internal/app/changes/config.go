package changes

import (
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// DefaultSink is the name of the sink that Config itself has.
const DefaultSink = "default"

// Config says which sinks are told of changes. With the defaults it is none.
type Config struct {
	Enabled     bool   `key:"enabled" env:"CHANGE_EVENTS_ENABLED" flag:"change-events-enabled" doc:"Tell sinks what was done, by change events."`
	ClusterName string `key:"cluster_name" env:"CHANGE_EVENTS_CLUSTER_NAME" flag:"change-events-cluster-name" doc:"What this cluster is called there."`

	Product string `key:"product" env:"CHANGE_EVENTS_PRODUCT" default:"Fleetloop" doc:"What summaries call this product, as in \"Fleetloop cordoned node gpu-node-01\". The source of an event does not change."`

	// Default is the sink that the environment can give.
	Default

	ShutdownTimeout time.Duration `key:"shutdown_timeout" env:"CHANGE_EVENTS_SHUTDOWN_TIMEOUT" flag:"change-events-shutdown-timeout" default:"10s" validate:"min=0" doc:"How long the end of the process waits for events that are on their way. 0s is 10s."`

	AllowHosts []string `key:"allow_hosts" env:"CHANGE_EVENTS_ALLOW_HOSTS" doc:"Services of the same network, each as host:port. A sink whose URL has exactly that host and port may be without TLS and on a private address."`

	Sinks []SinkConfig `key:"sinks" validate:"dive" doc:"Further sinks, each told of the same changes. The keys of a sink mean what they mean here, and name is what metrics, logs and NodeFaults call it."`
}

// Default is a Target that the environment can give.
type Default struct {
	Endpoint     string             `key:"endpoint" env:"CHANGE_EVENTS_ENDPOINT" flag:"change-events-endpoint" doc:"URL of the sink. The cluster is added to its path where the format has it so."`
	EndpointFile string             `key:"endpoint_file" env:"CHANGE_EVENTS_ENDPOINT_FILE" doc:"File with that URL, where it is a secret, as with Slack."`
	Format       changeevent.Format `key:"format" env:"CHANGE_EVENTS_FORMAT" flag:"change-events-format" default:"nvsentinel" doc:"How events are written: nvsentinel, cloudevents, cloudevents-binary, cloudevents-batch, pagerduty, datadog, grafana or slack."`
	Timeout      time.Duration      `key:"timeout" env:"CHANGE_EVENTS_TIMEOUT" flag:"change-events-timeout" default:"10s" validate:"min=0" doc:"Bound of one request. 0s is 10s."`

	AuthHeader     string          `key:"auth_header" env:"CHANGE_EVENTS_AUTH_HEADER" doc:"Header of the token (default: Authorization, or what the format has)."`
	AuthScheme     string          `key:"auth_scheme" env:"CHANGE_EVENTS_AUTH_SCHEME" doc:"What stands before the token, such as Bearer (default: nothing, or what the format has)."`
	AuthToken      settings.Secret `key:"auth_token" env:"CHANGE_EVENTS_AUTH_TOKEN" secret:"true" doc:"Token."`
	AuthTokenFile  string          `key:"auth_token_file" env:"CHANGE_EVENTS_AUTH_TOKEN_FILE" doc:"File with the token; it may be replaced while the process runs."`
	RoutingKeyFile string          `key:"routing_key_file" env:"CHANGE_EVENTS_ROUTING_KEY_FILE" doc:"File with the key that goes into the body, as with PagerDuty."`
	SigningKeyFile string          `key:"signing_key_file" env:"CHANGE_EVENTS_SIGNING_KEY_FILE" doc:"File with the key that requests are signed with (HMAC-SHA256, header X-Fleetloop-Signature)."`

	Strict bool `key:"strict" env:"CHANGE_EVENTS_STRICT" doc:"Send the fields of the decision record and no others, for a sink that refuses what it does not know; needs the format nvsentinel."`

	Actions    []string `key:"actions" env:"CHANGE_EVENTS_ACTIONS" doc:"Actions that are told, such as cordon and uncordon; none given is all."`
	Extensions bool     `key:"extensions" env:"CHANGE_EVENTS_EXTENSIONS" doc:"Tell also override-detected and budget-exhausted."`

	AllowHTTP      bool     `key:"allow_http" env:"CHANGE_EVENTS_ALLOW_HTTP" doc:"Allow a URL without TLS."`
	AllowAddresses []string `key:"allow_addresses" env:"CHANGE_EVENTS_ALLOW_ADDRESSES" doc:"Networks, such as 10.0.0.0/8, that may be reached although they are private."`
	CAFile         string   `key:"ca_file" env:"CHANGE_EVENTS_CA_FILE" doc:"File with the certificates that the server's must lead to; the system's if it is not given."`
	ProxyURL       string   `key:"proxy_url" env:"CHANGE_EVENTS_PROXY_URL" doc:"Proxy to go through; that of HTTPS_PROXY and NO_PROXY if it is not given."`

	Tuning
}

// SinkConfig is a further sink.
type SinkConfig struct {
	Name string `key:"name" validate:"required" doc:"Name of the sink: lower case letters, digits and hyphens."`
	Target
}

// Target is a sink: where, how and as whom. It has the fields of Default.
type Target struct {
	Endpoint     string             `key:"endpoint" doc:"URL of the sink."`
	EndpointFile string             `key:"endpoint_file" doc:"File with the URL."`
	Format       changeevent.Format `key:"format" default:"nvsentinel" doc:"How events are written."`
	Timeout      time.Duration      `key:"timeout" default:"10s" validate:"min=0" doc:"Bound of one request. 0s is 10s."`

	AuthHeader     string          `key:"auth_header" doc:"Header of the token."`
	AuthScheme     string          `key:"auth_scheme" doc:"What stands before the token."`
	AuthToken      settings.Secret `key:"auth_token" secret:"true" doc:"Token."`
	AuthTokenFile  string          `key:"auth_token_file" doc:"File with the token."`
	RoutingKeyFile string          `key:"routing_key_file" doc:"File with the key that goes into the body."`
	SigningKeyFile string          `key:"signing_key_file" doc:"File with the key that requests are signed with."`

	Strict bool `key:"strict" doc:"Send the fields of the decision record and no others."`

	Actions    []string `key:"actions" doc:"Actions that are told; none given is all."`
	Extensions bool     `key:"extensions" doc:"Tell also the extensions."`

	AllowHTTP      bool     `key:"allow_http" doc:"Allow a URL without TLS."`
	AllowAddresses []string `key:"allow_addresses" doc:"Networks that may be reached although they are private."`
	CAFile         string   `key:"ca_file" doc:"File with the certificates that the server's must lead to."`
	ProxyURL       string   `key:"proxy_url" doc:"Proxy to go through."`

	Tuning
}

// Tuning is what few need.
type Tuning struct {
	AppendCluster *bool         `key:"append_cluster" doc:"Whether the cluster is added to the path; the format decides if it is not given."`
	Queue         int           `key:"queue" default:"0" validate:"min=0,max=65536" doc:"Events that wait in each of the queues for the sink; with one more the oldest is dropped. 0 is 1024 in all."`
	MaxAge        time.Duration `key:"max_age" default:"12h" validate:"min=0" doc:"Age at which an event is given up. 0s is 12h."`
	Aggregate     time.Duration `key:"aggregate" default:"0s" validate:"min=0" doc:"How long events are collected into one request, where the format takes several (slack: 1s if this is 0)."`
	Retry         RetryConfig   `key:"retry"`
	Links         []Link        `key:"links" validate:"dive" doc:"Links that events get."`
}

// RetryConfig says how often an event is tried.
type RetryConfig struct {
	MaxAttempts     int           `key:"max_attempts" default:"0" validate:"min=0" doc:"Attempts; 0 is as many as there is time for, 1 is no retry."`
	InitialInterval time.Duration `key:"initial_interval" default:"1s" validate:"min=0" doc:"Longest pause after the first attempt; it doubles with each. 0s is 1s."`
	MaxInterval     time.Duration `key:"max_interval" default:"30s" validate:"min=0" doc:"Longest pause. 0s is 30s."`
	MaxElapsed      time.Duration `key:"max_elapsed" default:"5m" validate:"min=0" doc:"How long an event is tried, unless the sink asks for a longer pause (Retry-After). 0s is 5m."`
}

// Link is a link that events get, such as to the dashboard of their node.
type Link struct {
	Href    string   `key:"href" validate:"required" doc:"URL (https); {node}, {cluster}, {action}, {checkName}, {session} and others stand for what the event has."`
	Text    string   `key:"text" doc:"What people read."`
	Actions []string `key:"actions" doc:"Actions whose events get it; none given is all."`
}

// all are the sinks by name, the default one first if it has somewhere to send
// to.
func (c Config) all() []SinkConfig {
	if !c.Enabled {
		return nil
	}
	var list []SinkConfig
	if c.Endpoint != "" || c.EndpointFile != "" {
		list = append(list, SinkConfig{Name: DefaultSink, Target: Target(c.Default)})
	}
	return append(list, c.Sinks...)
}

// errNoSink is what is wrong with change events that go nowhere.
var errNoSink = errors.New("change events are enabled and there is no sink: set CHANGE_EVENTS_ENDPOINT")

// errNoSource is what is wrong with a process that does not name itself.
var errNoSource = errors.New("change events have no source: name the component that sends them")

var sinkName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// names refuses names of sinks that mean nothing or two things: metrics, and how
// far a sink has come, are kept by them.
func (c Config) names() error {
	seen := map[string]bool{}
	for _, s := range c.all() {
		switch {
		case !sinkName.MatchString(s.Name):
			return fmt.Errorf("the name %q of a sink of change events must be of 1 to 63 lower case letters, digits and hyphens", s.Name)
		case seen[s.Name]:
			return fmt.Errorf("two sinks of change events are called %q", s.Name)
		}
		seen[s.Name] = true
	}
	return nil
}
