package pgserver

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func newTestDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pgserver-") //nolint:usetesting // t.TempDir is closed to the user that a root's server runs as
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func mustStart(t *testing.T, dir string) *Server {
	t.Helper()
	s, err := Start(t.Context(), Config{Dir: dir, Throwaway: true}, slog.New(slog.DiscardHandler))
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

func TestAServerLeftBehindIsStopped(t *testing.T) {
	dir := newTestDir(t)
	orphan := mustStart(t, dir)
	if err := orphan.home.unlockHome(); err != nil { // as if its parent had died
		t.Fatal(err)
	}
	next := mustStart(t, dir)
	if err := syscall.Kill(orphan.proc.processID(), 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the old server is still there: %v", err)
	}
	if next.PostmasterPID() == orphan.PostmasterPID() {
		t.Error("no new server")
	}
}

func TestAPidFileThatIsNobodysIsRemoved(t *testing.T) {
	dir := newTestDir(t)
	if err := mustStart(t, dir).Close(); err != nil {
		t.Fatal(err)
	}
	// The test's own pid: alive, and not a postmaster.
	file := filepath.Join(dir, "data", "postmaster.pid")
	if err := os.WriteFile(file, []byte(strconv.Itoa(os.Getpid())+"\n/elsewhere\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	mustStart(t, dir)
}

func TestBinariesAreFetchedOnce(t *testing.T) {
	txz, err := os.ReadFile("testdata/binaries.txz")
	if err != nil {
		t.Fatal(err)
	}
	var jar bytes.Buffer
	z := zip.NewWriter(&jar)
	f, err := z.Create("postgres-linux.txz")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(txz); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	jars := 0
	repository := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, ".jar") {
			http.NotFound(w, r) // no checksum
			return
		}
		jars++
		_, _ = w.Write(jar.Bytes())
	}))
	defer repository.Close()
	defer http.DefaultClient.CloseIdleConnections()

	cache := newTestDir(t)
	// The remains of an interrupted download: some of the programs, and its temporary folder.
	long := time.Now().Add(-2 * time.Hour)
	if err := errors.Join(
		os.MkdirAll(downloadedBinDir(cache), 0o755),
		os.WriteFile(filepath.Join(downloadedBinDir(cache), "pg_ctl"), nil, 0o755),
		os.Mkdir(filepath.Join(cache, "fetch-interrupted"), 0o700),
		os.Chtimes(filepath.Join(cache, "fetch-interrupted"), long, long),
	); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		dir, err := downloadBinaries(t.Context(), cache, repository.URL, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		b, err := inspectBinaries(t.Context(), dir)
		if err != nil || b.major != 17 {
			t.Errorf("found %+v, %v", b, err)
		}
	}
	if jars != 1 {
		t.Errorf("downloaded %d times", jars)
	}
	left, err := filepath.Glob(filepath.Join(cache, "fetch-*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestWithoutBinariesTheErrorSaysWhatToInstall(t *testing.T) {
	repository := httptest.NewServer(http.NotFoundHandler())
	defer repository.Close()
	defer http.DefaultClient.CloseIdleConnections()
	cfg := Config{Dir: "somewhere", CacheDir: newTestDir(t), Repository: repository.URL}
	t.Setenv("PATH", "")
	if list := listInstalledBinaries(t.Context()); len(list) > 0 {
		cfg.BinDir = "/nowhere" // an existing one is outside PATH; use a missing one
		if _, err := findOrDownloadBinaries(t.Context(), cfg, 0, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "/nowhere") {
			t.Errorf("got %v", err)
		}
	}
	_, err := downloadBinaries(t.Context(), cfg.CacheDir, cfg.Repository, slog.New(slog.DiscardHandler))
	if err == nil {
		t.Fatal("fetched from a repository that has nothing")
	}
	got := newNoBinariesError(err).Error()
	for _, want := range []string{"PostgreSQL 15 or newer is not installed", "no version found", "apt-get install postgresql"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q does not say %q", got, want)
		}
	}
}

func TestFetchEndsWithItsContext(t *testing.T) {
	release := make(chan struct{})
	repository := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer http.DefaultClient.CloseIdleConnections()
	defer repository.Close()
	defer close(release)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := downloadBinaries(ctx, newTestDir(t), repository.URL, slog.New(slog.DiscardHandler)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestWhichBinariesFit(t *testing.T) {
	cases := map[string]struct {
		reason string
		list   []binaries
		major  int
		want   string
		err    string
	}{
		"First":   {reason: "the first that is new enough", list: []binaries{{dir: "a", major: 14}, {dir: "b", major: 15}, {dir: "c", major: 17}}, want: "b"},
		"Same":    {reason: "data has a version", list: []binaries{{dir: "a", major: 17}, {dir: "b", major: 16}}, major: 16, want: "b"},
		"TooOld":  {reason: "none is new enough", list: []binaries{{dir: "a", version: "14.1", major: 14}}, err: "PostgreSQL 15 or newer is required, found 14.1"},
		"Another": {reason: "none made the data", list: []binaries{{dir: "a", version: "17.1", major: 17}}, major: 16, err: "belongs to PostgreSQL 16, but PostgreSQL 17.1"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := pickSupportedBinaries(tc.list, tc.major, "folder")
			if got.dir != tc.want || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("got %q, %v: %s", got.dir, err, tc.reason)
			}
		})
	}
}

func TestAnInterruptedStartSaysNoMoreThanThat(t *testing.T) {
	interrupted := errors.New("interrupted")

	t.Run("WhileLooking", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(interrupted)
		_, err := Start(ctx, Config{Dir: newTestDir(t), CacheDir: newTestDir(t)}, slog.New(slog.DiscardHandler))
		if !errors.Is(err, interrupted) || strings.Contains(err.Error(), "no PostgreSQL") {
			t.Errorf("binaries that nobody had time to look at are not missing: %v", err)
		}
	})

	t.Run("WhileInitialising", func(t *testing.T) {
		bin := newTestDir(t)
		if err := os.Chmod(bin, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, script := range map[string]string{
			"postgres": "#!/bin/sh\necho 'postgres (PostgreSQL) 17.1'\n",
			"initdb":   "#!/bin/sh\necho creating subdirectories\nexec sleep 60\n",
		} {
			if err := os.WriteFile(filepath.Join(bin, name), []byte(script), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeoutCause(t.Context(), 500*time.Millisecond, interrupted)
		defer cancel()
		_, err := Start(ctx, Config{Dir: newTestDir(t), BinDir: bin}, slog.New(slog.DiscardHandler))
		if !errors.Is(err, interrupted) || strings.Contains(err.Error(), "subdirectories") {
			t.Errorf("an initdb that we killed has nothing to tell: %v", err)
		}
	})
}

// TestUnlockWhileAProcessStarts holds that a folder is free although a process that is being started, a copy of
// this one, still has the lock file open.
func TestUnlockWhileAProcessStarts(t *testing.T) {
	dir := newTestDir(t)
	first, err := openAndLockHome(Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	inherited, err := syscall.Dup(int(first.lock.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(inherited) }()
	if err := first.unlockHome(); err != nil {
		t.Fatal(err)
	}
	second, err := openAndLockHome(Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := second.unlockHome(); err != nil {
		t.Error(err)
	}
}
