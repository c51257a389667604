package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"flag"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// releasePlatforms are the platforms of TestRelease, which then builds all binaries.
var releasePlatforms = flag.String("release-platforms", "", "platforms for which the test of a release builds all binaries")

const releaseVersion = "1.2.3"

// newReleaseClone returns a clone of the source with the tag and the changelog of a release.
func newReleaseClone(t *testing.T) string {
	t.Helper()
	dir := newClone(t)
	path := filepath.Join(dir, "CHANGELOG.md")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.Replace(text, []byte("## Unreleased\n"), []byte("## "+releaseVersion+" - 2026-12-01\n"), 1)
	text = append(text, "\n## 1.2.2\n\nThe version before.\n"...)
	if err := os.WriteFile(path, text, 0o600); err != nil { //nolint:gosec // in a folder of the test
		t.Fatal(err)
	}
	runIn(t, dir, "git", "-c", "user.name=test", "-c", "user.email=test@example.com", "commit", "-q", "-am", "release")
	runIn(t, dir, "git", "tag", "v"+releaseVersion)
	return dir
}

// checkTagAndReplaceRelease writes a release of the source in dir, and returns its folder and the error output.
func writeRelease(t *testing.T, dir string, args ...string) (out, message string, err error) {
	t.Helper()
	path, err := command()
	if err != nil {
		t.Fatal(err)
	}
	out = filepath.Join(dir, "bin", "release")
	cmd := exec.CommandContext(t.Context(), path, append([]string{"-out", out}, args...)...)
	cmd.Dir = dir
	text, err := cmd.CombinedOutput()
	return out, string(text), err
}

// readArchive returns the files of an archive.
func readArchive(t *testing.T, path string) map[string][]byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	decompressor, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for archive := tar.NewReader(decompressor); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[header.Name], err = io.ReadAll(archive); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRelease covers that a release is complete, starts, names its own version and files, and has the same bytes
// in another clone.
func TestRelease(t *testing.T) {
	if testing.Short() {
		t.Skip("builds binaries")
	}
	dir, platforms, names := newReleaseClone(t), runtime.GOOS+"/"+runtime.GOARCH, []string{"fleetloop", "action-runner"}
	if *releasePlatforms != "" {
		platforms, names = *releasePlatforms, binaries()
	}
	args := append([]string{"-release", releaseVersion, "-platforms", platforms}, names...)
	out, message, err := writeRelease(t, dir, args...)
	if err != nil {
		t.Fatalf("%v\n%s", err, message)
	}
	t.Run("Checksums", func(t *testing.T) { runIn(t, out, "sha256sum", "--check", "--quiet", "SHA256SUMS") })
	t.Run("Files", func(t *testing.T) { wantReleaseFiles(t, out, platforms) })
	t.Run("Archive", func(t *testing.T) { wantArchive(t, out) })
	t.Run("Packages", func(t *testing.T) { wantPackages(t, out, platforms) })
	t.Run("Chart", func(t *testing.T) {
		files := readArchive(t, filepath.Join(out, "fleetloop-"+releaseVersion+".tgz"))
		if !strings.Contains(string(files["fleetloop/Chart.yaml"]), `version: "`+releaseVersion+`"`) {
			t.Errorf("Chart.yaml of the package:\n%s", files["fleetloop/Chart.yaml"])
		}
		if files["fleetloop/values.yaml"] == nil || files["fleetloop/.helmignore"] != nil {
			t.Errorf("the package has the files %v", slices.Sorted(maps.Keys(files)))
		}
	})
	t.Run("Notes", func(t *testing.T) {
		notes, err := os.ReadFile(filepath.Join(out, "RELEASE_NOTES.md"))
		if err != nil || !bytes.HasPrefix(notes, []byte("Nothing is released yet.")) || bytes.Contains(notes, []byte("The version before")) {
			t.Errorf("%v, the notes begin with %.80q and end with %q", err, notes, notes[max(0, len(notes)-80):])
		}
	})
	t.Run("Reproducible", func(t *testing.T) {
		other := filepath.Join(t.TempDir(), "other")
		runIn(t, dir, "git", "clone", "-q", dir, other)
		again, message, err := writeRelease(t, other, args...)
		if err != nil {
			t.Fatalf("%v\n%s", err, message)
		}
		for _, name := range []string{"SHA256SUMS", "images.txt"} {
			first, err := os.ReadFile(filepath.Join(out, name))
			if err != nil {
				t.Fatal(err)
			}
			second, err := os.ReadFile(filepath.Join(again, name))
			if diff := cmp.Diff(string(first), string(second)); err != nil || diff != "" {
				t.Errorf("%s in another clone: %v\n%s", name, err, diff)
			}
		}
	})
}

