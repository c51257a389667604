package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// flushTimeout limits how long the shutdown of a process waits for the collector.
const flushTimeout = 5 * time.Second

var errFlushTimeout = errors.New("collector did not accept the last spans in time")

// TraceConfig configures the destination of spans. The zero value means none. Headers, TLS,
// timeouts, sampling and resource attributes come from the OTEL_* variables, which the
// OpenTelemetry SDK reads.
type TraceConfig struct {
	// Endpoint is the base URL of an OTLP collector with HTTP; spans go to /v1/traces below it.
	Endpoint string `key:"endpoint" env:"OTEL_EXPORTER_OTLP_ENDPOINT" validate:"omitempty,url" doc:"Base URL of an OTLP/HTTP collector, such as http://localhost:4318. Without it, tracing is off."`

	// TracesEndpoint is the full URL for spans, and takes precedence over Endpoint.
	TracesEndpoint string `key:"traces_endpoint" env:"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT" validate:"omitempty,url" doc:"Full URL for traces, instead of one derived from the endpoint."`

	// Version is the version of the program, in spans as service.version.
	Version string

	// Log logs lost spans. Nil discards them.
	Log *slog.Logger
}

// buildTracesURL returns the destination of spans, or empty for none.
func (c TraceConfig) buildTracesURL() (string, error) {
	if c.TracesEndpoint != "" || c.Endpoint == "" {
		return c.TracesEndpoint, nil
	}
	u, err := url.Parse(c.Endpoint)
	if err != nil {
		return "", fmt.Errorf("read OTLP endpoint: %w", err)
	}
	return u.JoinPath("v1", "traces").String(), nil
}

// Tracing creates tracers and delivers their spans.
type Tracing struct {
	provider trace.TracerProvider
	shutdown func(context.Context) error // nil if tracing is off
}

// NewTracing returns the tracing of a component. It does not connect: spans are sent in batches in
// the background until Run ends. If the collector does not accept them they are lost, with a log
// line.
func NewTracing(ctx context.Context, cfg TraceConfig, component string) (*Tracing, error) {
	endpoint, err := cfg.buildTracesURL()
	if err != nil {
		return nil, err
	}
	if endpoint == "" {
		return &Tracing{provider: noop.NewTracerProvider()}, nil
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(endpoint))
	if err != nil {
		return nil, fmt.Errorf("create span exporter for %s: %w", endpoint, err)
	}
	res, err := resource.New(
		ctx,
		resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", component), attribute.String("service.version", cfg.Version)),
		resource.WithFromEnv(), // last, because later values take precedence
	)
	if err != nil {
		return nil, fmt.Errorf("describe %s for tracing: %w", component, err)
	}
	log := cfg.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(loggingExporter{SpanExporter: exporter, log: log}),
		sdktrace.WithResource(res),
	)
	return &Tracing{provider: provider, shutdown: provider.Shutdown}, nil
}

// Enabled reports whether spans are exported.
func (t *Tracing) Enabled() bool { return t.shutdown != nil }

// Provider returns the provider of the process's tracers.
func (t *Tracing) Provider() trace.TracerProvider { return t.provider }

// Tracer returns the tracer of a package, named by its import path.
func (t *Tracing) Tracer(name string) trace.Tracer { return t.provider.Tracer(name) }

// Run waits until ctx ends and then delivers the remaining spans, for at most five seconds.
func (t *Tracing) Run(ctx context.Context) error {
	<-ctx.Done()
	if t.shutdown == nil {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), flushTimeout, errFlushTimeout)
	defer cancel()
	if err := t.shutdown(ctx); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("stop tracing: %w", err)
	}
	return nil
}

// FormatTraceContext returns the trace of ctx as the W3C texts for a message or a cloud event; both are empty
// without a trace.
func FormatTraceContext(ctx context.Context) (traceparent, tracestate string) {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return "", ""
	}
	c := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, c)
	return c["traceparent"], c["tracestate"]
}

// PropagateTraces returns a transport that sends the trace of each request's context along.
func PropagateTraces(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if parent, state := FormatTraceContext(r.Context()); parent != "" {
			r = r.Clone(r.Context()) // a transport must not change the request of its caller
			r.Header.Set("Traceparent", parent)
			if state != "" {
				r.Header.Set("Tracestate", state)
			}
		}
		return next.RoundTrip(r)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// WithRemoteTraceContext returns a context with the trace of a message as its remote parent. Invalid texts do not
// change ctx.
func WithRemoteTraceContext(ctx context.Context, traceparent, tracestate string) context.Context {
	if traceparent == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{
		"traceparent": traceparent, "tracestate": tracestate,
	})
}

// A loggingExporter logs failed exports. Without it the SDK writes to the global logger of the
// standard library.
type loggingExporter struct {
	sdktrace.SpanExporter

	log *slog.Logger
}

// ExportSpans implements sdktrace.SpanExporter.
func (e loggingExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if err := e.SpanExporter.ExportSpans(ctx, spans); err != nil {
		e.log.WarnContext(ctx, "spans dropped", "spans", len(spans), "err", err)
	}
	return nil
}
