package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/fleetloop/fleetloop/internal/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNewLogger(t *testing.T) {
	var b bytes.Buffer
	log, err := telemetry.NewLogger(&b, telemetry.LogConfig{})
	if err != nil {
		t.Fatal(err)
	}
	log.DebugContext(t.Context(), "hidden")
	log.InfoContext(t.Context(), "round done", "took", 1500*time.Millisecond, "err", errors.New("boom"),
		slog.Group("deep", "level", slog.LevelError)) //nolint:sloglint // what such a key becomes is the point

	var line map[string]any
	if err := json.Unmarshal(b.Bytes(), &line); err != nil {
		t.Fatalf("not one JSON line: %v\n%s", err, b.String())
	}
	for key, want := range map[string]any{"level": "info", "msg": "round done", "took": "1.5s", "err": "boom"} {
		if line[key] != want {
			t.Errorf("%s = %v, want %v", key, line[key], want)
		}
	}
	if deep, ok := line["deep"].(map[string]any); !ok || deep["level"] != "ERROR" {
		t.Errorf("deep = %v, want a level within a group left as it is", line["deep"])
	}

	b.Reset()
	if log, err = telemetry.NewLogger(&b, telemetry.LogConfig{Format: "text", Level: "warn"}); err != nil {
		t.Fatal(err)
	}
	log.InfoContext(t.Context(), "hidden")
	log.WarnContext(t.Context(), "late", "by", time.Minute)
	if got := b.String(); !strings.HasSuffix(got, "level=warn msg=late by=1m0s\n") || strings.Contains(got, "hidden") {
		t.Errorf("text line %q", got)
	}
}

func TestLoggerChangesLevel(t *testing.T) {
	var b bytes.Buffer
	var level slog.LevelVar
	log, err := telemetry.NewLogger(&b, telemetry.LogConfig{Level: "error", LevelVar: &level})
	if err != nil {
		t.Fatal(err)
	}
	log.InfoContext(t.Context(), "one")
	level.Set(slog.LevelDebug)
	log.DebugContext(t.Context(), "two")
	if got := b.String(); strings.Contains(got, "one") || !strings.Contains(got, "two") {
		t.Errorf("logged %q, want what the level of the moment lets through", got)
	}
}

func TestNewLoggerRefuses(t *testing.T) {
	for want, cfg := range map[string]telemetry.LogConfig{
		`unknown log level "loud": use debug, info, warn or error`: {Level: "loud"},
		`unknown log format "xml": use json or text`:               {Format: "xml"},
	} {
		if _, err := telemetry.NewLogger(io.Discard, cfg); err == nil || err.Error() != want {
			t.Errorf("NewLogger(%+v) = %v, want %q", cfg, err, want)
		}
	}
}

type brokenCollector struct{ desc *prometheus.Desc }

func (c brokenCollector) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

func (c brokenCollector) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.NewInvalidMetric(c.desc, errors.New("database is away"))
}

func TestMetrics(t *testing.T) {
	registry := telemetry.NewRegistry("sentinel", "1.2.3", "abc")
	if err := registry.Register(brokenCollector{prometheus.NewDesc("test_rows", "Rows.", nil, nil)}); err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	telemetry.MetricsHandler(registry).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	if w.Code != http.StatusOK {
		t.Errorf("status %d, want 200: one broken collector is not all", w.Code)
	}
	for _, want := range []string{`fleetloop_build_info{component="sentinel",goversion="go1.`, `revision="abc",version="1.2.3"}`, "\ngo_goroutines ", "\nprocess_start_time_seconds "} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("metrics lack %q:\n%s", want, w.Body.String())
		}
	}
}

