package kubebed

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func newCache(t *testing.T, sources ...source) *cache {
	t.Helper()
	c := &cache{set: kubernetesPrograms(), base: filepath.Join(t.TempDir(), "cache"), sources: sources, log: slog.New(slog.DiscardHandler)}
	for _, s := range sources {
		c.order = append(c.order, s.name)
	}
	return c
}

// good returns a source with all programs.
func good(name string, calls *atomic.Int64) source {
	return source{name, func(_ context.Context, _ *cache, dir string) error {
		calls.Add(1)
		for _, p := range ProgramNames() {
			if err := os.WriteFile(filepath.Join(dir, p), []byte(name), 0o600); err != nil {
				return err
			}
		}
		return nil
	}}
}

func bad(name string, err error) source {
	return source{name, func(_ context.Context, _ *cache, dir string) error {
		return errors.Join(err, os.WriteFile(filepath.Join(dir, "etcd"), []byte("half"), 0o600))
	}}
}

// wantOnly checks that the cache folder has only the lock and the given names.
func wantOnly(t *testing.T, c *cache, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(c.base)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() == "lock" {
			continue
		}
		if len(want) == 0 || e.Name() != want[0] {
			t.Errorf("the cache folder has %s", e.Name())
			continue
		}
		want = want[1:]
	}
	if len(want) > 0 {
		t.Errorf("the cache folder lacks %v", want)
	}
}

// TestFolderIsFilledOnce covers that one of many concurrent callers fills the folder,
// and no other does so again.
func TestFolderIsFilledOnce(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	c := newCache(t, good("it", &calls))
	var asking sync.WaitGroup
	for range 4 {
		asking.Go(func() {
			dir, err := c.ensureFilledFolder(t.Context())
			if err != nil || !isComplete(dir) {
				t.Errorf("folder() = %q, %v", dir, err)
			}
		})
	}
	asking.Wait()
	if calls.Load() != 1 {
		t.Errorf("the folder was filled %d times", calls.Load())
	}
	k, err := c.set.cacheKey()
	if err != nil {
		t.Fatal(err)
	}
	wantOnly(t, c, k)
}

// TestSourcesAreTriedInOrder covers that the second source is used if the first fails,
// and that a folder never appears incomplete.
func TestSourcesAreTriedInOrder(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	cases := map[string]struct {
		reason  string
		sources []source
		want    string // the content of the programs, or the error
	}{
		"First":  {"the second is not asked", []source{good("first", &calls), bad("second", errors.New("asked"))}, "first"},
		"Second": {"the first failed", []source{bad("first", errors.New("no way out")), good("second", &calls)}, "second"},
		"Half":   {"a folder without all programs is none", []source{bad("first", nil), good("second", &calls)}, "second"},
		"None":   {"all reasons are told", []source{bad("first", errors.New("no way out")), bad("second", errors.New("no compiler"))}, "first: no way out\nsecond: no compiler"},
		"Lacks":  {"it says what", []source{bad("only", nil)}, "kube-apiserver"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCache(t, tc.sources...)
			dir, err := c.ensureFilledFolder(t.Context())
			if err != nil {
				if !strings.Contains(err.Error(), tc.want) {
					t.Errorf("%s: got %v, want %q in it", tc.reason, err, tc.want)
				}
				wantOnly(t, c)
				return
			}
			got, err := os.ReadFile(filepath.Join(dir, "etcd"))
			if err != nil || string(got) != tc.want {
				t.Errorf("%s: the programs are those of %q, want %q: %v", tc.reason, got, tc.want, err)
			}
			wantOnly(t, c, filepath.Base(dir))
		})
	}
}

