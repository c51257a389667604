// Package fleetapi serves clusters, node pools and the other resources of the fleet over HTTP and JSON.
//
// It stores the specs of owners and aggregates the reports of adapters. A generation rises when the spec changes, and
// only then. A late report never overwrites a newer one. A deleted resource stays until its adapters have finalised and
// its children are gone. A tenant sees only its own rows. Every change is one transaction under the row's lock; the
// rules are plain functions that run inside it: ValidateReport and DecideReport for a report, AggregateStatus for the
// status, and a SpecSchema for the spec.
//
// Lists are paged by keyset (limit and continue) or by number (page and size). By keyset, a row
// that matches from the first page to the last is listed exactly once, whatever other rows come and
// go. By number the same holds for a client that requests consecutive pages within two minutes: the
// API remembers where the client's last page ended. This memory is per process, and covers only
// orders by id, name or creation; behind a balancer, or for a guarantee, page by keyset. A page
// requested out of sequence is counted from the beginning.
//
// Package watch delivers changes to watches; RunWatchHubs reads the changes for it. Apart from that,
// the package runs no goroutines. Its only state outside the store is the progress of numbered
// lists and the token file.
package fleetapi

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/fleetloop/fleetloop/internal/fleetapi/auth"
	"github.com/fleetloop/fleetloop/internal/fleetapi/rest"
	"github.com/fleetloop/fleetloop/internal/fleetapi/timeline"
	"github.com/fleetloop/fleetloop/internal/fleetapi/watch"
	"github.com/fleetloop/fleetloop/internal/version"
)

// Deps holds the dependencies of the API.
type Deps struct {
	Store Store
	// Timeline stores change events. If nil, the API neither accepts nor lists change events.
	Timeline timeline.Store
	// Standby lets reads use a standby of the store. Nil means that all reads use the store itself.
	Standby Standby
	Log     *slog.Logger
	// Metrics registers the API's metrics.
	Metrics prometheus.Registerer
	// Tracer creates the spans of requests. Nil disables tracing.
	Tracer trace.Tracer
	// ListenAddr is the address at which the handler will be served. Without authentication it must
	// be a loopback address.
	ListenAddr string
	// Client fetches the keys of token issuers. Nil means a client with a timeout.
	Client *http.Client
}

// An API answers the requests. It is safe for concurrent use.
type API struct {
	resourceService
	auth    *auth.Authenticator
	log     *slog.Logger
	tracer  trace.Tracer
	metrics *metrics
	hub     *watch.Hub
	standby Standby // nil if there is none
	// timeline is nil if the API has no timeline.
	timeline *timeline.Timeline

	walks       rest.PageWalks[string]
	pageBuffers sync.Pool // of *[]byte

	maxBody   int64
	pageBytes int    // maxPageBytes, except in tests
	version   string // version of the program
	handler   http.Handler
}

// New returns an API. It checks the configuration and starts nothing.
func New(cfg Config, deps Deps) (*API, error) {
	if deps.Store == nil || deps.Log == nil || deps.Metrics == nil {
		return nil, errors.New("make fleet API: needs a store, a log and a registry of metrics")
	}
	kinds, err := cfg.buildKinds()
	if err != nil {
		return nil, fmt.Errorf("make fleet API: %w", err)
	}
	if err := ValidateSummaryLabels(cfg.SummaryLabels); err != nil {
		return nil, fmt.Errorf("make fleet API: %w", err)
	}
	authenticator, err := auth.New(cfg.Auth, auth.Deps{ListenAddr: deps.ListenAddr, Client: deps.Client, Log: deps.Log})
	if err != nil {
		return nil, fmt.Errorf("make fleet API: %w", err)
	}
	m, err := newMetrics(deps.Metrics)
	if err != nil {
		return nil, fmt.Errorf("make fleet API: %w", err)
	}
	kindsByName := make(map[string]*kind, len(kinds))
	for _, k := range kinds {
		kindsByName[k.name] = k
	}
	hub, err := watch.New(watch.Config{MaxWatches: cfg.MaxWatches}, watch.Deps{
		Source: watchSource{deps.Store, kindsByName}, Log: deps.Log, Metrics: deps.Metrics,
	})
	if err != nil {
		return nil, fmt.Errorf("make fleet API: %w", err)
	}
	build := version.Get()
	a := &API{
		hub:     hub,
		auth:    authenticator,
		log:     deps.Log,
		tracer:  deps.Tracer,
		metrics: m,
		standby: deps.Standby,
		maxBody: cmp.Or(cfg.MaxBodyBytes, DefaultMaxBody), pageBytes: maxPageBytes,
		version: build.Version + " " + build.Revision,
	}
	if a.tracer == nil {
		a.tracer = noop.NewTracerProvider().Tracer("")
	}
	if err := a.initTimelineIfStored(cfg, deps); err != nil {
		return nil, fmt.Errorf("make fleet API: %w", err)
	}
	a.resourceService = resourceService{
		store: watchNotifyingStore{deps.Store, a.triggerWatchReads}, kinds: kindsByName, schemas: new(schemaCache),
	}
	a.handler = a.newRouter(kinds)
	return a, nil
}

// Handler returns the handler for the paths of the API and its OpenAPI document.
func (a *API) Handler() http.Handler { return a.handler }
