package crash

import (
	"bytes"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// A point is where the controller dies: at the nth of its writes.
type point struct {
	n int
	// answered is that the API server has made the write, and that the controller
	// never learns so; without it the write is never made.
	answered bool
}

// A way leads a controller to the API server, and has it die at a point.
type way struct {
	testing.TB

	to        *url.URL
	transport http.RoundTripper
	proxy     *httputil.ReverseProxy
	server    *httptest.Server

	mu     sync.Mutex
	at     point // 0 is nowhere
	kill   func()
	writes []string      // what was written since the way was armed
	struck string        // the write that it dies at
	dead   chan struct{} // closed when it has died there
	made   int           // Jobs, or changes of targets by inline actions
}

// lead is a way for fleettest.Options.
func (w *way) lead(cfg *rest.Config) *rest.Config {
	w.Helper()
	var err error
	if w.transport, err = rest.TransportFor(&rest.Config{Host: cfg.Host, TLSClientConfig: rest.TLSClientConfig{CAData: cfg.CAData}}); err != nil {
		w.Fatal(err)
	}
	if w.to, err = url.Parse(cfg.Host); err != nil {
		w.Fatal(err)
	}
	w.proxy = &httputil.ReverseProxy{
		Rewrite:   func(p *httputil.ProxyRequest) { p.SetURL(w.to) },
		Transport: w.transport, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
		ModifyResponse: w.answers,
	}
	w.server = httptest.NewTLSServer(w) // where there is no TLS, clients say nothing of who they are
	w.Cleanup(func() {
		w.server.CloseClientConnections()
		w.server.Close()
	})
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.server.Certificate().Raw})
	return &rest.Config{Host: w.server.URL, BearerToken: cfg.BearerToken, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
}

// arm begins to count anew.
func (w *way) arm(at point, kill func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at, w.kill, w.writes, w.struck, w.made = at, kill, nil, "", 0
	w.dead = make(chan struct{})
}

// seen gives what was written since the way was armed, the write that the
// controller has died at, and how many effects there were. If it is about to die, that
// is waited for.
func (w *way) seen() (writes []string, struck string, made int) {
	w.mu.Lock()
	struck, dead := w.struck, w.dead
	w.mu.Unlock()
	if struck != "" {
		<-dead
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.writes, struck, w.made
}

// ServeHTTP passes everything on but the write that the controller dies at.
func (w *way) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	what := kindOf(r)
	kill, answered := w.writing(what)
	if kill == nil {
		w.proxy.ServeHTTP(rw, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err == nil && answered {
		w.exchange(r, body)
	}
	kill()
	panic(http.ErrAbortHandler)
}

// writing counts a write. At the point it gives what kills the controller.
func (w *way) writing(what string) (kill func(), answered bool) {
	if what == "" {
		return nil, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writes = append(w.writes, what)
	if len(w.writes) != w.at.n {
		return nil, false
	}
	w.struck = what
	do, dead := w.kill, w.dead
	return func() {
		do()
		close(dead)
	}, w.at.answered
}

// answers sees what comes back.
func (w *way) answers(resp *http.Response) error {
	what := kindOf(resp.Request)
	if what == postsJob && resp.StatusCode == http.StatusCreated || what == acts && resp.StatusCode == http.StatusOK {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.made++
	}
	return nil
}

// exchange makes a write whose answer nobody hears.
func (w *way) exchange(r *http.Request, body []byte) {
	out := r.Clone(r.Context())
	out.URL.Scheme, out.URL.Host, out.Host, out.RequestURI = w.to.Scheme, w.to.Host, w.to.Host, ""
	out.Body = io.NopCloser(bytes.NewReader(body))
	resp, err := w.transport.RoundTrip(out)
	if err != nil {
		return // it was not made, which is as good
	}
	_ = w.answers(resp)
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close() // nothing was written to it
}

// What has an effect.
const (
	postsJob = "POST jobs"
	acts     = "PATCH deployments/scale" // as the account of the action
)

// kindOf is what a request writes of executions, their Jobs and targets: the verb, the
// resource with its subresource, and the auditor's apart from the reconciler's.
// It is empty for all that changes nothing of them.
func kindOf(r *http.Request) string {
	query := r.URL.Query()
	if r.Method == http.MethodGet || query.Has("dryRun") {
		return ""
	}
	_, below, ok := strings.Cut(r.URL.Path, "/namespaces/")
	parts := strings.Split(below, "/")
	const resource, subresource = 1, 3 // behind the namespace, and behind the name
	if !ok || len(parts) <= resource || !slices.Contains([]string{v1alpha1.Resource, "jobs", "pods", "deployments"}, parts[resource]) {
		return ""
	}
	what := r.Method + " " + parts[resource]
	if len(parts) > subresource {
		what += "/" + parts[subresource]
	}
	if strings.HasSuffix(query.Get("fieldManager"), "-audit") {
		what += " by the auditor"
	}
	return what
}
