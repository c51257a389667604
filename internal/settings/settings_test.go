package settings_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/fleetloop/fleetloop/internal/settings"
)

type common struct {
	LogLevel slog.Level `key:"log_level" env:"LOG_LEVEL" flag:"log-level" default:"info" doc:"Least level that is logged."`
}

type pair struct {
	Label string `key:"label" doc:"Name." validate:"required"`
	Value string `key:"value" doc:"Value."`
	Times int    `key:"times" default:"1" doc:"How often." validate:"gt=0"`
}

type api struct {
	Endpoint string          `key:"endpoint" env:"API_ENDPOINT" flag:"api" doc:"Where the API is." validate:"required,url"`
	Timeout  time.Duration   `key:"timeout" default:"10s" doc:"How long a request may take." validate:"gt=0"`
	Token    settings.Secret `key:"token" env:"API_TOKEN" file:"token_file" doc:"Bearer token."`
	CertFile string          `key:"cert_file" doc:"Certificate."`
	KeyFile  string          `key:"key_file" doc:"Its key." validate:"required_with=CertFile"`
}

// config has a field of every type.
type config struct {
	common

	ResourceType string              `key:"resource_type" default:"clusters" doc:"Resource to watch." validate:"oneof=clusters nodepools"`
	PollInterval time.Duration       `key:"poll_interval" alias:"pollInterval" env:"POLL_INTERVAL,SENTINEL_POLL" flag:"poll-interval" default:"5s" doc:"How often to poll." validate:"gt=0"`
	MaxAge       time.Duration       `key:"max_age" default:"30m" doc:"Longest silence." validate:"gte=1s"`
	Selector     []pair              `key:"resource_selector" doc:"Labels that must match." validate:"dive"`
	API          api                 `key:"api"`
	MessageData  settings.OrderedMap `key:"message_data" doc:"Payload."`
	Workers      int8                `key:"workers" env:"WORKERS" flag:"workers" default:"4" doc:"How many at once." validate:"min=1,max=100"`
	Size         uint                `key:"size" env:"SIZE" doc:"Size."`
	Ratio        float64             `key:"ratio" env:"RATIO" default:"0.5" doc:"A part."`
	Enabled      bool                `key:"enabled" env:"ENABLED" flag:"enabled" doc:"Whether at all."`
	Maybe        *bool               `key:"maybe" env:"MAYBE" doc:"Whether, or not said."`
	Hosts        []string            `key:"hosts" env:"HOSTS" flag:"hosts" doc:"Hosts." validate:"max=3,dive,max=9"`
	Extra        map[string]int      `key:"extra" env:"EXTRA" flag:"extra" doc:"Numbers by name."`
	Required     map[string][]string `key:"required_adapters" doc:"Adapters by kind."`

	Ignored string
}

// minimal is a minimal valid configuration.
const minimal = "api: {endpoint: 'http://api:8080'}\n"

func newEnv(pairs ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1], true
			}
		}
		return "", false
	}
}

func newFlags(t *testing.T, args ...string) *pflag.FlagSet {
	t.Helper()
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	settings.AddFlags(fs, &config{})
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return fs
}

func TestLoadDefaults(t *testing.T) {
	var got config
	_, err := settings.Load(&got, settings.Source{FileData: []byte(minimal)})
	if err != nil {
		t.Fatal(err)
	}
	want := config{
		ResourceType: "clusters", PollInterval: 5 * time.Second, MaxAge: 30 * time.Minute,
		API:     api{Endpoint: "http://api:8080", Timeout: 10 * time.Second},
		Workers: 4, Ratio: 0.5,
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(config{})); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
}

func TestLoadKeepsWhatIsSet(t *testing.T) {
	got := config{PollInterval: 7 * time.Second, Hosts: []string{"a"}}
	if _, err := settings.Load(&got, settings.Source{FileData: []byte(minimal)}); err != nil {
		t.Fatal(err)
	}
	if got.PollInterval != 7*time.Second || len(got.Hosts) != 1 {
		t.Errorf("Load replaced %s and %v by defaults, want what was set before to be the default", got.PollInterval, got.Hosts)
	}
}

