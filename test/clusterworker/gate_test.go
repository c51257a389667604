package clusterworker

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

// serverBound is how long the garden may take for one request.
const serverBound = time.Minute

// A sender is one life of one worker.
type sender struct {
	worker string
	life   int64
}

func (s sender) String() string { return fmt.Sprintf("%s (life %d)", s.worker, s.life) }

// A request is one that came to a gate.
type request struct {
	by     sender
	method string
	shoot  string // its name, "" of a list or of something else
	write  bool   // it changes something
	watch  bool

	cluster    string // of an apply
	generation int64  // of an apply

	http *http.Request
	body []byte
}

// creates is whether it can make a Shoot that is not there: it names no uid.
func (q *request) creates() bool { return q.cluster != "" && uidOf(q.body) == "" }

func (q *request) String() string {
	return fmt.Sprintf("%s: %s %s generation %d", q.by, q.method, q.shoot, q.generation)
}

// A way leads the workers of a test to the garden.
type way struct {
	book      *book
	to        *url.URL
	transport http.RoundTripper
	// judge says what is done with a request. It may block.
	judge   atomic.Pointer[func(*request) fault]
	keeping atomic.Int64 // requests that the garden has not answered yet

	ended chan struct{} // closed with the test
	under sync.WaitGroup

	mu     sync.Mutex
	breaks chan struct{} // closed when the watches break that there are
}

func newWay(t *testing.T, cfg *rest.Config, b *book) *way {
	t.Helper()
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	to, err := url.Parse(cfg.Host)
	if err != nil {
		t.Fatal(err)
	}
	w := &way{book: b, to: to, transport: transport, ended: make(chan struct{}), breaks: make(chan struct{})}
	w.clear()
	t.Cleanup(func() {
		close(w.ended)
		w.breakWatches()
		w.under.Wait()
	})
	return w
}

// outlasting is a context that goes on when whoever sent a request has gone.
func (w *way) outlasting(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w.under.Go(func() {
		if opened(ctx, w.ended) {
			cancel()
		}
	})
	return ctx, cancel
}

// faults has requests judged from now on.
func (w *way) faults(judge func(*request) fault) { w.judge.Store(&judge) }

// clear lets every request pass from now on.
func (w *way) clear() { w.faults(func(*request) fault { return fault{} }) }

// once judges the first request that is wanted, and lets all others pass. It
// tells of that request when it came.
func (w *way) once(wanted func(*request) bool, f fault) (came <-chan *request) {
	found := make(chan *request, 1)
	var done atomic.Bool
	w.faults(func(q *request) fault {
		if !wanted(q) || done.Swap(true) {
			return fault{}
		}
		found <- q
		return f
	})
	return found
}

// away lets nothing pass any more, and breaks what has.
func (w *way) away() {
	w.faults(func(*request) fault { return fault{kind: lost} })
	w.breakWatches()
}

func (w *way) breakWatches() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.breaks)
	w.breaks = make(chan struct{})
}

// A gate is where one worker comes to the way.
type gate struct {
	*way
	worker string
	life   atomic.Int64
	addr   string
}

type lifeKey struct{}

// newGate opens a gate until the test ends.
func newGate(t *testing.T, w *way, worker string) *gate {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{way: w, worker: worker, addr: l.Addr().String()}
	server := &http.Server{
		Handler: g, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0),
		// Who sends is known by when the connection was made: a process that comes
		// later makes its own.
		ConnContext: func(ctx context.Context, _ net.Conn) context.Context {
			return context.WithValue(ctx, lifeKey{}, g.life.Load())
		},
	}
	w.under.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() { _ = server.Close() })
	return g
}

// kubeconfig writes how a worker comes to the gate.
func (g *gate) kubeconfig(t *testing.T) (path string) {
	t.Helper()
	k := clientcmdapi.NewConfig()
	k.Clusters["gate"] = &clientcmdapi.Cluster{Server: "http://" + g.addr}
	k.AuthInfos["worker"] = clientcmdapi.NewAuthInfo()
	k.Contexts["gate"] = &clientcmdapi.Context{Cluster: "gate", AuthInfo: "worker"}
	k.CurrentContext = "gate"
	path = filepath.Join(t.TempDir(), g.worker+".kubeconfig")
	if err := clientcmd.WriteToFile(*k, path); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// ServeHTTP judges a request, and does with it what was judged.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.under.Add(1)
	defer g.under.Done()
	q, err := g.read(r)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	f := (*g.judge.Load())(q)
	if f.kind != "" && !q.watch {
		g.book.note(cmp.Or(q.shoot, q.by.worker), "gate: %s is %s", q, f)
	}
	if q.watch {
		g.watch(w, r, f)
		return
	}
	switch f.kind {
	case lost:
		panic(http.ErrAbortHandler) // the connection breaks
	case refused:
		f.answer(w, q)
		return
	case "", slow, busy, late, swallowed, cut, torn:
	}
	ctx, cancel := g.outlasting(r.Context())
	defer cancel()
	a, answered := g.sendOn(ctx, q, f)
	switch {
	case !answered || f.kind == cut:
		panic(http.ErrAbortHandler)
	case f.kind == swallowed || f.kind == late:
		opened(ctx, r.Context().Done()) // until whoever asked gives up
		panic(http.ErrAbortHandler)
	}
	maps.Copy(w.Header(), a.header)
	w.Header().Set("Content-Length", strconv.Itoa(len(a.body)))
	w.WriteHeader(a.status)
	if f.kind == torn {
		a.body = a.body[:len(a.body)/2]
	}
	_, _ = w.Write(a.body)
	if f.kind == torn {
		panic(http.ErrAbortHandler)
	}
}

