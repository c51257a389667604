package sentinelapp_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fleetloop/fleetloop/internal/sentinel/inspect"
)

// manifest is a SentinelConfig as kubectl applies it.
//
//nolint:gosec // no secret
const manifest = `apiVersion: hyperfleet.redhat.com/v1alpha1
kind: SentinelConfig
metadata: {name: shard, namespace: hyperfleet-system}
spec:
  resourceType: clusters
  backoffNotReady: 15s
  shardSelector: {matchLabels: {region: eu}}
  hyperfleetAPI: {url: "http://127.0.0.1:1"}
  broker: {type: rabbitmq, topic: hyperfleet-events, url: "amqp://guest:canary@127.0.0.1:1/"}
`

// TestManifest holds that a SentinelConfig in a file can be checked, asked and
// shown as a configuration file can, and is run by its name alone.
func TestManifest(t *testing.T) {
	t.Parallel()
	endpoint, _ := newFleet(t)
	live := strings.Replace(manifest, "http://127.0.0.1:1", endpoint, 1)
	inSecret := strings.Replace(manifest, `url: "amqp://guest:canary@127.0.0.1:1/"`, "credentialsSecretRef: {name: broker}", 1)
	cases := map[string]struct {
		reason string
		text   string
		args   []string
		out    string // in what it prints
		err    []string
	}{
		"Validate":  {"without BROKER_TYPE: it names its broker", manifest, []string{"validate"}, "valid: watches clusters (region=eu), broker rabbitmq", nil},
		"InASecret": {"only the cluster has it", inSecret, []string{"validate"}, "its URL is in a Secret", nil},
		"Show":      {"in the words of the file", manifest, []string{"config", "show"}, "max_age_not_ready: 15s", nil},
		"Plan":      {"with the profile that objects have", live, []string{"plan"}, "transition-age", nil},
		"Elsewhere": {"the API may be reached by another way", manifest, []string{"plan", "--api-endpoint", endpoint}, "of 5 clusters at " + endpoint, nil},
		"Run":       {"that is for the cluster", manifest, nil, "", []string{"apply it", "--config=shard"}},
		"Version":   {"of another", strings.Replace(manifest, "v1alpha1", "v9", 1), []string{"validate"}, "", []string{`"hyperfleet.redhat.com/v9"`, "v1alpha1"}},
		"Unknown":   {"a field that there is not", manifest + "  pollIntervall: 5s\n", []string{"validate"}, "", []string{"pollIntervall"}},
		"Bad":       {"names the field", manifest + "  pollInterval: soon\n", []string{"validate"}, "", []string{"spec.pollInterval", `"soon"`}},
		"Broker":    {"names the field, and not what is in it", strings.Replace(manifest, "amqp:", "http:", 1), []string{"validate"}, "", []string{"spec.broker.url"}},
		"Part":      {"the resources of its part", live + "  sharding: {count: 3, index: 1}\n", []string{"plan"}, "region=eu part 1/3", nil},
		"NoPart":    {"there are only three", manifest + "  sharding: {count: 3, index: 3}\n", []string{"plan"}, "", []string{"spec.sharding"}},
		"Several":   {"which of them?", manifest + "---\n" + manifest, []string{"validate"}, "", []string{"several YAML documents"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := runCLI(t.Context(), t, nil, append(tc.args, "--config", writeConfig(t, tc.text))...)
			if strings.Contains(got.allOutput(), "canary") {
				t.Errorf("%s: a password is shown: %s", tc.reason, got.allOutput())
			}
			if (got.err == nil) != (tc.err == nil) || !strings.Contains(got.stdout, tc.out) {
				t.Errorf("%s: got %v and\n%s", tc.reason, got.err, got.stdout)
			}
			for _, want := range tc.err {
				if got.err != nil && !strings.Contains(got.err.Error(), want) {
					t.Errorf("%s: the error lacks %q: %v", tc.reason, want, got.err)
				}
			}
		})
	}
	eu, us := writeConfig(t, live), configure(t, endpoint, "region=us")
	if got := runCLI(t.Context(), t, nil, "coverage", eu, us); got.err != nil || !strings.HasPrefix(got.stdout, "covered: each of 5 resources") {
		t.Errorf("coverage by a manifest and a file: %v\n%s", got.err, got.stdout)
	}
}