func TestLoadFile(t *testing.T) {
	const file = `# A comment.
resource_type: nodepools
pollInterval: 1m30s
log_level: debug
resource_selector:
  - label: region
    value: us-east
  - {label: version, value: 1.10, times: 2}
api:
  endpoint: http://api:8080
  token: 0123
message_data:
  resource_id: .id
  Nested:
    b: '{{ .b }}'
    a: .a
workers: 100
size: 7
ratio: 2
enabled: true
maybe: false
hosts: [a, b]
extra:
  x: 1
required_adapters:
  clusters: [validation, dns]
`
	var got config
	report, err := settings.Load(&got, settings.Source{File: "sentinel.yaml", FileData: []byte(file)})
	if err != nil {
		t.Fatal(err)
	}
	no := false
	want := config{
		common:       common{LogLevel: slog.LevelDebug},
		ResourceType: "nodepools", PollInterval: 90 * time.Second, MaxAge: 30 * time.Minute,
		Selector: []pair{{"region", "us-east", 1}, {"version", "1.10", 2}},
		API:      api{Endpoint: "http://api:8080", Timeout: 10 * time.Second, Token: "0123"},
		MessageData: settings.OrderedMap{
			{Key: "resource_id", Value: ".id", Line: 13, Column: 16},
			{Key: "Nested", Line: 15, Column: 5, Map: settings.OrderedMap{
				{Key: "b", Value: "{{ .b }}", Line: 15, Column: 8},
				{Key: "a", Value: ".a", Line: 16, Column: 8},
			}},
		},
		Workers: 100, Size: 7, Ratio: 2, Enabled: true, Maybe: &no,
		Hosts: []string{"a", "b"}, Extra: map[string]int{"x": 1},
		Required: map[string][]string{"clusters": {"validation", "dns"}},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(config{})); diff != "" {
		t.Errorf("file (-want +got):\n%s", diff)
	}
	err = report.WrapWithOrigin("message_data.Nested.a", os.ErrInvalid)
	if err.Error() != `sentinel.yaml:16:8: key "message_data.Nested.a": invalid argument` {
		t.Errorf("Wrap() = %v, want the place of the value", err)
	}
	if e, ok := got.MessageData.Get("resource_id"); !ok || e.Value != ".id" {
		t.Errorf("Get(resource_id) = %+v, %t", e, ok)
	}
	if _, ok := got.MessageData.Get("Resource_id"); ok {
		t.Error("Get does not mind the case of a key")
	}
}

func TestLoadPrecedence(t *testing.T) {
	file := minimal + "poll_interval: 6s\nhosts: [from-file]\n"
	cases := map[string]struct {
		reason string
		env    []string
		args   []string
		want   time.Duration
		from   string
	}{
		"File":      {"the file is over the default", nil, nil, 6 * time.Second, "file s.yaml:2"},
		"Env":       {"the environment is over the file", []string{"POLL_INTERVAL", "7s"}, nil, 7 * time.Second, "env POLL_INTERVAL"},
		"SecondEnv": {"any of its variables", []string{"SENTINEL_POLL", "7s"}, nil, 7 * time.Second, "env SENTINEL_POLL"},
		"EmptyEnv":  {"an empty variable is none", []string{"POLL_INTERVAL", ""}, nil, 6 * time.Second, "file s.yaml:2"},
		"Flag":      {"a flag is over all", []string{"POLL_INTERVAL", "7s"}, []string{"--poll-interval=8s"}, 8 * time.Second, "flag --poll-interval"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got config
			report, err := settings.Load(&got, settings.Source{
				File: "s.yaml", FileData: []byte(file), Env: newEnv(tc.env...), Flags: newFlags(t, tc.args...),
			})
			if err != nil {
				t.Fatal(err)
			}
			if got.PollInterval != tc.want {
				t.Errorf("%s: poll interval %s, want %s", tc.reason, got.PollInterval, tc.want)
			}
			for _, o := range report.Origins() {
				if o.Key == "poll_interval" && (o.String() != tc.from || o.Value != tc.want.String()) {
					t.Errorf("%s: origin %q of %q, want %q", tc.reason, o, o.Value, tc.from)
				}
			}
		})
	}
}

