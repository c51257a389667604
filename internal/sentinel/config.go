package sentinel

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/selector"
	"github.com/fleetloop/fleetloop/internal/sentinel/decision"
	"github.com/fleetloop/fleetloop/internal/sentinel/payload"
	"github.com/fleetloop/fleetloop/internal/sentinel/source"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// The decision profiles.
const (
	ProfileGenerationThenAge = "generation-then-age"
	ProfileTransitionAge     = "transition-age"
	ProfileExpression        = "expression"
)

// Config configures what one sentinel watches, when a resource is due, and what an event contains.
// Zero fields mean their defaults.
type Config struct {
	ResourceType string `key:"resource_type" alias:"resourceType" env:"SENTINEL_RESOURCE_TYPE" flag:"resource-type" validate:"required,oneof=clusters nodepools manifests workloads" doc:"Collection to watch."`

	PollInterval   time.Duration `key:"poll_interval" alias:"pollInterval" env:"SENTINEL_POLL_INTERVAL" flag:"poll-interval" default:"5s" validate:"gt=0" doc:"Time between the starts of two polls."`
	MaxAgeNotReady time.Duration `key:"max_age_not_ready" alias:"backoff_not_ready,backoffNotReady" env:"SENTINEL_MAX_AGE_NOT_READY" flag:"max-age-not-ready" default:"10s" validate:"gt=0" doc:"Publish an event when the last status report of a resource that is not ready is older than this."`
	MaxAgeReady    time.Duration `key:"max_age_ready" alias:"backoff_ready,backoffReady" env:"SENTINEL_MAX_AGE_READY" flag:"max-age-ready" default:"30m" validate:"gt=0" doc:"Publish an event when the last status report of a ready resource is older than this."`

	ResourceSelector []selector.Pair `key:"resource_selector" validate:"dive" doc:"Labels that a resource must have. All must match; an empty list selects every resource."`
	LabelSelector    string          `key:"label_selector" env:"SENTINEL_LABEL_SELECTOR" flag:"label-selector" doc:"Kubernetes label selector, for operators that resource_selector lacks. If both are set, both must match."`

	HyperfleetAPI API     `key:"hyperfleet_api" alias:"hyperfleetAPI"`
	Source        Sources `key:"source"`

	MessageData settings.OrderedMap `key:"message_data" doc:"Data of the CloudEvents: paths, Go templates or CEL expressions by key. By default the data is the type and id of the resource and the reason."`
	PayloadKeys string              `key:"payload_key_case" default:"snake" validate:"oneof=snake camel" doc:"Case of the keys of the default data: snake or camel. Ignored if message_data is set."`

	Decision  Decision  `key:"decision"`
	Publish   Publish   `key:"publish"`
	LogEvents LogEvents `key:"event_log_level" env:"SENTINEL_EVENT_LOG_LEVEL" default:"info" validate:"oneof=info debug" doc:"Log level of the line for each published event."`

	Jitter float64 `key:"jitter" env:"SENTINEL_JITTER" flag:"jitter" default:"0" validate:"gte=0,lt=1" doc:"Fraction of the max age by which a resource can be due early, derived from its id: 0.1 spreads 30m over 27m to 30m. Prevents resources with the same report time from being due at once."`

	MemoryLimit     int           `key:"published_cache_size" env:"SENTINEL_PUBLISHED_CACHE_SIZE" default:"450000" validate:"gt=0" doc:"Maximum number of resources in the cache of published events; each entry takes about 65 bytes. A resource that does not fit may get a duplicate event."`
	DecisionsLimit  int           `key:"decision_history_size" env:"SENTINEL_DECISION_HISTORY_SIZE" default:"5000" validate:"gt=0" doc:"Number of resources whose last decisions are kept for /debug/decisions; each takes about 1 kB."`
	ShutdownTimeout time.Duration `key:"shutdown_timeout" env:"SENTINEL_SHUTDOWN_TIMEOUT" flag:"shutdown-timeout" default:"10s" validate:"gt=0" doc:"How long to wait at shutdown for events in flight to be confirmed."`
}

