// Package natsserver runs a NATS JetStream server in this process. Its data is on disk and every
// write is synced, so that an acknowledged event survives a crash of the machine.
//
// It is separate from package nats, so that programs with an external server do not link one.
package natsserver

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/fleetloop/fleetloop/internal/broker/nats"
)

// startTimeout is the timeout of the server's start, and startPoll the interval of checks whether
// it failed.
const (
	startTimeout = time.Minute
	startPoll    = 50 * time.Millisecond
)

// Config is the configuration of the server.
type Config struct {
	// Dir is the folder of the data. It is created, and locked while the server runs.
	Dir string `key:"dir" env:"NATS_DIR" flag:"nats-dir" doc:"data directory of the embedded NATS server (default: nats in the data directory)"`

	// Host is the listen address for other processes. Empty means 127.0.0.1.
	Host string `key:"host" env:"NATS_HOST" default:"127.0.0.1" doc:"listen address of the embedded NATS server"`

	// Port is the listen port. Zero means any free port.
	Port int `key:"port" env:"NATS_PORT" flag:"nats-port" default:"0" validate:"min=0,max=65535" doc:"listen port of the embedded NATS server; 0 means any free port"`
}

// A Server is a server in this process, and the lock on its folder.
type Server struct {
	server *server.Server
	lock   *os.File
	dir    string
}

// NewBrokerStartingServerOnRun returns a broker with an embedded server, which runs as long as the broker
// does. The configuration of the broker has no URL.
func NewBrokerStartingServerOnRun(cfg Config, brokerCfg nats.Config, log *slog.Logger) (*nats.Broker, error) {
	return nats.NewEmbedded(brokerCfg, func() (nats.Server, error) {
		s, err := Start(cfg, log)
		if err != nil {
			return nil, err
		}
		return s, nil
	}, log)
}

// Start starts the server and waits until it answers. The caller must call Stop.
func Start(cfg Config, log *slog.Logger) (*Server, error) {
	fail := func(err error) (*Server, error) {
		return nil, fmt.Errorf("start embedded nats in %q: %w", cfg.Dir, err)
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return fail(err)
	}
	lock, err := lockFolderExclusively(cfg.Dir)
	if err != nil {
		return fail(err)
	}
	s := &Server{lock: lock, dir: cfg.Dir}
	port := cfg.Port
	if port == 0 {
		port = server.RANDOM_PORT
	}
	logs := &serverLog{log: log}
	s.server, err = server.NewServer(&server.Options{
		ServerName:             "fleetloop",
		Host:                   cmp.Or(cfg.Host, "127.0.0.1"),
		Port:                   port,
		JetStream:              true,
		StoreDir:               cfg.Dir,
		SyncAlways:             true, // an acknowledged event survives a crash of the machine
		NoSigs:                 true,
		DisableJetStreamBanner: true,
	})
	if err != nil {
		return fail(errors.Join(err, lock.Close()))
	}
	s.server.SetLoggerV2(logs, false, false, false)
	s.server.Start()
	for end := time.Now().Add(startTimeout); ; {
		if s.server.ReadyForConnections(startPoll) && s.server.JetStreamEnabled() {
			return s, nil
		}
		if err := logs.lastLoggedError(); err != nil || time.Now().After(end) {
			s.Stop()
			return fail(cmp.Or(err, fmt.Errorf("server not ready within %s", startTimeout)))
		}
	}
}

// InProcessConn connects without the network.
func (s *Server) InProcessConn() (net.Conn, error) { return s.server.InProcessConn() }

// URL returns the address of the server for other processes.
func (s *Server) URL() string { return s.server.ClientURL() }

// Dir returns the folder of the data.
func (s *Server) Dir() string { return s.dir }

// HasData reports whether the folder holds a stream of that name. If the server does not know such
// a stream, its data is damaged, because the server removes the data of deleted streams.
func (s *Server) HasData(stream string) bool {
	found, err := filepath.Glob(filepath.Join(s.dir, "jetstream", "*", "streams", stream))
	return err == nil && len(found) > 0 // only a malformed pattern is an error
}

// Stop stops the server and unlocks the folder.
func (s *Server) Stop() {
	s.server.Shutdown()
	s.server.WaitForShutdown()
	_ = s.lock.Close() // which releases the lock
}

// lockFolderExclusively locks the folder for this process; two servers in one folder would
// destroy its data. The lock is released with the end of the process, even after a crash.
func lockFolderExclusively(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // the folder is the operator's choice
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close() // the lock already failed
		return nil, errors.New("directory in use by another process: stop it, or set another directory")
	}
	return f, nil
}

// A serverLog forwards the server's log and records why the server failed.
type serverLog struct {
	log *slog.Logger

	mu    sync.Mutex
	fatal error
}

func (l *serverLog) lastLoggedError() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fatal
}

// Noticef implements server.Logger.
func (l *serverLog) Noticef(format string, v ...any) {
	l.log.Debug("nats server", "text", fmt.Sprintf(format, v...))
}

// Warnf implements server.Logger.
func (l *serverLog) Warnf(format string, v ...any) {
	l.log.Warn("nats server", "text", fmt.Sprintf(format, v...))
}

// Errorf implements server.Logger.
func (l *serverLog) Errorf(format string, v ...any) {
	l.log.Error("nats server", "text", fmt.Sprintf(format, v...))
}

// Fatalf records the text for Start, which returns it as an error.
func (l *serverLog) Fatalf(format string, v ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fatal = fmt.Errorf(format, v...)
}

// Debugf implements server.Logger.
func (l *serverLog) Debugf(string, ...any) {}

// Tracef implements server.Logger.
func (l *serverLog) Tracef(string, ...any) {}
