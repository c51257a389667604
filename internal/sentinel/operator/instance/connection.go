package instance

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
	"github.com/fleetloop/fleetloop/internal/sentinel/listing"
	"github.com/fleetloop/fleetloop/internal/sentinel/scan"
	"github.com/fleetloop/fleetloop/internal/sentinel/sentinelconfig"
)

// An API is a connection to the fleet API.
type API interface {
	listing.Source
	Watch(ctx context.Context, collection string, q url.Values, handle func(v1.WatchEvent) error) error
	// CloseIdle gives up its connections. It may be used again.
	CloseIdle()
}

// A Broker is a connection to a broker. Run keeps it until ctx ends, and then
// waits for what is under way.
type Broker interface {
	Run(ctx context.Context) error
	Ready() error
	Publish(ctx context.Context, e *cloudevent.Event) error
	InFlight() int
}

// A Group divides resources among replicas that find each other.
type Group interface {
	sentinel.Shard
	Run(ctx context.Context) error
	Ready() error
	Members() []string
}

// errPanic is what a dependency that panicked gives.
var errPanic = errors.New("panic")

// panicError makes an error of what was recovered.
func panicError(what string, value any) error {
	return fmt.Errorf("%w in %s: %v\n%s", errPanic, what, value, debug.Stack())
}

// A hook is called with what ends the use of a connection. Whoever uses the
// connection sets it.
type hook struct {
	held   atomic.Pointer[func(error)]
	hidden []string // what no error of the connection may show
}

func (h *hook) setReport(report func(error)) { h.held.Store(&report) }

func (h *hook) reportError(err error) {
	if report := h.held.Load(); report != nil {
		(*report)(err)
	}
}

// recoverAndRedact is deferred around each call: a panic becomes an error, and errors
// show no secret.
func (h *hook) recoverAndRedact(what string, err *error) {
	value := recover()
	if value != nil {
		*err = panicError(what, value)
	}
	*err = redactSecrets(*err, h.hidden)
	if value != nil {
		h.reportError(*err)
	}
}

// An apiConnection is an API whose panics are errors: they would end the
// process, with everything else that runs in it.
type apiConnection struct {
	API
	hook
	settings sentinel.API
}

// ListPage is the API's.
func (c *apiConnection) ListPage(ctx context.Context, collection string, q url.Values, dst []byte) (page []byte, err error) {
	defer c.recoverAndRedact("fleet API client", &err)
	return c.API.ListPage(ctx, collection, q, dst)
}

// ListPageIf is the API's.
func (c *apiConnection) ListPageIf(
	ctx context.Context, collection string, q url.Values, etag string, dst []byte,
) (body []byte, rest io.ReadCloser, tag string, err error) {
	defer c.recoverAndRedact("fleet API client", &err)
	return c.API.ListPageIf(ctx, collection, q, etag, dst)
}

// Watch is the API's.
func (c *apiConnection) Watch(ctx context.Context, collection string, q url.Values, handle func(v1.WatchEvent) error) (err error) {
	defer c.recoverAndRedact("fleet API client", &err)
	return c.API.Watch(ctx, collection, q, handle)
}

// errAnswered ends a walk that has shown what it should.
var errAnswered = errors.New("it answers")

// probeAPI asks for a page, and gives what is wrong with the API.
func (c *apiConnection) probeAPI(ctx context.Context, cfg sentinel.Config) error {
	ctx, cancel := context.WithTimeoutCause(ctx, cmp.Or(cfg.HyperfleetAPI.Timeout, probeTimeout), errNoAnswer)
	defer cancel()
	w := listing.New(listing.Config{
		Collection: cfg.ResourceType, PageSize: 1, Timeout: cfg.HyperfleetAPI.Timeout, Flavour: cfg.HyperfleetAPI.Flavour,
	}, c)
	_, err := w.Walk(ctx, listing.Place{}, func(listing.Page) (scan.Envelope, error) { return scan.Envelope{}, errAnswered })
	if errors.Is(err, errAnswered) {
		return nil
	}
	return err
}

var errNoAnswer = errors.New("no response in time")

// probeTimeout bounds a question where the settings do not.
const probeTimeout = 10 * time.Second

// A brokerConnection is a broker that runs, and whose panics are errors.
type brokerConnection struct {
	Broker
	hook
	settings sentinelconfig.Broker
	stop     context.CancelFunc
	done     chan struct{}

	mu    sync.Mutex
	ended error // why it ended by itself
}

// Publish is the broker's.
func (c *brokerConnection) Publish(ctx context.Context, e *cloudevent.Event) (err error) {
	defer c.recoverAndRedact("broker client", &err)
	return c.Broker.Publish(ctx, e)
}

// errEnded is why a broker that ended by itself is not ready.
var errEnded = errors.New("the client of the message broker stopped unexpectedly; see the log of the sentinel")

// runBroker runs the broker until close, and tells if it ends before.
func (c *brokerConnection) runBroker(ctx context.Context) {
	defer close(c.done)
	err := c.runOnce(ctx)
	if ctx.Err() != nil {
		return
	}
	err = errors.Join(errEnded, err)
	c.mu.Lock()
	c.ended = err
	c.mu.Unlock()
	c.reportError(err)
}

func (c *brokerConnection) runOnce(ctx context.Context) (err error) {
	defer c.recoverAndRedact("broker client", &err)
	return c.Run(ctx)
}

// endError is why the broker ended by itself, or nil.
func (c *brokerConnection) endError() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended
}

// Ready is the broker's.
func (c *brokerConnection) Ready() (err error) {
	if err := c.endError(); err != nil {
		return err
	}
	defer c.recoverAndRedact("broker client", &err)
	return c.Broker.Ready()
}

// closeAndWait ends the connection, and waits for that.
func (c *brokerConnection) closeAndWait() {
	c.stop()
	<-c.done
}

// openConnections makes the connections for w, or takes those of current whose settings
// are the same.
func (i *Instance) openConnections(ctx context.Context, w *Wanted, current *running) (*parts, error) {
	p := &parts{wanted: w, trouble: make(chan error, 1)}
	if current != nil && !current.broken {
		if reflect.DeepEqual(current.api.settings, w.Settings.Sentinel.HyperfleetAPI) {
			p.api = current.api
		}
		if current.broker.settings == w.Settings.Broker {
			p.broker = current.broker
		}
	}
	if p.api == nil {
		api, err := i.deps.OpenAPI(w.Settings.Sentinel.HyperfleetAPI)
		if err != nil {
			return nil, fmt.Errorf("spec.hyperfleetAPI: %w", err)
		}
		p.api = &apiConnection{API: api, hook: hook{hidden: secretsOf(&w.Settings)}, settings: w.Settings.Sentinel.HyperfleetAPI}
	}
	if p.broker == nil {
		broker, err := i.deps.OpenBroker(w.Settings.Broker)
		if err != nil {
			p.releaseConnections(current)
			return nil, fmt.Errorf("spec.broker: %w", err)
		}
		ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
		p.broker = &brokerConnection{Broker: broker, hook: hook{hidden: secretsOf(&w.Settings)}, settings: w.Settings.Broker, stop: stop, done: make(chan struct{})}
		go p.broker.runBroker(ctx)
	}
	return p, nil
}
