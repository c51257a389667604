package adapter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/broker"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// Defaults of the zero fields of Config.
const (
	DefaultSubscriptionPrefix = "adapter-"
	DefaultConcurrency        = 8
	DefaultMaxAttempts        = 5
	DefaultRetryDelay         = time.Second
	DefaultMaxRetryDelay      = time.Minute
	DefaultTimeout            = 5 * time.Minute
	DefaultStopTimeout        = 15 * time.Second
)

// Config configures an adapter. Only Name is required.
type Config struct {
	// Name is the name of the adapter in its reports: a lower-case DNS label.
	Name string

	// Collections are the kinds of resources that the adapter reports on, such as
	// v1.CollectionClusters. Events about others are acknowledged. Empty means all kinds.
	Collections []string

	// Subscription is the name of the adapter's queue. Processes with the same name share the
	// events. Empty means BROKER_SUBSCRIPTION_ID, or else DefaultSubscriptionPrefix and Name.
	Subscription string

	// Concurrency is the maximum number of concurrent calls of Reconcile. Zero means
	// DefaultConcurrency. BROKER_CONCURRENCY has no effect.
	Concurrency int

	// MaxAttempts is the number of failed calls of Reconcile for one event after which the event is
	// dead-lettered. Zero means DefaultMaxAttempts. A restart counts anew.
	MaxAttempts int

	// RetryDelay is the delay before the first retry. It doubles with each failure, up to
	// MaxRetryDelay. Zero means DefaultRetryDelay and DefaultMaxRetryDelay.
	RetryDelay, MaxRetryDelay time.Duration

	// Timeout limits one call of Reconcile. Zero means DefaultTimeout.
	Timeout time.Duration

	// StopTimeout is how long calls of Reconcile may continue after Run was stopped. Zero means
	// DefaultStopTimeout; a negative duration cancels them at once.
	StopTimeout time.Duration

	// Broker and Fleet override the environment.
	Broker BrokerConfig
	Fleet  FleetConfig
}

// Deps holds the optional dependencies of an adapter. The zero value works.
type Deps struct {
	// Log may be nil to log nothing.
	Log *slog.Logger

	// Registerer registers the metrics. Nil registers none.
	Registerer prometheus.Registerer

	// TracerProvider creates a span for each event, as a child of the sender's. Nil creates none, but
	// requests to the fleet API still carry the trace of the event.
	TracerProvider trace.TracerProvider

	// Env returns a variable of the environment. Nil means that of the process.
	Env func(name string) (string, bool)

	// OnResult is called after each delivery of an event. It must not block.
	OnResult func(Result)

	// Consumer and Fleet replace the broker and the fleet API of the configuration.
	Consumer Consumer
	Fleet    Fleet
}

// A Consumer delivers the events of a subscription, any number concurrently, until ctx ends. It
// returns after the last handle has returned. If handle returns nil, the event is done. An event with
// an error is delivered again, after the delay that the error's method RetryAfter returns; if
// IsPermanent(err), it is dead-lettered instead.
type Consumer interface {
	Consume(ctx context.Context, subscription string, handle func(context.Context, Event) error) error
}

// A Result is the result of one delivery of an event.
type Result struct {
	Event        Event
	Collection   string // empty if the type of the event is unknown
	ResourceID   string
	ResourceName string // empty if the resource was not read
	Outcome      Outcome

	// Report is what Reconcile reported, if it was called.
	Report v1.Report

	// Changed reports whether Report has another generation or another status of Available than the
	// last report of the adapter on the resource.
	Changed bool

	// Err is the error of Reconcile, the fleet API or the event.
	Err error
}

// An Adapter receives events and reconciles their resources. Its methods are safe for concurrent use.
type Adapter struct {
	cfg        Config
	deps       Deps
	reconciler Reconciler
	log        *slog.Logger
	metrics    metrics
	tracer     trace.Tracer
	fleet      Fleet
	consumer   Consumer
	broker     *openBroker // nil if the caller gave a consumer

	slots    chan struct{}
	order    resourceSerializer
	running  atomic.Bool
	fleetErr atomic.Pointer[error]
	outage   atomic.Int32 // consecutive errors of the fleet API
}

// New checks cfg and returns an adapter. It connects to nothing.
func New(cfg Config, r Reconciler, deps Deps) (*Adapter, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("configure adapter %q: %w", cfg.Name, err)
	}
	if r == nil {
		return nil, fmt.Errorf("configure adapter %q: the reconciler is nil", cfg.Name)
	}
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	if deps.TracerProvider == nil {
		deps.TracerProvider = noop.NewTracerProvider()
	}
	if deps.OnResult == nil {
		deps.OnResult = func(Result) {}
	}
	a := &Adapter{
		cfg: cfg, deps: deps, reconciler: r, fleet: deps.Fleet, consumer: deps.Consumer,
		log:    deps.Log.With("adapter", cfg.Name),
		tracer: deps.TracerProvider.Tracer("github.com/fleetloop/fleetloop/adapter"),
		slots:  make(chan struct{}, cfg.Concurrency),
	}
	if a.fleet == nil || a.consumer == nil {
		err = a.createMissingFleetAndBroker()
	}
	if err == nil {
		a.metrics, err = newMetrics(deps.Registerer, cfg.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("configure adapter %q: %w", cfg.Name, err)
	}
	if a.cfg.Subscription == "" {
		a.cfg.Subscription = DefaultSubscriptionPrefix + cfg.Name
	}
	if a.broker != nil {
		a.broker.subscription = a.cfg.Subscription
	}
	return a, nil
}

