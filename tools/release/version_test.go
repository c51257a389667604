package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// newClone copies the source to a new git repository with one commit.
func newClone(t *testing.T) string {
	t.Helper()
	dir, root := t.TempDir(), filepath.Join("..", "..")
	list := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	out, err := list.Output()
	if err != nil {
		t.Fatalf("list the files of the repository: %v", err)
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		info, err := os.Lstat(filepath.Join(root, name))
		if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
			continue // deleted and not committed, or a link
		}
		to := filepath.Join(dir, name)
		text, errRead := os.ReadFile(filepath.Join(root, name))
		if err := errors.Join(err, errRead, os.MkdirAll(filepath.Dir(to), 0o750)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, text, info.Mode().Perm()); err != nil { //nolint:gosec // a path of the repository, in a folder of the test
			t.Fatal(err)
		}
	}
	runIn(t, dir, "git", "init", "-q")
	runIn(t, dir, "git", "add", "-A")
	runIn(t, dir, "git", "-c", "user.name=test", "-c", "user.email=test@example.com", "commit", "-q", "-m", "source")
	return dir
}

func runIn(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// wantVersion builds the program and its image with make and compares their version, and that of
// the manifests next to the image, with the wanted version.
func wantVersion(t *testing.T, dir, want string) {
	t.Helper()
	const binary = "action-runner"
	runIn(t, dir, "make", "-s", "build", "images", "BINARIES="+binary, "ARCH="+runtime.GOARCH)
	for _, arg := range []string{"version", "--version"} {
		if got := runIn(t, dir, "bin/"+binary, arg); !strings.HasPrefix(got, binary+", version "+want+" (revision: ") {
			t.Errorf("%s %s prints %q, want the version %q", binary, arg, got, want)
		}
	}
	index, err := layout.ImageIndexFromPath(filepath.Join(dir, "bin", "images", binary))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if got := manifest.Manifests[0].Annotations["org.opencontainers.image.ref.name"]; got != want {
		t.Errorf("the image's tag is %q, want %q", got, want)
	}
	for file, line := range map[string]string{
		"chart/fleetloop/Chart.yaml":                               "appVersion: \"" + want + "\"\n",
		"kustomize/execution-controller/execution-controller.yaml": "fleetloop/" + binary + ":" + want + "\n",
	} {
		text, err := os.ReadFile(filepath.Join(dir, "bin", "deploy", file))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(bytes.ReplaceAll(text, []byte("appVersion: dev"), []byte(`appVersion: "dev"`)), []byte(line)) {
			t.Errorf("bin/deploy/%s has no line %q", file, line)
		}
	}
}

// TestVersionFollowsTag: a program, its image, the chart and the kustomization
// have the version of the tag, and "dev" where the source is not exactly the
// tagged one.
func TestVersionFollowsTag(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a binary")
	}
	dir := newClone(t)
	wantVersion(t, dir, "dev")
	runIn(t, dir, "git", "tag", "v1.2.3")
	wantVersion(t, dir, "1.2.3")
	if err := os.WriteFile(filepath.Join(dir, "cmd", "action-runner", "more.go"), []byte("package main\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	wantVersion(t, dir, "dev")
}
