// Package pgserver runs a private PostgreSQL server in a folder.
//
// Start finds the binaries on the machine (or downloads them once) and creates the data folder the
// first time. It starts the server on a loopback port and returns when the server accepts
// connections. Run supervises the server until its context ends and then stops it. A server that
// died is restarted on the same port. If it keeps dying, Run returns an error with the end of its
// log.
//
// If this process runs as root, the server runs as user postgres, or as nobody without such a user.
// PostgreSQL refuses to run as root. On Linux the server dies with this process, however it ended;
// on other systems, the next Start on the same folder stops an orphaned server. A folder serves one
// process at a time.
package pgserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fleetloop/fleetloop/internal/backoff"
)

// Names in a new server.
const (
	// SuperUser is the role of DatabaseURL.
	SuperUser = "postgres"
	// DefaultDatabase is the database if Config.Database is empty.
	DefaultDatabase = "fleetloop"
)

const (
	// MinMajor is the oldest supported PostgreSQL.
	MinMajor = 15

	host = "127.0.0.1"

	readyTimeout = 60 * time.Second // includes crash recovery of a busy server
	readyPoll    = 20 * time.Millisecond
	stopTimeout  = 10 * time.Second
	killTimeout  = 3 * time.Second

	// A server that dies maxDeaths times within deathsWithin is given up.
	maxDeaths    = 3
	deathsWithin = time.Minute
	restartPause = 200 * time.Millisecond
)

var errClosed = errors.New("run postgres: the server is closed")

// Config is the configuration of a server. Only Dir is required.
type Config struct {
	// Dir holds everything: the data, the log, the password, the lock. It is created if missing and
	// reused otherwise.
	//
	// If this process is root, the server's user must be able to enter Dir. If a folder above it is
	// closed to that user, the data is under /var/lib/fleetloop/postgres and Dir/data links to it.
	// Dir may move. The data stays when Dir is removed, unless it is temporary. If the target of the
	// link is missing, Start fails.
	Dir string

	// Temporary lets a later Start remove the data outside of Dir once the link in Dir is gone.
	// Throwaway implies it.
	Temporary bool

	// Port is the loopback port. Zero means a free one at each Start.
	Port int

	// BinDir is the folder of initdb and postgres. Empty means a search in PATH and the usual
	// folders, and then a download.
	BinDir string

	// CacheDir is the folder of downloaded binaries. Empty means the user's cache folder, for root
	// /var/cache/fleetloop.
	CacheDir string

	// Repository is the Maven repository of the binaries. Empty means Maven Central.
	Repository string

	// Database is created if missing. Empty means DefaultDatabase.
	Database string

	// Throwaway trades durability for speed and requires no password on the loopback port: for
	// tests, whose data is disposable.
	Throwaway bool

	// Settings are additional server settings, as in postgresql.conf.
	Settings map[string]string

	// Environment is the additional environment of the server.
	Environment map[string]string
}

// A Server is a running PostgreSQL server.
type Server struct {
	cfg  Config
	bins binaries
	home *serverHome
	port int
	log  *slog.Logger

	mu     sync.Mutex
	proc   *process
	down   error // why the server is unavailable at present
	closed bool
}

// Start starts a server and returns when it accepts connections. The caller must then call Run,
// which stops it, or Close.
func Start(ctx context.Context, cfg Config, log *slog.Logger) (*Server, error) {
	if cfg.Dir == "" {
		return nil, errors.New("start postgres: the data folder is not set")
	}
	if cfg.Database == "" {
		cfg.Database = DefaultDatabase
	}
	h, err := openAndLockHome(cfg)
	if err != nil {
		return nil, fmt.Errorf("open postgres folder %q: %w", cfg.Dir, err)
	}
	s := &Server{cfg: cfg, home: h, log: log}
	if err := s.prepareAndStartServer(ctx); err != nil {
		return nil, errors.Join(err, h.unlockHome())
	}
	return s, nil
}

func (s *Server) prepareAndStartServer(ctx context.Context) error {
	major, err := s.home.readDataMajorVersion()
	if err != nil {
		return err
	}
	if s.bins, err = findOrDownloadBinaries(ctx, s.cfg, major, s.log); err != nil {
		return err
	}
	if err := s.home.stopOrphanOrRemoveStalePID(ctx, s.log); err != nil {
		return err
	}
	if major == 0 {
		if err := s.home.initDataFolderAndPassword(ctx, s.bins, s.cfg.Throwaway); err != nil {
			return err
		}
	}
	if err := s.launchRetryingPorts(ctx); err != nil {
		return err
	}
	if err := s.createDatabaseIfMissing(ctx); err != nil {
		return errors.Join(err, s.stopProcess())
	}
	s.log.InfoContext(ctx, "postgres started", "port", s.port, "dir", s.cfg.Dir, "version", s.bins.version)
	return nil
}

// launchRetryingPorts launches the server. It retries on another port if the chosen one was taken in the
// meantime.
func (s *Server) launchRetryingPorts(ctx context.Context) error {
	const tries = 5
	var err error
	for range tries {
		s.port = s.cfg.Port
		if s.port == 0 {
			if s.port, err = findFreePort(ctx); err != nil {
				return fmt.Errorf("find a free port for postgres: %w", err)
			}
		}
		err = s.launchAndAwaitReady(ctx)
		mayRetry := errors.Is(err, errPortTaken) && s.cfg.Port == 0
		if !mayRetry {
			return err
		}
	}
	return err
}

