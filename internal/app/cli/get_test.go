package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"go.yaml.in/yaml/v3"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// TestShow holds what a user sees, command by command.
func TestShow(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		run    run
	}{
		"get-clusters":        {"the common case", run{args: []string{"get", "clusters"}}},
		"get-short":           {"all names of a kind are known", run{args: []string{"get", "C"}}},
		"get-wide":            {"more of each", run{args: []string{"get", "clusters", "-o", "wide"}}},
		"get-nodepools":       {"a child shows its parent by name", run{args: []string{"get", "np"}}},
		"get-of-cluster":      {"the children of one", run{args: []string{"get", "nodepools", "--cluster", "c2"}}},
		"get-selector":        {"labels select", run{args: []string{"get", "clusters", "-l", "region in (us-east,eu)", "--no-headers"}}},
		"get-none":            {"data stays clean", run{args: []string{"get", "clusters", "-l", "region=mars"}}},
		"get-none-json":       {"an empty list is a list", run{args: []string{"get", "clusters", "-l", "region=mars", "-o", "json"}}},
		"get-none-yaml":       {"an empty list is a list", run{args: []string{"get", "clusters", "-l", "region=mars", "-o", "yaml"}}},
		"get-name":            {"what other commands take", run{args: []string{"get", "clusters", "-o", "name"}}},
		"get-child-name":      {"the name of a child names many", run{args: []string{"get", "nodepools", "-o", "name"}}},
		"get-one":             {"by name", run{args: []string{"get", "cluster", "c1"}}},
		"get-by-id":           {"by id", run{args: []string{"get", "cluster", testID(2)}}},
		"get-slash":           {"kind and name in one", run{args: []string{"get", "cluster/c1", "nodepool/c2/workers"}}},
		"get-one-json":        {"one object is no list", run{args: []string{"get", "cluster", "c1", "-o", "json"}}},
		"get-json":            {"a list", run{args: []string{"get", "clusters", "-o", "json"}}},
		"get-one-yaml":        {"one object is no list", run{args: []string{"get", "cluster", "c1", "-o", "yaml"}}},
		"get-yaml":            {"a list", run{args: []string{"get", "clusters", "-o", "yaml"}}},
		"get-limit":           {"no more than asked for", run{args: []string{"get", "clusters", "--limit", "1"}}},
		"get-some":            {"what is there is shown", run{args: []string{"get", "clusters", "c1", "nope", "c2"}}},
		"get-missing":         {"and what is not has a code of its own", run{args: []string{"get", "cluster", "nope"}}},
		"get-missing-id":      {"also by id", run{args: []string{"get", "cluster", testID(9)}}},
		"get-ambiguous":       {"a name that several bear is no name", run{args: []string{"get", "nodepool", "workers"}}},
		"get-colour":          {"a phase is a word first", run{args: []string{"get", "clusters"}, terminal: true}},
		"get-no-colour":       {"the user said no", run{args: []string{"get", "clusters"}, terminal: true, env: map[string]string{"NO_COLOR": "1"}}},
		"get-bad-selector":    {"the server says what is wrong", run{args: []string{"get", "clusters", "-l", "a=("}}},
		"get-unknown-kind":    {"what there is is said", run{args: []string{"get", "pods"}}},
		"get-no-kind":         {"what there is is said", run{args: []string{"get"}}},
		"get-bad-format":      {"what there is is said", run{args: []string{"get", "clusters", "-o", "xml"}}},
		"get-names-selector":  {"which is meant is not clear", run{args: []string{"get", "clusters", "c1", "-l", "a=b"}}},
		"get-bad-flag":        {"a flag that is not there", run{args: []string{"get", "--sort", "clusters"}}},
		"get-bad-limit":       {"a sign is a mistake", run{args: []string{"get", "clusters", "--limit", "-1"}}},
		"get-cluster-of":      {"a cluster is in no cluster", run{args: []string{"get", "clusters", "--cluster", "c1"}}},
		"get-cluster-missing": {"the parent is not there", run{args: []string{"get", "nodepools", "--cluster", "nope"}}},
		"describe-cluster":    {"all there is to tell", run{args: []string{"describe", "cluster", "c2"}}},
		"describe-ready":      {"of one that is well", run{args: []string{"describe", "cluster", "c1"}}},
		"describe-nodepool":   {"of a child", run{args: []string{"describe", "np", "c1/workers"}}},
		"describe-two":        {"one below the other", run{args: []string{"describe", "nodepool/c1/workers", "nodepool/c2/workers"}}},
		"describe-colour":     {"words first", run{args: []string{"describe", "cluster", "c2"}, terminal: true}},
		"describe-all":        {"not by accident", run{args: []string{"describe", "clusters"}}},
		"describe-missing":    {"one is not there", run{args: []string{"describe", "cluster", "nope"}}},
		"unknown-command":     {"the nearest is offered", run{args: []string{"gte"}}},
		"completion-usage":    {"how it was written, also where cobra says so", run{args: []string{"completion", "bash", "extra"}}},
		"version-args":        {"nothing to give", run{args: []string{"version", "extra"}}},
		"config-unknown":      {"no such command", run{args: []string{"config", "sing"}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wantGolden(t, name, tc.run.runCLI(t, newFleet()).outputText())
		})
	}
}

