package pgserver_test

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"os"
	osexec "os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/fleetloop/fleetloop/internal/postgres/pgserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newDir returns a folder that the server's user can reach, even if the test runs as root.
func newDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pgserver-") //nolint:usetesting // t.TempDir is closed to the user that a root's server runs as
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func start(t *testing.T, cfg pgserver.Config) *pgserver.Server {
	t.Helper()
	s, err := pgserver.Start(t.Context(), cfg, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// query reads one text value on a separate connection.
func query(t *testing.T, url, sql string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	var s string
	if err := conn.QueryRow(t.Context(), sql).Scan(&s); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return s
}

func exec(t *testing.T, url, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func TestDataIsUsedAgain(t *testing.T) {
	dir := newDir(t)
	first := start(t, pgserver.Config{Dir: dir})
	exec(t, first.DatabaseURL(), "create table kept as select 'still here' as word")
	if err := first.Ready(); err != nil {
		t.Errorf("ready: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := first.Ready(); err == nil {
		t.Error("a closed server says that it is ready")
	}

	second := start(t, pgserver.Config{Dir: dir})
	if got := query(t, second.DatabaseURL(), "select word from kept"); got != "still here" {
		t.Errorf("got %q", got)
	}
	if got := query(t, second.DatabaseURL(), "show fsync"); got != "on" {
		t.Errorf("fsync is %s on a server whose data must last", got)
	}
}

func TestThePasswordIsAsked(t *testing.T) {
	s := start(t, pgserver.Config{Dir: newDir(t)})
	cfg, err := pgx.ParseConfig(s.DatabaseURL())
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Password == "" {
		t.Error("the URL has no password")
	}
	cfg.Password = "wrong"
	if conn, err := pgx.ConnectConfig(t.Context(), cfg); err == nil {
		_ = conn.Close(t.Context())
		t.Error("a wrong password was let in")
	}
}

func TestOneProcessPerFolder(t *testing.T) {
	dir := newDir(t)
	start(t, pgserver.Config{Dir: dir, Throwaway: true})
	_, err := pgserver.Start(t.Context(), pgserver.Config{Dir: dir, Throwaway: true}, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "in use by process") {
		t.Errorf("got %v", err)
	}
}

func TestRunStopsTheServer(t *testing.T) {
	s := start(t, pgserver.Config{Dir: newDir(t), Throwaway: true})
	pid := s.PostmasterPID()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("postgres %d is still there: %v", pid, err)
	}
}

func TestADeadServerIsStartedAgain(t *testing.T) {
	s := start(t, pgserver.Config{Dir: newDir(t), Throwaway: true})
	exec(t, s.DatabaseURL(), "create table kept as select 'still here' as word")
	exec(t, s.DatabaseURL(), "checkpoint") // a throwaway server loses unwritten data
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()

	port, pid := s.LoopbackPort(), s.PostmasterPID()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await(t, "another postgres", func() bool { return s.PostmasterPID() != pid && s.Ready() == nil })
	if s.LoopbackPort() != port {
		t.Errorf("the port moved from %d to %d", port, s.LoopbackPort())
	}
	if got := query(t, s.DatabaseURL(), "select word from kept"); got != "still here" {
		t.Errorf("got %q", got)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestAServerThatKeepsDyingIsGivenUp(t *testing.T) {
	s := start(t, pgserver.Config{Dir: newDir(t), Throwaway: true})
	done := make(chan error, 1)
	go func() { done <- s.Run(t.Context()) }()
	for range 3 {
		pid := s.PostmasterPID()
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		await(t, "another postgres, or the end", func() bool { return s.PostmasterPID() != pid && (s.Ready() == nil || s.PostmasterPID() == 0) })
	}
	err := <-done
	if err == nil || !strings.Contains(err.Error(), "postgres exited 3 times within") || !strings.Contains(err.Error(), "database system is ready") {
		t.Errorf("want an error with the end of the log, got %v", err)
	}
}

func TestDataOfAnotherVersion(t *testing.T) {
	dir := newDir(t)
	if err := start(t, pgserver.Config{Dir: dir, Throwaway: true}).Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "data", "PG_VERSION"), []byte("9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := pgserver.Start(t.Context(), pgserver.Config{Dir: dir, Throwaway: true}, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "belongs to PostgreSQL 9") || !strings.Contains(err.Error(), "install PostgreSQL 9") {
		t.Errorf("got %v", err)
	}
}

func TestAnUnfinishedDataFolderIsMadeAgain(t *testing.T) {
	dir := newDir(t)
	if err := os.MkdirAll(filepath.Join(dir, "data.new", "base"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "data.new", "PG_VERSION"), []byte("15\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, pgserver.Config{Dir: dir, Throwaway: true})
	if got := query(t, s.DatabaseURL(), "select current_database()"); got != pgserver.DefaultDatabase {
		t.Errorf("got %q", got)
	}
}

func TestATakenPortIsNamed(t *testing.T) {
	s := start(t, pgserver.Config{Dir: newDir(t), Throwaway: true})
	_, err := pgserver.Start(t.Context(), pgserver.Config{Dir: newDir(t), Port: s.LoopbackPort(), Throwaway: true}, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "the port is in use") {
		t.Errorf("got %v", err)
	}
}

func TestASettingThatPostgresRefusesShowsItsLog(t *testing.T) {
	_, err := pgserver.Start(t.Context(), pgserver.Config{
		Dir: newDir(t), Throwaway: true, Settings: map[string]string{"shared_buffers": "a lot"},
	}, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), `invalid value for parameter "shared_buffers"`) {
		t.Errorf("got %v", err)
	}
}

// await polls a condition that another process causes.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(30 * time.Second)
	defer deadline.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("no %s within 30 s", what)
		}
	}
}

var helperDir = flag.String("helper-dir", "", "for TestHelperProcess: where to run a server")

// TestHelperProcess is not a test: TestTheServerDiesWithItsMaster starts and kills it.
func TestHelperProcess(t *testing.T) {
	dir := *helperDir
	if dir == "" {
		return
	}
	s := start(t, pgserver.Config{Dir: dir, Throwaway: true})
	if err := os.WriteFile(filepath.Join(dir, "started"), []byte(strconv.Itoa(s.PostmasterPID())), 0o600); err != nil {
		t.Fatal(err)
	}
	<-t.Context().Done()
}

func TestTheServerDiesWithItsMaster(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Log("elsewhere it is stopped by the next start")
		return
	}
	dir := newDir(t)
	master := osexec.Command(os.Args[0], "-test.run=^TestHelperProcess$", "-helper-dir="+dir) //nolint:noctx // it is killed below
	if err := master.Start(); err != nil {
		t.Fatal(err)
	}
	pid := 0
	await(t, "server", func() bool {
		b, err := os.ReadFile(filepath.Join(dir, "started"))
		if err != nil {
			return false
		}
		pid, err = strconv.Atoi(string(b))
		return err == nil
	})
	if err := master.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = master.Wait() // it was killed
	await(t, "end of the server", func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) })
	// The remaining data is used again.
	start(t, pgserver.Config{Dir: dir, Throwaway: true})
}