// TestParts verifies that coverage, why and plan consider the part of a sharded SentinelConfig.
func TestParts(t *testing.T) {
	t.Parallel()
	endpoint, ids := newFleet(t)
	all := strings.NewReplacer("http://127.0.0.1:1", endpoint, "  shardSelector: {matchLabels: {region: eu}}\n", "").Replace(manifest)
	var parts []string
	for i := range 3 {
		parts = append(parts, writeConfig(t, all+fmt.Sprintf("  sharding: {count: 3, index: %d}\n", i)))
	}
	got := runCLI(t.Context(), t, nil, append([]string{"coverage", "-o", "json"}, parts...)...)
	if got.err != nil || !strings.Contains(got.stdout, `"covered": true`) {
		t.Errorf("three parts: %v\n%s", got.err, got.stdout)
	}
	var report inspect.CoverageReport
	if err := json.Unmarshal([]byte(got.stdout), &report); err != nil {
		t.Fatal(err)
	}
	watched := 0
	for i, c := range report.Configs {
		watched += c.Alone
		missing := runCLI(t.Context(), t, nil, append([]string{"coverage"}, slices.Delete(slices.Clone(parts), i, i+1)...)...)
		if want := fmt.Sprintf("%d not watched", c.Alone); c.Alone > 0 && (missing.err == nil || !strings.Contains(missing.stdout, want)) {
			t.Errorf("without %s: %v, want %q in\n%s", c.Selector, missing.err, want, missing.stdout)
		}
		if plan := runCLI(t.Context(), t, nil, "plan", "--config", parts[i], "-o", "json"); !strings.Contains(plan.stdout, fmt.Sprintf(`"watched": %d,`, c.Selected)) {
			t.Errorf("plan of %s, want %d watched:\n%s", c.Selector, c.Selected, plan.stdout)
		}
	}
	if watched != 5 {
		t.Errorf("the parts watch %d of 5 resources", watched)
	}
	in := 0
	for _, part := range parts {
		why := runCLI(t.Context(), t, nil, "why", ids[0], "--config", part)
		if strings.Contains(why.stdout, "its id is not in part ") {
			in++
		}
	}
	if in != 2 {
		t.Errorf("%d parts do not watch a resource, want 2", in)
	}
}

// TestWhatGoesTogether verifies that flags for files and flags for SentinelConfigs exclude each
// other, with advice in the error.
func TestWhatGoesTogether(t *testing.T) {
	t.Parallel()
	file := writeConfig(t, plain)
	nowhere := filepath.Join(t.TempDir(), "kubeconfig")
	cases := map[string]struct {
		reason string
		args   []string
		want   []string
	}{
		"NoCluster":     {"says where one would be looked for", []string{"--config", "shard"}, []string{`--config "shard"`, "./shard.yaml", "kubeconfig"}},
		"AllNoCluster":  {"the same", []string{"--all"}, []string{"kubeconfig"}},
		"AllAndConfig":  {"one or all", []string{"--all", "--config", "shard"}, []string{"--all", `"shard"`, "mutually exclusive"}},
		"AllAndFile":    {"one or all", []string{"--all", "--config", file}, []string{"--all", "mutually exclusive"}},
		"FileNamespace": {"a file is in none", []string{"--config", file, "--namespace", "n"}, []string{"--namespace requires SentinelConfigs"}},
		"FileCluster":   {"a file needs none", []string{"--config", file, "--kubeconfig", nowhere}, []string{"--kubeconfig requires SentinelConfigs"}},
		"PollInterval":  {"the object says it", []string{"--config", "shard", "--poll-interval", "1s"}, []string{"--poll-interval requires a configuration file", "spec"}},
		"Validate":      {"the cluster has it", []string{"validate", "--config", "shard"}, []string{`"shard"`, "kubectl describe", "./sentinel-config.yaml"}},
		"Plan":          {"the same", []string{"plan", "--config", "shard"}, []string{"kubectl describe"}},
		"Bounds":        {"as for a file", []string{"--config", "shard", "--stop-timeout", "5s"}, []string{`"stop_timeout"`, "longer than shutdown_timeout"}},
		"Missing":       {"a kubeconfig that is not there", []string{"--config", "shard", "--kubeconfig", nowhere}, []string{"read kubeconfig", nowhere}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := runCLI(t.Context(), t, map[string]string{"KUBECONFIG": nowhere}, tc.args...)
			if got.err == nil {
				t.Fatalf("%s: got no error", tc.reason)
			}
			for _, want := range tc.want {
				if !strings.Contains(got.err.Error(), want) {
					t.Errorf("%s: the error lacks %q: %v", tc.reason, want, got.err)
				}
			}
		})
	}
	shown := runCLI(t.Context(), t, map[string]string{"HYPERFLEET_API_TOKEN": "canary"}, "config", "show", "--origins", "--config", "shard", "--namespace", "n")
	for _, want := range []string{"namespace: n # flag --namespace", "token: '***' # env HYPERFLEET_API_TOKEN", "metrics_bind_address: :8080"} {
		if !strings.Contains(shown.stdout, want) {
			t.Errorf("config show lacks %q: %v\n%s", want, shown.err, shown.stdout)
		}
	}
}