// API configures where the fleet API is and how it is queried.
type API struct {
	Endpoint string          `key:"endpoint" alias:"url" env:"HYPERFLEET_API_ENDPOINT" flag:"api-endpoint" validate:"required,http_url" doc:"URL of the fleet API."`
	Timeout  time.Duration   `key:"timeout" env:"HYPERFLEET_API_TIMEOUT" default:"10s" validate:"gt=0" doc:"Timeout of one request."`
	Token    settings.Secret `key:"token" env:"HYPERFLEET_API_TOKEN" doc:"Bearer token."`
	// TokenFile is read again when it changes. A token from a file tag of package settings would be
	// read only once.
	TokenFile string `key:"token_file" env:"HYPERFLEET_API_TOKEN_FILE" doc:"File with the bearer token. It is read again when it changes."`
	CAFile    string `key:"ca_file" env:"HYPERFLEET_API_CA_FILE" doc:"File with the CA certificates to verify the server. Default: the CA certificates of the system."`
	PageSize  int    `key:"page_size" env:"HYPERFLEET_API_PAGE_SIZE" default:"500" validate:"gte=1,lte=500" doc:"Number of resources per request."`

	Flavour           source.Flavour             `key:"flavour" env:"HYPERFLEET_API_FLAVOUR" default:"auto" validate:"oneof=auto fleetloop hyperfleet" doc:"Variant of the API: fleetloop, hyperfleet (the public API), or auto, which detects it."`
	Headers           map[string]settings.Secret `key:"headers" doc:"Additional headers of every request, for example for an API gateway."`
	RequestsPerSecond float64                    `key:"requests_per_second" env:"HYPERFLEET_API_REQUESTS_PER_SECOND" default:"200" validate:"gt=0" doc:"Maximum number of requests per second."`
}

// A Mode is how a sentinel learns of changes.
type Mode string

// The modes. Each one after ModeSweep is faster, and falls back on those before it.
const (
	// ModeAuto is the best mode that the API offers.
	ModeAuto Mode = "auto"
	// ModeSweep lists everything in every round.
	ModeSweep Mode = "sweep"
	// ModeETag lists everything, and the API sends only the pages that changed.
	ModeETag Mode = "etag"
	// ModeCursor requests the changes since the last round, in every round.
	ModeCursor Mode = "cursor"
	// ModeWatch receives changes as they happen. It works like ModeCursor while the watch is down.
	ModeWatch Mode = "watch"
)

// Sources configures how the sentinel learns of changes. In every mode the sentinel also lists
// everything at an interval, so that a missed change is found.
type Sources struct {
	Mode              Mode          `key:"mode" env:"SENTINEL_SOURCE_MODE" flag:"source-mode" default:"auto" validate:"oneof=auto sweep etag cursor watch" doc:"How to read changes from the API: sweep (list everything in every poll), etag (the same, but unchanged pages are not transferred), cursor (list what changed), watch (stream changes), or auto, the best mode that the API offers. If the API does not offer the mode, the next best is used."`
	FullSweepInterval time.Duration `key:"full_sweep_interval" env:"SENTINEL_FULL_SWEEP_INTERVAL" flag:"full-sweep-interval" default:"10m" validate:"gt=0" doc:"How often to list everything in the modes etag, cursor and watch, with a jitter of 20 %."`
}

// Decision configures which resources are due.
type Decision struct {
	Profile string                     `key:"profile" env:"SENTINEL_DECISION_PROFILE" flag:"profile" default:"generation-then-age" validate:"oneof=generation-then-age transition-age expression" doc:"Rules that decide when a resource is due: generation-then-age, transition-age or expression."`
	Params  []decision.ExpressionParam `key:"params" validate:"dive" doc:"Named CEL expressions for the profile expression. Each can use those before it."`
	Result  string                     `key:"result" doc:"CEL expression for the profile expression. The resource is due if it is true."`
}

// Publish configures how events are sent to the broker.
type Publish struct {
	Window  int           `key:"max_in_flight" env:"SENTINEL_PUBLISH_MAX_IN_FLIGHT" default:"256" validate:"gte=1,lte=10000" doc:"Maximum number of events that wait for confirmation at a time."`
	Timeout time.Duration `key:"timeout" env:"SENTINEL_PUBLISH_TIMEOUT" default:"10s" validate:"gt=0" doc:"How long to wait for the confirmation of one attempt."`

	Attempts       int           `key:"max_attempts" env:"SENTINEL_PUBLISH_MAX_ATTEMPTS" default:"4" validate:"gte=1" doc:"Maximum number of publish attempts in one poll. An event that fails is retried in the next poll."`
	InitialBackoff time.Duration `key:"initial_backoff" default:"200ms" validate:"gt=0" doc:"Delay after the first failed attempt. It doubles with each attempt."`
	MaxBackoff     time.Duration `key:"max_backoff" default:"5s" validate:"gt=0" doc:"Maximum delay between attempts."`

	CatchUpFactor float64 `key:"catch_up_factor" env:"SENTINEL_PUBLISH_CATCH_UP_FACTOR" default:"1.5" validate:"gte=1" doc:"Publish budget after an outage, as a multiple of the steady rate that the max ages require. Changed generations are not limited."`
	CatchUpFloor  float64 `key:"catch_up_min_per_second" env:"SENTINEL_PUBLISH_CATCH_UP_MIN_PER_SECOND" default:"2500" validate:"gt=0" doc:"Minimum of the publish budget, in events per second, for small fleets. One poll publishes at most this rate times its interval: 12,375 events with the defaults."`
	MaxPerSecond  float64 `key:"max_per_second" env:"SENTINEL_PUBLISH_MAX_PER_SECOND" default:"0" validate:"gte=0" doc:"Maximum number of events per second, changed generations included. The events of one poll interval can be sent in a burst. 0 means no limit."`
}

