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
	"github.com/fleetloop/fleetloop/internal/sentinel/expression"
	"github.com/fleetloop/fleetloop/internal/sentinel/listing"
	"github.com/fleetloop/fleetloop/internal/sentinel/payload"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// The decision profiles.
const (
	ProfileGenerationThenAge = "generation-then-age"
	ProfileTransitionAge     = "transition-age"
	ProfileExpression        = "expression"
)

// Config is what one sentinel watches, when a resource is due, and what it
// says of it. Fields that are zero mean their default.
type Config struct {
	ResourceType string `key:"resource_type" alias:"resourceType" env:"SENTINEL_RESOURCE_TYPE" flag:"resource-type" validate:"required,oneof=clusters nodepools manifests workloads" doc:"Collection to watch."`

	PollInterval   time.Duration `key:"poll_interval" alias:"pollInterval" env:"SENTINEL_POLL_INTERVAL" flag:"poll-interval" default:"5s" validate:"gt=0" doc:"From the start of one round to the start of the next."`
	MaxAgeNotReady time.Duration `key:"max_age_not_ready" alias:"backoff_not_ready,backoffNotReady" env:"SENTINEL_MAX_AGE_NOT_READY" flag:"max-age-not-ready" default:"10s" validate:"gt=0" doc:"How old the last report on a resource that is not ready may grow."`
	MaxAgeReady    time.Duration `key:"max_age_ready" alias:"backoff_ready,backoffReady" env:"SENTINEL_MAX_AGE_READY" flag:"max-age-ready" default:"30m" validate:"gt=0" doc:"How old the last report on a ready resource may grow."`

	ResourceSelector []selector.Pair `key:"resource_selector" validate:"dive" doc:"Labels that a resource must have, all of them. None means every resource."`
	LabelSelector    string          `key:"label_selector" env:"SENTINEL_LABEL_SELECTOR" flag:"label-selector" doc:"The same as a Kubernetes label selector, which can say more; both must match."`

	HyperfleetAPI API     `key:"hyperfleet_api" alias:"hyperfleetAPI"`
	Source        Sources `key:"source"`

	MessageData settings.OrderedMap `key:"message_data" doc:"Data of the cloud events: paths, Go templates or CEL expressions by key. Without it the data are the resource's type and id, and the reason."`
	PayloadKeys string              `key:"payload_keys" default:"snake" validate:"oneof=snake camel" doc:"Spelling of the keys where message_data is not given: snake or camel."`

	Decision  Decision  `key:"decision"`
	Publish   Publish   `key:"publish"`
	LogEvents LogEvents `key:"log_events" env:"SENTINEL_LOG_EVENTS" default:"info" validate:"oneof=info debug" doc:"Level of the log line for each published event."`

	Jitter float64 `key:"jitter" env:"SENTINEL_JITTER" flag:"jitter" default:"0" validate:"gte=0,lt=1" doc:"Part of its age by which a resource may fall due early, decided by a hash of its id: 0.1 spreads 30m over 27m to 30m. It keeps a fleet that was reported on all at once from falling due all at once."`

	MemoryLimit     int           `key:"memory_limit" env:"SENTINEL_MEMORY_LIMIT" default:"450000" validate:"gt=0" doc:"How many resources that were announced and not answered yet are remembered; each takes about 65 bytes. One that is forgotten may be announced once too often."`
	DecisionsLimit  int           `key:"decisions_limit" env:"SENTINEL_DECISIONS_LIMIT" default:"5000" validate:"gt=0" doc:"Of how many resources the last decisions are kept for /debug/decisions; each takes about a kilobyte."`
	ShutdownTimeout time.Duration `key:"shutdown_timeout" env:"SENTINEL_SHUTDOWN_TIMEOUT" flag:"shutdown-timeout" default:"10s" validate:"gt=0" doc:"How long confirms are awaited after the order to stop."`
}

