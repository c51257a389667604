// Package hyperfleettest plays the public HyperFleet API in memory, for tests
// of whoever has to work with the real one.
//
// It keeps the wire contract as far as a reader of collections and a reporting
// adapter meet it: pages by number of at most 100, sorted on demand, the search
// language without the parts that need a real parser of it, soft deletes,
// reports, and the conditions that the API aggregates from them. What the API
// ignores, it ignores: unknown parameters above all, so labels=, limit= and
// changed_since= answer 200 with the whole list. What older versions did
// otherwise can be switched on.
package hyperfleettest

import (
	"cmp"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// An Era is how the API has spoken of status. See Config.
type Era int

// The eras, the newest first.
const (
	Today    Era = iota // conditions alone, Reconciled above all
	Third               // conditions alone, Ready above all
	Second              // phase, times, and conditions beside them
	Earliest            // phase and updated_at
)

// A Kind is one kind of resource.
type Kind struct {
	Name   string // as in kind
	Plural string // as in paths
	Parent string // the plural of the kind that it is created under

	// Adapters have to report before a resource is reconciled. A kind that has
	// none has no conditions.
	Adapters []string
}

// Kinds are those that the API is shipped with, as far as they matter here.
func Kinds() []Kind {
	return []Kind{
		{Name: "Cluster", Plural: "clusters", Adapters: []string{"validation", "dns"}},
		{Name: "NodePool", Plural: "nodepools", Parent: "clusters", Adapters: []string{"validation"}},
		{Name: "Channel", Plural: "channels"},
	}
}

// Config says which version of the API is played. The zero value is today's.
type Config struct {
	// Kinds are what there is; none means Kinds().
	Kinds []Kind

	// Era is how status looks.
	Era Era

	// MaxSize is the largest page; zero means 100.
	MaxSize int

	// OldParameters are those before version 1.0.24: pageSize, and orderBy
	// with order as its direction.
	OldParameters bool

	// IgnoreSearch and IgnoreOrder serve the list as if nothing had been said.
	IgnoreSearch, IgnoreOrder bool

	// Labels understands labels=k=v,… as some servers of the family do.
	Labels bool

	// Shuffle gives resources of the same creation time in another order for
	// each page, as a database does that has no second criterion.
	Shuffle bool
}

// A Server is the API. Its zero value is not usable; see New.
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
		s.handleRoute("GET "+flat, s.listResources(k, ""))
		s.handleRoute("GET "+flat+"/{id}", s.getResource(k))
		s.handleRoute("PATCH "+flat+"/{id}", s.patchResource(k))
		s.handleRoute("DELETE "+flat+"/{id}", s.removeResource(k))
		s.handleRoute("POST "+flat+"/{id}/force-delete", s.forceDelete(k))
		s.handleRoute("GET "+flat+"/{id}/statuses", s.listReports(k))
		s.handleRoute("PUT "+flat+"/{id}/statuses", s.storeReport(k))
		if k.Parent == "" {
			s.handleRoute("POST "+flat, s.createResource(k))
			continue
		}
		s.handleRoute("POST "+flat, func(*http.Request) answer {
			return writeError(http.StatusUnprocessableEntity, "create it under its parent")
		})
		nested := base + "/" + k.Parent + "/{parent}/" + k.Plural
		s.handleRoute("GET "+nested, s.listResources(k, k.Parent))
		s.handleRoute("POST "+nested, s.createResource(k))
		s.handleRoute("GET "+nested+"/{id}", s.getResource(k))
		s.handleRoute("PUT "+nested+"/{id}/statuses", s.storeReport(k))
	}
}

// handleRoute serves a route under the lock, and in the API's forms.
func (s *Server) handleRoute(pattern string, h func(*http.Request) answer) {
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		a := h(r)
		s.mu.Unlock()
		a.writeTo(w, r)
	})
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests = append(s.requests, r.Method+" "+strings.TrimPrefix(r.URL.RequestURI(), base))
	s.mu.Unlock()
	s.mux.ServeHTTP(w, r)
}

// Requests are the requests so far: the method, and the path below the base
// with its query.
func (s *Server) Requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// ForgetRequests begins to count anew.
func (s *Server) ForgetRequests() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = nil
}

// Expel drops a resource as if it had never been.
func (s *Server) Expel(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.resources, id)
}

// allResources gives the resources of a kind, the newest first.
func (s *Server) allResources(k Kind, parent string) []*resource {
	var found []*resource
	for _, r := range s.resources {
		if r.kind.Plural == k.Plural && (parent == "" || r.parent == parent) {
			found = append(found, r)
		}
	}
	// Maps have no order; the database would at least repeat its own.
	slices.SortFunc(found, func(a, b *resource) int { return cmp.Compare(a.id, b.id) })
	if s.cfg.Shuffle {
		rand.Shuffle(len(found), func(i, j int) { found[i], found[j] = found[j], found[i] }) //nolint:gosec // no secret
	}
	slices.SortStableFunc(found, func(a, b *resource) int { return b.created.Compare(a.created) })
	return found
}