// TestWhatWasLeftIsRemoved covers that a process that was killed while it filled the
// folder leaves no permanent files, and no lock.
func TestWhatWasLeftIsRemoved(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	c := newCache(t, good("it", &calls))
	if err := os.MkdirAll(filepath.Join(c.base, unfinished+"left"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(c.buildCache(), "00"), 0o700); err != nil {
		t.Fatal(err)
	}
	dir, err := c.ensureFilledFolder(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	wantOnly(t, c, filepath.Base(dir))
}

// TestWaitingEnds covers that the wait for another process can be canceled, and that
// its reason is logged.
func TestWaitingEnds(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	var said bytes.Buffer
	c := newCache(t, good("it", &calls))
	c.log = slog.New(slog.NewTextHandler(&said, nil))
	if err := os.MkdirAll(c.base, 0o700); err != nil {
		t.Fatal(err)
	}
	unlock, err := c.lockCache(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	enough := errors.New("enough")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 3*lockPoll, enough)
	defer cancel()
	if _, err := c.ensureFilledFolder(ctx); !errors.Is(err, enough) {
		t.Errorf("while another fills the cache: %v", err)
	}
	if !strings.Contains(said.String(), "waiting for another process") {
		t.Errorf("it said %q", said.String())
	}
	unlock()
	if _, err := c.ensureFilledFolder(t.Context()); err != nil || calls.Load() != 1 {
		t.Errorf("afterwards: %v, filled %d times", err, calls.Load())
	}
}

func sumText(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// etcdArchive returns an archive in the format of an etcd release.
func etcdArchive(t *testing.T, program string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, name := range []string{"etcd-v0/README.md", "etcd-v0/" + program} {
		err := errors.Join(w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(name)), Typeflag: tar.TypeReg}))
		if _, writeErr := w.Write([]byte(name)); err != nil || writeErr != nil {
			t.Fatal(err, writeErr)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestDownload covers that a download is accepted only if all its files match the
// published ones.
func TestDownload(t *testing.T) {
	t.Parallel()
	const notFound = "404"
	archive := string(etcdArchive(t, "etcd"))
	list := func(content string) string {
		return "0000  other\n" + sumText([]byte(content)) + "  etcd-v" + kubernetesPrograms().requiredVersion("go.etcd.io/etcd/server/v3") + "-linux-" + runtime.GOARCH + ".tar.gz\n"
	}
	published := func(path string) string {
		switch {
		case strings.HasSuffix(path, "SHA256SUMS"):
			return list(archive)
		case strings.HasSuffix(path, ".tar.gz"):
			return archive
		case strings.HasSuffix(path, ".sha256"):
			return sumText([]byte("program " + filepath.Base(strings.TrimSuffix(path, ".sha256"))))
		}
		return "program " + filepath.Base(path)
	}
	cases := map[string]struct {
		reason string
		answer func(path string) string
		want   string // in the error; empty for success
	}{
		"Good":      {"all is as published", published, ""},
		"Missing":   {"names what is not there", func(string) string { return notFound }, "404"},
		"Tampered":  {"a program that is another's", func(p string) string { return replace(published, p, "/kubectl", "evil") }, "checksum is"},
		"NoSum":     {"nothing to hold it to", func(p string) string { return replace(published, p, "kubectl.sha256", "") }, `want ""`},
		"Archive":   {"an archive that is another's", func(p string) string { return replace(published, p, ".tar.gz", "evil") }, "checksum is"},
		"NotListed": {"an archive that the list lacks", func(p string) string { return replace(published, p, "SHA256SUMS", "0  other\n") }, `want ""`},
		"NoEtcd": {"an archive of something else", func(p string) string {
			other := string(etcdArchive(t, "etcdctl"))
			if strings.HasSuffix(p, "SHA256SUMS") {
				return list(other)
			}
			return replace(published, p, ".tar.gz", other)
		}, "find etcd in"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				content := tc.answer(r.URL.Path)
				if content == notFound {
					w.WriteHeader(http.StatusNotFound)
				}
				_, _ = w.Write([]byte(content))
			}))
			defer server.Close()
			dir := t.TempDir()
			err := downloadPrograms(t.Context(), newCache(t), releaseDownloader{kubernetes: server.URL, etcd: server.URL, goos: "linux", client: server.Client()}, dir)
			if tc.want != "" {
				if err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("%s: got %v, want %q in it", tc.reason, err, tc.want)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			for _, p := range ProgramNames() {
				info, err := os.Stat(filepath.Join(dir, p))
				if err != nil || info.Mode().Perm()&0o100 == 0 {
					t.Errorf("%s: %s is no program: %v", tc.reason, p, err)
				}
			}
		})
	}
}

// replace returns the published content, except for one path ending.
func replace(published func(string) string, path, ending, content string) string {
	if strings.HasSuffix(path, ending) {
		return content
	}
	return published(path)
}

// TestDownloadGivesUp covers that a server that does not answer blocks no caller.
func TestDownloadGivesUp(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer server.Close()
	defer close(release)
	client := server.Client()
	client.Transport.(*http.Transport).ResponseHeaderTimeout = 100 * time.Millisecond //nolint:errcheck,forcetypeassert // httptest's is one
	err := downloadPrograms(t.Context(), newCache(t), releaseDownloader{kubernetes: server.URL, etcd: server.URL, goos: "linux", client: client}, t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "timeout") {
		t.Errorf("got %v, want a timeout", err)
	}
	if r := newReleaseDownloader(); r.client.Transport.(*http.Transport).ResponseHeaderTimeout == 0 { //nolint:errcheck,forcetypeassert // released makes one
		t.Error("the real client waits for ever")
	}
}

