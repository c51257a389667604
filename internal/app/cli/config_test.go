package cli

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	fleetclient "github.com/fleetloop/fleetloop/client"
)

func writeFile(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestWhichServer asks a server that only the right settings lead to.
func TestWhichServer(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	usual := writeFile(t, filepath.Join(home, ".config", "fleetloop", "config.yaml"), "server: http://file:1\ntoken: of-file\n")
	other := writeFile(t, filepath.Join(home, "other.yaml"), "server: http://other:1\n")
	broken := writeFile(t, filepath.Join(home, "broken.yaml"), "sevrer: http://x\n")
	token := writeFile(t, filepath.Join(home, "token"), "of-token-file\n")

	cases := map[string]struct {
		reason string
		args   []string
		env    map[string]string
		server string
		auth   string
		code   int
		says   string
	}{
		"Default":         {"a server on this machine, without a token", nil, nil, "http://127.0.0.1:8080", "", CodeOK, ""},
		"File":            {"the usual place", nil, map[string]string{"HOME": home}, "http://file:1", "Bearer of-file", CodeOK, ""},
		"XDG":             {"where else it may be", nil, map[string]string{"XDG_CONFIG_HOME": filepath.Join(home, ".config")}, "http://file:1", "Bearer of-file", CodeOK, ""},
		"NamedByEnv":      {"another file", nil, map[string]string{"HOME": home, "FLEETLOOP_CONFIG": other}, "http://other:1", "", CodeOK, ""},
		"NamedByFlag":     {"another file", []string{"--config", other}, map[string]string{"FLEETLOOP_CONFIG": usual}, "http://other:1", "", CodeOK, ""},
		"Env":             {"stronger than the file", nil, map[string]string{"HOME": home, "FLEETLOOP_SERVER": "http://env:1", "FLEETLOOP_TOKEN": "of-env"}, "http://env:1", "Bearer of-env", CodeOK, ""},
		"Flag":            {"stronger than the environment", []string{"--server", "http://flag:1"}, map[string]string{"FLEETLOOP_SERVER": "http://env:1"}, "http://flag:1", "", CodeOK, ""},
		"HostAndPort":     {"http, as curl takes it", []string{"--server", "127.0.0.1:9080"}, nil, "http://127.0.0.1:9080", "", CodeOK, ""},
		"NameAndPort":     {"a name is no scheme", nil, map[string]string{"FLEETLOOP_SERVER": "localhost:9080"}, "http://localhost:9080", "", CodeOK, ""},
		"TokenFile":       {"instead of a weaker token", []string{"--token-file", token}, map[string]string{"HOME": home}, "http://file:1", "Bearer of-token-file", CodeOK, ""},
		"Token":           {"instead of a weaker token file", nil, map[string]string{"FLEETLOOP_CONFIG": writeFile(t, filepath.Join(home, "tf.yaml"), "token_file: "+token+"\n"), "FLEETLOOP_TOKEN": "of-env"}, "http://127.0.0.1:8080", "Bearer of-env", CodeOK, ""},
		"TokenFileByEnv":  {"instead of none", nil, map[string]string{"FLEETLOOP_TOKEN_FILE": token}, "http://127.0.0.1:8080", "Bearer of-token-file", CodeOK, ""},
		"BothTokens":      {"which one is meant is not clear", nil, map[string]string{"FLEETLOOP_TOKEN": "a", "FLEETLOOP_TOKEN_FILE": token}, "", "", CodeUsage, "both token and token_file"},
		"NoSuchFile":      {"what is named must be there", []string{"--config", filepath.Join(home, "none")}, nil, "", "", CodeUsage, "no such file"},
		"BrokenFile":      {"strict", []string{"--config", broken}, nil, "", "", CodeUsage, "broken.yaml:1:1"},
		"BadServer":       {"no URL", []string{"--server", "localhost"}, nil, "", "", CodeUsage, "use http://host:port"},
		"BadTimeout":      {"a unit is wanted", []string{"--request-timeout", "5"}, nil, "", "", CodeUsage, "request_timeout"},
		"NoSuchTokenFile": {"what is named must be there", []string{"--token-file", filepath.Join(home, "none")}, nil, "", "", CodeUsage, "no such file"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet()
			f.down = errors.New("so that the error names the server")
			got := run{args: append([]string{"get", "clusters"}, tc.args...), env: tc.env}.runCLI(t, f)
			if tc.code != CodeOK {
				if got.code != tc.code || !strings.Contains(got.stderr, tc.says) || strings.Contains(got.stderr, "of-file") {
					t.Errorf("%s: exit code %d, stderr %q, want %d and %q", tc.reason, got.code, got.stderr, tc.code, tc.says)
				}
				return
			}
			if !strings.Contains(got.stderr, tc.server+"/") {
				t.Errorf("%s: asked %q, want %s", tc.reason, got.stderr, tc.server)
			}
			f.down = nil
			got = run{args: append([]string{"get", "clusters"}, tc.args...), env: tc.env}.runCLI(t, f)
			if got.code != CodeOK || f.auth != tc.auth {
				t.Errorf("%s: exit code %d, token %q, want %q", tc.reason, got.code, f.auth, tc.auth)
			}
		})
	}
}

