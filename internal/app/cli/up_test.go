package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/fleetloop/fleetloop/internal/version"
)

// fakeUpCode is the exit code of the fake fleetloop-up.
const fakeUpCode = 42

// runFakeUp is the program fleetloop-up of the tests. It prints what it was given, and with "wait"
// ends at an interrupt.
func runFakeUp(args []string) int {
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt)
	if len(args) > 0 && args[0] == cobra.ShellCompRequestCmd {
		fmt.Printf("%s\tfor %q\n:4\n", "--demo", args[1:]) //nolint:forbidigo // this is a program
		return 0
	}
	fmt.Printf("%d %q %s\n", os.Getpid(), args, os.Getenv("FLEET")) //nolint:forbidigo // this is a program
	if len(args) > 0 && args[0] == "wait" {
		<-interrupted
		fmt.Println("interrupted") //nolint:forbidigo // this is a program
	}
	return fakeUpCode
}

// linkPrograms makes programs out of this one, and returns their directory.
func linkPrograms(t *testing.T, names ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := os.Link(self, filepath.Join(dir, name)); err != nil { // a symbolic one is resolved
			t.Fatal(err)
		}
	}
	return dir
}

func TestUp(t *testing.T) {
	t.Parallel()
	both, alone, other := linkPrograms(t, "fleetloop", upProgram), linkPrograms(t, "fleetloop"), linkPrograms(t, upProgram)
	cases := map[string]struct {
		reason string
		dir    string
		path   string
		args   []string
		want   string // in the output, %d is the process id
		code   int
	}{
		"Beside":     {"both are installed together", both, "", []string{"up", "--demo", "a b", "-h"}, `%d ["--demo" "a b" "-h"] eu` + "\n", fakeUpCode},
		"OnPath":     {"a package may separate them", alone, other, []string{"up"}, `%d [] eu` + "\n", fakeUpCode},
		"FlagBefore": {"cobra takes the flags of a parent anywhere", both, "", []string{"--server", "http://x", "up", "--demo"}, `%d ["--server" "http://x" "--demo"] eu` + "\n", fakeUpCode},
		"Help":       {"the flags are those of fleetloop-up", both, "", []string{"help", "up"}, `%d ["--help"] eu` + "\n", fakeUpCode},
		"HelpAlone": {
			"there is help, and the reader learns what is missing", alone, "",
			[]string{"help", "up"},
			"with the program fleetloop-up", CodeOK,
		},
		"Absent": {
			"the reader learns how to get it", alone, "",
			[]string{"up", "--demo"},
			"error: the program fleetloop-up, which runs all components, is neither in " + alone + " nor on the PATH\n" +
				"next:  run 'make build' in the source of Fleetloop, which builds both programs\n", CodePrecondition,
		},
		"CompleteOwn": {"flags that fleetloop-up refuses are not offered", both, "", []string{cobra.ShellCompNoDescRequestCmd, "up", "--"}, "\x00--demo\n:4\n", CodeOK},
		"Complete":    {"the flags are those of fleetloop-up", both, "", []string{cobra.ShellCompNoDescRequestCmd, "up", "pause", "--d"}, "--demo\n:4\n", CodeOK},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			cmd := exec.CommandContext(t.Context(), filepath.Join(tc.dir, "fleetloop"), tc.args...)
			cmd.Env, cmd.Stdout, cmd.Stderr = []string{"FLEET=eu", "PATH=" + tc.path}, &out, &out
			err := cmd.Run()
			want := strings.ReplaceAll(tc.want, "%d", fmt.Sprint(cmd.Process.Pid))
			if code := cmd.ProcessState.ExitCode(); code != tc.code || !strings.Contains("\x00"+out.String(), want) { // a want may begin with the output
				t.Errorf("%s: exit code %d (%v), want %d; output %q, want %q", tc.reason, code, err, tc.code, out.String(), want)
			}
		})
	}
}

// TestUpIsInterrupted: a supervisor knows only the process that it started.
func TestUpIsInterrupted(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), filepath.Join(linkPrograms(t, "fleetloop", upProgram), "fleetloop"), "up", "wait")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReader(stdout)
	if _, err := reader.ReadString('\n'); err != nil { // it runs
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(reader)
	if err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the code says more than the error
	if code := cmd.ProcessState.ExitCode(); code != fakeUpCode || string(rest) != "interrupted\n" {
		t.Errorf("exit code %d, want %d; output %q", code, fakeUpCode, rest)
	}
}

// TestLocateUpProgram: two programs of different versions do not work together. The error says
// which versions they have, and how to get the right one.
func TestLocateUpProgram(t *testing.T) {
	t.Parallel()
	beside, elsewhere := linkPrograms(t, upProgram), linkPrograms(t, upProgram)
	path := filepath.Join(beside, upProgram)
	script := filepath.Join(t.TempDir(), upProgram)
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	const install, build = "go install github.com/fleetloop/fleetloop/cmd/fleetloop-up@v1.2.3", "run 'make build' in the source of Fleetloop, which builds both programs"
	cases := map[string]struct {
		reason    string
		dir       string
		self      version.Build
		want      string
		err, next string
	}{
		"Beside": {"the one beside is of the same build, and comes before that on the PATH", beside, version.Get(), path, "", ""},
		"Tag": {
			"the right one can be installed", beside,
			version.Build{Version: "1.2.3", Module: "v1.2.3"},
			"",
			path + " has version dev (revision unknown), but fleetloop has version 1.2.3", install,
		},
		"Commit": {
			"both were built from the same folder, at different times", beside,
			version.Build{Version: version.Development, Revision: "abc"},
			"",
			path + " has version dev (revision unknown), but fleetloop has version dev (revision abc)", build,
		},
		"Foreign": {"its version is not known", filepath.Dir(script), version.Get(), "", "read version of " + script + ": ", build},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			executable := func() (string, error) { return filepath.Join(tc.dir, "fleetloop"), nil }
			lookPath := func(string) (string, error) { return filepath.Join(elsewhere, upProgram), nil }
			got, err := locateSameVersionUpProgram(executable, lookPath, tc.self)
			if got != tc.want || (err == nil) != (tc.err == "") {
				t.Fatalf("%s: got %q and %v, want %q", tc.reason, got, err, tc.want)
			}
			if err == nil {
				return
			}
			failed, ok := errors.AsType[*failure](err)
			if !ok || failed.code != CodePrecondition || !strings.HasPrefix(failed.Error(), tc.err) || failed.next != tc.next {
				t.Errorf("%s: got %+v, want code %d, error %q, next %q", tc.reason, err, CodePrecondition, tc.err, tc.next)
			}
		})
	}
}

func TestParseCompletions(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason    string
		out       string
		want      []cobra.Completion
		directive cobra.ShellCompDirective
	}{
		"Some":    {"with their descriptions", "pause\tPause: an adapter\nresume\n:4\n", []cobra.Completion{"pause\tPause: an adapter", "resume"}, cobra.ShellCompDirectiveNoFileComp},
		"None":    {"files are completed", ":0\n", nil, cobra.ShellCompDirectiveDefault},
		"Unknown": {"another program", "hello\n", nil, cobra.ShellCompDirectiveNoFileComp},
		"Empty":   {"it printed nothing", "", nil, cobra.ShellCompDirectiveNoFileComp},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, directive := parseCompletions([]byte(tc.out))
			if diff := cmp.Diff(tc.want, got); diff != "" || directive != tc.directive {
				t.Errorf("%s: directive %d, want %d (-want +got):\n%s", tc.reason, directive, tc.directive, diff)
			}
		})
	}
}