func wantReleaseFiles(t *testing.T, out, platforms string) {
	t.Helper()
	want := []string{
		"RELEASE_NOTES.md", "SHA256SUMS", "fleetloop-" + releaseVersion + ".tgz", "fleetloop-manifests_" + releaseVersion + ".tar.gz",
		"fleetloop.krew.yaml", "fleetloop.rb", "images", "images.txt",
	}
	for p := range strings.SplitSeq(platforms, ",") {
		suffix := releaseVersion + "_" + strings.ReplaceAll(p, "/", "_") + ".tar.gz"
		want = append(want, "fleetloop_"+suffix, "fleetloop-components_"+suffix)
	}
	slices.Sort(want)
	entries, err := os.ReadDir(out)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

// wantArchive starts the command line of this platform's archive.
func wantArchive(t *testing.T, out string) {
	t.Helper()
	files := readArchive(t, filepath.Join(out, "fleetloop_"+releaseVersion+"_"+runtime.GOOS+"_"+runtime.GOARCH+".tar.gz"))
	for _, name := range []string{"LICENSE", "sbom/fleetloop.spdx.json"} {
		if len(files[name]) == 0 {
			t.Errorf("the archive has no %s", name)
		}
	}
	program := filepath.Join(t.TempDir(), "fleetloop")
	if err := os.WriteFile(program, files["fleetloop"], 0o700); err != nil {
		t.Fatal(err)
	}
	if got := runIn(t, ".", program, "--version"); !strings.HasPrefix(got, "fleetloop, version "+releaseVersion+" (revision: ") {
		t.Errorf("fleetloop --version prints %q", got)
	}
}

// wantPackages compares the manifests of the package managers with the archives.
func wantPackages(t *testing.T, out, platforms string) {
	t.Helper()
	sums, err := os.ReadFile(filepath.Join(out, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(out, "fleetloop.krew.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var plugin struct {
		Spec struct {
			Version   string `json:"version"`
			Platforms []struct {
				URI    string `json:"uri"`
				SHA256 string `json:"sha256"`
			} `json:"platforms"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(text, &plugin); err != nil {
		t.Fatal(err)
	}
	if n := len(strings.Split(platforms, ",")); plugin.Spec.Version != "v"+releaseVersion || len(plugin.Spec.Platforms) != n {
		t.Errorf("the manifest of Krew: %+v, want %d platforms", plugin.Spec, n)
	}
	formula, err := os.ReadFile(filepath.Join(out, "fleetloop.rb"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range plugin.Spec.Platforms {
		if line := p.SHA256 + "  " + filepath.Base(p.URI) + "\n"; !strings.Contains(string(sums), line) {
			t.Errorf("SHA256SUMS has no line %q", line)
		}
		if !strings.Contains(string(formula), `url "`+p.URI+"\"\n      sha256 \""+p.SHA256+`"`) {
			t.Errorf("the formula lacks %s:\n%s", p.URI, formula)
		}
	}
}

// TestReleaseRefuses covers that a release is that of a tag, without changes and with notes, or not written.
func TestReleaseRefuses(t *testing.T) {
	dir := newReleaseClone(t)
	for name, tc := range map[string]struct {
		version string
		prepare func()
		says    string
	}{
		"NoVersion":  {"v1.2.3", func() {}, `version "v1.2.3" is not a semantic version without 'v', such as 1.2.0`},
		"AnotherTag": {"1.2.4", func() {}, "the current commit does not have the tag v1.2.4: check it out, or create it with 'git tag v1.2.4'"},
		"NoNotes":    {"1.3.0", func() { runIn(t, dir, "git", "tag", "v1.3.0") }, "CHANGELOG.md has no section '## 1.3.0': rename the section 'Unreleased'"},
	} {
		tc.prepare()
		if out, message, err := writeRelease(t, dir, "-release", tc.version, "fleetloop"); err == nil || !strings.Contains(message, tc.says) {
			t.Errorf("%s: %v, want %q\n%s", name, err, tc.says, message)
		} else if _, err := os.Stat(out); !os.IsNotExist(err) {
			t.Errorf("%s: something is written: %v", name, err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "new.go"), []byte("package new\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, message, err := writeRelease(t, dir, "-release", releaseVersion, "fleetloop"); err == nil || !strings.Contains(message, "uncommitted changes") || !strings.Contains(message, "new.go") {
		t.Errorf("a changed source: %v\n%s", err, message)
	}
	if _, message, err := writeRelease(t, dir, "-release", releaseVersion, "-platforms", "linux", "fleetloop"); err == nil || !strings.Contains(message, `read platform "linux"`) {
		t.Errorf("a wrong platform: %v\n%s", err, message)
	}
}
