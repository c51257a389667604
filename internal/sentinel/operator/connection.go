package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"reflect"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
	"github.com/fleetloop/fleetloop/internal/sentinel"
	"github.com/fleetloop/fleetloop/internal/sentinel/sentinelconfig"
	"github.com/fleetloop/fleetloop/internal/sentinel/source"
)

// A FleetAPI is a connection to the fleet API.
type FleetAPI interface {
	source.Lister
	Watch(ctx context.Context, collection string, q url.Values, handle func(v1.WatchEvent) error) error
	// CloseIdle closes idle connections. The API remains usable.
	CloseIdle()
}

// A Broker is a connection to a broker. Run keeps it open until ctx ends, and then waits for
// outstanding work.
type Broker interface {
	Run(ctx context.Context) error
	Ready() error
	Publish(ctx context.Context, e *cloudevent.Event) error
	InFlight() int
}

// A ReplicaGroup divides resources among replicas that discover each other.
type ReplicaGroup interface {
	sentinel.Shard
	Run(ctx context.Context) error
	Ready() error
	Members() []string
}

// errPanic is the error of a dependency that panicked.
var errPanic = errors.New("panic")

// newPanicError converts a recovered value to an error.
func newPanicError(where string, recovered any) error {
	return fmt.Errorf("%w in %s: %v\n%s", errPanic, where, recovered, debug.Stack())
}

// callRecoveringPanic calls a function, and converts a panic in it to an error.
func callRecoveringPanic(where string, call func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = newPanicError(where, value)
		}
	}()
	return call()
}

// A failureHook calls a function with the error that ends the use of a connection. The user of the
// connection sets the function.
type failureHook struct {
	held   atomic.Pointer[func(error)]
	hidden []string // secrets that no error of the connection may show
}

func (h *failureHook) setReport(report func(error)) { h.held.Store(&report) }

func (h *failureHook) reportError(err error) {
	if report := h.held.Load(); report != nil {
		(*report)(err)
	}
}

// redactErrorAndReportPanic is deferred around each call. It converts a panic to an error, and redacts
// secrets in errors.
func (h *failureHook) redactErrorAndReportPanic(where string, err *error) {
	value := recover()
	if value != nil {
		*err = newPanicError(where, value)
	}
	*err = redactSecrets(*err, h.hidden)
	if value != nil {
		h.reportError(*err)
	}
}

// An apiConnection converts panics of an API to errors. Otherwise they would end the process, with
// everything else that runs in it.
type apiConnection struct {
	FleetAPI
	failureHook
	settings sentinel.API
}

// ListPage calls ListPage of the API.
func (c *apiConnection) ListPage(
	ctx context.Context, collection string, q url.Values, dst []byte,
) (page []byte, err error) {
	defer c.redactErrorAndReportPanic("fleet API client", &err)
	return c.FleetAPI.ListPage(ctx, collection, q, dst)
}

// ListPageIf calls ListPageIf of the API.
func (c *apiConnection) ListPageIf(
	ctx context.Context, collection string, q url.Values, etag string, dst []byte,
) (body []byte, rest io.ReadCloser, tag string, err error) {
	defer c.redactErrorAndReportPanic("fleet API client", &err)
	return c.FleetAPI.ListPageIf(ctx, collection, q, etag, dst)
}

// Watch calls Watch of the API.
func (c *apiConnection) Watch(
	ctx context.Context, collection string, q url.Values, handle func(v1.WatchEvent) error,
) (err error) {
	defer c.redactErrorAndReportPanic("fleet API client", &err)
	return c.FleetAPI.Watch(ctx, collection, q, handle)
}

// errProbeAnswered ends a walk after the first response.
var errProbeAnswered = errors.New("it answers")

// probeAPI requests one page, and returns the error of the API.
func (c *apiConnection) probeAPI(ctx context.Context, cfg sentinel.Config) error {
	timeout := cmp.Or(cfg.HyperfleetAPI.Timeout, probeTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errProbeTimeout)
	defer cancel()
	walker := source.NewWalker(source.WalkerConfig{
		Collection: cfg.ResourceType,
		PageSize:   1,
		Timeout:    cfg.HyperfleetAPI.Timeout,
		Flavour:    cfg.HyperfleetAPI.Flavour,
	}, c)
	stopAtFirstPage := func(source.Page) (source.Envelope, error) { return source.Envelope{}, errProbeAnswered }
	_, err := walker.FetchResources(ctx, source.Place{}, stopAtFirstPage)
	if errors.Is(err, errProbeAnswered) {
		return nil
	}
	return err
}

