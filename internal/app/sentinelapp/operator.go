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

	"github.com/fleetloop/fleetloop/internal/app/bus"
	"github.com/fleetloop/fleetloop/internal/app/process"
	"github.com/fleetloop/fleetloop/internal/kube"
	"github.com/fleetloop/fleetloop/internal/kube/leases"
	"github.com/fleetloop/fleetloop/internal/lifecycle"
	"github.com/fleetloop/fleetloop/internal/sentinel"
	"github.com/fleetloop/fleetloop/internal/sentinel/operator"
	"github.com/fleetloop/fleetloop/internal/sentinel/operator/instance"
	"github.com/fleetloop/fleetloop/internal/sentinel/record"
	"github.com/fleetloop/fleetloop/internal/sentinel/sentinelconfig"
	"github.com/fleetloop/fleetloop/internal/sentinel/shard"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// An Operator says which SentinelConfigs a process runs, and with what.
type Operator struct {
	// Host is the cluster with the objects, and Namespace where they are.
	Host      *rest.Config
	Namespace string

	// Name is that of the only SentinelConfig to run; empty means all of the
	// namespace, those that come later included.
	Name string

	// Identity names this replica among others that run the same. Empty means
	// the host's name with something random behind it.
	Identity string

	// Unsaid is the same for all, because a SentinelConfig has no words for it.
	// The zero value are the engine's defaults.
	Unsaid SpecDefaults

	// Env has what the specs leave out of their brokers. Where several
	// SentinelConfigs are run, no credentials are taken from it, nor from
	// Unsaid: whoever may create an object could have them sent anywhere. Nil
	// is empty.
	Env func(string) (string, bool)

	// Broker, if not nil, is where all of them publish, whatever their specs
	// say. It is run elsewhere.
	Broker *bus.Bus

	// OnPublished is called for each event that was confirmed, by many
	// goroutines at a time. It must not block.
	OnPublished func(sentinel.Published)
}

// SpecDefaults are the settings of a sentinel that a SentinelConfig has no words for.
type SpecDefaults struct {
	API             APIDefaults        `key:"hyperfleet_api"`
	Publish         sentinel.Publish   `key:"publish"`
	LogEvents       sentinel.LogEvents `key:"event_log_level" env:"SENTINEL_EVENT_LOG_LEVEL" default:"info" validate:"oneof=info debug" doc:"Log level of the line for each published event."`
	Jitter          float64            `key:"jitter" env:"SENTINEL_JITTER" flag:"jitter" default:"0" validate:"gte=0,lt=1" doc:"Fraction of the max age by which a resource can be due early."`
	MemoryLimit     int                `key:"published_cache_size" env:"SENTINEL_PUBLISHED_CACHE_SIZE" default:"450000" validate:"gt=0" doc:"Maximum number of resources in the cache of published events, for each sentinel."`
	DecisionsLimit  int                `key:"decision_history_size" env:"SENTINEL_DECISION_HISTORY_SIZE" default:"0" validate:"gte=0" doc:"Number of resources whose last decisions each sentinel keeps; 0 means 5000, or 200 with --all."`
	ShutdownTimeout time.Duration      `key:"shutdown_timeout" env:"SENTINEL_SHUTDOWN_TIMEOUT" flag:"shutdown-timeout" default:"10s" validate:"gt=0" doc:"How long to wait at shutdown for events in flight to be confirmed."`
}

// APIDefaults is how the fleet API is asked. Token and TokenFile are used where
// the spec names no Secret with a token.
type APIDefaults struct {
	Token             settings.Secret `key:"token" env:"HYPERFLEET_API_TOKEN" doc:"Bearer token."`
	TokenFile         string          `key:"token_file" env:"HYPERFLEET_API_TOKEN_FILE" doc:"File with the bearer token. It is read again when it changes."`
	CAFile            string          `key:"ca_file" env:"HYPERFLEET_API_CA_FILE" doc:"File with the CA certificates to verify the server."`
	PageSize          int             `key:"page_size" env:"HYPERFLEET_API_PAGE_SIZE" default:"0" validate:"gte=0,lte=500" doc:"Number of resources per request; 0 means 500, or 100 with --all."`
	RequestsPerSecond float64         `key:"requests_per_second" env:"HYPERFLEET_API_REQUESTS_PER_SECOND" default:"200" validate:"gt=0" doc:"Maximum number of requests per second, for each sentinel."`
}

