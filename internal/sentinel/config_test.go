package sentinel_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetloop/fleetloop/internal/selector"
	"github.com/fleetloop/fleetloop/internal/sentinel"
	"github.com/fleetloop/fleetloop/internal/sentinel/decision"
	"github.com/fleetloop/fleetloop/internal/settings"
)

func load(t *testing.T, file string, env map[string]string) (sentinel.Config, *settings.Report, error) {
	t.Helper()
	var cfg sentinel.Config
	report, err := settings.Load(&cfg, settings.Source{File: "sentinel.yaml", FileData: []byte(file), Env: func(name string) (string, bool) {
		v, ok := env[name]
		return v, ok
	}})
	return cfg, report, err
}

// TestSampleFiles loads the sample files of the specification as they stand.
func TestSampleFiles(t *testing.T) {
	const clusters = `resource_type: clusters  # Resource to watch: clusters, nodepools, manifests, workloads
poll_interval: 5s
max_age_not_ready: 15s  # Different max age!
max_age_ready: 1h       # Different max age!
resource_selector:
  - label: region
    value: us-west
hyperfleet_api:
  endpoint: http://hyperfleet-api.hyperfleet-system.svc.cluster.local:8080
  timeout: 10s
  # token: Override via HYPERFLEET_API_TOKEN="secret-token"
message_data:
  resource_id: .id
  resource_type: .kind
  region: .metadata.labels.region
  display_name: '{{if .metadata.displayName}}{{.metadata.displayName}}{{else}}{{.metadata.name}}{{end}}'
`
	cfg, _, err := load(t, clusters, map[string]string{"HYPERFLEET_API_TOKEN": "secret-token"})
	if err != nil {
		t.Fatal(err)
	}
	want := sentinel.Config{
		ResourceType: "clusters", PollInterval: 5 * time.Second, MaxAgeNotReady: 15 * time.Second, MaxAgeReady: time.Hour,
		ResourceSelector: []selector.Pair{{Label: "region", Value: "us-west"}},
		HyperfleetAPI: sentinel.API{
			Endpoint: "http://hyperfleet-api.hyperfleet-system.svc.cluster.local:8080", Timeout: 10 * time.Second,
			Token: "secret-token", PageSize: 500, Flavour: "auto", RequestsPerSecond: 200,
		},
		PayloadKeys: "snake", Decision: sentinel.Decision{Profile: "generation-then-age"},
		Publish:   sentinel.Publish{Window: 256, Timeout: 10 * time.Second, Attempts: 4, InitialBackoff: 200 * time.Millisecond, MaxBackoff: 5 * time.Second, CatchUpFactor: 1.5, CatchUpFloor: 2500},
		Source:    sentinel.Sources{Mode: "auto", FullSweepInterval: 10 * time.Minute},
		LogEvents: "info", MemoryLimit: 450_000, DecisionsLimit: 5000, ShutdownTimeout: 10 * time.Second,
	}
	var keys []string
	for _, e := range cfg.MessageData {
		keys = append(keys, e.Key)
	}
	if diff := cmp.Diff([]string{"resource_id", "resource_type", "region", "display_name"}, keys); diff != "" {
		t.Errorf("message_data: -want +got\n%s", diff)
	}
	cfg.MessageData = nil
	if diff := cmp.Diff(want, cfg); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}

	const nodePools = `resource_type: nodepools
poll_interval: 5s
max_age_not_ready: 5s
max_age_ready: 10m
# resource_selector: []  # Watch all node pools (empty list matches all)
hyperfleet_api:
  endpoint: http://hyperfleet-api.hyperfleet-system.svc.cluster.local:8080
  timeout: 10s
message_data:
  resource_id: .id
  resource_type: .kind
  cluster_id: .ownerResource.id  # Link to parent cluster
`
	cfg, _, err = load(t, nodePools, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sentinel.New(cfg, sentinel.Deps{API: newAPI(), Publisher: &fakeBroker{}}); err != nil {
		t.Error(err)
	}
	for _, alias := range []string{"backoff_not_ready: 7s", "backoffNotReady: 7s", "max_age_not_ready: 7s"} {
		cfg, _, err := load(t, "resource_type: clusters\nhyperfleetAPI: {url: http://x}\n"+alias, nil)
		if err != nil || cfg.MaxAgeNotReady != 7*time.Second {
			t.Errorf("%s: got %s, err %v", alias, cfg.MaxAgeNotReady, err)
		}
	}
}

func TestFileRefused(t *testing.T) {
	const good = "resource_type: clusters\nhyperfleet_api: {endpoint: http://x}\n"
	cases := map[string]struct{ file, want string }{
		"WrongType":        {file: "resource_type: widgets\nhyperfleet_api: {endpoint: http://x}\n", want: "resource_type"},
		"NoType":           {file: "hyperfleet_api: {endpoint: http://x}\n", want: "resource_type"},
		"NoEndpoint":       {file: "resource_type: clusters\n", want: "hyperfleet_api.endpoint"},
		"NoURL":            {file: "resource_type: clusters\nhyperfleet_api: {endpoint: x}\n", want: "hyperfleet_api.endpoint"},
		"ZeroInterval":     {file: good + "poll_interval: 0s\n", want: "poll_interval"},
		"NegativeAge":      {file: good + "max_age_ready: -1s\n", want: "max_age_ready"},
		"NoDuration":       {file: good + "max_age_ready: abc\n", want: "max_age_ready"},
		"UnknownKey":       {file: good + "max_age_redy: 1s\n", want: "max_age_ready"},
		"PageSize":         {file: "resource_type: clusters\nhyperfleet_api: {endpoint: http://x, page_size: 501}\n", want: "page_size"},
		"Window":           {file: good + "publish: {max_in_flight: 0}\n", want: "publish.max_in_flight"},
		"Profile":          {file: good + "decision: {profile: mood}\n", want: "decision.profile"},
		"ParamWithoutName": {file: good + "decision: {params: [{expr: '1'}]}\n", want: "name"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if _, _, err := load(t, tc.file, nil); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want it to name %q", err, tc.want)
			}
		})
	}
}

