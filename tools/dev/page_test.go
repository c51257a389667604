package main

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const repository = "../.."

// TestPageBelongsToItsSource: the built page that is committed was built from the source that is
// committed. It needs no Node.
func TestPageBelongsToItsSource(t *testing.T) {
	want, err := os.ReadFile(filepath.Join(repository, sums))
	if err != nil {
		t.Fatal(err)
	}
	got, err := formatSourceAndBuildChecksums(repository)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("the page was not built from this source: run 'make console' and commit the result (-recorded +found):\n%s", diff)
	}
}

// TestSumsNoticeChanges: each change of a file, and each new one, changes the sums.
func TestSumsNoticeChanges(t *testing.T) {
	root := t.TempDir()
	write := func(path, text string) {
		t.Helper()
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, input := range listPageBuildInputs() {
		if input == "src" {
			input = "src/main.tsx"
		}
		write(source+"/"+input, "x")
	}
	write(client+"/index.ts", "x")
	write(built+"/index.html", "x")

	sum := func() string {
		t.Helper()
		text, err := formatSourceAndBuildChecksums(root)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	seen := map[string]string{sum(): "the start"}
	for _, path := range []string{source + "/package-lock.json", source + "/src/main.tsx", source + "/src/a/new.ts", client + "/index.ts", client + "/new.ts", built + "/index.html", built + "/assets/new.js"} {
		write(path, "changed")
		now := sum()
		if before, ok := seen[now]; ok {
			t.Errorf("a change of %s has the sums of %s", path, before)
		}
		seen[now] = path
	}
	before := sum()
	write(source+"/node_modules/react/index.js", "x")
	write(client+"/node_modules/openapi-fetch/index.js", "x")
	if after := sum(); after != before {
		t.Error("an installed package changed the sums")
	}
}

// TestPage builds the page from its lockfile in a copy, and compares the result with the committed
// one. It also runs the page's own checks: types, size, unit tests, and accessibility in a browser.
func TestPage(t *testing.T) {
	if testing.Short() {
		t.Skip("needs Node, Chromium and the npm registry")
	}
	root := t.TempDir()
	copyPage(t, root)
	dist := filepath.Join(root, built)
	run := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "npm", args...)
		cmd.Dir = filepath.Join(root, source)
		cmd.Env = append(os.Environ(), "CONSOLE_DIST="+dist, "CI=1", "NO_COLOR=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("npm %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	run("ci", "--no-audit", "--no-fund")
	run("run", "check")
	run("test")
	run("run", "build")
	if diff := cmp.Diff(readFiles(t, filepath.Join(repository, built)), readFiles(t, dist)); diff != "" {
		t.Errorf("a build of the source differs from the committed page: run 'make console' and commit the result (-committed +built):\n%.2000s", diff)
	}
	run("run", "axe")
}

// copyPage copies the page's source, the client that it uses, and the API document from which the
// client's types are made.
func copyPage(t *testing.T, root string) {
	t.Helper()
	if err := os.CopyFS(filepath.Join(root, client), os.DirFS(filepath.Join(repository, client))); err != nil {
		t.Fatal(err)
	}
	for _, part := range append(listPageBuildInputs(), "mock", "scripts", "test") {
		from, to := filepath.Join(repository, source, part), filepath.Join(root, source, part)
		info, err := os.Stat(from)
		if err != nil {
			t.Fatal(err)
		}
		if info.IsDir() {
			err = os.CopyFS(to, os.DirFS(from))
		} else {
			err = copyFile(from, to)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, document := range []string{"api/fleet/v1/openapi.yaml", "api/fleet/v1/openapi.json"} {
		if err := copyFile(filepath.Join(repository, document), filepath.Join(root, document)); err != nil {
			t.Fatal(err)
		}
	}
}

func copyFile(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o750); err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o600) //nolint:gosec // a file of the repository, in a temporary folder
}

// readFiles returns the contents of all files below a folder, by name.
func readFiles(t *testing.T, folder string) map[string]string {
	t.Helper()
	files := map[string]string{}
	root := os.DirFS(folder)
	err := fs.WalkDir(root, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(root, path)
		files[path] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
