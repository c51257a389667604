// Package pgtest provides each test with a separate, migrated PostgreSQL database.
//
// The first test that needs one starts a private server for its process, and migrates a template;
// each database is a clone of it and is dropped when the test ends. Main stops the server at the
// end; if the process is killed, the server dies with it. If PostgreSQL is not installed, tests
// fail with a hint at what to install.
package pgtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/fleetloop/fleetloop/internal/postgres"
	"github.com/fleetloop/fleetloop/internal/postgres/pgserver"
	"github.com/fleetloop/fleetloop/internal/settings"
)

const (
	template  = "template"
	dirPrefix = "fleetloop-pgtest-"
	// A database is a thousand small files. A file system in memory creates and removes them ten
	// times as fast as one on a disk.
	memoryDir = "/dev/shm"
	// Below this much free space, as in a container with 64 MB, the servers use the folder of
	// temporary files.
	memoryRequired = 4 << 30
	// An unlocked folder of this age was left by a killed process.
	staleAfter = 10 * time.Minute
	dropBound  = 30 * time.Second
)

// A testServer is the server of this test process.
type testServer struct {
	start  func() error
	server *pgserver.Server
	dir    string
	clones atomic.Int64
}

//nolint:gochecknoglobals // one server per test process; testing offers no other place to keep it
var shared = newTestServer()

func newTestServer() *testServer {
	b := new(testServer)
	b.start = sync.OnceValue(b.startServerWithTemplate)
	return b
}

// Main runs the tests of a package, checks that they left no goroutine behind,
// and stops the server. Call it from TestMain.
func Main(m goleak.TestingM, options ...goleak.Option) {
	goleak.VerifyTestMain(WithServer(m), options...)
}

// WithServer returns m with the server of the tests, for the Main of another server that the tests use, too.
func WithServer(m goleak.TestingM) goleak.TestingM { return runner{m} }

type runner struct{ m goleak.TestingM }

// Run runs the tests and stops the server, so that its goroutine is gone before the check for
// leaks.
func (r runner) Run() int {
	code := r.m.Run()
	if err := shared.stopServer(); err != nil {
		slog.New(slog.NewTextHandler(os.Stderr, nil)).Error("stop the test database", "err", err)
		return max(code, 1)
	}
	return code
}

// New returns a pool on a new database, with the role of the fleet API. It is closed when the test
// ends.
func New(tb testing.TB) *postgres.Pool {
	tb.Helper()
	return Open(tb, NewMigratedDatabaseURL(tb))
}

// Open returns another pool on a database of URL.
func Open(tb testing.TB, databaseURL string) *postgres.Pool {
	tb.Helper()
	pool, err := postgres.New(Config(databaseURL), slog.New(slog.NewTextHandler(tb.Output(), nil)))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(pool.Close)
	return pool
}

// Config returns the configuration of a pool on a database of URL.
func Config(databaseURL string) postgres.Config {
	return postgres.Config{URL: settings.Secret(databaseURL), Role: postgres.RoleFleetAPI}
}

// NewMigratedDatabaseURL creates a new database and returns its URL for the owner, whom row-level security does not
// bind.
func NewMigratedDatabaseURL(tb testing.TB) string {
	tb.Helper()
	name, err := shared.cloneDatabase(tb.Context(), template)
	if err != nil {
		tb.Fatal(err)
	}
	dropDatabaseAtCleanup(tb, name)
	return shared.databaseURL(name)
}

// NewEmptyDatabaseURL is like NewMigratedDatabaseURL, for a database without a schema.
func NewEmptyDatabaseURL(tb testing.TB) string {
	tb.Helper()
	name, err := shared.cloneDatabase(tb.Context(), "template0")
	if err != nil {
		tb.Fatal(err)
	}
	dropDatabaseAtCleanup(tb, name)
	return shared.databaseURL(name)
}

func dropDatabaseAtCleanup(tb testing.TB, name string) {
	tb.Helper()
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), dropBound)
		defer cancel()
		if err := shared.execSQL(ctx, "drop database if exists "+name+" with (force)"); err != nil {
			tb.Error(err)
		}
	})
}

func (b *testServer) cloneDatabase(ctx context.Context, templateName string) (cloneName string, err error) {
	if err := b.start(); err != nil {
		return "", fmt.Errorf("start a PostgreSQL for the tests: %w", err)
	}
	name := fmt.Sprintf("clone_%d", b.clones.Add(1))
	// The other strategy writes each page of the clone to the log, too.
	return name, b.execSQL(ctx, "create database "+name+" template "+templateName+" strategy file_copy")
}

func (b *testServer) databaseURL(name string) string {
	u, err := url.Parse(b.server.DatabaseURL())
	if err != nil {
		panic(err) // impossible: pgserver built the URL
	}
	u.Path = "/" + name
	return u.String()
}

func (b *testServer) execSQL(ctx context.Context, sql string) error {
	conn, err := pgx.Connect(ctx, b.server.DatabaseURL())
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql)
	if err != nil {
		err = fmt.Errorf("%s: %w", sql, err)
	}
	return errors.Join(err, conn.Close(ctx))
}

func (b *testServer) startServerWithTemplate() error {
	parent := chooseServerParentDir()
	removeStaleServerDirs(parent)
	dir, err := os.MkdirTemp(parent, dirPrefix)
	if err != nil {
		return err
	}
	b.dir = dir
	ctx, log := context.Background(), slog.New(slog.DiscardHandler)
	b.server, err = pgserver.Start(ctx, pgserver.Config{
		Dir: dir, Throwaway: true,
		Settings: map[string]string{"max_wal_size": "512MB"}, // it may be in memory
	}, log)
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	if err := b.execSQL(ctx, "create database "+template); err != nil {
		return err
	}
	return postgres.MigrateSchema(ctx, postgres.Config{URL: settings.Secret(b.databaseURL(template))}, log)
}

func (b *testServer) stopServer() error {
	if b.server == nil {
		return nil
	}
	return errors.Join(b.server.Close(), os.RemoveAll(b.dir))
}

// chooseServerParentDir returns the folder for the server's folder.
func chooseServerParentDir() string {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(memoryDir, &fs); err == nil && fs.Bavail*uint64(fs.Bsize) >= memoryRequired { //nolint:gosec // a size
		return memoryDir
	}
	return os.TempDir()
}

// removeStaleServerDirs removes the folders of killed test processes. Folders that it cannot remove belong to
// other users.
func removeStaleServerDirs(parentDir string) {
	entries, _ := os.ReadDir(parentDir)
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !strings.HasPrefix(e.Name(), dirPrefix) || time.Since(info.ModTime()) < staleAfter {
			continue
		}
		dir := filepath.Join(parentDir, e.Name())
		lock, err := os.Open(filepath.Join(dir, "lock")) //nolint:gosec // of the folders that we make
		if err != nil {
			continue
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			_ = os.RemoveAll(dir)
		}
		_ = lock.Close()
	}
}