func (c Config) withDefaults() (Config, error) {
	if len(c.Collections) == 0 {
		c.Collections = []string{v1.CollectionClusters, v1.CollectionNodePools, v1.CollectionManifests, v1.CollectionWorkloads}
	}
	for p, d := range map[*int]int{&c.Concurrency: DefaultConcurrency, &c.MaxAttempts: DefaultMaxAttempts} {
		if *p < 0 {
			return c, errors.New("the concurrency and the number of attempts must not be negative")
		}
		if *p == 0 {
			*p = d
		}
	}
	for p, d := range map[*time.Duration]time.Duration{
		&c.RetryDelay: DefaultRetryDelay, &c.MaxRetryDelay: DefaultMaxRetryDelay, &c.Timeout: DefaultTimeout,
	} {
		if *p < 0 {
			return c, errors.New("the retry delays and the timeout must not be negative")
		}
		if *p == 0 {
			*p = d
		}
	}
	if c.StopTimeout == 0 {
		c.StopTimeout = DefaultStopTimeout
	}
	if !regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`).MatchString(c.Name) {
		return c, errors.New("the name must be a lower-case DNS label, such as dns-zones")
	}
	return c, nil
}

// Name returns the name of the adapter.
func (a *Adapter) Name() string { return a.cfg.Name }

// Ready returns why the adapter cannot work at present, or nil.
func (a *Adapter) Ready() error {
	if !a.running.Load() {
		return errors.New("the adapter does not run")
	}
	if r, ok := a.consumer.(interface{ Ready() error }); ok {
		if err := r.Ready(); err != nil {
			return fmt.Errorf("broker: %w", err)
		}
	}
	if err := a.fleetErr.Load(); err != nil && *err != nil {
		return fmt.Errorf("fleet API: %w", *err)
	}
	return nil
}

// Run handles events until ctx ends and those in progress have finished or were returned. It returns
// early only with an error of the consumer. It is called once, or repeatedly if Deps.Consumer is set.
func (a *Adapter) Run(ctx context.Context) error {
	if a.broker != nil && a.broker.ran.Swap(true) {
		return errors.New("run adapter: it already ran; create another one")
	}
	a.running.Store(true)
	defer a.running.Store(false)
	consuming, stop := context.WithCancel(ctx)
	defer stop()
	connected, disconnect := context.WithCancel(context.WithoutCancel(ctx))
	defer disconnect()
	lost := make(chan error, 1)
	if a.broker == nil {
		lost <- nil
	} else {
		go func() {
			lost <- a.broker.Run(connected)
			stop()
		}()
	}
	// A consumer may return before its handlers do.
	var inProgress broker.PublishWindow
	err := a.consumer.Consume(consuming, a.cfg.Subscription, func(ctx context.Context, e Event) error {
		if !inProgress.BeginPublish() {
			return context.Canceled
		}
		defer inProgress.EndPublish()
		return a.handleEvent(ctx, e)
	})
	stop() // so that a consumer that failed leaves no work behind
	_ = inProgress.CloseAndWaitEmpty(context.WithoutCancel(ctx))
	disconnect() // last, because acknowledgements need the connection
	brokerErr := <-lost
	if c, ok := a.fleet.(interface{ CloseIdle() }); ok {
		c.CloseIdle()
	}
	switch {
	case brokerErr != nil:
		return fmt.Errorf("run broker: %w", brokerErr)
	case ctx.Err() != nil:
		return nil
	case err == nil:
		err = errors.New("stopped unexpectedly")
	}
	return fmt.Errorf("consume %q: %w", a.cfg.Subscription, err)
}

func (a *Adapter) retryPolicy() backoff.Policy {
	return backoff.Policy{Initial: a.cfg.RetryDelay, Max: a.cfg.MaxRetryDelay}
}

// createMissingFleetAndBroker opens the broker and the client of the fleet API that the caller did not give.
func (a *Adapter) createMissingFleetAndBroker() (err error) {
	env := a.deps.Env
	if env == nil {
		env = settings.OSEnv
	}
	if a.fleet == nil {
		if a.fleet, err = newFleetAPIClient(a.cfg.Fleet, env, a.cfg.Name); err != nil {
			return err
		}
	}
	if a.consumer != nil {
		return nil
	}
	if a.cfg.Subscription == "" {
		a.cfg.Subscription, _ = env("BROKER_SUBSCRIPTION_ID")
	}
	if a.cfg.Broker.Type == "" {
		a.cfg.Broker.Type, _ = env("BROKER_TYPE")
	}
	if a.broker, err = newBroker(a.cfg.Broker, env, waitFactor*a.cfg.Concurrency, a.log); err != nil {
		return err
	}
	a.consumer = a.broker
	return nil
}
