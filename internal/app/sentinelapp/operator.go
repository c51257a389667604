package sentinelapp

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fleetloop/fleetloop/internal/app/process"
	"github.com/fleetloop/fleetloop/internal/kube"
	"github.com/fleetloop/fleetloop/internal/lifecycle"
	"github.com/fleetloop/fleetloop/internal/sentinel"
	"github.com/fleetloop/fleetloop/internal/sentinel/operator"
	"github.com/fleetloop/fleetloop/internal/sentinel/sentinelconfig"
	"github.com/fleetloop/fleetloop/internal/sentinel/shard"
	"github.com/fleetloop/fleetloop/internal/sentinel/state"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// Operator selects the SentinelConfigs of a process and supplies their dependencies.
type Operator struct {
	// Host is the cluster with the objects, and Namespace their namespace.
	Host      *rest.Config
	Namespace string

	// Name is the name of the only SentinelConfig to run. Empty means all of the namespace,
	// including later ones.
	Name string

	// Identity is unique among the replicas that run the same SentinelConfigs. Empty means the host
	// name with a random suffix.
	Identity string

	// Defaults holds settings that a SentinelConfig cannot express. They apply to all
	// SentinelConfigs. The zero value means the defaults of the engine.
	Defaults SpecDefaults

	// Env supplies broker settings that the specs leave out. With several SentinelConfigs, no
	// credentials are taken from it or from Defaults, because any user who can create an object could
	// send them anywhere. Nil means empty.
	Env func(string) (string, bool)

	// Broker, if not nil, receives all events and overrides the specs. The caller runs it.
	Broker *Broker

	// OnPublished is called for each confirmed event, from many goroutines at once. It must not
	// block.
	OnPublished func(sentinel.Published)
}

// SpecDefaults holds settings of a sentinel that a SentinelConfig cannot express.
type SpecDefaults struct {
	API             APIDefaults        `key:"hyperfleet_api"`
	Publish         sentinel.Publish   `key:"publish"`
	LogEvents       sentinel.LogEvents `key:"event_log_level" env:"SENTINEL_EVENT_LOG_LEVEL" default:"info" validate:"oneof=info debug" doc:"Log level of the line for each published event."`
	Jitter          float64            `key:"jitter" env:"SENTINEL_JITTER" flag:"jitter" default:"0" validate:"gte=0,lt=1" doc:"Fraction of the max age by which a resource can be due early."`
	MemoryLimit     int                `key:"published_cache_size" env:"SENTINEL_PUBLISHED_CACHE_SIZE" default:"450000" validate:"gt=0" doc:"Maximum number of resources in the cache of published events, for each sentinel."`
	DecisionsLimit  int                `key:"decision_history_size" env:"SENTINEL_DECISION_HISTORY_SIZE" default:"0" validate:"gte=0" doc:"Number of resources whose last decisions each sentinel keeps; 0 means 5000, or 200 with --all."`
	ShutdownTimeout time.Duration      `key:"shutdown_timeout" env:"SENTINEL_SHUTDOWN_TIMEOUT" flag:"shutdown-timeout" default:"10s" validate:"gt=0" doc:"How long to wait at shutdown for events in flight to be confirmed."`
}

// APIDefaults configures access to the fleet API. Token and TokenFile are used if the spec names no
// Secret with a token.
type APIDefaults struct {
	Token             settings.Secret `key:"token" env:"HYPERFLEET_API_TOKEN" doc:"Bearer token."`
	TokenFile         string          `key:"token_file" env:"HYPERFLEET_API_TOKEN_FILE" doc:"File with the bearer token. It is read again when it changes."`
	CAFile            string          `key:"ca_file" env:"HYPERFLEET_API_CA_FILE" doc:"File with the CA certificates to verify the server."`
	PageSize          int             `key:"page_size" env:"HYPERFLEET_API_PAGE_SIZE" default:"0" validate:"gte=0,lte=500" doc:"Number of resources per request; 0 means 500, or 100 with --all."`
	RequestsPerSecond float64         `key:"requests_per_second" env:"HYPERFLEET_API_REQUESTS_PER_SECOND" default:"200" validate:"gt=0" doc:"Maximum number of requests per second, for each sentinel."`
}