// API is where the resources are and how they are asked for.
type API struct {
	Endpoint string          `key:"endpoint" alias:"url" env:"HYPERFLEET_API_ENDPOINT" flag:"api-endpoint" validate:"required,http_url" doc:"URL of the fleet API."`
	Timeout  time.Duration   `key:"timeout" env:"HYPERFLEET_API_TIMEOUT" default:"10s" validate:"gt=0" doc:"Bound of one request."`
	Token    settings.Secret `key:"token" env:"HYPERFLEET_API_TOKEN" doc:"Bearer token."`
	// TokenFile is read again when it changes, which a token given by
	// settings' own file tag would not be.
	TokenFile string `key:"token_file" env:"HYPERFLEET_API_TOKEN_FILE" doc:"File with the bearer token; it may be replaced while the sentinel runs."`
	CAFile    string `key:"ca_file" env:"HYPERFLEET_API_CA_FILE" doc:"File with the certificates that the server's must lead to; the system's if it is not given."`
	PageSize  int    `key:"page_size" env:"HYPERFLEET_API_PAGE_SIZE" default:"500" validate:"gte=1,lte=500" doc:"Resources per request."`

	Flavour           listing.Flavour            `key:"flavour" env:"HYPERFLEET_API_FLAVOUR" default:"auto" validate:"oneof=auto fleetloop hyperfleet" doc:"Which API it is: fleetloop, hyperfleet (the public one), or auto, which finds out."`
	Headers           map[string]settings.Secret `key:"headers" doc:"Headers of every request, for gateways that ask for more than a token."`
	RequestsPerSecond float64                    `key:"requests_per_second" env:"HYPERFLEET_API_REQUESTS_PER_SECOND" default:"200" validate:"gt=0" doc:"How many requests to begin each second at most."`
}

// A Mode is how a sentinel learns what changed.
type Mode string

// The modes. Each one after ModeSweep is faster, and rests on those before it.
const (
	// ModeAuto is the best that the API offers.
	ModeAuto Mode = "auto"
	// ModeSweep lists everything, every round.
	ModeSweep Mode = "sweep"
	// ModeETag lists everything, and has only pages sent that changed.
	ModeETag Mode = "etag"
	// ModeCursor asks what changed since the last time, every round.
	ModeCursor Mode = "cursor"
	// ModeWatch is told what changes when it does, and asks as ModeCursor
	// does while it is not.
	ModeWatch Mode = "watch"
)

// Sources are how changes are learned of. Whatever the mode, everything is
// listed now and then, so that nothing rests on the faster ways.
type Sources struct {
	Mode              Mode          `key:"mode" env:"SENTINEL_SOURCE_MODE" flag:"source-mode" default:"auto" validate:"oneof=auto sweep etag cursor watch" doc:"How changes are learned of: sweep (list all, every round), etag (the same, unchanged pages are not sent), cursor (ask what changed), watch (be told), or auto, the best that the API offers. A mode that the API does not offer becomes the best that it does."`
	FullSweepInterval time.Duration `key:"full_sweep_interval" env:"SENTINEL_FULL_SWEEP_INTERVAL" flag:"full-sweep-interval" default:"10m" validate:"gt=0" doc:"How often everything is listed nevertheless in the modes etag, cursor and watch; up to a fifth sooner or later."`
}

// Decision is who is due.
type Decision struct {
	Profile string             `key:"profile" env:"SENTINEL_DECISION_PROFILE" flag:"profile" default:"generation-then-age" validate:"oneof=generation-then-age transition-age expression" doc:"Rules that say who is due: generation-then-age, transition-age, or expression."`
	Params  []expression.Param `key:"params" validate:"dive" doc:"Named CEL expressions of the profile expression; each sees those before it."`
	Result  string             `key:"result" doc:"CEL expression of the profile expression; a resource is due where it is true."`
}

