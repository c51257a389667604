package changeevent

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// What the zero fields of Config and Retry mean.
const (
	DefaultTimeout         = 10 * time.Second
	DefaultShutdownTimeout = 10 * time.Second
	DefaultName            = "default"
	DefaultShards          = 4
	DefaultResendShards    = 16   // with Resends
	DefaultQueued          = 1024 // of all shards together
	DefaultMaxAge          = 12 * time.Hour
	DefaultAggregate       = time.Second // of FormatSlack

	DefaultRetryInitialInterval = time.Second
	DefaultRetryMaxInterval     = 30 * time.Second
	DefaultRetryMaxElapsed      = 5 * time.Minute
)

// Config says where a client sends events and how. The zero value is a client
// that does nothing; Enabled, Endpoint and ClusterName make one that sends.
type Config struct {
	// Enabled says that events are sent. If it is false, nothing else is looked
	// at, and the client does nothing and starts no goroutine.
	Enabled bool

	// Endpoint is the URL of the sink, such as https://events.example.com/changes.
	// It, or EndpointFile, is required if Enabled is true.
	//
	// Plain http is refused unless AllowHTTP is set or the host is localhost or a
	// loopback address. A query is kept; a user, a password and a fragment are
	// refused.
	Endpoint string

	// ClusterName is appended to Endpoint as one escaped segment of the path.
	// Required if Enabled is true.
	ClusterName string

	// AuthHeader is the name of the header that AuthToken is sent in. Empty means
	// that of the format, which is Authorization for most. Without a token it is
	// not sent.
	AuthHeader string

	// AuthToken is the value of that header, as it is but for a line break at its
	// end.
	AuthToken string

	// Timeout bounds each request, from looking up the name of the sink to the
	// end of its answer. The deadline of the caller has no part in it. Zero means
	// DefaultTimeout.
	Timeout time.Duration

	// ShutdownTimeout is how long Close waits for what is pending. Zero means
	// DefaultShutdownTimeout.
	ShutdownTimeout time.Duration

	// Name is what metrics and logs call the sink. Empty means DefaultName.
	Name string

	// Source is the component that sends, for events that do not say. Empty means
	// SourceFaultQuarantine.
	Source string

	// Product is what summaries call the sender, such as Fleetloop in "Fleetloop
	// cordoned node gpu-node-01". Empty means what stands before the slash of the
	// source, which is NVSentinel for the sources nvsentinel/….
	Product string

	// DryRun marks every event as a dry run. They are sent all the same.
	DryRun bool

	// Format is how events are written. Empty means FormatJSON.
	Format Format

	// Strict leaves out what the decision record does not have, for sinks that
	// refuse what they do not know: id, subject, summary, outcome, reason, session,
	// links, details, changes, changesOmitted and healthEvent.errorCodes. All other
	// fields are there, also where they are empty. It needs FormatJSON. The id stays
	// in the header Idempotency-Key.
	Strict bool

	// AppendCluster says whether the name of the cluster goes to the end of the
	// path. Nil leaves it to the format: FormatJSON has it there, others use the
	// endpoint as it is. An event that names its cluster goes to that one.
	AppendCluster *bool

	// AuthScheme goes before the token, with a blank, such as Bearer. Empty means
	// that of the format, which is none for most.
	AuthScheme string

	// AuthTokenFile names a file with the token, in place of AuthToken. Like all
	// files of credentials it is looked at every few seconds, and at once when the
	// sink refuses the credential, so that a token can be changed in place. While
	// it cannot be read, the last token stays in force; where there is none yet,
	// events wait.
	AuthTokenFile string

	// EndpointFile names a file with the endpoint, in place of Endpoint, for sinks
	// whose URL is the secret.
	EndpointFile string

	// RoutingKey or RoutingKeyFile is the credential that goes into the body where
	// the format has one. If neither is set, it is the token.
	RoutingKey     Secret
	RoutingKeyFile string

	// SigningKeyFile names a file with a key. Requests then have the header
	// X-Fleetloop-Signature: t=<seconds since 1970>,v1=<hex>, the HMAC-SHA256 of
	// that number, a dot and the body.
	SigningKeyFile string

	// Queue is how many events each shard holds, beside the one it is sending.
	// When it is full, the oldest is dropped. Zero means DefaultQueued divided
	// by Shards.
	Queue int

	// Shards is how many requests are under way at most. The events of a node (or
	// subject) are all of one shard, which sends them one after the other, in the
	// order in which they came, unless Resends is set. Zero means DefaultShards,
	// DefaultResendShards with Resends, or 1 with Aggregate.
	Shards int

	// Resends says that the sender keeps each event until OnDelivery has told it
	// what became of it, sends no other of the same node or subject before that,
	// and sends it again if another try may mend it.
	//
	// The client then tries each event once, and one that fails or hangs holds up
	// no other node: events have one queue, from which all Shards workers take.
	// What is given back to the sender is no lost event: it is counted when it is
	// settled, as every event is, and each try that failed as a failure.
	Resends bool

	// Retry says how a request that failed is sent again.
	Retry Retry

	// MaxAge is how old an event may be, by its Timestamp, when its turn comes.
	// Zero means DefaultMaxAge.
	MaxAge time.Duration

	// Links are added to each event.
	Links []LinkTemplate

	// Actions are those that are sent. Empty means all, but for those that are
	// sent where they are asked for, which Extensions does. Of another, OnDelivery
	// hears that it needs nothing more: no class and no attempt.
	Actions    []string
	Extensions bool

	// Aggregate is how long events are gathered to go into one request, in the
	// formats that have several. FormatSlack, whose channels take a message per
	// second, has DefaultAggregate if it is zero.
	Aggregate time.Duration

	// AllowHTTP permits an endpoint of plain http.
	AllowHTTP bool

	// AllowAddresses are addresses and CIDRs that may be reached although they are
	// not public ones. Private, link-local and other special addresses are refused
	// otherwise, whatever name leads to them; loopback ones only if the endpoint
	// names no loopback host.
	AllowAddresses []string

	// AllowHosts are services of the same network, each as host:port. An endpoint
	// of exactly that host and port may be of plain http and may lead to a private
	// address. Loopback and link-local addresses and those at which a cloud keeps
	// its metadata stay refused, and so does every other endpoint.
	AllowHosts []string

	// CAFile names a file with the certificates (PEM) that the sink's must lead
	// to. It is waited for, and not read again. Empty means those of the system.
	CAFile string

	// ProxyURL is the proxy. Empty leaves it to HTTPS_PROXY, HTTP_PROXY and
	// NO_PROXY. With a proxy it is the proxy that looks up the sink, and
	// AllowAddresses and AllowHosts have no part in where it leads.
	ProxyURL string

	// Registerer takes the metrics. Clients of one share them. Nil means none.
	Registerer prometheus.Registerer

	// Logger is for what became of events. Nil means slog.Default().
	Logger *slog.Logger

	// HTTP sends requests in place of the client's own transport, which knows of
	// AllowAddresses, CAFile and ProxyURL. It must not follow redirects.
	HTTP http.RoundTripper
}

