package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A timedWait is the time that one part of the work on a clone takes, compared with a limit.
type timedWait struct {
	kind, name string // as those of the benchmarks
	value      float64
	unit       string
	limit      float64
}

func (w timedWait) isTooLong() bool { return w.value > w.limit }

func (w timedWait) String() string {
	missed := ""
	if w.isTooLong() {
		missed = " MISSED"
	}
	return fmt.Sprintf("%s %s %.4g%s want <= %g%s", w.kind, w.name, w.value, w.unit, w.limit, missed)
}

// Limits of the waits.
const (
	// maxDemoVsBuild is the limit of a first "make up", without startSeconds, over a plain build of its binaries.
	maxDemoVsBuild = 1.2
	startSeconds   = 15
	maxWarmDemo    = 10   // seconds
	maxWarmTest    = 1800 // seconds
	maxColdCI      = 3300 // seconds
)

// parseFlagsAndCheckUserWaits measures how long developers and new users wait for a clone of the last commit. It
// fails if a wait is too long. The parts are
//
//   - demo: from a clone to a ready demo with an empty build cache, compared with a plain build of the binaries,
//     and a second start of the demo;
//   - test: a second "make test" in a clone;
//   - ci: ".ci/run" in a clone with an empty build cache.
//
// The module cache is used as it is, so the network is not measured once it is full.
func parseFlagsAndCheckUserWaits(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("timing", flag.ContinueOnError)
	only := flags.String("only", "demo", "comma-separated `parts`: demo, test, ci")
	repository := flags.String("repository", ".", "git repository to clone")
	if err := flags.Parse(args); err != nil {
		return err
	}
	measures := map[string]func(*waitMeasurement, context.Context) ([]timedWait, error){
		"demo": (*waitMeasurement).measureColdAndWarmDemo, "test": (*waitMeasurement).measureTest, "ci": (*waitMeasurement).measureCI,
	}
	tooLong := 0
	for part := range strings.SplitSeq(*only, ",") {
		measure, ok := measures[part]
		if !ok {
			return fmt.Errorf("unknown part %q: use demo, test or ci", part)
		}
		waits, err := measureInTempFolder(ctx, *repository, measure)
		if err != nil {
			return fmt.Errorf("%s: %w", part, err)
		}
		for _, w := range waits {
			_, _ = fmt.Fprintln(out, w)
			if w.isTooLong() {
				tooLong++
			}
		}
	}
	if tooLong > 0 {
		return fmt.Errorf("waits that are too long: %d", tooLong)
	}
	return nil
}

// A waitMeasurement clones a repository into a temporary folder and runs commands there.
type waitMeasurement struct{ repository, dir string }

func measureInTempFolder(
	ctx context.Context, repository string, measure func(*waitMeasurement, context.Context) ([]timedWait, error),
) (waits []timedWait, err error) {
	repository, err = filepath.Abs(repository)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "fleetloop-timing-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	return measure(&waitMeasurement{repository: repository, dir: dir}, ctx)
}

func (m *waitMeasurement) measureColdAndWarmDemo(ctx context.Context) ([]timedWait, error) {
	bare, err := m.runInNewClone(ctx, "bare", m.emptyCache("bare"),
		"env", "CGO_ENABLED=0", "go", "build", "-trimpath", "-tags=grpcnotrace", "-ldflags=-s -w", "-o", "bin/", "./cmd/...")
	if err != nil {
		return nil, err
	}
	start := []string{"make", "up", "UP_ARGS=--exit-when-ready"}
	cold, err := m.runInNewClone(ctx, "demo", m.emptyCache("demo"), start...)
	if err != nil {
		return nil, err
	}
	warm, err := m.run(ctx, "demo", m.emptyCache("demo"), start...) // its cache is full now
	if err != nil {
		return nil, err
	}
	return []timedWait{
		{kind: "ratio", name: "timing.demo_vs_build", value: (cold.Seconds() - startSeconds) / bare.Seconds(), limit: maxDemoVsBuild},
		{kind: "value", name: "timing.demo_warm", value: warm.Seconds(), unit: " s", limit: maxWarmDemo},
	}, nil
}

func (m *waitMeasurement) measureTest(ctx context.Context) ([]timedWait, error) {
	if _, err := m.runInNewClone(ctx, "test", "", "make", "test"); err != nil {
		return nil, err
	}
	warm, err := m.run(ctx, "test", "", "make", "test")
	return []timedWait{{kind: "value", name: "timing.test_warm", value: warm.Seconds(), unit: " s", limit: maxWarmTest}}, err
}

func (m *waitMeasurement) measureCI(ctx context.Context) ([]timedWait, error) {
	cold, err := m.runInNewClone(ctx, "ci", m.emptyCache("ci"), ".ci/run")
	return []timedWait{{kind: "value", name: "timing.ci_cold", value: cold.Seconds(), unit: " s", limit: maxColdCI}}, err
}

func (m *waitMeasurement) emptyCache(name string) string { return filepath.Join(m.dir, "cache-"+name) }

// runInNewClone clones the repository and runs a command in the clone. It returns how long both took.
func (m *waitMeasurement) runInNewClone(ctx context.Context, clone, buildCache string, command ...string) (time.Duration, error) {
	cloned, err := m.run(ctx, "", "", "git", "clone", "--quiet", m.repository, clone)
	if err != nil {
		return 0, err
	}
	took, err := m.run(ctx, clone, buildCache, command...)
	return cloned + took, err
}

// run runs a command in a folder, with the given build cache or the user's, and returns how long it took.
func (m *waitMeasurement) run(ctx context.Context, folder, buildCache string, command ...string) (time.Duration, error) {
	fmt.Fprintf(os.Stderr, "timing: %s\n", strings.Join(command, " "))
	cmd := exec.CommandContext(ctx, command[0], command[1:]...) //nolint:gosec // our own commands
	cmd.Dir, cmd.Stdout, cmd.Stderr = filepath.Join(m.dir, folder), os.Stderr, os.Stderr
	cmd.Env = environWithoutMake(os.Environ())
	if buildCache != "" {
		cmd.Env = append(cmd.Env, "GOCACHE="+buildCache)
	}
	began := time.Now()
	if err := cmd.Run(); err != nil {
		return 0, fmt.Errorf("%s: %w", strings.Join(command, " "), err)
	}
	return time.Since(began), nil
}

// environWithoutMake returns an environment without the variables that make and our Makefile export.
func environWithoutMake(environ []string) []string {
	ofMake := []string{"MAKEFLAGS", "MAKELEVEL", "MFLAGS", "GOFLAGS", "CGO_ENABLED"}
	return slices.DeleteFunc(slices.Clone(environ), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return slices.Contains(ofMake, name)
	})
}
