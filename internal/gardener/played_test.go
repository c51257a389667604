package gardener_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/fleetloop/fleetloop/internal/gardener"
	"github.com/fleetloop/fleetloop/internal/gardener/gardentest"
)

const (
	namespace = "garden-played"
	shoots    = "/apis/core.gardener.cloud/v1beta1/namespaces/garden-played/shoots"
)

// A played garden answers with the handlers of a test, and records the requests.
type played struct {
	t      *testing.T
	server *httptest.Server

	mu    sync.Mutex
	asked []string
}

// play answers a request with the handler of its method and path.
func play(t *testing.T, handlers map[string]http.HandlerFunc) *played {
	t.Helper()
	p := &played{t: t}
	p.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		what := r.Method + " " + r.URL.Path
		p.mu.Lock()
		p.asked = append(p.asked, what)
		p.mu.Unlock()
		if handle, ok := handlers[what]; ok {
			handle(w, r)
			return
		}
		if handle, ok := handlers[r.Method]; ok {
			handle(w, r)
			return
		}
		answer(w, http.StatusNotFound, "404 page not found\n")
	}))
	t.Cleanup(p.server.Close)
	return p
}

func (p *played) requests() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string{}, p.asked...)
}

// client returns a client of the garden.
func (p *played) client(cfg gardener.Config) *gardener.Client {
	p.t.Helper()
	cfg.Namespace = namespace
	c, err := gardener.NewForConfig(&rest.Config{Host: p.server.URL}, cfg, gardentest.Installation)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(c.Close)
	return c
}

func answer(w http.ResponseWriter, code int, body string) {
	if body != "" && body[0] == '{' {
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(code)
	_, _ = fmt.Fprint(w, body)
}

func always(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { answer(w, code, body) }
}

// absent is the answer of an API server for an absent Shoot "a".
const absent = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"shoots.core.gardener.cloud \"a\" not found","reason":"NotFound","details":{"name":"a","group":"core.gardener.cloud","kind":"shoots"},"code":404}`

// there is the answer with the namespace.
const there = `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"garden-played"}}`
