// Package httpserver runs an HTTP server with the limits that a public server needs.
//
// Slow requests, slow readers of responses and idle connections all time out. When the server
// stops, it accepts no new requests, waits a limited time for running requests, and cancels the
// rest.
//
// NewHealthHandler serves /healthz and /readyz.
//
// NewTransport is for the requests that a server sends itself.
//
// A TokenFile authenticates callers by the bearer tokens of a file, over HTTP and gRPC. IsLoopback tells
// where a token is not needed.
package httpserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"time"
)

// Defaults of the zero fields of a Config.
const (
	DefaultReadHeaderTimeout = 10 * time.Second
	DefaultBodyTimeout       = 30 * time.Second
	DefaultWriteTimeout      = time.Minute
	DefaultIdleTimeout       = 2 * time.Minute
	DefaultShutdownTimeout   = 15 * time.Second
	DefaultMaxHeaderBytes    = 64 << 10
)

// Config configures the address and the limits of the server.
type Config struct {
	// Addr is host:port, or :port for every interface; port 0 is any free
	// one.
	Addr string `key:"addr" env:"LISTEN_ADDRESS" flag:"listen-address" doc:"Listen address, host:port." validate:"required"`

	// TLSCertFile and TLSKeyFile are PEM files; both or none. They are read
	// again when they change.
	TLSCertFile string `key:"tls_cert_file" env:"TLS_CERT_FILE" flag:"tls-cert-file" doc:"PEM file with the certificate chain. A certificate and a key enable TLS." validate:"required_with=TLSKeyFile"`
	TLSKeyFile  string `key:"tls_key_file" env:"TLS_KEY_FILE" flag:"tls-key-file" doc:"PEM file with the private key of the certificate." validate:"required_with=TLSCertFile"`

	// ReadHeaderTimeout limits the arrival of a request's header. Zero means
	// DefaultReadHeaderTimeout.
	ReadHeaderTimeout time.Duration `key:"read_header_timeout" default:"10s" doc:"Timeout for reading the headers of a request." validate:"gt=0"`

	// BodyTimeout limits the arrival of a request's body. The handler limits its size. Zero means
	// DefaultBodyTimeout.
	BodyTimeout time.Duration `key:"body_timeout" default:"30s" doc:"Timeout for reading the body of a request." validate:"gt=0"`

	// WriteTimeout limits a request from its header to the end of its response. A handler that
	// streams moves the limit by http.ResponseController.SetWriteDeadline. Zero means
	// DefaultWriteTimeout; it cannot be disabled.
	WriteTimeout time.Duration `key:"write_timeout" default:"1m" doc:"Timeout for a request, until the response is written." validate:"gt=0"`

	// IdleTimeout limits how long a connection waits for its next request. Zero means
	// DefaultIdleTimeout.
	IdleTimeout time.Duration `key:"idle_timeout" default:"2m" doc:"Timeout for idle connections." validate:"gt=0"`

	// ShutdownTimeout limits how long running requests may take to finish when the server stops.
	// Zero means DefaultShutdownTimeout.
	ShutdownTimeout time.Duration `key:"shutdown_timeout" default:"15s" doc:"How long to wait for running requests at shutdown." validate:"gt=0"`

	// MaxHeaderBytes limits a request's header. Zero means DefaultMaxHeaderBytes.
	MaxHeaderBytes int `key:"max_header_bytes" default:"65536" doc:"Maximum size of the request headers, in bytes." validate:"gt=0"`
}

// errShutdownTimeout is the cause of an interrupted shutdown.
var errShutdownTimeout = errors.New("requests did not finish in time")

// A Server is one HTTP server. It listens from New on and serves in Run.
type Server struct {
	http            *http.Server
	listener        net.Listener
	log             *slog.Logger
	shutdownTimeout time.Duration
	silent          silentConns
	state           atomic.Int32 // fresh, serving or stopped
}

const (
	fresh = iota
	serving
	stopped
)

