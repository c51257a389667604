package cli

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// runAll runs commands one after another with one configuration folder, and returns the output of the last.
func runAll(t *testing.T, env map[string]string, commands ...string) run {
	t.Helper()
	var got run
	for i, command := range commands {
		got = run{args: strings.Fields(command), env: env}.runCLI(t, newFleet())
		if got.code != CodeOK && i < len(commands)-1 {
			t.Fatalf("%s: exit code %d, %s", command, got.code, got.stderr)
		}
	}
	return got
}

// TestContexts covers the life of contexts, in a file that a person has written.
func TestContexts(t *testing.T) {
	t.Parallel()
	env := map[string]string{"HOME": t.TempDir()}
	file := writeFile(t, filepath.Join(env["HOME"], ".config", "fleetloop", "config.yaml"), "# mine\nserver: http://file:1 # of all\n")
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	got := runAll(t, env,
		"config set-context prod --server https://prod:1 --kube-context eu --namespace executions --token-file token",
		"config set-context dev --server http://dev:1 --oidc-issuer https://login --oidc-client-id me --oidc-scopes openid,groups",
		"config set-context dev --oidc-client-id you --kube-context=",
		"config use-context prod",
	)
	if got.code != CodeOK || got.stderr != "Switched to context prod.\n" {
		t.Errorf("exit code %d, %q", got.code, got.stderr)
	}
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	want := "# mine\nserver: http://file:1 # of all\ncontexts:\n  prod:\n    kube_context: eu\n    namespace: executions\n    server: https://prod:1\n" +
		"    token_file: " + wd + "/token\n  dev:\n    oidc_client_id: you\n    oidc_issuer: https://login\n    oidc_scopes: [openid, groups]\n    server: http://dev:1\ncurrent_context: prod\n"
	text, err := os.ReadFile(file)
	if diff := cmp.Diff(want, string(text)); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	for command, want := range map[string]string{
		"config current-context":               "prod\n",
		"config current-context --context dev": "dev\n",
		"config get-contexts": "CURRENT   NAME   SERVER           KUBE CONTEXT   NAMESPACE\n" +
			"          dev    http://dev:1                    \n*         prod   https://prod:1   eu             executions\n",
		"__complete config use-context ":     "dev\thttp://dev:1\nprod\thttps://prod:1\n:4\n",
		"__complete get clusters --context ": "dev\thttp://dev:1\nprod\thttps://prod:1\n:4\n",
	} {
		args := strings.Fields(command)
		if strings.HasSuffix(command, " ") {
			args = append(args, "")
		}
		if got := (run{args: args, env: env}).runCLI(t, newFleet()); got.stdout != want {
			t.Errorf("%s: %q, want %q, %s", command, got.stdout, want, got.stderr)
		}
	}
	if got = runAll(t, env, "config delete-context prod", "config get-contexts"); strings.Contains(got.stdout, "prod") || strings.Contains(got.stdout, "*") {
		t.Errorf("after the deletion:\n%s", got.stdout)
	}
	if got = runAll(t, env, "config set-context new", "config current-context"); got.code != CodePrecondition {
		t.Errorf("without a context: exit code %d, %q", got.code, got.stdout)
	}
	if got = runAll(t, env, "config set-context new --current", "config current-context"); got.stdout != "new\n" {
		t.Errorf("exit code %d, %q", got.code, got.stdout)
	}
}

