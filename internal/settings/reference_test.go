package settings_test

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/jsonschema-go/jsonschema"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/fleetloop/fleetloop/internal/settings"
)

func TestAddFlags(t *testing.T) {
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	settings.AddFlags(fs, &config{Hosts: []string{"x", "y"}})
	const want = `      --api string             where the API is (env API_ENDPOINT)
      --enabled                whether at all (env ENABLED)
      --extra key=value,...    numbers by name (env EXTRA)
      --hosts strings          hosts (env HOSTS) (default x,y)
      --log-level string       least level that is logged (env LOG_LEVEL) (default "INFO")
      --poll-interval duration how often to poll (env POLL_INTERVAL, SENTINEL_POLL) (default 5s)
      --workers int            how many at once (env WORKERS) (default 4)
`
	squeeze := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	if diff := cmp.Diff(squeeze(want), squeeze(fs.FlagUsages())); diff != "" {
		t.Errorf("usage (-want +got):\n%s", diff)
	}
}

func TestAddFlagsShares(t *testing.T) {
	type broker struct {
		Topic string `key:"topic" flag:"topic" env:"TOPIC"`
	}
	type odd struct {
		Topic int `key:"topic" flag:"topic"`
	}
	var cfg struct {
		One broker `key:"one"`
		Two broker `key:"two"`
	}
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	settings.AddFlags(fs, &cfg)
	if err := fs.Parse([]string{"--topic=x"}); err != nil {
		t.Fatal(err)
	}
	if _, err := settings.Load(&cfg, settings.Source{Flags: fs}); err != nil {
		t.Fatal(err)
	}
	if cfg.One.Topic != "x" || cfg.Two.Topic != "x" {
		t.Errorf("topics %q and %q, want the flag that they share", cfg.One.Topic, cfg.Two.Topic)
	}
	defer func() {
		if recover() == nil {
			t.Error("a flag of another type was taken for the same")
		}
	}()
	fs.SetOutput(io.Discard)
	settings.AddFlags(fs, &odd{})
}

func TestWriteMarkdown(t *testing.T) {
	var b bytes.Buffer
	if err := settings.WriteMarkdown(&b, settings.Reference(&config{})); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(b.String(), "\n")
	for _, want := range []string{
		"| Key | Type | Default | Environment | Flag | Meaning |",
		"| `poll_interval` | duration | `5s` | `POLL_INTERVAL`, `SENTINEL_POLL` | `--poll-interval` | How often to poll. Also `pollInterval`. |",
		"| `resource_selector` | list of section |  |  |  | Labels that must match. |",
		"| `resource_selector[].label` | string | required |  |  | Name. |",
		"| `resource_selector[].times` | integer | `1` |  |  | How often. |",
		"| `api.endpoint` | string | required | `API_ENDPOINT` | `--api` | Where the API is. |",
		"| `api.token` | secret |  | `API_TOKEN`, `API_TOKEN_FILE` |  | Bearer token. Alternative: `token_file`, a file with the value. |",
		"| `message_data` | mapping |  |  |  | Payload. |",
		"| `required_adapters` | map of list of string |  |  |  | Adapters by kind. |",
	} {
		found := false
		for _, line := range lines {
			found = found || line == want
		}
		if !found {
			t.Errorf("the table lacks the row\n%s\nin\n%s", want, b.String())
		}
	}
}

// TestSchemaAgreesWithLoad compares the results of the schema and of the loader for the same files.
func TestSchemaAgreesWithLoad(t *testing.T) {
	text, err := settings.Schema(&config{}, "Test")
	if err != nil {
		t.Fatal(err)
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	resolved, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason string
		file   string
		want   bool
	}{
		"Empty":      {"nothing is needed that the environment can give", "{}", true},
		"Known":      {"known keys", "{workers: 3, pollInterval: 1m30s, ratio: 1, enabled: true, log_level: debug}", true},
		"Unknown":    {"unknown keys", "{wrokers: 3}", false},
		"UnknownIn":  {"unknown keys in a section", "{api: {endpont: x}}", false},
		"TokenFile":  {"the other key of a secret", "{api: {token_file: reference_test.go}}", true},
		"NoUnit":     {"a duration without its unit", "{poll_interval: 5}", false},
		"Duration":   {"a duration that is none", "{poll_interval: 5x}", false},
		"Fraction":   {"a duration with a fraction", "{poll_interval: 1.5m}", true},
		"Enum":       {"a member of a closed set", "{resource_type: nodepools}", true},
		"NotEnum":    {"none", "{resource_type: pods}", false},
		"Selector":   {"a list of sections", "{resource_selector: [{label: a, value: b}]}", true},
		"NoLabel":    {"what an element must have", "{resource_selector: [{value: b}]}", false},
		"ZeroTimes":  {"a bound within an element", "{resource_selector: [{label: a, times: 0}]}", false},
		"Hosts":      {"a list that is too long", "{hosts: [a, b, c, d]}", false},
		"Workers":    {"a number that is too large", "{workers: 101}", false},
		"Map":        {"a map of numbers", "{extra: {a: 1}}", true},
		"NotMap":     {"a map of texts where numbers belong", "{extra: {a: b}}", false},
		"Templates":  {"templates in each other", "{message_data: {a: .b, c: {d: .e}}}", true},
		"NoTemplate": {"a list among the templates", "{message_data: {a: [b]}}", false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var instance any
			if err := yaml.Unmarshal([]byte(tc.file), &instance); err != nil {
				t.Fatal(err)
			}
			if err := resolved.Validate(instance); (err == nil) != tc.want {
				t.Errorf("%s: the schema says %v, want valid: %t", tc.reason, err, tc.want)
			}
			var cfg config
			_, err := settings.Load(&cfg, settings.Source{FileData: []byte(tc.file), Env: newEnv("API_ENDPOINT", "http://a")})
			if (err == nil) != tc.want {
				t.Errorf("%s: Load says %v, want valid: %t", tc.reason, err, tc.want)
			}
		})
	}

	second, err := settings.Schema(&config{}, "Test")
	if err != nil || !bytes.Equal(text, second) {
		t.Errorf("the schema is not the same twice, %v", err)
	}
	for _, want := range []string{`"title": "Test"`, `"$schema": "https://json-schema.org/draft/2020-12/schema"`, `"writeOnly": true`, `"default": "5s"`, `"description": "Alias of poll_interval."`} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("the schema lacks %s:\n%s", want, text)
		}
	}
}