// NewListeningServer returns a server for h and starts to listen. A port in use is therefore detected at once, and
// a random port is known. Requests inherit only the values of ctx; its end stops nothing. If Run is
// not called, Close must be.
func NewListeningServer(ctx context.Context, cfg Config, h http.Handler, log *slog.Logger) (*Server, error) {
	s := &Server{log: log, shutdownTimeout: positiveOrDefault(cfg.ShutdownTimeout, DefaultShutdownTimeout)}
	s.http = &http.Server{
		Handler:           limitBodyReadTime(h, positiveOrDefault(cfg.BodyTimeout, DefaultBodyTimeout)),
		ReadHeaderTimeout: positiveOrDefault(cfg.ReadHeaderTimeout, DefaultReadHeaderTimeout),
		WriteTimeout:      positiveOrDefault(cfg.WriteTimeout, DefaultWriteTimeout),
		IdleTimeout:       positiveOrDefault(cfg.IdleTimeout, DefaultIdleTimeout),
		MaxHeaderBytes:    positiveOrDefault(cfg.MaxHeaderBytes, DefaultMaxHeaderBytes),
		ConnState:         s.silent.trackUntilFirstByte,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		BaseContext:       func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
	if cfg.TLSCertFile != "" || cfg.TLSKeyFile != "" {
		tlsConfig, err := newReloadingTLSConfig(cfg.TLSCertFile, cfg.TLSKeyFile, log)
		if err != nil {
			return nil, err
		}
		s.http.TLSConfig = tlsConfig
	}
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", cfg.Addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("serve HTTP on %q: stop the process that uses the address, or set another address: %w", cfg.Addr, err)
	case err != nil:
		return nil, fmt.Errorf("serve HTTP on %q: %w", cfg.Addr, err)
	}
	s.listener = listener
	return s, nil
}

func positiveOrDefault[T int | time.Duration](v, def T) T {
	if v <= 0 {
		return def
	}
	return v
}

// Addr returns the address that the server listens on, with its actual port.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// OnShutdown registers f, which runs in a goroutine when the server starts to stop and waits for
// the running requests. It is for requests that run until f ends them.
func (s *Server) OnShutdown(f func()) { s.http.RegisterOnShutdown(f) }

// Ready returns why the server accepts no requests, or nil.
func (s *Server) Ready() error {
	switch s.state.Load() {
	case serving:
		return nil
	case stopped:
		return errors.New("HTTP server is stopping")
	}
	return errors.New("HTTP server not started")
}

// Run serves until ctx ends, and then until the running requests have ended or were cancelled after
// a timeout. It may be called once.
func (s *Server) Run(ctx context.Context) error {
	served := make(chan error, 1)
	s.state.Store(serving)
	go func() { served <- s.serveUntilClosed() }()
	select {
	case err := <-served:
		s.state.Store(stopped)
		return fmt.Errorf("serve HTTP on %q: %w", s.Addr(), err)
	case <-ctx.Done():
	}

	s.state.Store(stopped)
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), s.shutdownTimeout, errShutdownTimeout)
	defer cancel()
	defer time.AfterFunc(silentGrace, s.silent.closeSilentConns).Stop()
	err := s.http.Shutdown(ctx)
	if err != nil && ctx.Err() != nil {
		s.log.WarnContext(ctx, "running requests aborted", "addr", s.Addr(), "after", s.shutdownTimeout)
		err = s.http.Close()
	}
	<-served
	if err != nil {
		return fmt.Errorf("stop HTTP on %q: %w", s.Addr(), err)
	}
	return nil
}

func (s *Server) serveUntilClosed() error {
	if s.http.TLSConfig != nil {
		return s.http.ServeTLS(s.listener, "", "")
	}
	return s.http.Serve(s.listener)
}

// Close stops listening and cancels running requests. It is for servers whose Run is not called.
func (s *Server) Close() error { return errors.Join(s.listener.Close(), s.http.Close()) }
