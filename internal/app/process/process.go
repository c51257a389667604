// Package process provides the shared base of the binaries.
//
// The base is a logger, a metrics registry, traces, the endpoints for metrics and health, and the
// client of the fleet API.
package process

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetloop/fleetloop/internal/httpserver"
	"github.com/fleetloop/fleetloop/internal/lifecycle"
	"github.com/fleetloop/fleetloop/internal/settings"
	"github.com/fleetloop/fleetloop/internal/telemetry"
	"github.com/fleetloop/fleetloop/internal/version"
)

// Config holds the settings that all binaries share.
type Config struct {
	Log   telemetry.LogConfig   `key:"log"`
	Trace telemetry.TraceConfig `key:"tracing"`

	// MetricsAddr and HealthAddr may be equal: one listener then serves both.
	MetricsAddr string `key:"metrics_bind_address" env:"METRICS_BIND_ADDRESS" flag:"metrics-bind-address" validate:"required" doc:"listen address of /metrics, host:port"`
	HealthAddr  string `key:"health_probe_bind_address" env:"HEALTH_PROBE_BIND_ADDRESS" flag:"health-probe-bind-address" validate:"required" doc:"listen address of /healthz and /readyz, host:port"`

	// MetricsToken protects the metrics and the debug paths beside them.
	MetricsToken settings.Secret `key:"metrics_token" env:"METRICS_TOKEN" file:"metrics_token_file" secret:"true" doc:"Bearer token for /metrics and /debug. Without a token, no authentication is required."`

	// StopTimeout limits how long each part may take to stop.
	StopTimeout time.Duration `key:"stop_timeout" env:"SHUTDOWN_TIMEOUT" flag:"stop-timeout" default:"20s" validate:"gt=0" doc:"timeout for each part of the process to stop"`
}

// Process is one running binary.
type Process struct {
	Log     *slog.Logger
	Metrics *prometheus.Registry
	Tracing *telemetry.Tracing

	cfg             Config
	healthHandlers  map[string]http.Handler // by path, beside the health endpoints
	metricsHandlers map[string]http.Handler // by path, beside the metrics
	moreMetrics     prometheus.Gatherers    // beside Metrics
}

// StopTimeout returns the time limit for each part to stop. Zero means the default of package
// lifecycle.
func (p *Process) StopTimeout() time.Duration { return p.cfg.StopTimeout }

// AddMetricsGatherer serves the metrics of g beside those of the process. Call it before Run.
func (p *Process) AddMetricsGatherer(g prometheus.Gatherer) {
	p.moreMetrics = append(p.moreMetrics, g)
}

// HandleOnHealthServer serves a path beside the health endpoints. Call it before Run.
func (p *Process) HandleOnHealthServer(path string, h http.Handler) {
	if p.healthHandlers == nil {
		p.healthHandlers = map[string]http.Handler{}
	}
	p.healthHandlers[path] = h
}

// HandleOnMetricsServer serves a path beside the metrics, with the same protection. Call it before Run.
func (p *Process) HandleOnMetricsServer(path string, h http.Handler) {
	if p.metricsHandlers == nil {
		p.metricsHandlers = map[string]http.Handler{}
	}
	p.metricsHandlers[path] = h
}

// New builds the shared dependencies of the parts of a process. Logs go to logOutput.
func New(ctx context.Context, component string, cfg Config, logOutput io.Writer) (*Process, error) {
	log, err := telemetry.NewLogger(logOutput, cfg.Log)
	if err != nil {
		return nil, err
	}
	build := version.Get()
	cfg.Trace.Log = log
	cfg.Trace.Version = build.Version
	tracing, err := telemetry.NewTracing(ctx, cfg.Trace, component)
	if err != nil {
		return nil, err
	}
	log.InfoContext(ctx, "starting", "component", component, "version", build.Version, "revision", build.Revision)
	return &Process{
		Log:     log,
		Metrics: telemetry.NewRegistry(component, build.Version, build.Revision),
		Tracing: tracing,
		cfg:     cfg,
	}, nil
}

// errStopping means that a process is not ready because it is stopping.
var errStopping = errors.New("process is stopping")

// Run runs parts in order of dependency until ctx ends. Metrics and health respond from before the
// first part starts until after the last one has stopped. live reports why the process makes no
// progress; nil means that it always does. Parts that cannot run are discarded.
func (p *Process) Run(ctx context.Context, live func() error, parts ...lifecycle.Part) error {
	endpoints, err := p.listenForMetricsAndHealth(ctx, live, parts)
	if err != nil {
		return errors.Join(err, lifecycle.CloseAll(parts...))
	}
	tracing := []lifecycle.Part{{Name: "tracing", Run: p.Tracing.Run}}
	all := slices.Concat(tracing, endpoints, parts)
	for i := range all {
		all[i].Run = p.wrapRunToLogEarlyEnd(all[i])
	}
	err = lifecycle.Run(ctx, lifecycle.Options{StopTimeout: p.cfg.StopTimeout}, all...)
	if err != nil {
		p.Log.ErrorContext(ctx, "stopped", "err", err)
		return err
	}
	p.Log.InfoContext(ctx, "stopped")
	return nil
}

