package changeevent

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// Tests behind a proxy must not use it for loopback.
	if err := os.Setenv("NO_PROXY", "*"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// An answerer responds to the request with number n, from 0.
type answerer func(n int, r *http.Request) (*http.Response, error)

// A script responds to requests in place of a network.
type script struct {
	answer answerer

	mu    sync.Mutex
	calls []call
}

// A call is a request that a sink received.
type call struct {
	url    string
	header http.Header
	body   string
}

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	n := len(s.calls)
	s.calls = append(s.calls, call{url: r.URL.String(), header: r.Header, body: string(body)})
	s.mu.Unlock()
	if s.answer == nil {
		return status(http.StatusOK), nil
	}
	return s.answer(n, r)
}

func (s *script) got() []call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]call(nil), s.calls...)
}

// status returns a response with a header from pairs of names and values.
func status(code int, header ...string) *http.Response {
	h := http.Header{}
	for i := 0; i+1 < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return &http.Response{StatusCode: code, Header: h, Body: http.NoBody}
}

// answers returns the statuses in order, and then repeats the last one.
func answers(codes ...int) answerer {
	return func(n int, _ *http.Request) (*http.Response, error) { return status(codes[min(n, len(codes)-1)]), nil }
}

// hang never responds.
func hang(_ int, r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// enabled returns a configuration that sends to s.
func enabled(s http.RoundTripper) Config {
	return Config{
		Enabled: true, Endpoint: "https://events.example.com/changes", ClusterName: "my-cluster-name",
		Source: SourceFaultQuarantine, HTTP: s, Logger: slog.New(slog.DiscardHandler),
	}
}

// once is enabled with one attempt per event, as in ADR-026.
func once(s http.RoundTripper) Config {
	cfg := enabled(s)
	cfg.Retry.MaxAttempts = 1
	return cfg
}

func start(t *testing.T, cfg Config) Client {
	t.Helper()
	c, err := NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func stop(t *testing.T, c Client) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Errorf("Close: %v, want none", err)
	}
}

func statsOf(t *testing.T, c Client) Stats {
	t.Helper()
	s, ok := StatsOf(c)
	if !ok {
		t.Fatal("the client tells nothing of itself")
	}
	return s
}

// deliveries collects the results of OnDelivery.
type deliveries struct {
	mu  sync.Mutex
	all []Delivery
}

func (d *deliveries) add(x Delivery) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, x)
}

func (d *deliveries) got() []Delivery {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]Delivery(nil), d.all...)
}

// sendOne sends an event, closes the client and returns the result.
func sendOne(t *testing.T, cfg Config, e ChangeEvent) Delivery {
	t.Helper()
	c := start(t, cfg)
	var d deliveries
	e.OnDelivery = d.add
	c.SendChangeEvent(t.Context(), e)
	stop(t, c)
	got := d.got()
	if len(got) != 1 {
		t.Fatalf("told %d times what became of one event: %+v", len(got), got)
	}
	return got[0]
}

// value returns the value of a metric with labels from pairs of names and values, or 0 if
// it is missing. For a histogram it is the count.
func value(t *testing.T, reg prometheus.Gatherer, name string, labels ...string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			have := map[string]string{}
			for _, l := range m.GetLabel() {
				have[l.GetName()] = l.GetValue()
			}
			matches := true
			for i := 0; i+1 < len(labels); i += 2 {
				matches = matches && have[labels[i]] == labels[i+1]
			}
			if matches {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

// wantCounted verifies that the counts are consistent.
func wantCounted(t *testing.T, c Client, reg prometheus.Gatherer, sent int) {
	t.Helper()
	const total, failed = "nvsentinel_change_events_total", "nvsentinel_change_events_failed_total"
	s := statsOf(t, c)
	if s.Sent != uint64(sent) || s.Sent != s.Succeeded+s.Failed+s.Dropped || s.Pending != 0 {
		t.Errorf("%d were sent and the client counts %+v", sent, s)
	}
	if n := value(t, reg, total); n != float64(sent) {
		t.Errorf("%s is %v in all, want %d", total, n, sent)
	}
	if n, want := value(t, reg, failed), value(t, reg, total, "status", "failed")+value(t, reg, total, "status", "dropped"); n != want {
		t.Errorf("%s is %v in all, want %v: what failed or was dropped", failed, n, want)
	}
}

// A logged is a log that can be read while it is written.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *logged) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func (l *logged) want(t *testing.T, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(l.String(), part) {
			t.Errorf("the log lacks %q:\n%s", part, l)
		}
	}
}

var errScripted = errors.New("scripted")

// carried is the key of a context value.
type carried struct{}

func withTrace(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, carried{}, id)
}