// launchAndAwaitReady starts the process and waits until it accepts connections.
func (s *Server) launchAndAwaitReady(ctx context.Context) error {
	p, err := startPostmaster(s.bins, s.home, s.buildServerArguments(), s.cfg.Environment)
	if err != nil {
		return err
	}
	if err := s.waitUntilReady(ctx, p); err != nil {
		return errors.Join(err, p.stopEscalating(s.chooseStopSignal(), killTimeout))
	}
	s.mu.Lock()
	closed := s.closed
	if !closed {
		s.proc, s.down = p, nil
	}
	s.mu.Unlock()
	if closed {
		return errors.Join(errClosed, p.stopEscalating(s.chooseStopSignal(), stopTimeout))
	}
	return nil
}

// DatabaseURL returns the URL of the server's database for the superuser.
func (s *Server) DatabaseURL() string { return s.urlForDatabase(s.cfg.Database) }

func (s *Server) urlForDatabase(database string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.User(SuperUser),
		Host:     net.JoinHostPort(host, strconv.Itoa(s.port)),
		Path:     "/" + database,
		RawQuery: "sslmode=disable",
	}
	if s.home.password != "" {
		u.User = url.UserPassword(SuperUser, s.home.password)
	}
	return u.String()
}

// LoopbackPort returns the loopback port of the server.
func (s *Server) LoopbackPort() int { return s.port }

// PostmasterPID returns the process id of the postmaster, or 0 if it is not running.
func (s *Server) PostmasterPID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return 0
	}
	return s.proc.processID()
}

// Ready returns why the server cannot be used at present, or nil.
func (s *Server) Ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.down
}

// Run supervises the server until ctx ends, then stops it.
func (s *Server) Run(ctx context.Context) error {
	var deaths []time.Time
	for {
		p := s.currentProcess()
		if p == nil {
			return errClosed
		}
		select {
		case <-ctx.Done():
			return s.Close()
		case <-p.done:
		}
		if ctx.Err() != nil {
			return s.Close()
		}
		now := time.Now()
		deaths = append(deaths, now)
		for now.Sub(deaths[0]) > deathsWithin {
			deaths = deaths[1:]
		}
		died := fmt.Errorf("postgres exited unexpectedly (%w):\n%s", p.exitError(), s.home.readLogTail())
		if len(deaths) >= maxDeaths {
			return errors.Join(fmt.Errorf("postgres exited %d times within %s: %w", len(deaths), deathsWithin, died), s.Close())
		}
		s.log.ErrorContext(ctx, "postgres exited unexpectedly, restarting it", "err", died)
		if err := s.restartWithRetries(ctx, died); err != nil && ctx.Err() == nil {
			return errors.Join(err, s.Close())
		}
	}
}

// restartWithRetries restarts a dead server on its old port. It makes several attempts, because backends
// of the dead one may hold its shared memory for a moment.
func (s *Server) restartWithRetries(ctx context.Context, deathErr error) error {
	const tries = 10
	s.mu.Lock()
	s.down = deathErr
	s.mu.Unlock()
	var err error
	for range tries {
		if err := backoff.Sleep(ctx, restartPause); err != nil {
			return err
		}
		if err = s.launchAndAwaitReady(ctx); err == nil || errors.Is(err, errClosed) {
			return err
		}
	}
	return fmt.Errorf("restart postgres: %w", err)
}

// Close stops the server and unlocks the folder. A second Close has no effect.
func (s *Server) Close() error {
	s.mu.Lock()
	again := s.closed
	s.closed = true
	s.mu.Unlock()
	if again {
		return nil
	}
	return errors.Join(s.stopProcess(), s.home.unlockHome())
}

func (s *Server) stopProcess() error {
	s.mu.Lock()
	p := s.proc
	s.proc, s.down = nil, errors.New("postgres is stopped")
	s.mu.Unlock()
	if p == nil {
		return nil
	}
	return p.stopEscalating(s.chooseStopSignal(), stopTimeout)
}

func (s *Server) currentProcess() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc
}

// waitUntilReady waits until the postmaster's pid file reports that it is ready, as pg_ctl does. A
// connection would prove less: another server may have the port.
func (s *Server) waitUntilReady(ctx context.Context, p *process) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("not ready within %s", readyTimeout))
	defer cancel()
	for {
		if pid, state := readPIDFile(s.home.data); pid == p.processID() && state == "ready" {
			return nil
		}
		select {
		case <-p.done:
			return s.home.newStartError(p.exitError())
		default:
		}
		if err := backoff.Sleep(ctx, readyPoll); err != nil {
			return fmt.Errorf("wait for postgres on port %d: %w", s.port, err)
		}
	}
}

func (s *Server) createDatabaseIfMissing(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.urlForDatabase("postgres"))
	if err != nil {
		return fmt.Errorf("connect to the new postgres: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var exists bool
	err = conn.QueryRow(ctx, "select exists (select from pg_database where datname = $1)", s.cfg.Database).Scan(&exists)
	if err == nil && !exists {
		_, err = conn.Exec(ctx, "create database "+pgx.Identifier{s.cfg.Database}.Sanitize())
	}
	if err != nil {
		return fmt.Errorf("create database %q: %w", s.cfg.Database, err)
	}
	return nil
}

func findFreePort(ctx context.Context) (port int, err error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return 0, err
	}
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return 0, errors.Join(fmt.Errorf("unexpected address %q", l.Addr()), l.Close())
	}
	return addr.Port, l.Close()
}

func isRoot() bool { return os.Geteuid() == 0 }