func TestLoadTexts(t *testing.T) {
	var got config
	_, err := settings.Load(&got, settings.Source{
		FileData: []byte(minimal + "hosts: [x]\n"),
		Env: newEnv("HOSTS", "a, b", "EXTRA", "x=1,y=-2", "ENABLED", "1", "MAYBE", "true",
			"SIZE", "9", "RATIO", "1e3", "LOG_LEVEL", "WARN"),
		Flags: newFlags(t, "--extra", "z=3", "--extra=w=4,v=5", "--workers=5"),
	})
	if err != nil {
		t.Fatal(err)
	}
	yes := true
	want := config{
		common:       common{LogLevel: slog.LevelWarn},
		ResourceType: "clusters", PollInterval: 5 * time.Second, MaxAge: 30 * time.Minute,
		API:     api{Endpoint: "http://api:8080", Timeout: 10 * time.Second},
		Workers: 5, Size: 9, Ratio: 1000, Enabled: true, Maybe: &yes,
		Hosts: []string{"a", "b"}, Extra: map[string]int{"z": 3, "w": 4, "v": 5},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(config{})); diff != "" {
		t.Errorf("texts (-want +got):\n%s", diff)
	}
}

func TestLoadForeignFlags(t *testing.T) {
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	fs.Duration("poll-interval", 0, "")
	fs.StringSlice("hosts", nil, "")
	if err := fs.Parse([]string{"--poll-interval=9s", "--hosts=a,b"}); err != nil {
		t.Fatal(err)
	}
	var got config
	if _, err := settings.Load(&got, settings.Source{FileData: []byte(minimal), Flags: fs}); err != nil {
		t.Fatal(err)
	}
	if got.PollInterval != 9*time.Second || len(got.Hosts) != 2 {
		t.Errorf("got %s and %v, want the values of flags that others registered", got.PollInterval, got.Hosts)
	}
}

func TestLoadSecretFromFile(t *testing.T) {
	dir := t.TempDir()
	config1 := filepath.Join(dir, "sentinel.yaml")
	for name, text := range map[string]string{
		"token": "s3cret\n", "other": "other", "empty": "\n", "sentinel.yaml": "api: {endpoint: 'http://a', token_file: token}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cases := map[string]struct {
		reason string
		env    []string
		want   settings.Secret
		err    string
	}{
		"File":    {reason: "a path in the file is relative to the file", want: "s3cret"},
		"Env":     {reason: "the twin of a variable", env: []string{"API_TOKEN_FILE", filepath.Join(dir, "other")}, want: "other"},
		"Plain":   {reason: "the variable itself", env: []string{"API_TOKEN", "plain"}, want: "plain"},
		"Both":    {reason: "the two can not both be meant", env: []string{"API_TOKEN", "x", "API_TOKEN_FILE", "y"}, err: `env API_TOKEN_FILE: key "api.token": is also set by API_TOKEN; unset one of them`},
		"Missing": {reason: "a file that is not there", env: []string{"API_TOKEN_FILE", "/nowhere"}, err: `env API_TOKEN_FILE: key "api.token": open /nowhere: no such file or directory`},
		"Empty":   {reason: "an empty file is no token", env: []string{"API_TOKEN_FILE", filepath.Join(dir, "empty")}, err: `empty" is empty`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got config
			_, err := settings.Load(&got, settings.Source{File: config1, Env: newEnv(tc.env...)})
			if (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Fatalf("%s: Load() = %v, want %q", tc.reason, err, tc.err)
			}
			if err == nil && got.API.Token != tc.want {
				t.Errorf("%s: token %q, want %q", tc.reason, got.API.Token.Reveal(), tc.want.Reveal())
			}
		})
	}
}

func TestLoadWithoutFile(t *testing.T) {
	var got config
	_, err := settings.Load(&got, settings.Source{File: "/nowhere/s.yaml"})
	want := "read configuration file: open /nowhere/s.yaml: no such file or directory"
	if err == nil || err.Error() != want {
		t.Errorf("Load() = %v, want %q", err, want)
	}
	big := filepath.Join(t.TempDir(), "big.yaml")
	if err := os.WriteFile(big, bytes.Repeat([]byte("# much\n"), 1<<18), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := settings.Load(&got, settings.Source{File: big}); err == nil || !strings.Contains(err.Error(), "more than 1048576 bytes") {
		t.Errorf("Load() of a huge file = %v, want it refused", err)
	}
}

func TestOSEnv(t *testing.T) {
	t.Setenv("FLEETLOOP_SETTINGS_TEST", "x")
	if v, ok := settings.OSEnv("FLEETLOOP_SETTINGS_TEST"); v != "x" || !ok {
		t.Errorf("OSEnv() = %q, %t", v, ok)
	}
}