func TestDownloadOnOtherSystems(t *testing.T) {
	t.Parallel()
	r := newReleaseDownloader()
	r.goos = "darwin"
	if err := downloadPrograms(t.Context(), newCache(t), r, t.TempDir()); err == nil || !strings.Contains(err.Error(), "darwin") {
		t.Errorf("got %v", err)
	}
}

// TestBuildNeedsGo covers the error on a machine without Go.
func TestBuildNeedsGo(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	c := newCache(t, source{"build", buildPrograms})
	if _, err := c.ensureFilledFolder(t.Context()); err == nil || !strings.Contains(err.Error(), "build requires Go") {
		t.Errorf("got %v", err)
	}
	wantOnly(t, c)
}

// TestBuildFails covers that the compiler's errors are returned, and that the
// environment of other builds does not affect the build.
func TestBuildFails(t *testing.T) {
	bin := t.TempDir()
	script := "#!/bin/sh\n[ \"$GOFLAGS$GOOS$GOWORK\" = off ] || { echo environment >&2; exit 1; }\n" +
		"case $1 in list) echo one; echo two;; build) echo k8s.io/one >&2; echo 'main.go:1: no such thing' >&2; exit 1;; esac\n"
	if err := os.WriteFile(filepath.Join(bin, "go"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	t.Setenv("GOFLAGS", "-mod=vendor")
	t.Setenv("GOOS", "plan9")
	c := newCache(t, source{"build", buildPrograms})
	_, err := c.ensureFilledFolder(t.Context())
	if err == nil || !strings.Contains(err.Error(), "main.go:1: no such thing") || strings.Contains(err.Error(), "k8s.io/one") {
		t.Errorf("got %v, want the complaint alone", err)
	}
}

// TestEnvironment covers the variables for the source of the programs.
func TestEnvironment(t *testing.T) {
	t.Setenv(AssetsVariable, t.TempDir())
	if _, err := EnsureProgramFolder(t.Context(), slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), AssetsVariable) {
		t.Errorf("a folder of nothing gives %v", err)
	}
	t.Setenv(GardenAssetsVariable, t.TempDir())
	if _, err := EnsureGardenProgramFolder(t.Context(), slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), GardenAssetsVariable) {
		t.Errorf("a folder of nothing gives %v", err)
	}
	assets := t.TempDir()
	for _, name := range []string{"kube-apiserver", GardenerAPIServer} {
		if err := os.WriteFile(filepath.Join(assets, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv(GardenAssetsVariable, assets)
	if dir, err := EnsureGardenProgramFolder(t.Context(), slog.New(slog.DiscardHandler)); dir != assets || err != nil {
		t.Errorf("got %q, %v, want the folder that is named", dir, err)
	}
	t.Setenv(AssetsVariable, assets)
	if dir, err := EnsureProgramFolder(t.Context(), slog.New(slog.DiscardHandler)); dir != assets || err != nil {
		t.Errorf("got %q, %v, want the folder that is named", dir, err)
	}

	t.Setenv(AssetsVariable, "")
	t.Setenv(SourceVariable, "guess")
	if _, err := EnsureProgramFolder(t.Context(), slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "use auto, download or build") {
		t.Errorf("an unknown source gives %v", err)
	}
	t.Setenv(CacheVariable, t.TempDir())
	t.Setenv(GardenAssetsVariable, "")
	t.Setenv(SourceVariable, "download")
	for _, tc := range []struct {
		set    *programSet
		folder func(context.Context, *slog.Logger) (string, error)
	}{{kubernetesPrograms(), EnsureProgramFolder}, {gardenerPrograms(), EnsureGardenProgramFolder}} {
		want := inCache(t, tc.set)
		if got, err := tc.folder(t.Context(), slog.New(slog.DiscardHandler)); got != want || err != nil {
			t.Errorf("got %q, %v, want the cache %q", got, err, want)
		}
	}
}

// inCache creates the folder of a set in the cache, as if it were filled.
func inCache(t *testing.T, s *programSet) string {
	t.Helper()
	base, err := cacheFolder()
	if err != nil {
		t.Fatal(err)
	}
	k, err := s.cacheKey()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(base, k)
	if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, complete), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	return dir
}