// Publish is how events reach the broker.
type Publish struct {
	Window  int           `key:"window" env:"SENTINEL_PUBLISH_WINDOW" default:"256" validate:"gte=1,lte=10000" doc:"Events that may wait for their confirms at a time."`
	Timeout time.Duration `key:"timeout" env:"SENTINEL_PUBLISH_TIMEOUT" default:"10s" validate:"gt=0" doc:"How long the confirm of one attempt is awaited."`

	Attempts       int           `key:"attempts" env:"SENTINEL_PUBLISH_ATTEMPTS" default:"4" validate:"gte=1" doc:"How often an event is tried within a round. One that failed is left to the next."`
	InitialBackoff time.Duration `key:"initial_backoff" default:"200ms" validate:"gt=0" doc:"Wait after the first attempt; it doubles with each."`
	MaxBackoff     time.Duration `key:"max_backoff" default:"5s" validate:"gt=0" doc:"The longest wait between attempts."`

	CatchUpFactor float64 `key:"catch_up_factor" env:"SENTINEL_PUBLISH_CATCH_UP_FACTOR" default:"1.5" validate:"gte=1" doc:"How many events may go out after an outage, as a multiple of the steady rate, which is what the ages call for. Changed generations do not wait for it."`
	CatchUpFloor  float64 `key:"catch_up_floor" env:"SENTINEL_PUBLISH_CATCH_UP_FLOOR" default:"2500" validate:"gt=0" doc:"Events per second that may always go out, however small the fleet. A round publishes at most what its poll interval makes of it: 12,375 events with the defaults."`
	MaxPerSecond  float64 `key:"max_per_second" env:"SENTINEL_PUBLISH_MAX_PER_SECOND" default:"0" validate:"gte=0" doc:"Events per second at most, changed generations included; those of a poll interval may go out at once. 0 is no bound."`
}

// LogEvents is the level of the log line for each published event.
type LogEvents string

// The levels.
const (
	LogEventsInfo  LogEvents = "info"
	LogEventsDebug LogEvents = "debug"
)