// LogEvents is the log level of the line for each published event.
type LogEvents string

// The levels.
const (
	LogEventsInfo  LogEvents = "info"
	LogEventsDebug LogEvents = "debug"
)

// withDefaultsValidated sets defaults and rejects invalid values. The settings package does the same by
// tags, but a Config may also be built in code.
func (c Config) withDefaultsValidated() (Config, error) {
	errs := []error{
		setDefaultsAndRejectNegative([]settingDefault[time.Duration]{
			{"poll_interval", &c.PollInterval, 5 * time.Second},
			{"max_age_not_ready", &c.MaxAgeNotReady, decision.DefaultAges().NotReady},
			{"max_age_ready", &c.MaxAgeReady, decision.DefaultAges().Ready},
			{"hyperfleet_api.timeout", &c.HyperfleetAPI.Timeout, 10 * time.Second},
			{"publish.timeout", &c.Publish.Timeout, 10 * time.Second},
			{"publish.initial_backoff", &c.Publish.InitialBackoff, 200 * time.Millisecond},
			{"publish.max_backoff", &c.Publish.MaxBackoff, 5 * time.Second},
			{"shutdown_timeout", &c.ShutdownTimeout, 10 * time.Second},
			{"source.full_sweep_interval", &c.Source.FullSweepInterval, 10 * time.Minute},
		}),
		setDefaultsAndRejectNegative([]settingDefault[int]{
			{"hyperfleet_api.page_size", &c.HyperfleetAPI.PageSize, 500},
			{"publish.max_in_flight", &c.Publish.Window, 256},
			{"publish.max_attempts", &c.Publish.Attempts, 4},
			{"published_cache_size", &c.MemoryLimit, 450_000},
			{"decision_history_size", &c.DecisionsLimit, 5000},
		}),
		setDefaultsAndRejectNegative([]settingDefault[float64]{
			{"hyperfleet_api.requests_per_second", &c.HyperfleetAPI.RequestsPerSecond, 200},
			{"publish.catch_up_factor", &c.Publish.CatchUpFactor, 1.5},
			{"publish.catch_up_min_per_second", &c.Publish.CatchUpFloor, 2500},
			{"publish.max_per_second", &c.Publish.MaxPerSecond, 0},
			{"jitter", &c.Jitter, 0},
		}),
	}
	c.Source.Mode = cmp.Or(c.Source.Mode, ModeAuto)
	c.HyperfleetAPI.Flavour = cmp.Or(c.HyperfleetAPI.Flavour, source.FlavourAuto)
	if c.Jitter >= 1 {
		errs = append(errs, keyErrorf("jitter", "%v is invalid: must be less than 1", c.Jitter))
	}
	errs = append(errs, c.validateMode())
	if _, ok := singularOf(c.ResourceType); !ok {
		errs = append(errs, keyErrorf("resource_type",
			"%q is invalid: must be clusters, nodepools, manifests or workloads", c.ResourceType))
	}
	return c, errors.Join(errs...)
}

// A settingDefault is the default of a setting.
type settingDefault[T time.Duration | int | float64] struct {
	key      string
	value    *T
	fallback T // instead of zero
}

func setDefaultsAndRejectNegative[T time.Duration | int | float64](defaults []settingDefault[T]) error {
	var errs []error
	for _, s := range defaults {
		if *s.value < 0 {
			errs = append(errs, keyErrorf(s.key, "%v is invalid: must not be negative", *s.value))
		}
		if *s.value == 0 {
			*s.value = s.fallback
		}
	}
	return errors.Join(errs...)
}

// validateMode rejects modes that cannot work. The result of an expression may change with time alone,
// so an expression profile must look at every resource in every round.
func (c Config) validateMode() error {
	switch c.Source.Mode {
	case ModeAuto, ModeSweep:
		return nil
	case ModeETag, ModeCursor, ModeWatch:
		if c.Decision.Profile == ProfileExpression {
			return keyErrorf("source.mode",
				"%q is invalid with the profile %q, which must evaluate every resource in every poll; use %q",
				c.Source.Mode, ProfileExpression, ModeAuto)
		}
		return nil
	}
	return keyErrorf("source.mode", "%q is invalid: must be auto, sweep, etag, cursor or watch", c.Source.Mode)
}

// singularOf returns the singular of a collection, as the types of CloudEvents use it.
func singularOf(collection string) (singular string, known bool) {
	switch collection {
	case "clusters", "nodepools", "manifests", "workloads":
		return collection[:len(collection)-1], true
	}
	return "", false
}

