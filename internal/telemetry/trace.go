package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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

// flushTimeout bounds how long the end of a process waits for the collector.
const flushTimeout = 5 * time.Second

var errFlushTimeout = errors.New("collector did not accept the last spans in time")

// TraceConfig says where spans go. The zero value is nowhere. Headers, TLS,
// timeouts, sampling and the attributes of the resource are those of the
// OTEL_* variables, which the OpenTelemetry SDK reads by itself.
type TraceConfig struct {
	// Endpoint is the base URL of an OTLP collector that speaks HTTP; spans
	// go to /v1/traces below it.
	Endpoint string `key:"endpoint" env:"OTEL_EXPORTER_OTLP_ENDPOINT" validate:"omitempty,url" doc:"Base URL of an OTLP/HTTP collector, such as http://localhost:4318. Without it, tracing is off."`

	// TracesEndpoint is the full URL for spans, and wins over Endpoint.
	TracesEndpoint string `key:"traces_endpoint" env:"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT" validate:"omitempty,url" doc:"Full URL for traces, instead of one derived from the endpoint."`

	// Version is the program's, which spans have as service.version.
	Version string

	// Log tells of spans that were lost. Nil tells nobody.
	Log *slog.Logger
}

// endpointURL is where spans go, or empty.
func (c TraceConfig) endpointURL() (string, error) {
	if c.TracesEndpoint != "" || c.Endpoint == "" {
		return c.TracesEndpoint, nil
	}
	u, err := url.Parse(c.Endpoint)
	if err != nil {
		return "", fmt.Errorf("read OTLP endpoint: %w", err)
	}
	return u.JoinPath("v1", "traces").String(), nil
}

// Tracing makes tracers and delivers their spans.
type Tracing struct {
	provider trace.TracerProvider
	shutdown func(context.Context) error // nil if tracing is off
}

// NewTracing makes the tracing of a component. It does not connect: spans are
// sent in batches in the background, from now until Run ends, and are lost,
// with a log line, if the collector does not take them.
func NewTracing(ctx context.Context, cfg TraceConfig, component string) (*Tracing, error) {
	endpoint, err := cfg.endpointURL()
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
		resource.WithFromEnv(), // last, because the later wins
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

// Enabled reports whether spans go anywhere.
func (t *Tracing) Enabled() bool { return t.shutdown != nil }

// Tracer gives a tracer for a package, named by its import path.
func (t *Tracing) Tracer(name string) trace.Tracer { return t.provider.Tracer(name) }

// Run waits until ctx ends and then delivers what is left, for five seconds
// at most.
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

// Inject gives the trace of ctx as the W3C texts that go into a message or
// a cloud event; both are empty if there is none.
func Inject(ctx context.Context) (traceparent, tracestate string) {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return "", ""
	}
	c := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, c)
	return c["traceparent"], c["tracestate"]
}

// Extract gives a context with the trace of a message as its remote parent.
// Texts that are no trace leave ctx as it is.
func Extract(ctx context.Context, traceparent, tracestate string) context.Context {
	if traceparent == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{
		"traceparent": traceparent, "tracestate": tracestate,
	})
}

// A loggingExporter logs what it could not export. Without it the SDK writes
// to the global logger of the standard library.
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
