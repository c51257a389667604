// Package fleetapi serves clusters, node pools and the other resources of the fleet over HTTP and
// JSON.
//
// It stores the specs of owners and aggregates the reports of adapters. A generation rises when the
// spec changes, and only then. A late report never overwrites a newer one. A deleted resource stays
// until its adapters have finalised and its children are gone. A tenant sees only its own rows.
// Every change is one transaction under the row's lock; the rules are plain functions that run
// inside it: ValidateReport and DecideReport for a report, AggregateStatus for the status, and a
// SpecSchema for the spec.
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
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
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
	walks   rest.PageWalks[string]
	hub     *watch.Hub
	standby Standby // nil if there is none
	// timeline is nil if the API has no timeline.
	timeline *timeline.Timeline

	maxBody int64
	version string // version of the program
	handler http.Handler
}

// New returns an API. It checks the configuration and starts nothing.
func New(cfg Config, deps Deps) (*API, error) {
	if deps.Store == nil || deps.Log == nil || deps.Metrics == nil {
		return nil, errors.New("make fleet API: needs a store, a log and a registry of metrics")
	}
	list, err := cfg.buildKinds()
	if err != nil {
		return nil, fmt.Errorf("make fleet API: %w", err)
	}
	if err := ValidateSummaryLabels(cfg.SummaryLabels); err != nil {
		return nil, fmt.Errorf("make fleet API: %w", err)
	}
	who, err := auth.New(cfg.Auth, auth.Deps{ListenAddr: deps.ListenAddr, Client: deps.Client, Log: deps.Log})
	if err != nil {
		return nil, fmt.Errorf("make fleet API: %w", err)
	}
	m, err := newMetrics(deps.Metrics)
	if err != nil {
		return nil, fmt.Errorf("make fleet API: %w", err)
	}
	kinds := make(map[string]*kind, len(list))
	for _, k := range list {
		kinds[k.name] = k
	}
	hub, err := watch.New(watch.Config{MaxWatches: cfg.MaxWatches}, watch.Deps{
		Source: watchSource{deps.Store, kinds}, Log: deps.Log, Metrics: deps.Metrics,
	})
	if err != nil {
		return nil, fmt.Errorf("make fleet API: %w", err)
	}
	a := &API{
		hub:     hub,
		auth:    who,
		log:     deps.Log,
		tracer:  deps.Tracer,
		metrics: m,
		standby: deps.Standby,
		maxBody: cmp.Or(cfg.MaxBodyBytes, DefaultMaxBody),
	}
	if err := a.initTimelineIfStored(cfg, deps); err != nil {
		return nil, fmt.Errorf("make fleet API: %w", err)
	}
	a.resourceService = resourceService{store: watchNotifyingStore{deps.Store, a.triggerWatchReads}, kinds: kinds, schemas: new(schemaCache)}
	build := version.Get()
	a.version = build.Version + " " + build.Revision
	if a.tracer == nil {
		a.tracer = noop.NewTracerProvider().Tracer("")
	}
	a.handler = a.newRouter(list)
	return a, nil
}

// Handler returns the handler for the paths of the API and its OpenAPI document.
func (a *API) Handler() http.Handler { return a.handler }

// A handler answers one request, or returns an error that explains the failure.
type handler func(w http.ResponseWriter, r *http.Request, who auth.Principal) error

// A route maps the methods of a path to handlers.
type route map[string]handler