func TestConfigShow(t *testing.T) {
	t.Parallel()
	env := map[string]string{"FLEETLOOP_TOKEN": "s3cret", "FLEETLOOP_SERVER": "http://env:1"}
	got := run{args: []string{"config", "show", "--origins"}, env: env}.runCLI(t, newFleet())
	for _, want := range []string{"http://env:1", "env FLEETLOOP_SERVER", "***", "request_timeout"} {
		if got.code != CodeOK || !strings.Contains(got.stdout, want) {
			t.Errorf("exit code %d, no %q in\n%s", got.code, want, got.stdout)
		}
	}
	if strings.Contains(got.stdout+got.stderr, "s3cret") {
		t.Error("the token is shown")
	}
	got = run{args: []string{"config", "schema"}}.runCLI(t, newFleet())
	var schema struct{ Properties map[string]any }
	if err := json.Unmarshal([]byte(got.stdout), &schema); err != nil || len(schema.Properties) != 17 {
		t.Errorf("schema with %d properties, err %v:\n%s", len(schema.Properties), err, got.stdout)
	}
	for _, args := range [][]string{{"config"}, {}} {
		if got := (run{args: args}).runCLI(t, newFleet()); got.code != CodeOK || !strings.Contains(got.stdout, "Usage:") {
			t.Errorf("%v: exit code %d, %q", args, got.code, got.stdout)
		}
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"version"}, {"version", "--client"}, {"--version"}} {
		got := run{args: args}.runCLI(t, newFleet())
		if got.code != CodeOK || !strings.HasPrefix(got.stdout, "fleetloop, version dev (revision: ") {
			t.Errorf("%s: exit code %d, %q", args, got.code, got.stdout)
		}
		if strings.Contains(got.stdout, "fleet-api, version unknown") != (len(args) == 1 && args[0] == "version") {
			t.Errorf("%s: %q", args, got.stdout)
		}
	}
	f := newFleet()
	f.down = errors.New("away")
	got := run{args: []string{"version", "--client", "-o", "json"}}.runCLI(t, f)
	var versions map[string]map[string]string
	if err := json.Unmarshal([]byte(got.stdout), &versions); err != nil || len(versions) != 1 || len(versions["client"]) != 4 {
		t.Errorf("%q: %v", got.stdout, err)
	}
	got = run{args: []string{"version"}}.runCLI(t, f)
	if got.code != CodeFailed || !strings.HasPrefix(got.stdout, "fleetloop, version dev") || !strings.Contains(got.stderr, "get the version of the server") {
		t.Errorf("a server that is away: exit code %d, %q, %q", got.code, got.stdout, got.stderr)
	}
	if got := (run{args: []string{"version", "-o", "yaml"}}).runCLI(t, newFleet()); got.code != CodeUsage {
		t.Errorf("exit code %d for a format that is not there", got.code)
	}
}

func TestExitCode(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		err    error
		want   int
	}{
		"None":        {"all went well", nil, CodeOK},
		"Any":         {"nothing more is known", errors.New("x"), CodeFailed},
		"NotFound":    {"it is not there", fmt.Errorf("get: %w", &fleetclient.Error{Status: 404}), CodePrecondition},
		"Conflict":    {"its state forbids it", &fleetclient.Error{Status: 409}, CodePrecondition},
		"Refused":     {"the server does not want it", &fleetclient.Error{Status: 422}, CodeFailed},
		"Interrupted": {"the user ended it", fmt.Errorf("wait: %w", context.Canceled), CodeInterrupted},
		"Program":     {"a program that ended badly has a code of its own", fmt.Errorf("initdb: %w", &exec.ExitError{}), CodeFailed},
		"Configured":  {"another package's configuration", fmt.Errorf("up: %w", NewUsageError(errors.New("z"), "up --help")), CodeUsage},
		"Usage":       {"how it was written", usageError(&cobra.Command{Use: "x"}, errors.New("y")), CodeUsage},
	}
	for name, tc := range cases {
		if got := ExitCode(tc.err); got != tc.want {
			t.Errorf("%s: %s: got %d, want %d", name, tc.reason, got, tc.want)
		}
	}
	last := -1
	for _, c := range ExitCodes() {
		if c.Code <= last || c.Meaning == "" {
			t.Errorf("exit code %d stands after %d, meaning %q", c.Code, last, c.Meaning)
		}
		last = c.Code
		help := run{args: []string{"--help"}}.runCLI(t, newFleet()).stdout
		if !strings.Contains(help, fmt.Sprintf("%3d  %s", c.Code, c.Meaning)) {
			t.Errorf("exit code %d is not in the help", c.Code)
		}
	}
}

