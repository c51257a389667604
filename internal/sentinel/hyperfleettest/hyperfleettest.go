// Package hyperfleettest simulates the public HyperFleet API in memory, for tests of its clients.
//
// It keeps the wire contract as far as a reader of collections and a reporting adapter use it:
// pages by number of at most 100, sorted on demand, the search language without the parts that need
// a real parser of it, soft deletes, reports, and the conditions that the API aggregates from them.
// It ignores what the API ignores, above all unknown parameters: labels=, limit= and changed_since=
// return 200 with the whole list. Different behaviour of older versions can be switched on.
package hyperfleettest

import (
	"cmp"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// An Era is a format of the status that the API has had. See Config.
type Era int

// The eras, the newest first.
const (
	Today    Era = iota // only conditions, above all Reconciled
	Third               // only conditions, above all Ready
	Second              // phase, times, and conditions beside them
	Earliest            // phase and updated_at
)

// A Kind is one kind of resource.
type Kind struct {
	Name   string // as in kind
	Plural string // as in paths
	Parent string // plural of the kind of its parent

	// Adapters must report before a resource is reconciled. A kind without adapters has no
	// conditions.
	Adapters []string
}

// Kinds returns the default kinds of the API, as far as tests need them.
func Kinds() []Kind {
	return []Kind{
		{Name: "Cluster", Plural: "clusters", Adapters: []string{"validation", "dns"}},
		{Name: "NodePool", Plural: "nodepools", Parent: "clusters", Adapters: []string{"validation"}},
		{Name: "Channel", Plural: "channels"},
	}
}

// Config selects the version of the API that is simulated. The zero value is the current version.
type Config struct {
	// Kinds holds the available kinds; none means Kinds().
	Kinds []Kind

	// Era is the format of the status.
	Era Era

	// MaxSize is the largest page; zero means 100.
	MaxSize int

	// OldParameters selects the parameters before version 1.0.24: pageSize, and orderBy with order
	// as its direction.
	OldParameters bool

	// IgnoreSearch and IgnoreOrder make the server ignore these parameters.
	IgnoreSearch, IgnoreOrder bool

	// Labels supports labels=k=v,… as some servers of the family do.
	Labels bool

	// Shuffle returns resources of the same creation time in a different order on each page, as a
	// database without a second sort key does.
	Shuffle bool
}

// A Server is the simulated API. Its zero value is not usable; see New.
type Server struct {
	cfg Config
	mux *http.ServeMux

	mu        sync.Mutex
	resources map[string]*resource // by id
	requests  []string
	serial    uint64
}

// New returns an API without resources.
func New(cfg Config) *Server {
	if cfg.Kinds == nil {
		cfg.Kinds = Kinds()
	}
	cfg.MaxSize = cmp.Or(cfg.MaxSize, 100)
	s := &Server{cfg: cfg, mux: http.NewServeMux(), resources: map[string]*resource{}}
	s.registerRoutes()
	return s
}

const base = "/api/hyperfleet/v1"

func (s *Server) registerRoutes() {
	for _, k := range s.cfg.Kinds {
		flat := base + "/" + k.Plural
		s.handleRoute("GET "+flat, s.handleListResources(k, ""))
		s.handleRoute("GET "+flat+"/{id}", s.handleGetResource(k))
		s.handleRoute("PATCH "+flat+"/{id}", s.handlePatchResource(k))
		s.handleRoute("DELETE "+flat+"/{id}", s.handleMarkDeletedWithChildren(k))
		s.handleRoute("POST "+flat+"/{id}/force-delete", s.handleForceDelete(k))
		s.handleRoute("GET "+flat+"/{id}/statuses", s.handleListReports(k))
		s.handleRoute("PUT "+flat+"/{id}/statuses", s.handleStoreReport(k))
		if k.Parent == "" {
			s.handleRoute("POST "+flat, s.handleCreateResource(k))
			continue
		}
		s.handleRoute("POST "+flat, func(*http.Request) answer {
			return newErrorAnswer(http.StatusUnprocessableEntity, "create it under its parent")
		})
		nested := base + "/" + k.Parent + "/{parent}/" + k.Plural
		s.handleRoute("GET "+nested, s.handleListResources(k, k.Parent))
		s.handleRoute("POST "+nested, s.handleCreateResource(k))
		s.handleRoute("GET "+nested+"/{id}", s.handleGetResource(k))
		s.handleRoute("PUT "+nested+"/{id}/statuses", s.handleStoreReport(k))
	}
}

// handleRoute serves a route under the lock, with the response formats of the API.
func (s *Server) handleRoute(pattern string, h func(*http.Request) answer) {
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		a := h(r)
		s.mu.Unlock()
		a.writeResponse(w, r)
	})
}

// ServeHTTP serves a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests = append(s.requests, r.Method+" "+strings.TrimPrefix(r.URL.RequestURI(), base))
	s.mu.Unlock()
	s.mux.ServeHTTP(w, r)
}

// ListRequests returns the requests so far: the method, and the path below the base with its query.
func (s *Server) ListRequests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// ForgetRequests clears the recorded requests.
func (s *Server) ForgetRequests() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = nil
}

// RemoveResource removes a resource without any trace.
func (s *Server) RemoveResource(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.resources, id)
}

// listResourcesNewestFirst returns the resources of a kind, the newest first.
func (s *Server) listResourcesNewestFirst(k Kind, parent string) []*resource {
	var found []*resource
	for _, r := range s.resources {
		if r.kind.Plural == k.Plural && (parent == "" || r.parent == parent) {
			found = append(found, r)
		}
	}
	// Maps have no order; the database would at least repeat its order.
	slices.SortFunc(found, func(a, b *resource) int { return cmp.Compare(a.id, b.id) })
	if s.cfg.Shuffle {
		rand.Shuffle(len(found), func(i, j int) { found[i], found[j] = found[j], found[i] }) //nolint:gosec // no secret
	}
	slices.SortStableFunc(found, func(a, b *resource) int { return b.created.Compare(a.created) })
	return found
}
