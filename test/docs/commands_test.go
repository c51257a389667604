// Package docs_test holds a test that runs the commands of the documentation.
//
// The test extracts every sh block of README.md, docs/tutorial and docs/how-to,
// and runs the blocks of a page in page order in one bash process per
// environment. An HTML comment on the line before a block names its environment;
// a comment that no block follows sets the default of the page:
//
//	<!-- run: none -->          no server; the default
//	<!-- run: up -->            fleetloop up --demo, with its try.sh sourced
//	<!-- run: kube -->          fleetloop up --demo --kube=embedded, likewise
//	<!-- run: cluster -->       a Kubernetes API server with the chart installed
//	<!-- run: drill -->         run by TestRestoreDrill of test/e2e
//	<!-- run: no (reason) -->   not run
//
// A yaml block whose first line is a file name in a comment, such as
// "# values.yaml", is written to that file before the commands that follow it.
package docs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	shipped "github.com/fleetloop/fleetloop/devstack/binaries"
)

const (
	// maxNotRun bounds the blocks of all pages that are not run.
	maxNotRun = 40
	// pageBound is how long the commands of a page may take in one environment.
	pageBound = 10 * time.Minute
)

// programs are what the pages and the test run, in one folder for all tests.
var programs struct {
	dir            string
	binaries, helm func() (string, error)
}

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "fleetloop-docs-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	programs.dir = dir
	programs.binaries = sync.OnceValues(func() (string, error) {
		bin := filepath.Join(dir, "bin")
		return bin, shipped.Build(context.Background(), bin)
	})
	programs.helm = sync.OnceValues(func() (string, error) {
		path := filepath.Join(dir, "helm", "helm")
		cmd := exec.CommandContext(context.Background(), "go", "build", "-trimpath", "-o", path, "helm.sh/helm/v4/cmd/helm")
		cmd.Dir, cmd.Env = "../deploy", append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build Helm: %w\n%s", err, out)
		}
		return path, nil
	})
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// binaries is the folder of Fleetloop's binaries.
func binaries(t *testing.T) string {
	t.Helper()
	dir, err := programs.binaries()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// helm is the path of Helm's program.
func helm(t *testing.T) string {
	t.Helper()
	path, err := programs.helm()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// root is the folder of the repository.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestCommands runs the commands of the README, the tutorials and the how-to
// guides.
//
// The demos run one after the other, because the pages name their addresses. The pages of the other
// environments run beside them.
func TestCommands(t *testing.T) {
	t.Parallel()
	lanes := map[string][]run{}
	notRun := 0
	for _, page := range pages(t) {
		text, err := os.ReadFile(filepath.Join(root(t), page))
		if err != nil {
			t.Fatal(err)
		}
		blocks, err := parsePage(string(text))
		if err != nil {
			t.Errorf("%s: %v", page, err)
			continue
		}
		for _, b := range blocks {
			if b.file == "" && b.env == envSkip {
				notRun++
				t.Logf("not run: %s:%d (%s)", page, b.line, b.reason)
			}
		}
		for _, env := range environments() {
			uses := func(b block) bool { return b.file == "" && b.env == env }
			if env == envSkip || env == envDrill || !slices.ContainsFunc(blocks, uses) {
				continue
			}
			lane := "beside"
			if env == envUp || env == envKube {
				lane = "demo"
			}
			lanes[lane] = append(lanes[lane], run{page, blocks, env})
		}
	}
	for lane, runs := range lanes {
		t.Run(lane, func(t *testing.T) {
			t.Parallel()
			for _, r := range runs {
				t.Run(r.page+"/"+string(r.env), func(t *testing.T) { runPage(t, r.page, r.blocks, r.env) })
			}
		})
	}
	if notRun > maxNotRun {
		t.Errorf("%d blocks are not run, want at most %d", notRun, maxNotRun)
	}
}

// pages are the pages whose commands are run, as paths in the repository.
func pages(t *testing.T) []string {
	t.Helper()
	list := []string{"README.md"}
	for _, dir := range []string{"docs/tutorial", "docs/how-to"} {
		files, err := filepath.Glob(filepath.Join(root(t), dir, "*.md"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			list = append(list, dir+"/"+filepath.Base(file))
		}
	}
	return list
}

// A run is of the commands that a page has for an environment.
type run struct {
	page   string
	blocks []block
	env    environment
}

// runPage runs the commands that a page has for an environment.
func runPage(t *testing.T, page string, blocks []block, env environment) {
	t.Helper()
	aside, folder := t.TempDir(), newFolder(t)
	for _, b := range blocks {
		if b.file != "" {
			writeFile(t, filepath.Join(aside, strconv.Itoa(b.line)), strings.Join(b.lines, "\n")+"\n")
		}
	}
	name := filepath.Join(aside, filepath.Base(page))
	writeFile(t, name, script(blocks, env, aside))
	r := start(t, env)
	if r.home != "" { // the pages read ~/.local/state/fleetloop/demo
		if err := os.Symlink(filepath.Join(r.home, ".local"), filepath.Join(folder, ".local")); err != nil {
			t.Fatal(err)
		}
	}

	out, err := os.Create(filepath.Join(aside, "output"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), pageBound)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", bash, "bash", name, r.source, filepath.Join(aside, "trace"))
	cmd.Dir, cmd.Stdout, cmd.Stderr = folder, out, out
	cmd.Env = append(scriptEnv(t, append(r.path, binaries(t))), append(r.env, "HOME="+folder)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return killGroup(cmd) }
	err = cmd.Run()
	if cmd.Process != nil {
		err = errors.Join(err, killGroup(cmd))
	}
	_ = out.Close()
	if err == nil {
		return
	}
	if cause := context.Cause(ctx); cause != nil {
		err = fmt.Errorf("the commands take longer than %s: %w", pageBound, cause)
	}
	text, _ := os.ReadFile(out.Name())
	line, command := lastCommand(filepath.Join(aside, "trace"))
	t.Errorf("%s:%d: %s: %v\n%s", page, line, command, err, tail(string(text), 60))
}

// bash reads a page's script. It writes each command with its line to a trace.
const bash = `set -euo pipefail
if [ -n "$2" ]; then . "$2" >/dev/null; fi
exec 9>"$3"
BASH_XTRACEFD=9 PS4='+${LINENO} '
set -x
. "$1"
`

// lastCommand returns the last command of a trace, with its line on the page.
func lastCommand(trace string) (line int, command string) {
	text, err := os.ReadFile(trace)
	if err != nil {
		return 0, "nothing was run"
	}
	for _, m := range regexp.MustCompile(`(?m)^\++(\d+) (.*)$`).FindAllStringSubmatch(string(text), -1) {
		line, _ = strconv.Atoi(m[1]) // digits, by the expression
		command = m[2]
	}
	return line, command
}

// newFolder returns a fresh folder that has what a clone of the repository has, and
// in bin what is built there: the binaries, and the manifests beside the images.
func newFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	list := exec.CommandContext(t.Context(), "git", "-C", root(t), "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	out, err := list.Output()
	if err != nil {
		t.Fatalf("list the files of the repository: %v", err)
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join(root(t), name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted and not committed
		}
		info, errInfo := os.Stat(filepath.Join(root(t), name))
		path := filepath.Join(dir, name)
		if err := errors.Join(err, errInfo, os.MkdirAll(filepath.Dir(path), 0o750)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, info.Mode().Perm()); err != nil { //nolint:gosec // a path of the repository, in a folder of the test
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(binaries(t))
	if err := errors.Join(err, os.Mkdir(filepath.Join(dir, "bin"), 0o750), os.Symlink("../deploy", filepath.Join(dir, "bin", "deploy"))); err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := os.Symlink(filepath.Join(binaries(t), e.Name()), filepath.Join(dir, "bin", e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// scriptEnv is the environment of a script: that of the test without settings of
// Fleetloop and Kubernetes, with programs in some folders.
func scriptEnv(t *testing.T, path []string) []string {
	t.Helper()
	env := []string{"PATH=" + strings.Join(append(path, os.Getenv("PATH")), ":"), "TERM=dumb"}
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOPATH", "GOCACHE", "GOMODCACHE", "GOPROXY").Output()
	if err != nil {
		t.Fatal(err)
	}
	values := bytes.Split(bytes.TrimRight(out, "\n"), []byte("\n"))
	for i, name := range []string{"GOPATH", "GOCACHE", "GOMODCACHE", "GOPROXY"} {
		env = append(env, name+"="+string(values[i]))
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	return append(env, "XDG_CACHE_HOME="+cache)
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
