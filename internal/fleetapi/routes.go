package fleetapi

import (
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi/auth"
	"github.com/fleetloop/fleetloop/internal/fleetapi/rest"
)

// Paths of the OpenAPI document in its two forms.
const (
	documentPath     = "/openapi.yaml"
	documentPathJSON = "/openapi.json"
)

// A handler answers one request, or returns an error that explains the failure.
type handler func(w http.ResponseWriter, r *http.Request, principal auth.Principal) error

// A route maps the methods of a path to handlers.
type route map[string]handler

func (a *API) newRouter(kinds []*kind) http.Handler {
	mux := http.NewServeMux()
	for _, k := range kinds {
		a.registerKindRoutes(mux, k)
	}
	schemaRoutes{a}.registerRoutes(mux)
	if a.timeline != nil {
		a.registerTimelineRoutes(mux)
	}
	a.registerRoute(mux, v1.WhoAmIPath, route{http.MethodGet: a.serveIdentity})
	a.registerRoute(mux, v1.SummaryPath, route{http.MethodGet: a.serveSummary})
	a.registerRoute(mux, v1.StuckPath, route{http.MethodGet: stuckRoutes{a}.serveStuckList})
	a.registerRoute(mux, v1.CanIPath, route{http.MethodGet: permissionRoutes{a}.servePermissionCheck})
	mux.Handle("GET "+documentPath, newStaticHandler("application/yaml", v1.OpenAPIYAML()))
	mux.Handle("GET "+documentPathJSON, newStaticHandler("application/json", v1.OpenAPIJSON()))
	mux.Handle("/", a.instrumentAndHandleErrors("other", "other", refuseUnknownPath))
	return stripTrailingSlash(mux)
}

// registerKindRoutes registers the paths of a kind. Those of a child kind exist twice: for all parents, and below one.
func (a *API) registerKindRoutes(mux *http.ServeMux, k *kind) {
	resources, lists := resourceRoutes{a, k}, listRoutes{a, k}
	base := v1.BasePath + "/" + k.collection
	collections := []string{base}
	if k.parent != nil {
		collections = append(collections, v1.BasePath+"/"+k.parent.collection+"/{parent}/"+k.collection)
	}
	for _, collection := range collections {
		a.registerRoute(mux, collection, route{
			http.MethodGet:  lists.serveListOrChanges,
			http.MethodPost: resources.handleCreate,
		}, http.MethodPost)
		a.registerMethod(mux, http.MethodPost, collection+"/bulk", resources.handleBulkLoad)
		a.registerRoute(mux, collection+"/{id}", route{
			http.MethodGet:    resources.handleGet,
			http.MethodPatch:  resources.handlePatch,
			http.MethodDelete: resources.handleDelete,
		}, http.MethodPatch, http.MethodDelete)
		a.registerRoute(mux, collection+"/{id}/statuses", route{
			http.MethodGet:  resources.serveReportList,
			http.MethodPost: resources.handleReport,
			http.MethodPut:  resources.handleReport,
		})
		a.registerRoute(mux, collection+"/{id}/force-delete", route{http.MethodPost: resources.handleForceDelete})
	}
	if k.name == v1.KindCluster || k.name == v1.KindNodePool {
		a.registerRoute(mux, base+"/{id}/revisions", route{http.MethodGet: resources.serveRevisions})
	}
	if k.synced {
		syncRoutes{a, k}.registerRoutes(mux, base)
	}
}

func (a *API) registerTimelineRoutes(mux *http.ServeMux) {
	a.registerRoute(mux, v1.ChangesPath, route{http.MethodGet: a.timeline.ServeListOrStream})
	a.registerMethod(mux, http.MethodGet, v1.ChangeBucketsPath, a.timeline.ServeEventCounts)
	a.registerMethod(mux, http.MethodGet, v1.UndeliveredChangesPath, a.timeline.ServeUndelivered)
	a.registerRoute(mux, v1.ChangesPath+"/{cluster}", route{http.MethodPost: a.timeline.HandlePostEvents})
	a.registerRoute(mux, v1.ChangeDeliveriesPath, route{http.MethodGet: a.timeline.ServeDeliveries})
	a.registerRoute(mux, v1.ChangeResendPath, route{http.MethodPost: a.timeline.HandleResend})
}

// registerRoute serves a route, and refuses the methods that it does not have. Some of its methods may support dry runs.
func (a *API) registerRoute(mux *http.ServeMux, path string, methods route, withDryRun ...string) {
	var allowed []string
	for method, h := range methods {
		if slices.Contains(withDryRun, method) {
			a.registerHandler(mux, method, path, h)
		} else {
			a.registerMethod(mux, method, path, h)
		}
		allowed = append(allowed, method)
		if method == http.MethodGet {
			allowed = append(allowed, http.MethodHead)
		}
	}
	slices.Sort(allowed)
	refuse := func(_ http.ResponseWriter, r *http.Request, _ auth.Principal) error {
		e := rest.NewError(rest.CodeMethodNotAllowed, "method %s is not allowed on this path; allowed: %s", r.Method, strings.Join(allowed, ", "))
		e.Allow = allowed
		return e
	}
	mux.Handle(path, a.instrumentAndHandleErrors(path, "other", refuse))
}

// registerMethod serves one method of a path, without dry runs. It refuses no other method: the path may also be that of
// an id or a cluster.
func (a *API) registerMethod(mux *http.ServeMux, method, path string, h handler) {
	if method == http.MethodGet {
		h = a.readFromStandby(h)
	} else {
		h = refuseDryRun(h)
	}
	a.registerHandler(mux, method, path, h)
}

func (a *API) registerHandler(mux *http.ServeMux, method, path string, h handler) {
	mux.Handle(method+" "+path, a.instrumentAndHandleErrors(path, method, a.requireAuthentication(requireValidQuery(h))))
}

// requireValidQuery refuses a query of which a part would be ignored, because it cannot be parsed.
func requireValidQuery(next handler) handler {
	return func(w http.ResponseWriter, r *http.Request, principal auth.Principal) error {
		if _, err := url.ParseQuery(r.URL.RawQuery); err != nil {
			return rest.NewError(rest.CodeInvalidQuery, "the query is malformed: %s; separate parameters with & and escape their values", err)
		}
		return next(w, r, principal)
	}
}

func refuseUnknownPath(http.ResponseWriter, *http.Request, auth.Principal) error {
	return rest.NewError(rest.CodeNotFound, "no such path; %s lists the paths of this API", documentPath)
}

// newStaticHandler returns a handler that serves the same document to all clients, which need no token.
func newStaticHandler(contentType, content string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = io.WriteString(w, content) // a client that is gone misses nothing
	})
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
