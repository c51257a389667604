package httpserver_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fleetloop/fleetloop/internal/httpserver"
)

func TestChain(t *testing.T) {
	var order []string
	mark := func(name string) httpserver.Middleware {
		return func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				order = append(order, name)
				next.ServeHTTP(w, r)
			})
		}
	}
	h := httpserver.Chain(http.HandlerFunc(hello), mark("outer"), mark("inner"))
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody))
	if diff := cmp.Diff([]string{"outer", "inner"}, order); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

func TestLimitBody(t *testing.T) {
	h := httpserver.LimitBody(5)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
			http.Error(w, fmt.Sprint(tooLarge.Limit), http.StatusRequestEntityTooLarge)
			return
		}
		_, _ = w.Write(text)
	}))
	for body, want := range map[string]string{"": "200 ", "12345": "200 12345", "123456": "413 5\n"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(body)))
		if got := fmt.Sprint(w.Code, " ", w.Body); got != want {
			t.Errorf("body %q: %q, want %q", body, got, want)
		}
	}
}

// deadlines records the read deadlines that a handler sets.
type deadlines struct {
	http.ResponseWriter

	set []time.Time
}

func (d *deadlines) SetReadDeadline(at time.Time) error {
	d.set = append(d.set, at)
	return nil
}

func TestLimitBodyBoundsTheArrivalAlone(t *testing.T) {
	d := &deadlines{ResponseWriter: httptest.NewRecorder()}
	httpserver.LimitBody(100)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if len(d.set) != 1 || time.Until(d.set[0]) > httpserver.BodyTimeout || time.Until(d.set[0]) < httpserver.BodyTimeout/2 {
			t.Errorf("deadlines %v while the body arrives, want one in %s", d.set, httpserver.BodyTimeout)
		}
		_, _ = io.ReadAll(r.Body)
		if len(d.set) != 2 || !d.set[1].IsZero() {
			t.Errorf("deadlines %v after the body arrived, want the last one lifted", d.set)
		}
	})).ServeHTTP(d, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader("x")))
}

// TestHandlerOutlivesBodyDeadline is about the real server: a deadline that
// stayed on the connection would end the context of a slow handler.
func TestHandlerOutlivesBodyDeadline(t *testing.T) {
	s, _ := start(t, httpserver.Config{}, httpserver.LimitBody(100)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(20 * time.Millisecond)) // stands for BodyTimeout
		_, _ = io.ReadAll(r.Body)
		select {
		case <-r.Context().Done():
			http.Error(w, "ended", http.StatusInternalServerError)
		case <-time.NewTimer(100 * time.Millisecond).C:
			hello(w, r)
		}
	})), io.Discard)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.Addr(), strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	res, err := newClient(t, nil).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if text, _ := io.ReadAll(res.Body); string(text) != "hello" {
		t.Errorf("got %q, want the handler to go on past the deadline of the body", text)
	}
}