// withDefaults fills in what is zero and refuses what makes no sense, as
// settings does by the tags; a Config may also come from elsewhere.
func (c Config) withDefaults() (Config, error) {
	errs := []error{
		fill([]fallback[time.Duration]{
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
		fill([]fallback[int]{
			{"hyperfleet_api.page_size", &c.HyperfleetAPI.PageSize, 500},
			{"publish.window", &c.Publish.Window, 256},
			{"publish.attempts", &c.Publish.Attempts, 4},
			{"memory_limit", &c.MemoryLimit, 450_000},
			{"decisions_limit", &c.DecisionsLimit, 5000},
		}),
		fill([]fallback[float64]{
			{"hyperfleet_api.requests_per_second", &c.HyperfleetAPI.RequestsPerSecond, 200},
			{"publish.catch_up_factor", &c.Publish.CatchUpFactor, 1.5},
			{"publish.catch_up_floor", &c.Publish.CatchUpFloor, 2500},
			{"publish.max_per_second", &c.Publish.MaxPerSecond, 0},
			{"jitter", &c.Jitter, 0},
		}),
	}
	c.Source.Mode = cmp.Or(c.Source.Mode, ModeAuto)
	c.HyperfleetAPI.Flavour = cmp.Or(c.HyperfleetAPI.Flavour, listing.FlavourAuto)
	if c.Jitter >= 1 {
		errs = append(errs, keyErrorf("jitter", "%v is not less than 1", c.Jitter))
	}
	errs = append(errs, c.checkMode())
	if _, ok := singular(c.ResourceType); !ok {
		errs = append(errs, keyErrorf("resource_type", "%q is none of clusters, nodepools, manifests, workloads", c.ResourceType))
	}
	return c, errors.Join(errs...)
}

// A fallback is what a setting is if it is zero.
type fallback[T time.Duration | int | float64] struct {
	key   string
	value *T
	zero  T
}

func fill[T time.Duration | int | float64](list []fallback[T]) error {
	var errs []error
	for _, s := range list {
		if *s.value < 0 {
			errs = append(errs, keyErrorf(s.key, "%v is negative", *s.value))
		}
		if *s.value == 0 {
			*s.value = s.zero
		}
	}
	return errors.Join(errs...)
}

// checkMode refuses modes that can not work. What an expression makes of a
// resource may change with nothing but the time, so that all of them have to be looked at
// in every round.
func (c Config) checkMode() error {
	switch c.Source.Mode {
	case ModeAuto, ModeSweep:
		return nil
	case ModeETag, ModeCursor, ModeWatch:
		if c.Decision.Profile == ProfileExpression {
			return keyErrorf("source.mode", "%q does not go with the profile %q, which has to look at every resource in every round; leave it at %q", c.Source.Mode, ProfileExpression, ModeAuto)
		}
		return nil
	}
	return keyErrorf("source.mode", "%q is not a mode", c.Source.Mode)
}

// singular is the name of one resource of a collection, as the types of cloud
// events have it.
func singular(collection string) (string, bool) {
	switch collection {
	case "clusters", "nodepools", "manifests", "workloads":
		return collection[:len(collection)-1], true
	}
	return "", false
}

// Selector is what the resources must match: the pairs and the text together.
func (c Config) Selector() (selector.Selector, error) {
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

// Early is by which part of its age the resource with an id falls due early.
func (c Config) Early(id []byte) float64 {
	if c.Jitter == 0 {
		return 0
	}
	return c.Jitter * spread(id)
}

// spread is where an id falls between 0 and 1. It is the same in every
// process, as the ids of events have to be.
func spread(id []byte) float64 {
	hash := fnv.New64a()
	_, _ = hash.Write(id) // it has no errors
	// Ids often differ in the end alone, which FNV hardly carries upwards.
	h := hash.Sum64()
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h ^= h >> 33
	const bits = 53
	return float64(h>>(64-bits)) / (1 << bits)
}

// A Decider says whether a resource is due.
type Decider interface {
	Decide(r *decision.Resource, now time.Time) decision.Verdict
}

// Ages are the ages of the configuration.
func (c Config) Ages() decision.Ages {
	return decision.Ages{NotReady: c.MaxAgeNotReady, Ready: c.MaxAgeReady}
}

// Decider makes the profile.
func (c Config) Decider() (Decider, error) {
	ages := c.Ages()
	if c.Decision.Profile != ProfileExpression && (c.Decision.Result != "" || len(c.Decision.Params) > 0) {
		return nil, keyErrorf("decision.profile", "params and result are for the profile %q only", ProfileExpression)
	}
	switch c.Decision.Profile {
	case ProfileGenerationThenAge, "":
		return decision.GenerationThenAge(ages), nil
	case ProfileTransitionAge:
		return decision.TransitionAge(ages), nil
	case ProfileExpression:
		if c.Decision.Result == "" {
			return nil, keyErrorf("decision.result", "the profile %q needs one", ProfileExpression)
		}
		p, err := expression.New(c.Decision.Params, c.Decision.Result, ages)
		if err != nil {
			return nil, keyErrorf("decision", "%w", err)
		}
		return p, nil
	}
	return nil, keyErrorf("decision.profile", "%q is not a profile", c.Decision.Profile)
}

func (c Config) retries() backoff.Policy {
	return backoff.Policy{Initial: c.Publish.InitialBackoff, Max: c.Publish.MaxBackoff, MaxAttempts: c.Publish.Attempts}
}

// keyErrorf is an error of one setting, which Locate can place.
func keyErrorf(key, format string, args ...any) error {
	return &payload.KeyError{Key: key, Err: fmt.Errorf(format, args...)}
}

// Locate places the errors of New: wrap is called for each that is of one
// setting, with the setting's key, and its result takes the error's place.
// The report of settings has such a function.
func Locate(err error, wrap func(key string, err error) error) error {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var errs []error
		for _, e := range joined.Unwrap() {
			errs = append(errs, Locate(e, wrap))
		}
		return errors.Join(errs...)
	}
	if key, ok := errors.AsType[*payload.KeyError](err); ok {
		return wrap(key.Key, key.Err)
	}
	return err
}