// TestAFolderThatIsClosedToTheServer uses a folder that the server's user cannot reach, such as one
// in root's home.
func TestAFolderThatIsClosedToTheServer(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Log("only root's server runs as somebody else")
		return
	}
	closed := newDir(t)
	if err := os.Chmod(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(closed, "db")
	first := start(t, pgserver.Config{Dir: dir, Throwaway: true})
	exec(t, first.DatabaseURL(), "create table kept as select 'still here' as word")
	exec(t, first.DatabaseURL(), "checkpoint")
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.Readlink(filepath.Join(dir, "data"))
	if err != nil {
		t.Fatal(err)
	}
	second := start(t, pgserver.Config{Dir: dir, Throwaway: true})
	if got := query(t, second.DatabaseURL(), "select word from kept"); got != "still here" {
		t.Errorf("got %q", got)
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}

	// When the folder is gone, the next start removes the data.
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	third := start(t, pgserver.Config{Dir: dir, Throwaway: true})
	if got := query(t, third.DatabaseURL(), "select count(*)::text from pg_class where relname = 'kept'"); got != "0" {
		t.Error("data of a folder that was removed came back")
	}
	if _, err := os.Stat(data); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the old data is still there: %v", err)
	}
	if data, err = os.Readlink(filepath.Join(dir, "data")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(filepath.Dir(data)) })
}

// TestDataOfAMovedFolder moves a folder that is closed to the server, once with a start in its new place and once
// without, before another such folder is started.
func TestDataOfAMovedFolder(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Log("only root's server runs as somebody else")
		return
	}
	closed := newDir(t)
	if err := os.Chmod(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	startIn := func(name string) *pgserver.Server {
		t.Helper()
		t.Cleanup(func() {
			if data, err := os.Readlink(filepath.Join(closed, name, "data")); err == nil {
				_ = os.RemoveAll(filepath.Dir(data))
			}
		})
		return start(t, pgserver.Config{Dir: filepath.Join(closed, name)})
	}
	closeAndMove := func(s *pgserver.Server, from, to string) {
		t.Helper()
		if err := errors.Join(s.Close(), os.Rename(filepath.Join(closed, from), filepath.Join(closed, to))); err != nil {
			t.Fatal(err)
		}
	}
	a := startIn("a")
	exec(t, a.DatabaseURL(), "create table kept as select 'still here' as word")
	closeAndMove(a, "a", "b")
	b := startIn("b")
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	startIn("c")
	b = startIn("b")
	if got := query(t, b.DatabaseURL(), "select word from kept"); got != "still here" {
		t.Errorf("after a move: got %q", got)
	}
	closeAndMove(b, "b", "d")
	startIn("e")
	if got := query(t, startIn("d").DatabaseURL(), "select word from kept"); got != "still here" {
		t.Errorf("after a move without a start: got %q", got)
	}
}