// An answer is the garden's.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// read says what a request is.
func (g *gate) read(r *http.Request) (*request, error) {
	life, _ := r.Context().Value(lifeKey{}).(int64)
	q := &request{by: sender{g.worker, life}, method: r.Method, http: r, watch: r.URL.Query().Has("watch")}
	_, q.shoot, _ = strings.Cut(r.URL.Path, "/shoots/")
	q.write = q.shoot != "" && r.Method != http.MethodGet && !r.URL.Query().Has("dryRun")
	var err error
	if q.body, err = io.ReadAll(r.Body); err != nil {
		return nil, err
	}
	var m shoot.Manifest
	if json.Unmarshal(q.body, &m) == nil {
		q.cluster = m.Metadata.Labels[shoot.LabelCluster]
		q.generation, _ = strconv.ParseInt(m.Metadata.Annotations[shoot.AnnotationGeneration], 10, 64)
	}
	return q, nil
}

// sendOn sends a request to the garden and gives its answer, if there is one.
// Once it is on its way nobody calls it back: not a worker that gave up, nor one
// that was killed.
func (g *gate) sendOn(ctx context.Context, q *request, f fault) (a answer, answered bool) {
	g.keeping.Add(1)
	defer g.keeping.Add(-1)
	left := whenDone(q.http.Context()) //nolint:contextcheck // it is about the sender, who may give up
	from := time.Now()
	if pause(ctx, f.delay) != nil || f.until != nil && !opened(ctx, f.until) {
		return a, false
	}
	if f.kind != busy {
		from = time.Now()
	}
	ctx, cancel := context.WithTimeout(ctx, serverBound)
	defer cancel()
	out := q.http.Clone(ctx)
	out.URL.Scheme, out.URL.Host, out.Host, out.RequestURI = g.to.Scheme, g.to.Host, g.to.Host, ""
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(q.body)), int64(len(q.body))
	out.Header.Del("Accept-Encoding")
	p := passage{by: q.by, method: q.method, shoot: q.shoot, cluster: q.cluster, generation: q.generation, from: from, late: f.kind == late}
	a, err := g.exchange(out)
	p.to, p.left = time.Now(), left()
	p.status, p.uid = a.status, uidOf(a.body)
	if q.write && !errors.Is(err, context.Canceled) {
		g.book.passed(p)
		g.book.note(q.shoot, "gate: %s after %s", p, p.to.Sub(p.from).Round(time.Millisecond))
	}
	return a, err == nil
}

// whenDone notes when a context ends. The func gives that time, zero if the context
// has not ended yet.
func whenDone(ctx context.Context) func() time.Time {
	var at atomic.Pointer[time.Time]
	stop := context.AfterFunc(ctx, func() {
		now := time.Now()
		at.Store(&now)
	})
	return func() time.Time {
		stop()
		if t := at.Load(); t != nil {
			return *t
		}
		return time.Time{}
	}
}

// opened waits until a channel is closed, and is false if ctx ends before.
func opened(ctx context.Context, until <-chan struct{}) bool {
	select {
	case <-until:
		return true
	case <-ctx.Done():
		return false
	}
}

func (g *gate) exchange(out *http.Request) (answer, error) {
	resp, err := g.transport.RoundTrip(out)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, body}, err
}

func uidOf(body []byte) string {
	var o struct {
		Metadata struct{ UID string }
	}
	_ = json.Unmarshal(body, &o) // an answer that is no object has none
	return o.Metadata.UID
}

// watch passes a watch on, for as long as it was judged.
func (g *gate) watch(w http.ResponseWriter, r *http.Request, f fault) {
	if f.kind == lost {
		panic(http.ErrAbortHandler)
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	g.mu.Lock()
	breaks := g.breaks
	g.mu.Unlock()
	g.under.Go(func() {
		if opened(ctx, breaks) {
			cancel()
		}
	})
	if f.delay > 0 {
		defer time.AfterFunc(f.delay, cancel).Stop()
	}
	proxy := httputil.ReverseProxy{
		Rewrite:   func(p *httputil.ProxyRequest) { p.SetURL(g.to); p.Out.Header.Del("Accept-Encoding") },
		Transport: g.transport, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
	}
	proxy.ServeHTTP(w, r.WithContext(ctx))
}