func TestRecover(t *testing.T) {
	var log syncBuffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ok", hello)
	mux.HandleFunc("GET /panic/{id}", func(http.ResponseWriter, *http.Request) { panic("nil map") })
	mux.HandleFunc("GET /late", func(w http.ResponseWriter, r *http.Request) {
		hello(w, r)
		_ = http.NewResponseController(w).Flush()
		panic("nil map")
	})
	mux.HandleFunc("GET /abort", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	s, _ := start(t, httpserver.Config{}, httpserver.Recover(logger)(mux), &log)
	client := newClient(t, nil)

	if got, err := get(t, client, "http://"+s.Addr()+"/ok"); err != nil || got.code != http.StatusOK || got.text != "hello" {
		t.Errorf("/ok: %d, %q, %v", got.code, got.text, err)
	}
	got, err := get(t, client, "http://"+s.Addr()+"/panic/7")
	if err != nil {
		t.Fatal(err)
	}
	if got.code != http.StatusInternalServerError || got.header.Get("Content-Type") != "application/problem+json" || !strings.Contains(got.text, `"status":500`) {
		t.Errorf("/panic: %d %v %q, want a problem document", got.code, got.header, got.text)
	}
	if got := log.String(); !strings.Contains(got, `msg="handler panicked" method=GET route="GET /panic/{id}" err="nil map"`) || !strings.Contains(got, "middleware_test.go") {
		t.Errorf("log %q, want the panic with its route and stack", got)
	}
	if _, err := get(t, client, "http://"+s.Addr()+"/late"); err == nil {
		t.Error("/late: a half answer was taken for a whole")
	}
	if _, err := get(t, client, "http://"+s.Addr()+"/abort"); err == nil {
		t.Error("/abort: the handler's wish to cut the connection was not heard")
	}
}

func TestRecoverWith(t *testing.T) {
	h := httpserver.RecoverWith(slog.New(slog.DiscardHandler), func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
	})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("x") }))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody))
	if w.Code != http.StatusTeapot {
		t.Errorf("status %d, want that of the answer given", w.Code)
	}
}

func TestAccessLog(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /clusters/{id}", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusNotFound)
		hello(w, r)
	})
	serve := func(level slog.Level) string {
		var b syncBuffer
		log := slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: level}))
		s, stop := start(t, httpserver.Config{}, httpserver.AccessLog(log)(mux), io.Discard)
		if _, err := get(t, newClient(t, nil), "http://"+s.Addr()+"/clusters/7?token=x"); err != nil {
			t.Error(err)
		}
		_ = stop()
		return b.String()
	}
	if got := serve(slog.LevelDebug); !strings.Contains(got, `method=GET path=/clusters/7 route="GET /clusters/{id}" code=404 bytes=5`) || strings.Contains(got, "token") {
		t.Errorf("log %q, want the request without its query", got)
	}
	if got := serve(slog.LevelInfo); got != "" {
		t.Errorf("log %q at info, want nothing", got)
	}
}

func TestMetrics(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	measure, err := httpserver.Metrics(registry, "api")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := httpserver.Metrics(registry, "health"); err != nil {
		t.Errorf("a second server of the process: %v", err)
	}
	if _, err := httpserver.Metrics(registry, "api"); err == nil {
		t.Error("the same server twice")
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/clusters/{id}", func(w http.ResponseWriter, r *http.Request) {
		if n, _ := testutil.GatherAndCount(registry, "fleetloop_http_requests_in_flight"); n != 2 {
			t.Errorf("%d gauges of requests in flight, want one for each server", n)
		}
		_ = http.NewResponseController(w).Flush()
		hello(w, r)
	})
	mux.HandleFunc("/silent", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/odd", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(999) })
	h := measure(mux)
	for _, target := range []string{"GET /clusters/1", "GET /clusters/2", "BREW /clusters/3", "GET /nowhere", "GET /silent", "GET /odd"} {
		method, path, _ := strings.Cut(target, " ")
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), method, path, http.NoBody))
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]uint64{}
	for _, f := range families {
		if f.GetName() != "fleetloop_http_request_duration_seconds" {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			got[strings.Join(labels, " ")] = m.GetHistogram().GetSampleCount()
		}
	}
	want := map[string]uint64{ // code, method, route, server
		"2xx GET /clusters/{id} api": 2, "2xx other /clusters/{id} api": 1, "4xx GET none api": 1, "2xx GET /silent api": 1, "other GET /odd api": 1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("requests measured (-want +got):\n%s", diff)
	}
}

func TestSlowHeaderEnds(t *testing.T) {
	s, _ := start(t, httpserver.Config{ReadHeaderTimeout: 50 * time.Millisecond}, http.HandlerFunc(hello), io.Discard)
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost"); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(conn); err != nil {
		t.Errorf("reading gave %v, want the server to end the connection", err)
	}
}