// overwriteWithDefaultsAndLimits fills in settings that a SentinelConfig leaves out. trusted is true for the only
// SentinelConfig of the process; that one is trusted with the credentials of the process.
func (d SpecDefaults) overwriteWithDefaultsAndLimits(s *sentinelconfig.Settings, trusted bool) {
	cfg := &s.Sentinel
	cfg.Publish = d.Publish
	cfg.LogEvents = d.LogEvents
	cfg.Jitter = d.Jitter
	cfg.MemoryLimit = d.MemoryLimit
	cfg.DecisionsLimit = d.DecisionsLimit
	cfg.ShutdownTimeout = d.ShutdownTimeout

	api := &cfg.HyperfleetAPI
	api.CAFile = d.API.CAFile
	api.PageSize = d.API.PageSize
	api.RequestsPerSecond = d.API.RequestsPerSecond
	if trusted && api.Token == "" {
		api.Token = d.API.Token
		api.TokenFile = d.API.TokenFile
	}

	if !trusted {
		// With these limits a hundred sentinels fit into a small pod.
		cfg.DecisionsLimit = cmp.Or(cfg.DecisionsLimit, 200)
		api.PageSize = cmp.Or(api.PageSize, 100)
	}
}

// isTrusted reports whether the credentials of the environment may be sent to the addresses of a
// spec.
func (o Operator) isTrusted() bool { return o.Name != "" }

// BuildParts returns the parts of p that run the operator. They belong after the broker of o, if there
// is one. live reports why they make no progress. The last decisions are served at DecisionsPath.
func (o Operator) BuildParts(p *process.Process) (parts []lifecycle.Part, live func() error, err error) {
	if o.Identity == "" {
		if o.Identity, err = newReplicaIdentity(); err != nil {
			return nil, nil, err
		}
	}
	cfg := operator.Config{Namespace: o.Namespace, Name: o.Name, Identity: o.Identity}
	op, err := operator.New(cfg, operator.Deps{
		Host:       o.Host,
		OpenAPI:    func(api sentinel.API) (operator.FleetAPI, error) { return NewClient(api) },
		OpenBroker: func(b sentinelconfig.Broker) (operator.Broker, error) { return o.openBrokerOrBorrowGiven(b, p.Log) },
		Leases:     o.openLeases,
		Complete: func(s *sentinelconfig.Settings) {
			o.Defaults.overwriteWithDefaultsAndLimits(s, o.isTrusted())
		},
		Log:         p.Log,
		Registerer:  p.Metrics,
		Tracer:      p.Tracing.Tracer("github.com/fleetloop/fleetloop/internal/sentinel"),
		OnPublished: o.OnPublished,
	})
	if err != nil {
		return nil, nil, err
	}
	p.AddMetricsGatherer(kube.LibraryMetricsGatherer())
	p.HandleOnMetricsServer(DecisionsPath, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		state.NewRecordHandler(op.Decisions()).ServeHTTP(w, r)
	}))
	return []lifecycle.Part{op.Part()}, op.Live, nil
}

// openLeases opens the leases of a shard group. The caller calls closeLeases.
func (o Operator) openLeases(group string) (leases shard.LeaseStore, closeLeases func(), err error) {
	kubeLeases, err := shard.NewKubeLeases(o.Host, o.Namespace, group)
	if err != nil {
		return nil, nil, err
	}
	return kubeLeases, kubeLeases.Close, nil
}

// openBrokerOrBorrowGiven opens the broker of a SentinelConfig, unless all events go to that of o.
func (o Operator) openBrokerOrBorrowGiven(b sentinelconfig.Broker, log *slog.Logger) (operator.Broker, error) {
	if o.Broker != nil {
		return borrowedBroker{o.Broker}, nil
	}
	cfg, err := LoadExplicitBrokerConfig(convertBrokerSettings(b), o.lookupPermittedEnv)
	if err != nil {
		return nil, err
	}
	return cfg.BuildBroker(log)
}

// lookupPermittedEnv returns a broker setting that the specs leave out. Credentials are only for a trusted
// SentinelConfig.
func (o Operator) lookupPermittedEnv(name string) (value string, found bool) {
	if o.Env == nil {
		return "", false
	}
	credentials := []string{
		"BROKER_URL", "BROKER_URL_FILE",
		"BROKER_USERNAME", "BROKER_PASSWORD", "BROKER_PASSWORD_FILE",
		"BROKER_TOKEN", "BROKER_TOKEN_FILE", "BROKER_CREDENTIALS_FILE",
		"BROKER_TLS_CERT_FILE", "BROKER_TLS_KEY_FILE",
	}
	if !o.isTrusted() && slices.Contains(credentials, name) {
		return "", false
	}
	return o.Env(name)
}

// newReplicaIdentity returns a name that is unique among replicas.
func newReplicaIdentity() (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("get the host name to identify this replica: %w; set POD_NAME", err)
	}
	var random [4]byte
	_, _ = rand.Read(random[:]) // never fails
	return host + "-" + hex.EncodeToString(random[:]), nil
}
