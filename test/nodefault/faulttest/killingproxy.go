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

// A Point identifies a write of the controller: the nth of a kind about a node.
type Point struct {
	Kind string
	N    int
	// Answered means that the write succeeds, but the controller crashes before the
	// response. Otherwise it crashes before the write.
	Answered bool
}

// A KillingProxy is a proxy between the controller and the API server. It can kill the controller
// at a write.
type KillingProxy struct {
	to        *url.URL
	transport http.RoundTripper
	proxy     *httputil.ReverseProxy
	server    *httptest.Server

	mu     sync.Mutex
	node   string // node of the counted writes
	counts map[string]int
	point  *Point
	kill   func()
	struck bool // the point was reached
}

// ProxyHost puts a proxy between the API server and all controllers that are started later.
func (c *Cluster) ProxyHost() *KillingProxy {
	c.Helper()
	w := newKillingProxy(c.TB, c.Host)
	c.Host = &rest.Config{Host: w.server.URL}
	return w
}

func newKillingProxy(tb testing.TB, cfg *rest.Config) *KillingProxy {
	tb.Helper()
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	to, err := url.Parse(cfg.Host)
	if err != nil {
		tb.Fatal(err)
	}
	w := &KillingProxy{to: to, transport: transport, counts: map[string]int{}}
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

// Arm resets the counts of writes about a node, and sets the write at which the
// controller is killed. A nil point means none.
func (w *KillingProxy) Arm(node string, at *Point, kill func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.node, w.point, w.kill, w.counts, w.struck = node, at, kill, map[string]int{}, false
}

// Disarm removes the point, and reports whether the controller was killed or is about to
// be.
func (w *KillingProxy) Disarm() (struck bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.point = nil
	return w.struck
}

// Counts returns the number of writes about the node by kind since Arm.
func (w *KillingProxy) Counts() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.counts)
}

// Struck reports whether the controller was killed at the point or is about to be.
func (w *KillingProxy) Struck() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.struck
}

// ServeHTTP forwards all requests except a write at which the controller is killed.
func (w *KillingProxy) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		w.proxy.ServeHTTP(rw, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler) // the client has disconnected
	}
	die, answered := w.CountWriteAndCheckKill(describeWriteKind(r), r.URL.Path, body)
	if die != nil && answered {
		w.sendAndDiscardResponse(r, body)
	}
	if die != nil {
		die()
		panic(http.ErrAbortHandler)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	w.proxy.ServeHTTP(rw, r)
}

// CountWriteAndCheckKill counts a write. At the point, it returns the function that kills the controller,
// and whether the write must be made first.
func (w *KillingProxy) CountWriteAndCheckKill(kind, path string, body []byte) (killController func(), afterWrite bool) {
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
	w.point, w.struck = nil, true // the next controller is not killed
	return w.kill, at.Answered
}

// sendAndDiscardResponse makes a write and discards the response.
func (w *KillingProxy) sendAndDiscardResponse(r *http.Request, body []byte) {
	out := r.Clone(r.Context())
	out.URL.Scheme, out.URL.Host, out.Host, out.RequestURI = w.to.Scheme, w.to.Host, w.to.Host, ""
	out.Body = io.NopCloser(bytes.NewReader(body))
	resp, err := w.transport.RoundTrip(out)
	if err != nil {
		return // the write was not made, which is an equivalent case
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close() // no data is lost: the body was only read
}

// describeWriteKind returns the kind of a write: the verb, the resource with its subresource, and
// the writer if it is the outbox.
func describeWriteKind(r *http.Request) string {
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
