package nats

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// embeddedStart bounds how long the server may take to read its data, and
// embeddedPoll is how often we look whether it gave up.
const (
	embeddedStart = time.Minute
	embeddedPoll  = 50 * time.Millisecond
)

// An embedded is a server within this process, and the lock on its folder.
type embedded struct {
	server *server.Server
	lock   *os.File
	dir    string
}

// startEmbedded starts the server and waits until it answers.
func startEmbedded(cfg Embedded, log *slog.Logger) (*embedded, error) {
	fail := func(err error) (*embedded, error) {
		return nil, fmt.Errorf("start embedded nats in %q: %w", cfg.Dir, err)
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return fail(err)
	}
	lock, err := lockFolder(cfg.Dir)
	if err != nil {
		return fail(err)
	}
	e := &embedded{lock: lock, dir: cfg.Dir}
	logs := &serverLog{log: log}
	e.server, err = server.NewServer(&server.Options{
		ServerName:             clientName,
		Host:                   cfg.Host,
		Port:                   cfg.Port,
		JetStream:              true,
		StoreDir:               cfg.Dir,
		SyncAlways:             true, // an acknowledged event survives the machine
		NoSigs:                 true,
		DisableJetStreamBanner: true,
	})
	if err != nil {
		return fail(errors.Join(err, lock.Close()))
	}
	e.server.SetLoggerV2(logs, false, false, false)
	e.server.Start()
	for end := time.Now().Add(embeddedStart); ; {
		if e.server.ReadyForConnections(embeddedPoll) && e.server.JetStreamEnabled() {
			return e, nil
		}
		if err := logs.reason(); err != nil || time.Now().After(end) {
			e.stop()
			return fail(cmp.Or(err, fmt.Errorf("it was not ready after %s", embeddedStart)))
		}
	}
}

func (e *embedded) addr() string { return e.server.ClientURL() }

// hasData reports whether the folder holds a stream of that name. If the
// server does not know it, its data is damaged: the server removes what it
// deletes.
func (e *embedded) hasData(stream string) bool {
	found, err := filepath.Glob(filepath.Join(e.dir, "jetstream", "*", "streams", stream))
	return err == nil && len(found) > 0 // only a broken pattern is an error
}

func (e *embedded) stop() {
	e.server.Shutdown()
	e.server.WaitForShutdown()
	_ = e.lock.Close() // which gives up the lock
}

// lockFolder takes the folder for this process; two servers on one folder
// would destroy its data. The lock goes with the process, however it ends.
func lockFolder(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // the folder is the operator's choice
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close() // the lock is what failed
		return nil, errors.New("another process uses the folder; stop it, or choose another folder")
	}
	return f, nil
}

// A serverLog passes the server's log on and remembers why it gave up.
type serverLog struct {
	log *slog.Logger

	mu    sync.Mutex
	fatal error
}

func (l *serverLog) reason() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fatal
}

// Noticef is what server.Logger wants.
func (l *serverLog) Noticef(format string, v ...any) {
	l.log.Debug("nats server", "text", fmt.Sprintf(format, v...))
}

// Warnf is what server.Logger wants.
func (l *serverLog) Warnf(format string, v ...any) {
	l.log.Warn("nats server", "text", fmt.Sprintf(format, v...))
}

// Errorf is what server.Logger wants.
func (l *serverLog) Errorf(format string, v ...any) {
	l.log.Error("nats server", "text", fmt.Sprintf(format, v...))
}

// Fatalf keeps the text for whoever started the server, who handles it.
func (l *serverLog) Fatalf(format string, v ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fatal = fmt.Errorf(format, v...)
}

// Debugf is what server.Logger wants.
func (l *serverLog) Debugf(string, ...any) {}

// Tracef is what server.Logger wants.
func (l *serverLog) Tracef(string, ...any) {}