// Retry says how a request is sent again after an answer, or none, that another
// try may mend: no connection, 5xx, 408, 425 and 429. A certificate that is not
// trusted, and a sink that does not speak TLS, are not among them: somebody has
// to mend those.
//
// The waits are random between nothing and a bound that doubles. What the sink
// asks for, by Retry-After or X-RateLimit-Reset, is waited in addition, also if it
// is longer than MaxElapsed: until then the client sends nothing at all, and
// Close does not, either. Config.MaxAge bounds that.
type Retry struct {
	// MaxAttempts bounds the requests for an event. 1 means that none is sent
	// again. Zero means no bound but MaxElapsed.
	MaxAttempts int

	// InitialInterval bounds the first wait. Zero means DefaultRetryInitialInterval.
	InitialInterval time.Duration

	// MaxInterval bounds every wait that the sink does not ask for. Zero means
	// DefaultRetryMaxInterval.
	MaxInterval time.Duration

	// MaxElapsed bounds all waits but those that the sink asks for: the last attempt
	// begins so long after the first, at the latest. Zero means
	// DefaultRetryMaxElapsed.
	MaxElapsed time.Duration
}

// String tells the configuration without its secrets.
func (c Config) String() string { return c.LogValue().String() }

// GoString is the same as String: %#v would show the token otherwise.
func (c Config) GoString() string { return c.String() }

// LogValue tells the configuration without its secrets, and without the path of
// the endpoint, which is one to some sinks.
func (c Config) LogValue() slog.Value {
	host := ""
	if u, err := parseEndpoint(c.Endpoint, true); err == nil {
		host = u.Host
	}
	return slog.GroupValue(
		slog.Bool("enabled", c.Enabled), slog.String("sink", c.Name), slog.String("host", host),
		slog.String("cluster", c.ClusterName), slog.String("format", string(c.Format)), slog.Bool("dry_run", c.DryRun),
		slog.String("auth_header", c.AuthHeader), slog.Any("auth_token", Secret(c.AuthToken)),
	)
}

// MarshalText is the same as String, for JSON and its like.
func (c Config) MarshalText() ([]byte, error) { return []byte(c.String()), nil }
