package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fakeProgram writes its name, the arguments, its folder and the build cache to a file.
const fakeProgram = `#!/bin/sh
echo "$(basename "$0") $* in $(basename "$PWD"), $(basename "${GOCACHE:-default}")${GOFLAGS:+ $GOFLAGS}" >> "$TIMING_TEST_LOG"
[ "$1" != test ]
`

// TestTiming verifies which commands are run in which clones and build caches. The programs are fake.
func TestTiming(t *testing.T) {
	programs, repository, log := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "log")
	for _, path := range []string{filepath.Join(programs, "go"), filepath.Join(programs, "make"), filepath.Join(repository, ".ci", "run")} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(fakeProgram), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "-A"}, {"-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "-qm", "small"}} {
		git := exec.CommandContext(t.Context(), "git", args...)
		git.Dir = repository
		if out, err := git.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	t.Setenv("PATH", programs+":"+os.Getenv("PATH"))
	t.Setenv("TIMING_TEST_LOG", log)
	t.Setenv("GOFLAGS", "-of-make")
	t.Setenv("GOCACHE", "")
	for name, tc := range map[string]struct{ only, want, wantRun, wantErr string }{
		"Demo": {
			"demo", `^ratio timing\.demo_vs_build -\S+ want <= 1\.2\nvalue timing\.demo_warm \S+ s want <= 10\n$`,
			`go build -trimpath -tags=grpcnotrace -ldflags=-s -w -o bin/ ./cmd/... in bare, cache-bare
make up UP_ARGS=--exit-when-ready in demo, cache-demo
make up UP_ARGS=--exit-when-ready in demo, cache-demo
`, "",
		},
		"CI":      {"ci", `^value timing\.ci_cold \S+ s want <= 3300\n$`, "run  in ci, cache-ci\n", ""},
		"Failure": {"test", `^$`, "make test in test, default\n", "test: make test: exit status 1"},
		"Unknown": {"bench", `^$`, "", `unknown part "bench": use demo, test or ci`},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(log, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			var message string
			if err := parseFlagsAndCheckUserWaits(t.Context(), []string{"-repository", repository, "-only", tc.only}, &out); err != nil {
				message = err.Error()
			}
			if message != tc.wantErr {
				t.Errorf("the error is %q, want %q", message, tc.wantErr)
			}
			if !regexp.MustCompile(tc.want).MatchString(out.String()) {
				t.Errorf("printed %q, want %s", out.String(), tc.want)
			}
			ran, err := os.ReadFile(log)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.wantRun, string(ran)); diff != "" {
				t.Errorf("commands (-want +got):\n%s", diff)
			}
		})
	}
}

// TestWaitIsTooLong verifies the line of a wait.
func TestWaitIsTooLong(t *testing.T) {
	w := timedWait{kind: "value", name: "timing.demo_warm", value: 10.5, unit: " s", limit: maxWarmDemo}
	if got, want := w.String(), "value timing.demo_warm 10.5 s want <= 10 MISSED"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	w.value = 10
	if got, want := w.String(), "value timing.demo_warm 10 s want <= 10"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