// TestContextPrecedence covers where each value comes from.
func TestContextPrecedence(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	token := writeFile(t, filepath.Join(home, "token"), "of-token-file\n")
	writeFile(t, filepath.Join(home, ".config", "fleetloop", "config.yaml"), "server: http://file:1\ntoken: of-file\ncurrent_context: prod\ncontexts:\n"+
		"  prod: {server: 'http://prod:1', token: of-prod, request_timeout: 7s}\n  bare: {}\n  file: {token_file: "+token+"}\n")
	cases := map[string]struct {
		reason       string
		args         string
		env          map[string]string
		server, auth string
		views        []string
	}{
		"Context": {"stronger than the file", "", nil, "http://prod:1", "Bearer of-prod", []string{"server: http://prod:1 # context prod", "request_timeout: 7s # context prod", "token: '***' # context prod", "current_context: prod # file "}},
		"Env":     {"stronger than the context", "", map[string]string{"FLEETLOOP_SERVER": "http://env:1", "FLEETLOOP_TOKEN": "of-env"}, "http://env:1", "Bearer of-env", []string{"server: http://env:1 # env FLEETLOOP_SERVER"}},
		"Flag":    {"stronger than the environment", "--server http://flag:1", map[string]string{"FLEETLOOP_SERVER": "http://env:1"}, "http://flag:1", "Bearer of-prod", []string{"server: http://flag:1 # flag --server"}},
		"OtherContext": {
			"by flag, stronger than by the environment", "--context bare",
			map[string]string{"FLEETLOOP_CONTEXT": "prod"},
			"http://file:1", "Bearer of-file",
			[]string{"current_context: bare # flag --context", "server: http://file:1 # file ", "oidc_token: id_token # default"},
		},
		"ByEnv":     {"by the environment, stronger than that of the file", "", map[string]string{"FLEETLOOP_CONTEXT": "bare"}, "http://file:1", "Bearer of-file", []string{"current_context: bare # env FLEETLOOP_CONTEXT"}},
		"TokenFile": {"instead of the weaker token of the file", "--context file", nil, "http://file:1", "Bearer of-token-file", nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := map[string]string{"HOME": home}
			maps.Copy(env, tc.env)
			f := newFleet()
			got := run{args: append(strings.Fields(tc.args), "whoami"), env: env}.runCLI(t, f)
			if f.auth != tc.auth || !strings.Contains(got.stderr, tc.server) { // the fake has no whoami
				t.Errorf("%s: token %q, want %q; %s", tc.reason, f.auth, tc.auth, got.stderr)
			}
			got = run{args: append(strings.Fields(tc.args), "config", "view", "--origins"), env: env}.runCLI(t, f)
			for _, want := range tc.views {
				if !strings.Contains(got.stdout, want) {
					t.Errorf("%s: no %q in\n%s%s", tc.reason, want, got.stdout, got.stderr)
				}
			}
			if strings.Contains(got.stdout, "of-") {
				t.Errorf("a token is shown:\n%s", got.stdout)
			}
		})
	}
}

// TestContextErrors covers wrong files and names. Nothing of them is written.
func TestContextErrors(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, file, command string
		want                  []string
	}{
		"UnknownKey":     {"a field of a context", "contexts:\n  prod:\n    sevrer: http://x\n", "get clusters", []string{"config.yaml:3:5", `"contexts[prod].sevrer"`, "server"}},
		"UnknownType":    {"a value of a context", "contexts: {prod: {request_timeout: 5}}\n", "config get-contexts", []string{"config.yaml:1:36", "contexts[prod].request_timeout"}},
		"UnknownContext": {"a name that was mistyped", "contexts: {prod: {}}\n", "get clusters --context prd", []string{`there is no context "prd"`, "did you mean prod?", "config get-contexts"}},
		"UseUnknown":     {"the same", "contexts: {prod: {}}\n", "config use-context prd", []string{"did you mean prod?"}},
		"DeleteUnknown":  {"the same", "contexts: {prod: {}}\n", "config delete-context prd", []string{"did you mean prod?"}},
		"WrongCurrent":   {"it was deleted by hand", "current_context: gone\n", "get clusters", []string{`there is no context "gone"`}},
		"WrongValue":     {"what would be refused later", "contexts: {prod: {}}\n", "config set-context prod --oidc-issuer nonsense", []string{"oidc_issuer", "URL"}},
		"BrokenFile":     {"it is not changed", "contexts: {prod: [\n", "config set-context prod --server http://x", []string{"config.yaml:", "not valid YAML"}},
		"NoName":         {"it could not be typed", "", "config set-context \x01 --server http://x", []string{"not a name of a context"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := map[string]string{"HOME": t.TempDir()}
			file := writeFile(t, filepath.Join(env["HOME"], ".config", "fleetloop", "config.yaml"), tc.file)
			got := run{args: strings.Fields(tc.command), env: env}.runCLI(t, newFleet())
			if got.code != CodeUsage {
				t.Errorf("%s: exit code %d, want %d", tc.reason, got.code, CodeUsage)
			}
			for _, want := range tc.want {
				if !strings.Contains(got.stderr, want) {
					t.Errorf("%s: no %q in\n%s", tc.reason, want, got.stderr)
				}
			}
			if text, err := os.ReadFile(file); err != nil || string(text) != tc.file {
				t.Errorf("the file has changed to %q, %v", text, err)
			}
		})
	}
}
