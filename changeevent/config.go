package changeevent

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Default values for zero fields of Config and Retry.
const (
	DefaultTimeout                          = 10 * time.Second
	DefaultShutdownTimeout                  = 10 * time.Second
	DefaultName                             = "default"
	DefaultMaxConcurrentRequests            = 4
	DefaultSenderRetryMaxConcurrentRequests = 16   // with SenderRetries
	DefaultQueueSize                        = 1024 // events in all queues together
	DefaultMaxAge                           = 12 * time.Hour
	DefaultBatchWait                        = time.Second // of FormatSlack

	DefaultRetryInitialInterval = time.Second
	DefaultRetryMaxInterval     = 30 * time.Second
	DefaultRetryMaxElapsedTime  = 5 * time.Minute
)

// Config configures a client. The zero value is a client that does nothing. A
// client that sends needs Enabled, Endpoint and ClusterName.
type Config struct {
	// Enabled turns sending on. If it is false, all other fields are ignored, and
	// the client does nothing and starts no goroutine.
	Enabled bool

	// Endpoint is the URL of the sink, such as https://events.example.com/changes.
	// Endpoint or EndpointFile is required if Enabled is true.
	//
	// Plain http is rejected unless AllowHTTP is set or the host is localhost or a
	// loopback address. A query is preserved. A user, a password and a fragment are
	// rejected.
	Endpoint string

	// ClusterName is appended to Endpoint as one escaped path segment.
	// Required if Enabled is true.
	ClusterName string

	// AuthHeader is the name of the header for AuthToken. Empty means the header of
	// the format, usually Authorization. It is not sent without a token.
	AuthHeader string

	// AuthToken is the value of that header. A trailing line break is removed.
	AuthToken string

	// Timeout limits each request, from the DNS lookup to the end of the response.
	// The caller's deadline does not apply. Zero means DefaultTimeout.
	Timeout time.Duration

	// ShutdownTimeout limits how long Close waits for pending events. Zero means
	// DefaultShutdownTimeout.
	ShutdownTimeout time.Duration

	// Name is the name of the sink in metrics and logs. Empty means DefaultName.
	Name string

	// Source is the sending component for events without a source. Empty means
	// SourceFaultQuarantine.
	Source string

	// Product is the name of the sender in summaries, such as Fleetloop in "Fleetloop
	// cordoned node gpu-node-01". Empty means the part of the source before the
	// slash, which is NVSentinel for the sources nvsentinel/….
	Product string

	// DryRun marks every event as a dry run. The events are still sent.
	DryRun bool

	// Format is the format of requests. Empty means FormatJSON.
	Format Format

	// BaseFieldsOnly omits all fields that ADR-026 does not define, for sinks that
	// reject unknown fields: id, subject, summary, outcome, reason, session, links,
	// details, changes, changesOmitted and healthEvent.errorCodes. All other fields
	// are present even if they are empty. The id is still sent in the header
	// Idempotency-Key. It requires FormatJSON.
	BaseFieldsOnly bool

	// AppendCluster controls whether the cluster name is appended to the path. Nil
	// means the default of the format: FormatJSON appends it, others do not. An
	// event that names a cluster is sent to the path of that cluster.
	AppendCluster *bool

	// AuthScheme is put before the token, separated by a space, such as Bearer.
	// Empty means the scheme of the format, which most formats do not have.
	AuthScheme string

	// AuthTokenFile is a file with the token, instead of AuthToken. All credential
	// files are read again every few seconds, and at once when the sink rejects the
	// credential, so a token can be rotated without a restart. If the file becomes
	// unreadable, the last token stays in use. Before it is first read, events wait.
	AuthTokenFile string

	// EndpointFile is a file with the endpoint, instead of Endpoint, for sinks
	// whose URL is secret.
	EndpointFile string

	// RoutingKey or RoutingKeyFile is the credential in the request body, for formats
	// that need one. If both are empty, the token is used.
	RoutingKey     Secret
	RoutingKeyFile string

	// SigningKeyFile is a file with a key. Requests then have the header
	// X-Fleetloop-Signature: t=<Unix time in seconds>,v1=<hex>. The value is the
	// HMAC-SHA256 of that number, a dot and the body.
	SigningKeyFile string

	// QueueSize is the number of events that each queue holds, in addition to the
	// event that the client is sending. The client has one queue for each concurrent
	// request. When a queue is full, the client drops the oldest event of the queue.
	// Zero means DefaultQueueSize divided by MaxConcurrentRequests.
	QueueSize int

	// MaxConcurrentRequests is the maximum number of concurrent requests, 1 to 64.
	// All events of a node (or subject) are in one queue. The client sends them in
	// order, unless SenderRetries is set. Zero means 1 with BatchWait,
	// DefaultSenderRetryMaxConcurrentRequests with SenderRetries, and
	// DefaultMaxConcurrentRequests otherwise.
	MaxConcurrentRequests int

	// SenderRetries leaves retries to the sender. The sender stores each event until
	// OnDelivery reports the result, sends no other event of the same node or subject
	// before, and sends the event again if the error is not permanent.
	//
	// The client then sends each event once, and a failed or slow request delays no
	// other node: all concurrent requests share one queue, whose size is the sum of
	// their queues. Each failed attempt is counted as a failure; the event is counted
	// when it is delivered or dropped.
	SenderRetries bool

	// Retry configures retries of failed requests.
	Retry Retry

	// MaxAge is the maximum age of an event when it is sent, by its Timestamp or a later
	// QueuedAt. Older events are dropped. Zero means DefaultMaxAge.
	MaxAge time.Duration

	// Links are added to each event.
	Links []LinkTemplate

	// Actions lists the actions that are sent. Empty means all but the optional
	// actions, which IncludeOptionalActions adds. For any other action, OnDelivery
	// reports success without an attempt.
	Actions                []string
	IncludeOptionalActions bool

	// BatchWait is how long the client collects events into one request, for formats
	// with several events per request. Zero means DefaultBatchWait for FormatSlack,
	// whose channels accept one message per second.
	BatchWait time.Duration

	// AllowHTTP allows an endpoint with plain http.
	AllowHTTP bool

	// AllowAddresses lists non-public addresses and CIDRs that may be reached.
	// Private, link-local and other special addresses are denied otherwise,
	// whatever host name resolves to them. Loopback addresses are denied unless the
	// endpoint names a loopback host.
	AllowAddresses []string

	// AllowHosts lists services in the same network as host:port. An endpoint with
	// exactly that host and port may use plain http and may resolve to a private
	// address. Loopback, link-local and cloud metadata addresses stay denied.
	AllowHosts []string

	// CAFile is a PEM file with the CA certificates for the sink. The client waits for
	// it and does not read it again. Empty means the CAs of the system.
	CAFile string

	// ProxyURL is the URL of the proxy. Empty means HTTPS_PROXY, HTTP_PROXY and
	// NO_PROXY. With a proxy, the proxy resolves the sink's name, so AllowAddresses
	// and AllowHosts do not limit the addresses.
	ProxyURL string

	// Registerer registers the metrics. Clients with the same one share them. Nil
	// means no metrics.
	Registerer prometheus.Registerer

	// Logger logs the results of events. Nil means slog.Default().
	Logger *slog.Logger

	// HTTP replaces the transport of the client, and with it AllowAddresses, CAFile
	// and ProxyURL. It must not follow redirects.
	HTTP http.RoundTripper
}

