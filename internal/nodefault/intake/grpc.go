package intake

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"

	"github.com/fleetloop/fleetloop/internal/lifecycle"
)

// GRPCConfig configures the listeners. Without an address and a socket, nothing is served.
type GRPCConfig struct {
	Addr string `key:"addr" env:"NODE_FAULT_GRPC_ADDRESS" flag:"grpc-listen-address" doc:"Address to listen on for gRPC, as host:port; empty disables it."`

	Socket string `key:"socket" env:"NODE_FAULT_GRPC_SOCKET" flag:"grpc-socket" doc:"Path of a Unix socket to listen on for gRPC; empty disables it."`

	SocketMode string `key:"socket_mode" env:"NODE_FAULT_GRPC_SOCKET_MODE" default:"0660" doc:"File mode of the socket, in octal. Everyone who can open the socket can have nodes taken out of service."`

	TLSCertFile string `key:"tls_cert_file" env:"NODE_FAULT_GRPC_TLS_CERT_FILE" doc:"PEM file of the certificate chain. With tls_key_file it enables TLS. Both files are reloaded when they change." validate:"required_with=TLSKeyFile"`
	TLSKeyFile  string `key:"tls_key_file" env:"NODE_FAULT_GRPC_TLS_KEY_FILE" doc:"PEM file of the certificate's private key." validate:"required_with=TLSCertFile"`

	MaxMessageBytes int `key:"max_message_bytes" env:"NODE_FAULT_GRPC_MAX_MESSAGE_BYTES" default:"4194304" validate:"gt=0" doc:"Maximum size of a message, in bytes."`

	ShutdownTimeout time.Duration `key:"shutdown_timeout" default:"15s" validate:"gt=0" doc:"How long running calls may take to finish at shutdown."`
}

// Defaults for the zero fields of GRPCConfig.
const (
	DefaultGRPCSocketMode      = "0660"
	DefaultGRPCMaxMessageBytes = 4 << 20
	DefaultGRPCShutdownTimeout = 15 * time.Second
)

const (
	maxStreams        = 64 // concurrent calls per connection
	connectTimeout    = 10 * time.Second
	grpcMinPing       = 10 * time.Second
	grpcMaxIdle       = 10 * time.Minute
	socketDialTimeout = time.Second
)

// GRPCDeps are the dependencies of a GRPCServer.
type GRPCDeps struct {
	Store   Store
	Auth    authenticator // for callers over TCP
	Metrics *Metrics
	// Callers limits each caller, over all protocols. All callers over the socket are one
	// caller. Nil means the default limits for this server.
	Callers *CallerLimits
	Log     *slog.Logger
}

// A GRPCServer receives reports about nodes over gRPC in the protocol of NVSentinel.
// It serves NVSentinel's monitors, and the gRPC sink of its connectors, without changes
// to them.
//
// A call returns OK when all of its events are stored in the API server. On Unavailable
// and ResourceExhausted the monitor sends it again. Other codes mean that an event can
// never be stored and that the other events are stored.
//
// Over a Unix socket, every process that may open the file may report. Over TCP, a caller
// needs a bearer token, as over HTTP. The rate of each caller is limited, as over HTTP.
type GRPCServer struct {
	cfg       GRPCConfig
	log       *slog.Logger
	listeners []grpcListener
	serving   atomic.Bool
}

// An grpcListener is one listener with its server.
type grpcListener struct {
	listener net.Listener
	server   *grpc.Server
	health   *health.Server
}

// grpcService implements the service of the protocol.
type grpcService struct {
	store *CountingStore
	log   *slog.Logger
}