func TestTracingOff(t *testing.T) {
	tracing, err := telemetry.NewTracing(t.Context(), telemetry.TraceConfig{}, "sentinel")
	if err != nil {
		t.Fatal(err)
	}
	if tracing.Enabled() {
		t.Error("enabled without an endpoint")
	}
	tracer := tracing.Tracer("x")
	ctx, span := tracer.Start(t.Context(), "round")
	span.End()
	if span.IsRecording() {
		t.Error("a span is recorded for nobody")
	}
	if parent, state := telemetry.FormatTraceContext(ctx); parent != "" || state != "" {
		t.Errorf("Inject() = %q, %q, want nothing", parent, state)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := tracing.Run(ctx); err != nil {
		t.Errorf("Run() = %v", err)
	}
}

// newCollector accepts spans at path, and responds with code.
func newCollector(t *testing.T, path string, code int) (url string, spans func() []string) {
	t.Helper()
	got := make(chan string, 100)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != path {
			t.Errorf("spans went to %s, want %s", r.URL.Path, path)
		}
		body, _ := io.ReadAll(r.Body)
		var req collector.ExportTraceServiceRequest
		if err := proto.Unmarshal(body, &req); err != nil {
			t.Errorf("read spans: %v", err)
		}
		for _, rs := range req.GetResourceSpans() {
			for _, a := range rs.GetResource().GetAttributes() {
				if a.GetKey() == "service.name" {
					got <- a.GetValue().GetStringValue()
				}
			}
			for _, ss := range rs.GetScopeSpans() {
				for _, s := range ss.GetSpans() {
					got <- s.GetName()
				}
			}
		}
		w.WriteHeader(code)
	}))
	t.Cleanup(srv.Close)
	return srv.URL, func() []string {
		close(got)
		var all []string
		for s := range got {
			all = append(all, s)
		}
		return all
	}
}

func TestTracingDelivers(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		path   string
		config func(url string) telemetry.TraceConfig
	}{
		"Base": {"spans have their path below the base", "/base/v1/traces", func(u string) telemetry.TraceConfig { return telemetry.TraceConfig{Endpoint: u + "/base/"} }},
		"Traces": {"an endpoint for traces is used as it is", "/spans", func(u string) telemetry.TraceConfig {
			return telemetry.TraceConfig{Endpoint: "http://unused", TracesEndpoint: u + "/spans"}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			url, spans := newCollector(t, tc.path, http.StatusOK)
			tracing, err := telemetry.NewTracing(t.Context(), tc.config(url), "sentinel")
			if err != nil {
				t.Fatal(err)
			}
			if !tracing.Enabled() {
				t.Error("not enabled in spite of an endpoint")
			}
			ctx, span := tracing.Tracer("x").Start(t.Context(), "round")
			parent, _ := telemetry.FormatTraceContext(ctx)
			span.End()
			if want := "00-" + span.SpanContext().TraceID().String() + "-" + span.SpanContext().SpanID().String() + "-01"; parent != want {
				t.Errorf("Inject() = %q, want %q", parent, want)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := tracing.Run(ctx); err != nil {
				t.Errorf("Run() = %v", err)
			}
			if got := strings.Join(spans(), " "); got != "sentinel round" {
				t.Errorf("%s: the collector has %q, want the span delivered when Run ends", tc.reason, got)
			}
		})
	}
}

func TestTracingLogsLostSpans(t *testing.T) {
	url, _ := newCollector(t, "/v1/traces", http.StatusBadRequest)
	var b bytes.Buffer
	log, err := telemetry.NewLogger(&b, telemetry.LogConfig{})
	if err != nil {
		t.Fatal(err)
	}
	tracing, err := telemetry.NewTracing(t.Context(), telemetry.TraceConfig{Endpoint: url, Log: log}, "sentinel")
	if err != nil {
		t.Fatal(err)
	}
	_, span := tracing.Tracer("x").Start(t.Context(), "round")
	span.End()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := tracing.Run(ctx); err != nil {
		t.Errorf("Run() = %v, want a collector's refusal to be no error of the process", err)
	}
	if !strings.Contains(b.String(), `"msg":"spans dropped","spans":1`) {
		t.Errorf("log %q, want the loss in it", b.String())
	}
}

func TestNewTracingRefuses(t *testing.T) {
	if _, err := telemetry.NewTracing(t.Context(), telemetry.TraceConfig{Endpoint: "http://a b:c"}, "x"); err == nil {
		t.Error("NewTracing() took an endpoint that is no URL")
	}
}

func TestExtract(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	ctx := telemetry.WithRemoteTraceContext(t.Context(), parent, "a=b")
	if got, state := telemetry.FormatTraceContext(ctx); got != parent || state != "a=b" {
		t.Errorf("Inject(Extract()) = %q, %q, want what was extracted", got, state)
	}
	if !trace.SpanContextFromContext(ctx).IsRemote() {
		t.Error("the parent is not remote")
	}
	for _, text := range []string{"", "nonsense", "00-00000000000000000000000000000000-b7ad6b7169203331-01"} {
		if got, _ := telemetry.FormatTraceContext(telemetry.WithRemoteTraceContext(t.Context(), text, "")); got != "" {
			t.Errorf("Extract(%q) made the trace %q", text, got)
		}
	}
}
