package faulttest

import (
	"bytes"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
)

// A Point is a write of the controller: the nth of a kind about a node.
type Point struct {
	Kind string
	N    int
	// Answered is that the API server has made it, and that the controller never
	// learns so; without it the write is never made.
	Answered bool
}

// A Way leads the controller to the API server, and has it die at a write.
type Way struct {
	to        *url.URL
	transport http.RoundTripper
	proxy     *httputil.ReverseProxy
	server    *httptest.Server

	mu     sync.Mutex
	node   string // that the writes are about
	counts map[string]int
	point  *Point
	kill   func()
	struck bool // the point was reached
}

// Way puts one between the controllers that are started from now on and the
// API server.
func (c *Cluster) Way() *Way {
	c.Helper()
	w := newWay(c.TB, c.Host)
	c.Host = &rest.Config{Host: w.server.URL}
	return w
}

func newWay(tb testing.TB, cfg *rest.Config) *Way {
	tb.Helper()
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	to, err := url.Parse(cfg.Host)
	if err != nil {
		tb.Fatal(err)
	}
	w := &Way{to: to, transport: transport, counts: map[string]int{}}
	w.proxy = &httputil.ReverseProxy{
		Rewrite:   func(p *httputil.ProxyRequest) { p.SetURL(to); p.Out.Header.Del("Accept-Encoding") },
		Transport: transport, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
	}
	w.server = httptest.NewServer(w)
	tb.Cleanup(func() {
		w.server.CloseClientConnections()
		w.server.Close()
	})
	return w
}

// Arm counts the writes about a node anew, and has the controller die at one of
// them. Without a point it dies at none.
func (w *Way) Arm(node string, at *Point, kill func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.node, w.point, w.kill, w.counts, w.struck = node, at, kill, map[string]int{}, false
}

// Disarm has the controller die nowhere from now on, and says whether it has
// died, or is about to.
func (w *Way) Disarm() (struck bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.point = nil
	return w.struck
}

// Counts are how many writes of each kind there were about the node since Arm.
func (w *Way) Counts() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.counts)
}

// Struck says whether the controller has died at the point, or is about to.
func (w *Way) Struck() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.struck
}

// ServeHTTP passes everything on but a write that the controller dies at.
func (w *Way) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		w.proxy.ServeHTTP(rw, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler) // whoever wrote is gone
	}
	die, answered := w.Writes(kindOf(r), r.URL.Path, body)
	if die != nil && answered {
		w.loseAnswer(r, body)
	}
	if die != nil {
		die()
		panic(http.ErrAbortHandler)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	w.proxy.ServeHTTP(rw, r)
}

// Writes counts a write. If the controller dies at it, what kills it is given,
// and whether that is when the write was made.
func (w *Way) Writes(kind, path string, body []byte) (die func(), answered bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.node == "" || !strings.Contains(path, w.node) && !bytes.Contains(body, []byte(w.node)) {
		return nil, false
	}
	w.counts[kind]++
	at := w.point
	if at == nil || at.Kind != kind || at.N != w.counts[kind] {
		return nil, false
	}
	w.point, w.struck = nil, true // the next one lives
	return w.kill, at.Answered
}

// loseAnswer makes a write whose answer nobody hears.
func (w *Way) loseAnswer(r *http.Request, body []byte) {
	out := r.Clone(r.Context())
	out.URL.Scheme, out.URL.Host, out.Host, out.RequestURI = w.to.Scheme, w.to.Host, w.to.Host, ""
	out.Body = io.NopCloser(bytes.NewReader(body))
	resp, err := w.transport.RoundTrip(out)
	if err != nil {
		return // it was not made, which is as good
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close() // nothing was written to it
}

// kindOf is what a request writes: the verb, the resource with its subresource,
// and who has a part of it to itself.
func kindOf(r *http.Request) string {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if parts[0] == "api" {
		parts = parts[2:]
	} else {
		parts = parts[min(3, len(parts)):]
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	kind := strings.ToLower(r.Method)
	if len(parts) > 0 {
		kind += " " + parts[0]
	}
	if len(parts) > 2 {
		kind += "/" + parts[2]
	}
	query := r.URL.Query()
	if strings.HasSuffix(query.Get("fieldManager"), "-outbox") {
		kind += " by the outbox"
	}
	if query.Has("dryRun") {
		kind += " as a trial"
	}
	return kind
}
