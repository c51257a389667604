package crash

import (
	"bytes"
	"encoding/pem"
	"fmt"
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

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// A point is where the controller dies: at the nth of its writes, from 1.
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
	name   string // of the execution whose writes count
	at     point  // 0 is nowhere
	wants  []string
	kill   func()
	jobs   map[string]bool // those of the execution
	said   map[string]bool // of its Jobs
	writes []string        // what was written since the way was armed
	struck string          // the write that it dies at
	dead   chan struct{}   // closed when it has died there
	made   int             // Jobs, or changes of targets by inline actions
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

// arm begins to count anew: the writes of an execution, which are to be those of
// wants up to the point.
func (w *way) arm(name string, at point, wants []string, kill func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.name, w.at, w.wants, w.kill, w.writes, w.struck, w.made = name, at, wants, kill, nil, "", 0
	w.jobs, w.said = map[string]bool{}, map[string]bool{}
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
	what, name := kindOf(r)
	if what == "" {
		w.proxy.ServeHTTP(rw, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler) // nobody is there any more
	}
	kill, answered := w.writing(what, name, body)
	if kill == nil {
		r.Body = io.NopCloser(bytes.NewReader(body))
		w.proxy.ServeHTTP(rw, r)
		return
	}
	if answered {
		w.exchange(r, body)
	}
	kill()
	panic(http.ErrAbortHandler)
}

// writing counts a write. At the point it gives what kills the controller, unless
// something else was written up to there than is wanted.
func (w *way) writing(what, name string, body []byte) (kill func(), answered bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.counts(what, name, body) {
		return nil, false
	}
	w.writes = append(w.writes, what)
	if n := len(w.writes); w.struck != "" || n != w.at.n || !slices.Equal(w.writes, w.wants[:n]) {
		return nil, false
	}
	w.struck = what
	do, dead := w.kill, w.dead
	return func() {
		do()
		close(dead)
	}, w.at.answered
}

// counts says whether a write is one of the execution, and is no mere repetition.
// A controller may have more to say of the execution before, which is gone. It
// reads Jobs where its own writes come late, and so may say twice of one when it is
// to go, which changes nothing.
func (w *way) counts(what, name string, body []byte) bool {
	switch {
	case what == postsJob:
		j, err := jobOf(body)
		if err != nil {
			w.Error(err)
			return true
		}
		ours := j.Labels[v1alpha1.LabelExecution] == w.name
		w.jobs[j.Name] = ours
		return ours
	case strings.HasSuffix(what, " jobs"):
		this := what + " " + name + " " + string(body)
		again := w.said[this]
		w.said[this] = true
		return w.jobs[name] && !again
	case strings.Contains(what, " "+v1alpha1.Resource):
		return name == w.name
	}
	return true
}

// jobOf is the Job in a request.
func jobOf(body []byte) (*batchv1.Job, error) {
	o, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("read a Job that is made: %w", err)
	}
	j, ok := o.(*batchv1.Job)
	if !ok {
		return nil, fmt.Errorf("read a Job that is made: it is %T", o)
	}
	return j, nil
}

// answers sees what comes back. A write that was refused because somebody else has
// written in between does not count: it is made again, at what is there then.
func (w *way) answers(resp *http.Response) error {
	what, name := kindOf(resp.Request)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case what == postsJob && resp.StatusCode == http.StatusCreated, what == acts && resp.StatusCode == http.StatusOK:
		w.made++
	case strings.Contains(what, " "+v1alpha1.Resource) && name == w.name && resp.StatusCode == http.StatusConflict:
		for i, one := range slices.Backward(w.writes) {
			if one == what {
				w.writes = slices.Delete(slices.Clone(w.writes), i, i+1) // others may read what they were given
				break
			}
		}
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

// kindOf is what a request writes of executions, their Jobs and targets, and the name
// of what it is written of: the verb, the resource with its subresource, and the
// auditor's apart from the reconciler's. It is empty for all that changes nothing of
// them.
func kindOf(r *http.Request) (what, name string) {
	query := r.URL.Query()
	if r.Method == http.MethodGet || query.Has("dryRun") {
		return "", ""
	}
	_, below, ok := strings.Cut(r.URL.Path, "/namespaces/")
	parts := strings.Split(below, "/")
	const resource, object, subresource = 1, 2, 3 // behind the namespace
	if !ok || len(parts) <= resource || !slices.Contains([]string{v1alpha1.Resource, "jobs", "pods", "deployments"}, parts[resource]) {
		return "", ""
	}
	what = r.Method + " " + parts[resource]
	if len(parts) > object {
		name = parts[object]
	}
	if len(parts) > subresource {
		what += "/" + parts[subresource]
	}
	if strings.HasSuffix(query.Get("fieldManager"), "-audit") {
		what += " by the auditor"
	}
	return what, name
}