func TestNewRefuses(t *testing.T) {
	cases := map[string]struct {
		change func(*sentinel.Config)
		want   []string
	}{
		"Negative": {
			change: func(c *sentinel.Config) { c.PollInterval, c.Publish.Window = -1, -2 },
			want:   []string{"poll_interval: -1ns is invalid: must not be negative", "publish.max_in_flight: -2 is invalid"},
		},
		"Type":        {change: func(c *sentinel.Config) { c.ResourceType = "widgets" }, want: []string{`resource_type: "widgets" is invalid: must be clusters`}},
		"Pairs":       {change: func(c *sentinel.Config) { c.ResourceSelector = []selector.Pair{{Label: "a b"}} }, want: []string{"resource_selector: "}},
		"Selector":    {change: func(c *sentinel.Config) { c.LabelSelector = "a in (" }, want: []string{"label_selector: "}},
		"Profile":     {change: func(c *sentinel.Config) { c.Decision.Profile = "mood" }, want: []string{`decision.profile: "mood" is invalid`}},
		"NoResult":    {change: func(c *sentinel.Config) { c.Decision.Profile = "expression" }, want: []string{"decision.result: "}},
		"Expression":  {change: func(c *sentinel.Config) { c.Decision = sentinel.Decision{Profile: "expression", Result: "nope"} }, want: []string{"decision: compile result: line 1, column 1"}},
		"IdleParams":  {change: func(c *sentinel.Config) { c.Decision.Params = []decision.ExpressionParam{{Name: "a", Expr: "1"}} }, want: []string{"decision.profile: params and result"}},
		"IdleResult":  {change: func(c *sentinel.Config) { c.Decision.Result = "true" }, want: []string{"decision.profile: params and result"}},
		"Template":    {change: func(c *sentinel.Config) { c.MessageData = settings.OrderedMap{{Key: "a", Value: "{{"}} }, want: []string{"message_data.a: template: line 1, column 2"}},
		"AllTogether": {change: func(c *sentinel.Config) { c.LabelSelector, c.Decision.Profile = "(", "mood" }, want: []string{"label_selector", "decision.profile"}},
		"Contradicted": {change: func(c *sentinel.Config) {
			c.ResourceSelector = []selector.Pair{{Label: "a", Value: "b"}, {Label: "a", Value: "c"}}
		}, want: []string{"resource_selector"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			cfg := sentinel.Config{ResourceType: "clusters"}
			tc.change(&cfg)
			_, err := sentinel.New(cfg, sentinel.Deps{API: newAPI(), Publisher: &fakeBroker{}})
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %q, want it to contain %q", err, want)
				}
			}
		})
	}
	if _, err := sentinel.New(sentinel.Config{ResourceType: "clusters"}, sentinel.Deps{}); err == nil {
		t.Error("no error without a lister and a publisher")
	}
}

// TestLocate: the errors of New are placed in the file.
func TestLocate(t *testing.T) {
	cfg, report, err := load(t, `resource_type: clusters
hyperfleet_api: {endpoint: http://x}
label_selector: "a in ("
message_data:
  good: .id
  display_name: '{{if}}'
`, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = sentinel.New(cfg, sentinel.Deps{API: newAPI(), Publisher: &fakeBroker{}})
	got := sentinel.WrapKeyErrors(err, report.WrapWithOrigin).Error()
	for _, want := range []string{"sentinel.yaml:3:", "label_selector", "sentinel.yaml:6:", "display_name", "column 6"} {
		if !strings.Contains(got, want) {
			t.Errorf("got %q, want it to contain %q", got, want)
		}
	}
	if sentinel.WrapKeyErrors(nil, report.WrapWithOrigin) != nil {
		t.Error("nil is no error")
	}
	if err := errors.New("another"); !errors.Is(sentinel.WrapKeyErrors(err, report.WrapWithOrigin), err) {
		t.Error("an error of no setting has changed")
	}
}

// TestTwoInOneProcess: sentinels share a registry if their shards differ.
func TestTwoInOneProcess(t *testing.T) {
	reg := prometheus.NewRegistry()
	deps := sentinel.Deps{API: newAPI(), Publisher: &fakeBroker{}, Registerer: reg}
	for _, cfg := range []sentinel.Config{{ResourceType: "clusters"}, {ResourceType: "nodepools"}, {ResourceType: "clusters", LabelSelector: "a=b"}} {
		if _, err := sentinel.New(cfg, deps); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := sentinel.New(sentinel.Config{ResourceType: "clusters"}, deps); err == nil {
		t.Error("two of one shard would count each other's events")
	}
	if _, err := reg.Gather(); err != nil {
		t.Error(err)
	}
}