func TestFailuresHaveANextStep(t *testing.T) {
	t.Parallel()
	problem := func(status int) func(*fakeAPI) {
		return func(f *fakeAPI) { f.before = answering(status, v1.Problem{Detail: "because"}) }
	}
	cases := map[string]struct {
		reason string
		fleet  func(*fakeAPI)
		code   int
		says   []string
	}{
		"Down":         {"nothing listens", func(f *fakeAPI) { f.down = syscall.ECONNREFUSED }, CodeFailed, []string{"connection refused", "http://127.0.0.1:8080", "fleetloop config show --origins"}},
		"Unauthorized": {"a token is wanted", problem(401), CodeFailed, []string{"401", "because", "--token-file"}},
		"Forbidden":    {"another token is wanted", problem(403), CodeFailed, []string{"403", "because", "request the permission"}},
		"Conflict":     {"the state forbids it", problem(409), CodePrecondition, []string{"409", "because"}},
		"Broken":       {"the server's fault", problem(500), CodeFailed, []string{"500", "because"}},
		"NoFleetAPI":   {"another server", func(f *fakeAPI) { f.before = answering(200, "hello") }, CodeFailed, []string{"invalid response", "which server is used"}},
		"BadItem":      {"a resource that is none", func(f *fakeAPI) { f.before = answering(200, map[string]any{"items": []any{7}}) }, CodeFailed, []string{"invalid response", "cluster"}},
		"Circle":       {"a list without an end", func(f *fakeAPI) { f.before = answering(200, map[string]any{"items": []any{}, "continue": "x"}) }, CodeFailed, []string{"the same page twice"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet()
			tc.fleet(f)
			got := run{args: []string{"get", "clusters"}}.runCLI(t, f)
			if got.code != tc.code {
				t.Errorf("%s: exit code %d, want %d", tc.reason, got.code, tc.code)
			}
			for _, text := range tc.says {
				if !strings.Contains(got.stderr, text) {
					t.Errorf("%s: stderr lacks %q:\n%s", tc.reason, text, got.stderr)
				}
			}
		})
	}
}

// TestServerTextIsHarmless plays a server whose texts drive a terminal.
func TestServerTextIsHarmless(t *testing.T) {
	t.Parallel()
	f := newFleet()
	const evil = "a\x1b]0;owned\x07\nb"
	f.items[1].Name = "c2"
	f.items[1].Labels = map[string]string{"x": evil}
	f.items[1].Metadata.DisplayName = evil
	f.items[1].Status.Phase = v1.Phase(evil)
	f.items[1].Status.Conditions[0].Message = evil
	f.items[1].Spec = json.RawMessage(`{"x":"\u001b]0;owned\u0007"}`)
	f.reports[testID(2)][0].Adapter = evil
	for _, args := range [][]string{{"get", "clusters", "-o", "wide"}, {"describe", "cluster", "c2"}} {
		got := run{args: args}.runCLI(t, f)
		if got.code != 0 || strings.ContainsAny(got.stdout, "\x1b\x07") {
			t.Errorf("%v: code %d, %q", args, got.code, got.stdout)
		}
	}
	f.before = answering(500, v1.Problem{Detail: evil})
	if got := (run{args: []string{"get", "clusters"}}).runCLI(t, f); strings.ContainsAny(got.stderr, "\x1b\x07") {
		t.Errorf("%q", got.stderr)
	}
}

func TestLargeFleetsComeInPages(t *testing.T) {
	t.Parallel()
	f := &fakeAPI{}
	for n := range 1201 {
		r := newResource(v1.KindCluster, n, fmt.Sprintf("cluster-%d", n))
		f.items = append(f.items, r)
	}
	for format, want := range map[string]int{"table": 1202, "name": 1201} {
		got := run{args: []string{"get", "clusters", "-o", format}}.runCLI(t, f)
		if n := strings.Count(got.stdout, "\n"); n != want || got.code != 0 {
			t.Errorf("%s: %d lines, want %d", format, n, want)
		}
	}
	if n := len(f.requests); n != 6 {
		t.Errorf("%d requests for two lists of 1201, want 6", n)
	}
	got := run{args: []string{"get", "clusters", "-o", "json", "--limit", "700"}}.runCLI(t, f)
	var list struct{ Items []v1.Resource }
	if err := json.Unmarshal([]byte(got.stdout), &list); err != nil || len(list.Items) != 700 {
		t.Errorf("JSON: %d items, err %v", len(list.Items), err)
	}
	got = run{args: []string{"get", "clusters", "-o", "yaml"}}.runCLI(t, f)
	var docs struct{ Items []map[string]any }
	if err := yaml.Unmarshal([]byte(got.stdout), &docs); err != nil || len(docs.Items) != 1201 {
		t.Errorf("YAML: %d items, err %v", len(docs.Items), err)
	}
}

func TestBrokenPipe(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"get", "clusters"},
		{"get", "clusters", "-o", "json"},
		{"get", "clusters", "-o", "yaml"},
		{"get", "clusters", "-o", "name"},
		{"describe", "cluster", "c2"},
		{"wait", "cluster", "c1", "--for=phase=Ready"},
		{"version"},
		{"config", "schema"},
		{"watch", "clusters"},
		{"delete", "cluster", "c1"},
		{"patch", "cluster", "c1", "--label", "a=b"},
		{"clusters", "sync"},
		{"clusters", "sync", "c1"},
		{"clusters", "sync", "-o", "json"},
		{"clusters", "pause", "c1"},
		{"clusters", "resume", "c1", "-o", "yaml"},
	} {
		f := newFleet()
		f.syncs = []v1.ClusterSync{syncOf(1, "c1", v1.SyncPending, nil)}
		env := Env{Stdout: brokenPipe{}, Stderr: &strings.Builder{}, Wrap: f.wrapTransport}
		if code := Run(t.Context(), env, Command(env), args); code != CodeFailed {
			t.Errorf("%v: exit code %d, want %d", args, code, CodeFailed)
		}
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }
