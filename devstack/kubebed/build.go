package kubebed

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fleetloop/fleetloop/internal/settings"
)

// buildPrograms builds the programs from Go modules, with a separate Go build cache.
// The cache outlives an interrupted build, so that the next one continues from there,
// and is removed once the programs are complete.
func buildPrograms(ctx context.Context, c *cache, dir string) error {
	if _, err := exec.LookPath("go"); err != nil {
		return fmt.Errorf("build requires Go: %w", err)
	}
	source, err := os.MkdirTemp(c.base, unfinished)
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(source) }() // the next build removes leftovers
	err = c.set.forEachFile(func(name string, content []byte) error {
		return os.WriteFile(filepath.Join(source, name), content, 0o600)
	})
	if err != nil {
		return err
	}
	b := &building{cache: c, source: source}
	began := time.Now()
	c.log.InfoContext(ctx, "building programs from Go modules (once)", "of", c.set.title, "version", c.set.releaseVersion(), "takes", c.set.time, "dir", c.base)
	if err := b.buildBinary(ctx, filepath.Join(dir, c.set.binary)); err != nil {
		return err
	}
	for _, name := range c.set.linkNames() {
		if err := os.Symlink(c.set.binary, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	c.log.InfoContext(ctx, "programs built", "of", c.set.title, "took", time.Since(began).Round(time.Second))
	return nil
}

// buildCache returns the path of the Go build cache.
func (c *cache) buildCache() string { return filepath.Join(c.base, "gocache") }

// removeBuildCache removes the build cache, unless KeepVariable is set.
func (c *cache) removeBuildCache() error {
	if keep, _ := settings.OSEnv(KeepVariable); keep != "" {
		return nil
	}
	return os.RemoveAll(c.buildCache())
}

// A building is one build.
type building struct {
	*cache

	source string       // folder of the module
	built  atomic.Int64 // number of packages
}

// buildBinary builds the binary.
//
// Less garbage collection and no debug data take a third less time. The linker sets the
// versions that the programs report: without them the server is a v0.0.0, which breaks
// clients.
func (b *building) buildBinary(ctx context.Context, out string) error {
	total, err := b.downloadAndCountPackages(ctx)
	if err != nil {
		return err
	}
	version := b.set.releaseVersion()
	v := strings.SplitN(version, ".", 3)
	const variable = " -X k8s.io/component-base/version."
	cmd := b.goCommand(ctx, "build", "-v", "-buildvcs=false", "-trimpath", "-gcflags=all=-dwarf=false", "-o", out,
		"-ldflags", "-s -w"+variable+"gitVersion=v"+version+variable+"gitMajor="+v[0]+variable+"gitMinor="+v[1], ".")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	stop := make(chan struct{})
	told := make(chan struct{})
	go func() {
		defer close(told)
		b.logProgress(ctx, total, stop)
	}()
	said := b.countBuiltAndCollectOutput(stderr)
	err = cmd.Wait()
	close(stop)
	<-told
	if err != nil {
		return fmt.Errorf("go build: %w\n%s", errors.Join(err, context.Cause(ctx)), said)
	}
	return nil
}

// goCommand returns a go command in the programs' module, independent of environment
// settings for the caller's module.
func (b *building) goCommand(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...) //nolint:gosec // our own arguments
	cmd.Dir = b.source
	cmd.Env = append(os.Environ(), "GOCACHE="+b.buildCache(), "GOGC=400", "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off", "GOOS=", "GOARCH=", "PWD="+b.source)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // so that it ends its compilers
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// downloadAndCountPackages returns the number of packages to compile, and downloads their modules.
func (b *building) downloadAndCountPackages(ctx context.Context) (int, error) {
	b.log.InfoContext(ctx, "downloading modules", "of", b.set.title)
	cmd := b.goCommand(ctx, "list", "-deps", ".")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("go list: %w\n%s", errors.Join(err, context.Cause(ctx)), cutToLastBytes(stderr.String()))
	}
	return bytes.Count(out, []byte("\n")), nil
}

// countBuiltAndCollectOutput counts the packages that go build prints, and returns the end of its
// other output.
func (b *building) countBuiltAndCollectOutput(r io.Reader) (otherOutput string) {
	var said strings.Builder
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		// The name of a package is a line without spaces; a message has a space or a
		// colon.
		if line := lines.Text(); strings.ContainsAny(line, " :") {
			said.WriteString(line + "\n")
		} else {
			b.built.Add(1)
		}
	}
	return cutToLastBytes(said.String())
}

// logProgress logs the progress of the build, until stop is closed.
func (b *building) logProgress(ctx context.Context, total int, stop <-chan struct{}) {
	ticker := time.NewTicker(tellEvery)
	defer ticker.Stop()
	for {
		select {
		case <-stop:
			return
		case <-ticker.C:
			b.log.InfoContext(ctx, "building programs", "of", b.set.title, "packages_built", b.built.Load(), "packages", total)
		}
	}
}

// cutToLastBytes returns the end of a text.
func cutToLastBytes(s string) string {
	const enough = 4000
	return strings.TrimSpace(s[max(0, len(s)-enough):])
}
