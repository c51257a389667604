package changes_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/app/changes"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// component has the settings of a component that sends change events.
type component struct {
	Changes changes.Config `key:"change_events"`
}

func loadConfig(t *testing.T, env map[string]string, file string) (changes.Config, error) {
	t.Helper()
	var c component
	src := settings.Source{Env: func(name string) (string, bool) { v, ok := env[name]; return v, ok }}
	if file != "" {
		src.File, src.FileData = "config.yaml", []byte(file)
	}
	_, err := settings.Load(&c, src)
	return c.Changes, err
}

func mustLoad(t *testing.T, env map[string]string, file string) changes.Config {
	t.Helper()
	cfg, err := loadConfig(t, env, file)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// defaultTarget are those of a sink.
func defaultTarget() changes.Target {
	return changes.Target{
		Format: changeevent.FormatJSON, Timeout: 10 * time.Second,
		Tuning: changes.Tuning{
			MaxAge: 12 * time.Hour,
			Retry:  changes.RetryConfig{InitialInterval: time.Second, MaxInterval: 30 * time.Second, MaxElapsedTime: 5 * time.Minute},
		},
	}
}

// TestDefaults holds that change events are off unless they are asked for, and
// that all sinks have the same defaults.
func TestDefaults(t *testing.T) {
	t.Parallel()
	want := changes.Config{Default: changes.Default(defaultTarget()), ShutdownTimeout: 10 * time.Second, Product: "Fleetloop"}
	if diff := cmp.Diff(want, mustLoad(t, nil, "")); diff != "" {
		t.Errorf("without settings: -want +got\n%s", diff)
	}
	got := mustLoad(t, nil, "change_events: {sinks: [{name: chat}]}")
	if diff := cmp.Diff([]changes.SinkConfig{{Name: "chat", Target: defaultTarget()}}, got.Sinks); diff != "" {
		t.Errorf("a further sink: -want +got\n%s", diff)
	}
}

// TestEnvironment holds what the environment can say.
func TestEnvironment(t *testing.T) {
	t.Parallel()
	got := mustLoad(t, map[string]string{
		"CHANGE_EVENTS_ENABLED": "true", "CHANGE_EVENTS_ENDPOINT": "https://sink.example/changes", "CHANGE_EVENTS_CLUSTER_NAME": "prod",
		"CHANGE_EVENTS_TIMEOUT": "3s", "CHANGE_EVENTS_AUTH_HEADER": "X-Api-Key", "CHANGE_EVENTS_AUTH_TOKEN": "canary",
		"CHANGE_EVENTS_SHUTDOWN_TIMEOUT": "7s", "CHANGE_EVENTS_FORMAT": "Grafana", "CHANGE_EVENTS_ACTIONS": "cordon,uncordon",
	}, "")
	want := changes.Config{Enabled: true, ClusterName: "prod", Default: changes.Default(defaultTarget()), ShutdownTimeout: 7 * time.Second, Product: "Fleetloop"}
	want.Endpoint, want.Timeout, want.AuthHeader, want.AuthToken = "https://sink.example/changes", 3*time.Second, "X-Api-Key", "canary"
	want.Format, want.Actions = changeevent.FormatGrafana, []string{"cordon", "uncordon"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestFile verifies the documented configuration file with several sinks.
func TestFile(t *testing.T) {
	t.Parallel()
	got := mustLoad(t, nil, `
change_events:
  enabled: true
  cluster_name: prod
  endpoint: https://fleet.example/api/changes
  auth_scheme: Bearer
  auth_token_file: /var/run/secrets/change-events/token
  links:
    - {href: "https://grafana.example/d/node?var-node={node}", text: Dashboard}
  sinks:
    - name: on-call
      format: pagerduty
      endpoint: https://events.pagerduty.com/v2/change/enqueue
      routing_key_file: /var/run/secrets/pagerduty/key
      actions: [cordon, drain-failed]
    - name: chat
      format: slack
      endpoint_file: /var/run/secrets/slack/url
      batch_wait: 30s
      append_cluster: false
      retry: {max_attempts: 1}
`)
	want := changes.Config{Enabled: true, ClusterName: "prod", Default: changes.Default(defaultTarget()), ShutdownTimeout: 10 * time.Second, Product: "Fleetloop"}
	want.Endpoint, want.AuthScheme, want.AuthTokenFile = "https://fleet.example/api/changes", "Bearer", "/var/run/secrets/change-events/token"
	want.Links = []changes.Link{{Href: "https://grafana.example/d/node?var-node={node}", Text: "Dashboard"}}
	onCall, chat := changes.SinkConfig{Name: "on-call", Target: defaultTarget()}, changes.SinkConfig{Name: "chat", Target: defaultTarget()}
	onCall.Format, onCall.Endpoint = changeevent.FormatPagerDuty, "https://events.pagerduty.com/v2/change/enqueue"
	onCall.RoutingKeyFile, onCall.Actions = "/var/run/secrets/pagerduty/key", []string{"cordon", "drain-failed"}
	chat.Format, chat.EndpointFile, chat.BatchWait = changeevent.FormatSlack, "/var/run/secrets/slack/url", 30*time.Second
	chat.AppendCluster, chat.Retry.MaxAttempts = new(bool), 1
	want.Sinks = []changes.SinkConfig{onCall, chat}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestZeroTimesAreDefaults holds that a time of zero is the default, as in the
// library, and no reason not to start.
func TestZeroTimesAreDefaults(t *testing.T) {
	t.Parallel()
	cfg := mustLoad(t, map[string]string{"CHANGE_EVENTS_TIMEOUT": "0s", "CHANGE_EVENTS_SHUTDOWN_TIMEOUT": "0s"}, `
change_events:
  enabled: true
  cluster_name: prod
  endpoint: https://fleet.example/api/changes
  max_age: 0s
  retry: {initial_interval: 0s, max_interval: 0s, max_elapsed_time: 0s}
  sinks:
    - {name: chat, endpoint: "https://chat.example", timeout: 0s}
`)
	if err := cfg.ValidateSinks(); err != nil {
		t.Error(err)
	}
	s, _, out := newSinks(t, cfg)
	if each := s.List(); len(each) != 2 || each[0].Client == nil || each[1].Client == nil {
		t.Errorf("the sinks are %+v:\n%s", each, out.String())
	}
}

// TestRefuses holds what a process does not start with: words that mean nothing.
func TestRefuses(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		env    map[string]string
		file   string
		want   string
	}{
		"Timeout":    {"the variable is named", map[string]string{"CHANGE_EVENTS_TIMEOUT": "abc"}, "", "CHANGE_EVENTS_TIMEOUT"},
		"NoTimeout":  {"nothing would ever arrive", map[string]string{"CHANGE_EVENTS_TIMEOUT": "-1s"}, "", "CHANGE_EVENTS_TIMEOUT"},
		"Format":     {"those that there are", map[string]string{"CHANGE_EVENTS_FORMAT": "teams"}, "", "pagerduty"},
		"NoName":     {"each sink has one", nil, "change_events: {sinks: [{endpoint: x}]}", "name"},
		"UnknownKey": {"with the one that was meant", nil, "change_events: {endpont: x}", "endpoint"},
		"LinkNoHref": {"it leads nowhere", nil, "change_events: {links: [{text: x}]}", "href"},
		"SinkFormat": {"in the list as well", nil, "change_events: {sinks: [{name: a, format: fax}]}", "fax"},
	}
	for name, tc := range cases {
		if _, err := loadConfig(t, tc.env, tc.file); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %s: got %v, want %q in it", name, tc.reason, err, tc.want)
		}
	}
}

// TestTokenIsNotShown holds that the settings are shown without it.
func TestTokenIsNotShown(t *testing.T) {
	t.Parallel()
	var c component
	file := "change_events: {auth_token: canary, sinks: [{name: a, auth_token: canary}]}"
	report, err := settings.Load(&c, settings.Source{File: "config.yaml", FileData: []byte(file)})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := report.WriteYAML(&out, true); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "canary") || !strings.Contains(out.String(), "***") {
		t.Errorf("the token is not hidden:\n%s", out.String())
	}
}

// TestTargetHasAllOfDefault holds that what can be said of the default sink can be
// said of the others, in the same words.
func TestTargetHasAllOfDefault(t *testing.T) {
	t.Parallel()
	d, s := reflect.TypeFor[changes.Default](), reflect.TypeFor[changes.Target]()
	for i := range d.NumField() {
		for _, tag := range []string{"key", "default", "validate", "secret"} {
			if got, want := s.Field(i).Tag.Get(tag), d.Field(i).Tag.Get(tag); got != want {
				t.Errorf("%s of %s is %q for a further sink, and %q for the default one", tag, d.Field(i).Name, got, want)
			}
		}
	}
}