func (a *API) newRouter(kinds []*kind) http.Handler {
	mux := http.NewServeMux()
	resources, lists := resourceRoutes{a}, listRoutes{a}
	for _, k := range kinds {
		base := v1.BasePath + "/" + k.collection
		one := route{http.MethodGet: resources.newGetHandler(k), http.MethodPatch: resources.newPatchHandler(k), http.MethodDelete: resources.newDeleteHandler(k)}
		reports := route{http.MethodGet: resources.newListReportsHandler(k), http.MethodPost: resources.newStoreReportHandler(k), http.MethodPut: resources.newStoreReportHandler(k)}
		all := route{http.MethodGet: lists.newListOrChangesHandler(k), http.MethodPost: resources.newCreateHandler(k)}
		force := route{http.MethodPost: resources.newForceDeleteHandler(k)}

		prefixes := []string{base}
		if k.parent != nil {
			prefixes = append(prefixes, v1.BasePath+"/"+k.parent.collection+"/{parent}/"+k.collection)
		}
		for _, p := range prefixes {
			a.registerRoute(mux, p, all)
			// Other methods are not refused here: this path is also that of an id.
			mux.Handle("POST "+p+"/bulk", a.newRouteHandler(p+"/bulk", http.MethodPost, resources.newBulkLoadHandler(k)))
			a.registerRoute(mux, p+"/{id}", one)
			a.registerRoute(mux, p+"/{id}/statuses", reports)
			a.registerRoute(mux, p+"/{id}/force-delete", force)
		}
		if k.name == v1.KindCluster || k.name == v1.KindNodePool {
			a.registerRoute(mux, base+"/{id}/revisions", route{http.MethodGet: resources.newListRevisionsHandler(k)})
		}
		if k.synced {
			syncRoutes{a}.registerRoutes(mux, base, k)
		}
	}
	schemaRoutes{a}.registerRoutes(mux)
	if a.timeline != nil {
		a.registerRoute(mux, v1.ChangesPath, route{http.MethodGet: a.timeline.ServeListOrStream})
		// Other methods are not refused here: this path is also that of a cluster.
		mux.Handle("GET "+v1.ChangeBucketsPath, a.newRouteHandler(v1.ChangeBucketsPath, http.MethodGet, a.timeline.ServeEventCounts))
		a.registerRoute(mux, v1.ChangesPath+"/{cluster}", route{http.MethodPost: a.timeline.HandlePostEvents})
		mux.Handle("GET "+v1.UndeliveredChangesPath, a.newRouteHandler(v1.UndeliveredChangesPath, http.MethodGet, a.timeline.ServeUndelivered))
		a.registerRoute(mux, v1.ChangeDeliveriesPath, route{http.MethodGet: a.timeline.ServeDeliveries})
		a.registerRoute(mux, v1.ChangeResendPath, route{http.MethodPost: a.timeline.HandleResend})
	}
	a.registerRoute(mux, v1.WhoAmIPath, route{http.MethodGet: a.serveIdentity})
	a.registerRoute(mux, v1.SummaryPath, route{http.MethodGet: a.serveSummary})
	a.registerRoute(mux, v1.StuckPath, route{http.MethodGet: stuckRoutes{a}.serveStuckList})
	a.registerRoute(mux, v1.CanIPath, route{http.MethodGet: permissionRoutes{a}.servePermission})
	mux.Handle("GET "+documentPath, newStaticHandler("application/yaml", v1.OpenAPIYAML()))
	mux.Handle("GET "+documentPathJSON, newStaticHandler("application/json", v1.OpenAPIJSON()))
	mux.Handle("/", a.instrumentAndHandleErrors("other", "other", func(http.ResponseWriter, *http.Request, auth.Principal) error {
		return rest.NewError(rest.CodeNotFound, "no such path; %s lists the paths of this API", documentPath)
	}))
	return stripTrailingSlash(mux)
}

// stripTrailingSlash removes one slash from the end of a path, as the public HyperFleet API does.
func stripTrailingSlash(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := strings.TrimSuffix(r.URL.Path, "/")
		if path == "" || path == r.URL.Path || strings.HasSuffix(path, "/") {
			next.ServeHTTP(w, r)
			return
		}
		location := *r.URL
		location.Path, location.RawPath = path, strings.TrimSuffix(location.RawPath, "/")
		trimmed := *r
		trimmed.URL = &location
		next.ServeHTTP(w, &trimmed)
	})
}

