package main

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// budget is the maximum size of a compressed image, in MiB. A larger image must be a visible
// decision.
var budget = map[string]int64{
	"action-runner":         5,
	"adapter-runner":        15,
	"cluster-worker":        9,
	"console":               15,
	"execution-controller":  19,
	"fleet-api":             8,
	"fleetloop":             16, // evaluates the expressions of SentinelConfigs
	"fleetloop-up":          29,
	"node-fault-controller": 15,
	"sentinel":              16,
}

// made holds the images of every binary, built once for all tests.
var made struct {
	dir  string
	once func() error
}

// command is the program of this package. Most of its time is compression, which takes many times as
// long with the race detector, so the tests of all binaries run it without.
var command func() (path string, err error)

// runCommand runs the program of this package.
func runCommand(ctx context.Context, args ...string) error {
	path, err := command()
	if err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, path, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("release %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "fleetloop-release-test-")
	if err != nil {
		panic(err)
	}
	made.dir = dir
	made.once = sync.OnceValue(func() error {
		return runCommand(context.Background(), append([]string{"-arch", runtime.GOARCH, "-out", dir}, binaries()...)...)
	})
	command = sync.OnceValues(func() (string, error) {
		path := filepath.Join(dir, "command", "release")
		build := exec.CommandContext(context.Background(), "go", "build", "-trimpath", "-o", path, ".")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build this package: %w\n%s", err, out)
		}
		return path, nil
	})
	small.dir = filepath.Join(dir, "small")
	small.once = sync.OnceValue(buildSmall)
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// binaries returns the binaries of the repository.
func binaries() []string {
	entries, err := os.ReadDir("../../cmd")
	if err != nil {
		panic(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// newIndex builds the images, and returns the index for one binary.
func newIndex(t *testing.T, binary string) v1.ImageIndex {
	t.Helper()
	if testing.Short() {
		t.Skip("builds every binary")
	}
	if err := made.once(); err != nil {
		t.Fatal(err)
	}
	return indexIn(t, made.dir, binary)
}

// indexIn returns the index in the only entry of a layout.
func indexIn(t *testing.T, dir, binary string) v1.ImageIndex {
	t.Helper()
	entry, err := layout.ImageIndexFromPath(filepath.Join(dir, binary))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := entry.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 1 {
		t.Fatalf("the layout has %d entries; 'crane push' wants one", len(manifest.Manifests))
	}
	index, err := entry.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	return index
}

// newImage returns the image of a binary for this machine.
func newImage(t *testing.T, binary string) v1.Image {
	t.Helper()
	newIndex(t, binary)
	return imageIn(t, made.dir, binary)
}

func imageIn(t *testing.T, dir, binary string) v1.Image {
	t.Helper()
	index := indexIn(t, dir, binary)
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	img, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// extract writes the content of an image to a folder. It runs tar, because decompression takes many
// times as long with the race detector.
func extract(t *testing.T, img v1.Image) string {
	t.Helper()
	dir := t.TempDir()
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	for _, layer := range layers {
		archive, err := layer.Compressed()
		if err != nil {
			t.Fatal(err)
		}
		tar := exec.CommandContext(t.Context(), "tar", "-xzp", "-f", "-", "-C", dir)
		tar.Stdin = archive
		out, err := tar.CombinedOutput()
		if err := errors.Join(err, archive.Close()); err != nil {
			t.Fatalf("extract the layer: %v\n%s", err, out)
		}
	}
	return dir
}

// TestRuns starts each program as its image says, and compares the version that
// it prints with the image's labels. Root can do it as a node
// does, with the image's files and nothing else, as the image's user; others
// start the same file where it lies.
func TestRuns(t *testing.T) {
	for _, binary := range binaries() {
		t.Run(binary, func(t *testing.T) {
			img := newImage(t, binary)
			config, err := img.ConfigFile()
			if err != nil {
				t.Fatal(err)
			}
			dir := extract(t, img)
			entrypoint := config.Config.Entrypoint[0]
			if os.Geteuid() == 0 {
				for d := dir; d != filepath.Dir(made.dir) && d != "/"; d = filepath.Dir(d) { // so that the user may go there
					if err := os.Chmod(d, 0o755); err != nil {
						t.Fatal(err)
					}
				}
			}
			label := func(name string) string { return config.Config.Labels["org.opencontainers.image."+name] }
			version := binary + ", version " + label("version") + " (revision: " + label("revision")
			for arg, want := range map[string]string{"--help": "Usage:", "version": version, "--version": version} {
				args := []string{arg}
				if binary == "fleetloop" && arg == "version" {
					args = append(args, "--client") // otherwise it asks the server
				}
				cmd := exec.CommandContext(t.Context(), filepath.Join(dir, entrypoint), args...)
				cmd.Env = []string{}
				if os.Geteuid() == 0 {
					cmd.Path, cmd.Dir = entrypoint, config.Config.WorkingDir
					cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: dir, Credential: &syscall.Credential{Uid: UID, Gid: UID}}
				}
				out, err := cmd.CombinedOutput()
				if err != nil || !strings.Contains(string(out), want) {
					t.Errorf("%s %s: %v, want %q\n%s", binary, arg, err, want, out)
				}
			}
		})
	}
}

func TestConfig(t *testing.T) {
	img := newImage(t, "fleetloop")
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Config.User != ImageUser || !slices.Equal(config.Config.Entrypoint, []string{"/fleetloop"}) {
		t.Errorf("runs %q as %q", config.Config.Entrypoint, config.Config.User)
	}
	if got := config.Config.Labels["org.opencontainers.image.source"]; got != "https://github.com/fleetloop/fleetloop" {
		t.Errorf("source is %q", got)
	}
}

func TestSize(t *testing.T) {
	for _, binary := range binaries() {
		limit, ok := budget[binary]
		if !ok {
			t.Errorf("the image of %s has no budget", binary)
		}
		layers, err := newImage(t, binary).Layers()
		if err != nil {
			t.Fatal(err)
		}
		var size int64
		for _, layer := range layers {
			n, err := layer.Size()
			if err != nil {
				t.Fatal(err)
			}
			size += n
		}
		t.Logf("%s: %.1f MiB", binary, float64(size)/(1<<20))
		if size > limit<<20 {
			t.Errorf("the image of %s has %.1f MiB, more than %d", binary, float64(size)/(1<<20), limit)
		}
	}
}

// TestSBOM: the file beside the layout names each module that Go's own
// command finds in the program.
func TestSBOM(t *testing.T) {
	dir := extract(t, newImage(t, "sentinel"))
	text, err := os.ReadFile(filepath.Join(made.dir, "sentinel."+runtime.GOARCH+".spdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "go", "version", "-m", filepath.Join(dir, "sentinel")).Output()
	if err != nil {
		t.Fatal(err)
	}
	modules := regexp.MustCompile(`(?m)^\s+dep\s+(\S+)\s+(\S+)`).FindAllStringSubmatch(string(out), -1)
	if len(modules) < 20 {
		t.Fatalf("only %d modules in\n%s", len(modules), out)
	}
	for _, m := range append(modules, []string{"", "golang.org/x/crypto/x509roots/fallback", ""}) {
		want := "pkg:golang/" + strings.ToLower(m[1]) + "@" + strings.ReplaceAll(m[2], "+", "%2B")
		if !strings.Contains(string(text), want) {
			t.Errorf("the SBOM does not name %s %s", m[1], m[2])
		}
	}
}

// TestRoots: the authorities are certificates, and enough of them to reach
// the services of the large clouds.
func TestRoots(t *testing.T) {
	source, err := findModuleRoot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	list, err := generateCertificateRoots(t.Context(), source)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(list.PEM) {
		t.Fatal("no certificate could be read")
	}
	if n := bytes.Count(list.PEM, []byte("BEGIN CERTIFICATE")); n < 80 {
		t.Errorf("%d authorities", n)
	}
	if list.Module.Path != "golang.org/x/crypto/x509roots/fallback" || !strings.HasPrefix(list.Module.Version, "v") {
		t.Errorf("they come from %v", list.Module)
	}
}

// TestSameProgram checks that a second build gives the same program, and that the output of -files
// equals the layer. The source may change between two builds, so the test may need more than one
// attempt.
func TestSameProgram(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a binary twice")
	}
	const attempts = 3
	for attempt := 1; ; attempt++ {
		img, files := newImage(t, "fleet-api"), t.TempDir()
		if attempt > 1 {
			out := t.TempDir()
			if err := runCommand(t.Context(), "-arch", runtime.GOARCH, "-out", out, "fleet-api"); err != nil {
				t.Fatal(err)
			}
			img = imageIn(t, out, "fleet-api")
		}
		if err := runCommand(t.Context(), "-files", files, "fleet-api"); err != nil {
			t.Fatal(err)
		}
		diff := cmp.Diff(listing(t, extract(t, img)), listing(t, files))
		if diff == "" {
			return
		}
		if attempt == attempts {
			t.Fatalf("what -files writes is not what the layer holds, or two builds differ (-layer +files):\n%s", diff)
		}
	}
}

// listing returns each file under dir with its mode and a hash of its content.
func listing(t *testing.T, dir string) map[string]string {
	t.Helper()
	list := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		line := info.Mode().String()
		if !entry.IsDir() {
			line += " " + hashOf(t, path)
		}
		list[strings.TrimPrefix(path, dir)] = line
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func hashOf(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	hash, _, err := v1.SHA256(f)
	if err != nil {
		t.Fatal(err)
	}
	return hash.String()
}

func TestParse(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1772366400")
	o, err := parseArgs([]string{"-arch", "arm64", "sentinel"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if want := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC); !o.epoch.Equal(want) {
		t.Errorf("epoch %s, want %s", o.epoch, want)
	}
	for name, args := range map[string][]string{
		"NoBinary":    {"-out", "x"},
		"FilesOfTwo":  {"-files", "x", "sentinel", "fleet-api"},
		"UnknownFlag": {"-push", "sentinel"},
	} {
		if _, err := parseArgs(args, io.Discard); err == nil {
			t.Errorf("%s: was taken", name)
		}
	}
	t.Setenv("SOURCE_DATE_EPOCH", "yesterday")
	if _, err := parseArgs([]string{"sentinel"}, io.Discard); err == nil || !strings.Contains(err.Error(), "SOURCE_DATE_EPOCH") {
		t.Errorf("a time that is none: %v", err)
	}
}