// wrapRunToLogEarlyEnd returns a function that runs a part and logs at once if it ends early. The process returns the
// error only after all other parts have stopped.
func (p *Process) wrapRunToLogEarlyEnd(part lifecycle.Part) func(context.Context) error {
	return func(ctx context.Context) error {
		err := part.Run(ctx)
		if ctx.Err() == nil {
			p.Log.ErrorContext(ctx, "part stopped unexpectedly, stopping the process", "part", part.Name, "err", err)
		}
		return err
	}
}

// listenForMetricsAndHealth returns the parts that serve metrics and health, on one listener if both have the same
// address. The readiness is that of checked.
func (p *Process) listenForMetricsAndHealth(ctx context.Context, live func() error, checked []lifecycle.Part) ([]lifecycle.Part, error) {
	health := p.newHealthMux(ctx, live, checked)
	metrics := p.newMetricsMux()
	if p.cfg.HealthAddr == p.cfg.MetricsAddr {
		metrics.Handle("/", health)
		part, err := p.listenHTTP(ctx, "metrics and health", flagMetrics+", "+flagHealth, p.cfg.MetricsAddr, metrics)
		return []lifecycle.Part{part}, err
	}
	metricsPart, err := p.listenHTTP(ctx, "metrics", flagMetrics, p.cfg.MetricsAddr, metrics)
	if err != nil {
		return nil, err
	}
	healthPart, err := p.listenHTTP(ctx, "health", flagHealth, p.cfg.HealthAddr, health)
	if err != nil {
		return nil, errors.Join(err, lifecycle.CloseAll(metricsPart))
	}
	return []lifecycle.Part{metricsPart, healthPart}, nil
}

// newHealthMux serves liveness, the readiness of parts until ctx ends, and the paths of HandleOnHealthServer.
func (p *Process) newHealthMux(ctx context.Context, live func() error, parts []lifecycle.Part) *http.ServeMux {
	running := func() error {
		if ctx.Err() != nil {
			return errStopping
		}
		return nil
	}
	checks := []httpserver.HealthCheck{{Name: "running", Ready: running}}
	for _, part := range parts {
		if part.Ready != nil || part.Warning != nil {
			checks = append(checks, httpserver.HealthCheck{Name: part.Name, Ready: part.Ready, Warning: part.Warning})
		}
	}
	mux := http.NewServeMux()
	mux.Handle("/", httpserver.NewHealthHandler(live, checks...))
	for path, handler := range p.healthHandlers {
		mux.Handle(path, handler)
	}
	return mux
}

// newMetricsMux serves the metrics and the paths of HandleOnMetricsServer, all with the metrics token.
func (p *Process) newMetricsMux() *http.ServeMux {
	gatherers := append(prometheus.Gatherers{p.Metrics}, p.moreMetrics...)
	mux := http.NewServeMux()
	mux.Handle("/metrics", p.requireMetricsToken(telemetry.MetricsHandler(gatherers)))
	for path, handler := range p.metricsHandlers {
		mux.Handle(path, p.requireMetricsToken(handler))
	}
	return mux
}

// requireMetricsToken returns a handler that requires the metrics token, if one is set. It compares hashes in constant
// time, so that the time reveals neither the token nor its length.
func (p *Process) requireMetricsToken(h http.Handler) http.Handler {
	if p.cfg.MetricsToken == "" {
		return h
	}
	want := sha256.Sum256([]byte("Bearer " + p.cfg.MetricsToken.Reveal()))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got := sha256.Sum256([]byte(r.Header.Get("Authorization")))
		if subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			w.Header().Set("WWW-Authenticate", `Bearer realm="metrics"`)
			http.Error(w, "bearer token required (METRICS_TOKEN)", http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// The settings of the listen addresses, for errors about a port in use.
const (
	flagMetrics = "--metrics-bind-address or METRICS_BIND_ADDRESS"
	flagHealth  = "--health-probe-bind-address or HEALTH_PROBE_BIND_ADDRESS"
)

func (p *Process) listenHTTP(ctx context.Context, name, flag, addr string, h http.Handler) (lifecycle.Part, error) {
	server, err := httpserver.NewListeningServer(ctx, httpserver.Config{Addr: addr}, h, p.Log)
	if err != nil {
		return lifecycle.Part{}, fmt.Errorf("serve %s (%s): %w", name, flag, err)
	}
	p.Log.InfoContext(ctx, "listening", "server", name, "addr", server.Addr())
	return lifecycle.Part{Name: name, Run: server.Run, Close: server.Close}, nil
}