// registerRoute serves a route, and refuses the methods that it does not have.
func (a *API) registerRoute(mux *http.ServeMux, path string, methods route) {
	var allow []string
	for method, h := range methods {
		mux.Handle(method+" "+path, a.newRouteHandler(path, method, h))
		allow = append(allow, method)
		if method == http.MethodGet {
			allow = append(allow, http.MethodHead)
		}
	}
	slices.Sort(allow)
	mux.Handle(path, a.instrumentAndHandleErrors(path, "other", func(_ http.ResponseWriter, r *http.Request, _ auth.Principal) error {
		e := rest.NewError(rest.CodeMethodNotAllowed, "method %s is not allowed on this path; allowed: %s", r.Method, strings.Join(allow, ", "))
		e.Allow = allow
		return e
	}))
}

// newRouteHandler returns the handler of a path and a method.
func (a *API) newRouteHandler(path, method string, h handler) http.Handler {
	if method == http.MethodGet {
		h = a.readFromStandby(h)
	}
	return a.instrumentAndHandleErrors(path, method, a.requireAuthentication(h))
}

// requireAuthentication authenticates a request and passes its principal to a handler.
func (a *API) requireAuthentication(next handler) handler {
	return func(w http.ResponseWriter, r *http.Request, _ auth.Principal) error {
		who, err := a.auth.AuthenticateRequest(r.Context(), r.Header)
		switch {
		case errors.Is(err, auth.ErrImpersonation):
			a.log.WarnContext(r.Context(), "impersonation refused", "method", r.Method, "path", r.URL.Path, "err", err)
			return toAuthProblem(err)
		case err != nil:
			return toAuthProblem(err)
		case who.ImpersonatedBy != "": // reads leave no other trace
			a.log.InfoContext(r.Context(), "request impersonates", "subject", who.Subject, "impersonated_by", who.ImpersonatedBy, "method", r.Method, "path", r.URL.Path)
		}
		return next(w, r, who)
	}
}

// toAuthProblem converts an authentication error into a problem.
func toAuthProblem(err error) error {
	const challenge = `Bearer realm="fleet-api"`
	switch {
	case errors.Is(err, auth.ErrImpersonation):
		return rest.NewError(rest.CodeForbidden, "%s", err)
	case errors.Is(err, auth.ErrUnavailable):
		return &rest.Error{Code: rest.CodeUnavailable, Detail: "the fleet API cannot reach the issuer of the token to verify it; retry later", RetryAfter: retryAfter, Cause: err}
	case errors.Is(err, auth.ErrNoToken):
		return &rest.Error{Code: rest.CodeUnauthenticated, Detail: "the request has no bearer token; send the header Authorization: Bearer TOKEN", Challenge: challenge}
	case errors.Is(err, auth.ErrExpired):
		return &rest.Error{Code: rest.CodeUnauthenticated, Detail: "the bearer token has expired; send a new token", Challenge: challenge + `, error="invalid_token", error_description="expired"`}
	}
	return &rest.Error{Code: rest.CodeUnauthenticated, Detail: "the bearer token is not valid; send a token from the issuer that the fleet API trusts", Challenge: challenge + `, error="invalid_token"`, Cause: err}
}

// serveIdentity answers with the identity of the caller.
func (a *API) serveIdentity(w http.ResponseWriter, _ *http.Request, principal auth.Principal) error {
	identity := v1.Identity{Subject: principal.Subject, ImpersonatedBy: principal.ImpersonatedBy, Tenant: principal.Tenant, Roles: []string{}, ReadScope: v1.ScopeNone, WriteScope: v1.ScopeNone, CanReportStatus: principal.CanReportStatus()}
	for _, role := range principal.Roles {
		identity.Roles = append(identity.Roles, string(role))
	}
	switch {
	case principal.CanReadAllTenants():
		identity.ReadScope = v1.ScopeAll
	case principal.Tenant != "":
		identity.ReadScope = v1.ScopeTenant
	}
	if principal.CanChangeResources() {
		identity.WriteScope = identity.ReadScope
	}
	w.Header().Set(v1.VersionHeader, a.version)
	return writeJSONValue(w, http.StatusOK, identity)
}