// completeSettings fills in what a SentinelConfig does not say. Of the one that was
// named, alone in its process, what is wanted of it is trusted with our credentials.
func (u SpecDefaults) completeSettings(s *settingsOf, alone bool) {
	cfg := &s.Sentinel
	cfg.Publish, cfg.LogEvents, cfg.Jitter = u.Publish, u.LogEvents, u.Jitter
	cfg.MemoryLimit, cfg.DecisionsLimit, cfg.ShutdownTimeout = u.MemoryLimit, u.DecisionsLimit, u.ShutdownTimeout
	api := &cfg.HyperfleetAPI
	api.CAFile, api.PageSize, api.RequestsPerSecond = u.API.CAFile, u.API.PageSize, u.API.RequestsPerSecond
	if !alone {
		// A hundred of them fit into the memory of a small pod then.
		cfg.DecisionsLimit, api.PageSize = cmp.Or(cfg.DecisionsLimit, 200), cmp.Or(api.PageSize, 100)
	}
	if api.Token == "" && alone {
		api.Token, api.TokenFile = u.API.Token, u.API.TokenFile
	}
}

type settingsOf = sentinelconfig.Settings

// isTrusted reports whether the environment's credentials may go where a spec
// says.
func (o Operator) isTrusted() bool { return o.Name != "" }

// Parts make the parts of p that run what o says. They come after the broker
// of o, if there is one. live says whether progress is made. The last decisions are served
// at DecisionsPath.
func (o Operator) Parts(p *process.Process) (parts []lifecycle.Part, live func() error, err error) {
	if o.Identity == "" {
		if o.Identity, err = newIdentity(); err != nil {
			return nil, nil, err
		}
	}
	op, err := operator.New(operator.Config{Namespace: o.Namespace, Name: o.Name, Identity: o.Identity}, operator.Deps{
		Host:       o.Host,
		OpenAPI:    func(cfg sentinel.API) (instance.API, error) { return NewClient(cfg) },
		OpenBroker: func(b sentinelconfig.Broker) (instance.Broker, error) { return o.openBroker(b, p.Log) },
		Leases: func(group string) (shard.Leases, func(), error) {
			l, err := leases.New(o.Host, o.Namespace, group)
			if err != nil {
				return nil, nil, err
			}
			return l, l.Close, nil
		},
		Complete:    func(s *sentinelconfig.Settings) { o.Unsaid.completeSettings(s, o.isTrusted()) },
		Log:         p.Log,
		Registerer:  p.Metrics,
		Tracer:      p.Tracing.Tracer("github.com/fleetloop/fleetloop/internal/sentinel"),
		OnPublished: o.OnPublished,
	})
	if err != nil {
		return nil, nil, err
	}
	p.Gather(kube.Metrics())
	p.HandleDebug(DecisionsPath, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		record.Handler(op.Decisions()).ServeHTTP(w, r)
	}))
	return []lifecycle.Part{op.Part()}, op.Live, nil
}

// openBroker opens the broker of a SentinelConfig.
func (o Operator) openBroker(b sentinelconfig.Broker, log *slog.Logger) (instance.Broker, error) {
	if o.Broker != nil {
		return borrowedBroker{o.Broker}, nil
	}
	cfg, err := bus.LoadExplicit(explicitSettings(b), o.lookupEnv)
	if err != nil {
		return nil, err
	}
	return cfg.Open(log)
}

// lookupEnv looks up what specs leave out.
func (o Operator) lookupEnv(name string) (string, bool) {
	if o.Env == nil {
		return "", false
	}
	credentials := []string{
		"BROKER_URL", "BROKER_USERNAME", "BROKER_PASSWORD", "BROKER_PASSWORD_FILE", "BROKER_TOKEN", "BROKER_TOKEN_FILE",
		"BROKER_URL_FILE", "BROKER_CREDENTIALS_FILE", "BROKER_TLS_CERT_FILE", "BROKER_TLS_KEY_FILE",
	}
	if !o.isTrusted() && slices.Contains(credentials, name) {
		return "", false
	}
	return o.Env(name)
}

// newIdentity is what no other replica has.
func newIdentity() (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("get the host name to identify this replica: %w; set POD_NAME", err)
	}
	var random [4]byte
	_, _ = rand.Read(random[:]) // never fails
	return host + "-" + hex.EncodeToString(random[:]), nil
}