// BuildLabelSelector returns the selector of the resources: the pairs and the text combined.
func (c Config) BuildLabelSelector() (selector.Selector, error) {
	pairs, err := selector.FromPairs(c.ResourceSelector)
	if err != nil {
		return selector.Selector{}, keyErrorf("resource_selector", "%w", err)
	}
	parsed, err := selector.Parse(c.LabelSelector)
	if err != nil {
		return selector.Selector{}, keyErrorf("label_selector", "%w", err)
	}
	both, err := selector.New(append(pairs.Requirements(), parsed.Requirements()...)...)
	if err != nil {
		return selector.Selector{}, keyErrorf("label_selector", "%w", err)
	}
	return both, nil
}

// ComputeEarlyFraction returns the fraction of its maximum age by which the resource with an id is
// due early.
func (c Config) ComputeEarlyFraction(resourceID []byte) (fractionOfMaxAge float64) {
	if c.Jitter == 0 {
		return 0
	}
	return c.Jitter * hashToFraction(resourceID)
}

// hashToFraction maps an id to a number from 0 to 1. The number is the same in every process, because
// event ids depend on it.
func hashToFraction(resourceID []byte) (zeroToOne float64) {
	hash := fnv.New64a()
	_, _ = hash.Write(resourceID) // it has no errors
	// Ids often differ only in their last characters, which FNV hardly spreads to the high bits.
	h := hash.Sum64()
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h ^= h >> 33
	const bits = 53
	return float64(h>>(64-bits)) / (1 << bits)
}

// A Decider decides whether a resource is due.
type Decider interface {
	Decide(r *decision.Resource, now time.Time) decision.Verdict
}

// MaxAges returns the maximum ages of the configuration.
func (c Config) MaxAges() decision.Ages {
	return decision.Ages{NotReady: c.MaxAgeNotReady, Ready: c.MaxAgeReady}
}

// NewDecider returns the decider of the configured profile.
func (c Config) NewDecider() (Decider, error) {
	ages := c.MaxAges()
	if c.Decision.Profile != ProfileExpression && (c.Decision.Result != "" || len(c.Decision.Params) > 0) {
		return nil, keyErrorf("decision.profile", "params and result require the profile %q", ProfileExpression)
	}
	switch c.Decision.Profile {
	case ProfileGenerationThenAge, "":
		return decision.NewGenerationThenAgeProfile(ages), nil
	case ProfileTransitionAge:
		return decision.NewTransitionAgeProfile(ages), nil
	case ProfileExpression:
		if c.Decision.Result == "" {
			return nil, keyErrorf("decision.result", "is required with the profile %q", ProfileExpression)
		}
		p, err := decision.NewExpressionProfile(c.Decision.Params, c.Decision.Result, ages)
		if err != nil {
			return nil, keyErrorf("decision", "%w", err)
		}
		return p, nil
	}
	return nil, keyErrorf("decision.profile",
		"%q is invalid: must be generation-then-age, transition-age or expression", c.Decision.Profile)
}

func (c Config) publishRetryPolicy() backoff.Policy {
	return backoff.Policy{Initial: c.Publish.InitialBackoff, Max: c.Publish.MaxBackoff, MaxAttempts: c.Publish.Attempts}
}

// keyErrorf returns an error about one setting, which Locate can place.
func keyErrorf(key, format string, args ...any) error {
	return &payload.KeyError{Key: key, Err: fmt.Errorf(format, args...)}
}

// WrapKeyErrors places the errors of New. It calls wrap for each error about one setting, with the
// setting's key, and replaces the error by the result. The report of package settings has such a
// function.
func WrapKeyErrors(err error, wrap func(key string, err error) error) error {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var errs []error
		for _, e := range joined.Unwrap() {
			errs = append(errs, WrapKeyErrors(e, wrap))
		}
		return errors.Join(errs...)
	}
	if key, ok := errors.AsType[*payload.KeyError](err); ok {
		return wrap(key.Key, key.Err)
	}
	return err
}

// delayUntilNextPoll returns how long to wait after a round. Rounds start at the poll interval; a
// round that took longer is followed at once. After an error the delay is the whole interval, or
// longer if the server asked for it.
func (c Config) delayUntilNextPoll(took time.Duration, err error) time.Duration {
	if err != nil {
		return c.delayAfterError(err)
	}
	return max(0, c.PollInterval-took)
}

// delayAfterError returns how long to wait after an API error.
func (c Config) delayAfterError(err error) time.Duration {
	after, _ := backoff.RetryAfter(err)
	return max(c.PollInterval, min(after, backoff.MaxRetryAfter))
}

// usesGenerations reports whether the rules of the profile use generations.
func (c Config) usesGenerations() bool {
	return c.Decision.Profile == ProfileGenerationThenAge || c.Decision.Profile == ""
}