var errProbeTimeout = errors.New("no response in time")

// probeTimeout limits a probe if the settings have no timeout.
const probeTimeout = 10 * time.Second

// A brokerConnection is a running broker whose panics are errors.
type brokerConnection struct {
	Broker
	failureHook
	settings sentinelconfig.Broker
	stop     context.CancelFunc
	done     chan struct{}

	mu    sync.Mutex
	ended error // why it stopped unexpectedly
}

// Publish calls Publish of the broker.
func (c *brokerConnection) Publish(ctx context.Context, e *cloudevent.Event) (err error) {
	defer c.redactErrorAndReportPanic("broker client", &err)
	return c.Broker.Publish(ctx, e)
}

// errBrokerEnded is the readiness error of a broker that stopped unexpectedly.
var errBrokerEnded = errors.New("the client of the message broker stopped unexpectedly; see the log of the sentinel")

// runAndReportUnexpectedEnd runs the broker until closeAndWait, and reports an earlier end.
func (c *brokerConnection) runAndReportUnexpectedEnd(ctx context.Context) {
	defer close(c.done)
	err := c.runRecoveringPanic(ctx)
	if ctx.Err() != nil {
		return
	}
	err = errors.Join(errBrokerEnded, err)
	c.mu.Lock()
	c.ended = err
	c.mu.Unlock()
	c.reportError(err)
}

func (c *brokerConnection) runRecoveringPanic(ctx context.Context) (err error) {
	defer c.redactErrorAndReportPanic("broker client", &err)
	return c.Run(ctx)
}

// unexpectedEndError returns why the broker stopped unexpectedly, or nil.
func (c *brokerConnection) unexpectedEndError() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended
}

// Ready calls Ready of the broker.
func (c *brokerConnection) Ready() (err error) {
	if err := c.unexpectedEndError(); err != nil {
		return err
	}
	defer c.redactErrorAndReportPanic("broker client", &err)
	return c.Broker.Ready()
}

// closeAndWait closes the connection, and waits for its end.
func (c *brokerConnection) closeAndWait() {
	c.stop()
	<-c.done
}

// openOrReuseConnections opens the connections for the wanted configuration, or reuses those of
// current with the same settings.
func openOrReuseConnections(
	ctx context.Context, deps *InstanceDeps, wanted *WantedConfig, current *runningSentinel,
) (*instanceParts, error) {
	apiSettings, brokerSettings := wanted.Settings.Sentinel.HyperfleetAPI, wanted.Settings.Broker
	p := &instanceParts{wanted: wanted, trouble: make(chan error, 1)}
	if current != nil && !current.broken {
		if reflect.DeepEqual(current.api.settings, apiSettings) {
			p.api = current.api
		}
		if current.broker.settings == brokerSettings {
			p.broker = current.broker
		}
	}
	if p.api == nil {
		api, err := deps.OpenAPI(apiSettings)
		if err != nil {
			return nil, fmt.Errorf("spec.hyperfleetAPI: %w", err)
		}
		p.api = &apiConnection{
			FleetAPI:    api,
			failureHook: failureHook{hidden: listSecretValues(&wanted.Settings)},
			settings:    apiSettings,
		}
	}
	if p.broker == nil {
		broker, err := deps.OpenBroker(brokerSettings)
		if err != nil {
			p.closeConnectionsExcept(current)
			return nil, fmt.Errorf("spec.broker: %w", err)
		}
		ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
		p.broker = &brokerConnection{
			Broker:      broker,
			failureHook: failureHook{hidden: listSecretValues(&wanted.Settings)},
			settings:    brokerSettings,
			stop:        stop,
			done:        make(chan struct{}),
		}
		go p.broker.runAndReportUnexpectedEnd(ctx)
	}
	return p, nil
}
