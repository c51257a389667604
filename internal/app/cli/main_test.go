package cli

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/fleetloop/fleetloop/internal/settings"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) { // links to this program, of the tests of "up"
	case programName, pluginFile:
		program, args := ProgramArgs(os.Args)
		env := Env{Stdout: os.Stdout, Stderr: os.Stderr, LookupEnv: settings.OSEnv, Program: program, ExecPlugin: ExecPlugin}
		root := Command(env)
		root.AddCommand(UpCommand())
		os.Exit(Run(context.Background(), env, root, args)) //nolint:forbidigo // this is a program now
	case upProgram:
		os.Exit(runFakeUp(os.Args[1:])) //nolint:forbidigo // this is a program now
	}
	goleak.VerifyTestMain(m)
}

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// A run is one command as a user would give it, and what came of it.
type run struct {
	args     []string
	stdin    string
	env      map[string]string
	terminal bool
	answers  bool            // stdin is a terminal
	ctx      context.Context //nolint:containedctx // a value of a test's table

	stdout, stderr string
	code           int
}

// runCLI runs the command against the fake.
func (r run) runCLI(t *testing.T, f *fakeAPI) run {
	t.Helper()
	var stdout, stderr bytes.Buffer
	env := Env{
		Stdin: strings.NewReader(r.stdin), Stdout: &stdout, Stderr: &stderr,
		LookupEnv:   func(name string) (string, bool) { v, ok := r.env[name]; return v, ok },
		Interactive: r.answers,
		Terminal:    r.terminal,
		Now:         func() time.Time { return now },
		Wrap:        f.wrapTransport,
	}
	ctx := r.ctx
	if ctx == nil {
		ctx = t.Context()
	}
	r.code = Run(ctx, env, Command(env), r.args)
	r.stdout, r.stderr = stdout.String(), stderr.String()
	return r
}

// outputText shows a run as a golden file keeps it.
func (r run) outputText() string {
	var b strings.Builder
	b.WriteString("$ fleetloop " + strings.Join(r.args, " ") + "\n")
	b.WriteString(r.stdout)
	if r.stderr != "" {
		b.WriteString("--- stderr\n" + r.stderr)
	}
	if r.code != 0 {
		b.WriteString("--- exit code " + string(rune('0'+r.code%10)) + "\n")
	}
	return b.String()
}

func wantGolden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}