// NewListeningGRPCServer creates a server and opens its listeners. The caller must call Run or Close. Only
// the values of ctx are kept.
func NewListeningGRPCServer(ctx context.Context, cfg GRPCConfig, deps GRPCDeps) (*GRPCServer, error) {
	cfg.SocketMode = cmp.Or(cfg.SocketMode, DefaultGRPCSocketMode)
	cfg.MaxMessageBytes = cmp.Or(cfg.MaxMessageBytes, DefaultGRPCMaxMessageBytes)
	cfg.ShutdownTimeout = cmp.Or(cfg.ShutdownTimeout, DefaultGRPCShutdownTimeout)
	authMissing := deps.Auth == nil && cfg.Addr != ""
	if deps.Store == nil || deps.Metrics == nil || deps.Log == nil || authMissing {
		return nil, errors.New("create gRPC intake: store, metrics, logger, or authentication for an address missing")
	}
	if deps.Callers == nil {
		deps.Callers = NewCallerLimits(0, 0)
	}
	s := &GRPCServer{cfg: cfg, log: deps.Log}
	svc := &grpcService{store: deps.Metrics.NewCountingStore(KindGRPC, deps.Store), log: deps.Log}
	if cfg.Socket != "" {
		l, err := listenUnixSocketReplacingStale(ctx, cfg.Socket, cfg.SocketMode)
		if err != nil {
			return nil, err
		}
		s.addListenerWithServer(l, svc, recoverPanics(deps.Log), checkCallsExceptHealth(func(context.Context) error {
			return checkCallerRate(deps.Callers, socketCaller)
		}))
	}
	if cfg.Addr != "" {
		if err := s.listenTCP(ctx, svc, deps); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

func (s *GRPCServer) listenTCP(ctx context.Context, svc *grpcService, deps GRPCDeps) error {
	var options []grpc.ServerOption
	if s.cfg.TLSCertFile != "" || s.cfg.TLSKeyFile != "" {
		certificate, err := loadReloadingCertificate(s.cfg.TLSCertFile, s.cfg.TLSKeyFile, deps.Log)
		if err != nil {
			return err
		}
		options = append(options, grpc.Creds(credentials.NewTLS(certificate.tlsConfig())))
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.cfg.Addr)
	if err != nil {
		return fmt.Errorf("listen for gRPC on %q (--grpc-listen-address or NODE_FAULT_GRPC_ADDRESS): %w", s.cfg.Addr, err)
	}
	options = append(options, recoverPanics(deps.Log), checkCallsExceptHealth(func(ctx context.Context) error {
		caller, err := authenticateGRPCByToken(ctx, deps.Auth, deps.Log)
		if err != nil {
			return err
		}
		return checkCallerRate(deps.Callers, caller)
	}))
	s.addListenerWithServer(l, svc, options...)
	return nil
}

func (s *GRPCServer) addListenerWithServer(l net.Listener, svc *grpcService, options ...grpc.ServerOption) {
	server := grpc.NewServer(append(options,
		grpc.MaxRecvMsgSize(s.cfg.MaxMessageBytes),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.ConnectionTimeout(connectTimeout),
		grpc.WaitForHandlers(true),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: grpcMaxIdle}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: grpcMinPing, PermitWithoutStream: true}))...)
	registerPlatformConnector(server, svc)
	healthServer := health.NewServer()
	healthServer.SetServingStatus(PlatformConnectorName, healthpb.HealthCheckResponse_SERVING)
	healthpb.RegisterHealthServer(server, healthServer)
	s.listeners = append(s.listeners, grpcListener{l, server, healthServer})
}

// listenUnixSocketReplacingStale listens on a Unix socket. It removes the file of a dead process,
// but not a socket that is in use.
func listenUnixSocketReplacingStale(ctx context.Context, path, mode string) (net.Listener, error) {
	const octal, bits = 8, 9
	allowed, err := strconv.ParseUint(mode, octal, bits)
	if err != nil {
		return nil, fmt.Errorf("socket_mode %q is invalid: use an octal file mode, such as %s", mode, DefaultGRPCSocketMode)
	}
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() == os.ModeSocket {
		dialer := net.Dialer{Timeout: socketDialTimeout}
		if connection, err := dialer.DialContext(ctx, "unix", path); err == nil {
			_ = connection.Close() // nothing was sent
			return nil, fmt.Errorf("listen for gRPC: another process listens on %q", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("listen for gRPC: %w", err)
		}
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen for gRPC: %w", err)
	}
	if err := os.Chmod(path, os.FileMode(allowed)); err != nil {
		return nil, errors.Join(fmt.Errorf("listen for gRPC: %w", err), l.Close())
	}
	return l, nil
}

// Addr returns the TCP address of the listener, or "" without one.
func (s *GRPCServer) Addr() string {
	for _, l := range s.listeners {
		if a, ok := l.listener.Addr().(*net.TCPAddr); ok {
			return a.String()
		}
	}
	return ""
}

// Run serves until ctx ends. Then it waits for running calls, and cancels them after the
// shutdown timeout.
func (s *GRPCServer) Run(ctx context.Context) error {
	failed := make(chan error, len(s.listeners))
	var serving sync.WaitGroup
	for _, l := range s.listeners {
		serving.Go(func() {
			if err := l.server.Serve(l.listener); err != nil {
				failed <- fmt.Errorf("serve gRPC on %s: %w", l.listener.Addr(), err)
			}
		})
	}
	s.serving.Store(true)
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	s.serving.Store(false)
	for _, l := range s.listeners {
		serving.Go(func() { s.stopGracefully(l) })
	}
	serving.Wait()
	return err
}

// stopGracefully waits for running calls, up to the shutdown timeout.
func (s *GRPCServer) stopGracefully(l grpcListener) {
	l.health.Shutdown()
	late := time.AfterFunc(s.cfg.ShutdownTimeout, l.server.Stop)
	defer late.Stop()
	l.server.GracefulStop()
}

// Ready returns an error while the server is not serving.
func (s *GRPCServer) Ready() error {
	if s.serving.Load() {
		return nil
	}
	return errors.New("gRPC server is not serving")
}

// Close closes the listeners of a server that was never run.
func (s *GRPCServer) Close() error {
	var errs []error
	for _, l := range s.listeners {
		l.server.Stop()
		errs = append(errs, l.listener.Close())
	}
	return errors.Join(errs...)
}

// Part returns the server as a part of a process.
func (s *GRPCServer) Part(name string) lifecycle.Part {
	return lifecycle.Part{Name: name, Run: s.Run, Ready: s.Ready, Close: s.Close}
}