// Retry configures retries of a request that failed with a temporary error: no
// connection, 5xx, 408, 425 or 429. An untrusted certificate and a sink without
// TLS are not retried, because they need a change of configuration.
//
// The delay is random, with an upper bound that doubles. A delay that the sink asks
// for with Retry-After or X-RateLimit-Reset is added, even if it exceeds
// MaxElapsedTime. Until then the client sends no request at all, and neither does
// Close. Config.MaxAge limits that delay.
type Retry struct {
	// MaxAttempts is the maximum number of requests for an event. 1 means no retry.
	// Zero means no limit but MaxElapsedTime.
	MaxAttempts int

	// InitialInterval is the upper bound of the first delay. Zero means
	// DefaultRetryInitialInterval.
	InitialInterval time.Duration

	// MaxInterval is the upper bound of all delays that the sink did not ask for.
	// Zero means DefaultRetryMaxInterval.
	MaxInterval time.Duration

	// MaxElapsedTime is the maximum time from the first to the start of the last
	// attempt, without the delays that the sink asks for. Zero means
	// DefaultRetryMaxElapsedTime.
	MaxElapsedTime time.Duration
}

// String returns the configuration without its secrets.
func (c Config) String() string { return c.LogValue().String() }

// GoString returns the same as String, so that %#v does not show the token.
func (c Config) GoString() string { return c.String() }

// LogValue returns the configuration without its secrets, and without the path of
// the endpoint, which is secret for some sinks.
func (c Config) LogValue() slog.Value {
	host := ""
	if u, err := parseAndCheckEndpoint(c.Endpoint, true); err == nil {
		host = u.Host
	}
	return slog.GroupValue(
		slog.Bool("enabled", c.Enabled), slog.String("sink", c.Name), slog.String("host", host),
		slog.String("cluster", c.ClusterName), slog.String("format", string(c.Format)), slog.Bool("dry_run", c.DryRun),
		slog.String("auth_header", c.AuthHeader), slog.Any("auth_token", Secret(c.AuthToken)),
	)
}

// MarshalText returns the same as String, for JSON and similar formats.
func (c Config) MarshalText() ([]byte, error) { return []byte(c.String()), nil }