func TestErrorsAreReadable(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	printError(&out, errors.New("connect:\n\t10.0.0.1: refused\n\t10.0.0.2: \x1b[2Jrefused"))
	want := "error: connect:\nerror:   10.0.0.1: refused\nerror:   10.0.0.2: \ufffd[2Jrefused\n"
	if got := out.String(); got != want {
		t.Errorf("an error of several lines: got %q, want %q", got, want)
	}
}

func TestACertificateThatIsNotTrustedIsNoServerThatIsDown(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("%w: %w", fleetclient.ErrUnreachable, &tls.CertificateVerificationError{Err: errors.New("unknown authority")})
	if got := nextStepFor(err); !strings.Contains(got, "--ca-file") {
		t.Errorf("next is %q, want the flag for the certificate", got)
	}
}

// TestAddedCommands is how other packages add commands to the root.
func TestAddedCommands(t *testing.T) {
	t.Parallel()
	var out, errOut strings.Builder
	env := Env{Stdout: &out, Stderr: &errOut}
	root := Command(env)
	root.AddCommand(&cobra.Command{Use: "up", RunE: func(*cobra.Command, []string) error { return errors.New("it broke") }})
	if code := Run(t.Context(), env, root, []string{"up"}); code != 1 || errOut.String() != "error: it broke\n" {
		t.Errorf("exit code %d, %q", code, errOut.String())
	}
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		args   []string
		want   []string
	}{
		"Kinds":       {"first a kind", []string{"get", ""}, []string{"clusters", "nodepools", "manifests", "workloads"}},
		"Names":       {"then what the server has", []string{"get", "clusters", ""}, []string{"c1\tReady", "c2\tProvisioning"}},
		"Started":     {"that begins so", []string{"describe", "cluster", "c2"}, []string{"c2\tProvisioning"}},
		"KindAndName": {"both in one", []string{"delete", "cluster/"}, []string{"cluster/c1\tReady", "cluster/c2\tProvisioning"}},
		"Child":       {"of a parent", []string{"get", "np", "c2/"}, []string{"c2/workers\tPending"}},
		"ChildInOne":  {"all in one", []string{"wait", "nodepool/c1/w"}, []string{"nodepool/c1/workers\tReady"}},
		"Orphan":      {"of no parent", []string{"get", "np", "nope/"}, nil},
		"NoKind":      {"nothing is known of it", []string{"get", "pods", ""}, nil},
		"NoKindSlash": {"nothing is known of it", []string{"get", "pods/"}, nil},
		"Format":      {"formats", []string{"get", "clusters", "-o", ""}, append(getFormats(), "jsonpath=", "custom-columns=", "go-template=", "go-template-file=", "csv")},
		"Cluster":     {"clusters", []string{"get", "nodepools", "--cluster", "c1"}, []string{"c1\tReady"}},
		"For":         {"goals", []string{"wait", "clusters", "c1", "--for", ""}, []string{"phase=Ready", "condition=Reconciled", "delete"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := run{args: append([]string{"__complete"}, tc.args...)}.runCLI(t, newFleet())
			var lines []string
			for line := range strings.Lines(got.stdout) {
				if line = strings.TrimSuffix(line, "\n"); !strings.HasPrefix(line, ":") && !strings.HasPrefix(line, "_activeHelp_") {
					lines = append(lines, line)
				}
			}
			if diff := cmp.Diff(tc.want, lines); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
	f := newFleet()
	f.before = answering(500, v1.Problem{})
	if got := (run{args: []string{"__complete", "get", "clusters", ""}}).runCLI(t, f); strings.Contains(got.stdout, "c1") || strings.Contains(got.stdout, "rror") {
		t.Errorf("a server that fails completes to %q", got.stdout)
	}
	got := run{args: []string{"__complete", "--server", "nonsense", "get", "clusters", ""}}.runCLI(t, newFleet())
	if strings.Contains(got.stdout, "rror") {
		t.Errorf("a server that is none completes to %q", got.stdout)
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if got := (run{args: []string{"completion", shell}}).runCLI(t, newFleet()); got.code != CodeOK || len(got.stdout) < 1000 {
			t.Errorf("%s: exit code %d, %d bytes", shell, got.code, len(got.stdout))
		}
	}
}
