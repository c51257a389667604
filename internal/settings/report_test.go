package settings_test

import (
	"bytes"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fleetloop/fleetloop/internal/settings"
)

func newReport(t *testing.T) *settings.Report {
	t.Helper()
	const file = `resource_selector:
  - label: region
    value: us-east
api:
  endpoint: http://api:8080
message_data:
  resource_id: .id
  nested:
    note: 'true'
extra: {b: 2, a: 1}
`
	var cfg config
	report, err := settings.Load(&cfg, settings.Source{
		File: "s.yaml", FileData: []byte(file),
		Env:   newEnv("API_TOKEN", "hunter2", "POLL_INTERVAL", "7s"),
		Flags: newFlags(t, "--hosts=a,b", "--enabled"),
	})
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func TestReportWrite(t *testing.T) {
	report := newReport(t)
	var b bytes.Buffer
	if err := report.WriteYAML(&b, true); err != nil {
		t.Fatal(err)
	}
	const want = `log_level: INFO # default
resource_type: clusters # default
poll_interval: 7s # env POLL_INTERVAL
max_age: 30m0s # default
resource_selector: # file s.yaml:1
  - label: region
    value: us-east
    times: 1
api:
  endpoint: http://api:8080 # file s.yaml:5
  timeout: 10s # default
  token: '***' # env API_TOKEN
  cert_file: "" # default
  key_file: "" # default
message_data: # file s.yaml:6
  resource_id: .id
  nested:
    note: "true"
workers: 4 # default
size: 0 # default
ratio: 0.5 # default
enabled: true # flag --enabled
hosts: # flag --hosts
  - a
  - b
extra: # file s.yaml:10
  a: 1
  b: 2
required_adapters: {} # default
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("Write() (-want +got):\n%s", diff)
	}

	b.Reset()
	if err := report.WriteYAML(&b, false); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "#") {
		t.Errorf("Write() without origins has comments:\n%s", b.String())
	}
}

func TestReportOrigins(t *testing.T) {
	report := newReport(t)
	got := map[string]string{}
	for _, o := range report.Origins() {
		got[o.Key] = o.Value + " from " + o.String()
	}
	//nolint:gosec // no credential is among them
	for key, want := range map[string]string{
		"resource_selector": `[{label: region, value: us-east, times: 1}] from file s.yaml:1`,
		"message_data":      `{resource_id: .id, nested: {note: "true"}} from file s.yaml:6`,
		"extra":             "a=1,b=2 from file s.yaml:10",
		"hosts":             "a,b from flag --hosts",
		"api.token":         "*** from env API_TOKEN",
		"api.cert_file":     " from default",
		"maybe":             " from default",
		"required_adapters": "{} from default",
	} {
		if got[key] != want {
			t.Errorf("origin of %s: %q, want %q", key, got[key], want)
		}
	}
}

func TestReportWrap(t *testing.T) {
	report := newReport(t)
	errBad := errors.New("bad")
	for key, want := range map[string]string{
		"resource_selector[0].value": `s.yaml:3:12: key "resource_selector[0].value": bad`,
		"message_data.nested.note":   `s.yaml:9:11: key "message_data.nested.note": bad`,
		"poll_interval":              `env POLL_INTERVAL: key "poll_interval": bad`,
		"hosts":                      `flag --hosts: key "hosts": bad`,
		"max_age":                    `key "max_age": bad`,
		"of nothing":                 `key "of nothing": bad`,
	} {
		err := report.WrapWithOrigin(key, errBad)
		if !errors.Is(err, errBad) || err.Error() != want {
			t.Errorf("Wrap(%q) = %v, want %q", key, err, want)
		}
	}
	if report.WrapWithOrigin("max_age", nil) != nil {
		t.Error("Wrap(nil) is not nil")
	}
}

// TestWriteReadsBack checks that the written effective configuration can be used as the file.
func TestWriteReadsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"true", "1", "~", "a: b", " x ", "#", "- a", "a\nb", "\t", "'", `"`, "<<"}))
		cfg := config{
			ResourceType: "nodepools",
			PollInterval: time.Duration(rapid.Int64Range(1, 1e18).Draw(t, "poll")),
			MaxAge:       time.Duration(rapid.Int64Range(1e18+1, 9e18).Draw(t, "age")),
			API:          api{Endpoint: "http://a", Timeout: 1, KeyFile: text.Draw(t, "key")},
			Workers:      rapid.Int8Range(1, 100).Draw(t, "workers"),
			Size:         rapid.Uint().Draw(t, "size"),
			Ratio:        rapid.Float64().Draw(t, "ratio"),
			Enabled:      rapid.Bool().Draw(t, "enabled"),
			Extra:        map[string]int{},
			Required:     map[string][]string{},
			Selector:     []pair{},
			Hosts:        []string{},
			MessageData:  settings.OrderedMap{},
		}
		key := rapid.StringMatching(`[^\x00]{1,20}`)
		maps.Copy(cfg.Extra, rapid.MapOfN(key, rapid.Int(), 0, 3).Draw(t, "extra"))
		for k, v := range rapid.MapOfN(key, rapid.SliceOfN(text, 0, 3), 0, 3).Draw(t, "required") {
			cfg.Required[k] = append([]string{}, v...)
		}
		for _, v := range rapid.SliceOfN(text, 0, 3).Draw(t, "values") {
			cfg.Selector = append(cfg.Selector, pair{Label: "l", Value: v, Times: 1})
		}
		for k, v := range rapid.MapOfN(key, text, 0, 1).Draw(t, "data") {
			cfg.MessageData = append(cfg.MessageData, settings.MapEntry{Key: k, Value: v})
		}
		before := cfg
		report, err := settings.Load(&cfg, settings.Source{})
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := report.WriteYAML(&b, true); err != nil {
			t.Fatal(err)
		}
		var again config
		if _, err := settings.Load(&again, settings.Source{FileData: b.Bytes()}); err != nil {
			t.Fatalf("what Write wrote is refused: %v\n%s", err, b.String())
		}
		for i := range again.MessageData {
			again.MessageData[i].Line, again.MessageData[i].Column = 0, 0
		}
		if before.Ratio == 0 {
			before.Ratio = 0.5 // zero is what a default replaces
		}
		if diff := cmp.Diff(before, again, cmp.AllowUnexported(config{})); diff != "" {
			t.Fatalf("read back (-want +got):\n%s\n%s", diff, b.String())
		}
	})
}

func FuzzLoad(f *testing.F) {
	for _, s := range []string{
		minimal, "", "---", "{}", "[]", "a: &a [*a]", "message_data: &a {b: *a}", "<<: {a: b}", "? [a]\n: b", "workers: 1_000",
		"poll_interval: 5", "resource_selector: [{label: a}]", "extra: {a: 1}", "\xff\xfe", "a: !!binary x", "--- a\n--- b",
		"message_data:\n  a: |\n    text\n  b: 'x'\n", "hosts: [a, b", "%YAML 1.1\n---\n", "api: {timeout: 1h, token: x}",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var cfg config
		cfg.API.Endpoint = "http://a"
		report, err := settings.Load(&cfg, settings.Source{File: "fuzz.yaml", FileData: data, Env: newEnv("API_TOKEN", "hunter2")})
		if err != nil {
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("Load() = %v, which shows a secret", err)
			}
			return
		}
		var b bytes.Buffer
		if err := report.WriteYAML(&b, true); err != nil {
			t.Errorf("Write() = %v", err)
		}
		if strings.Contains(b.String(), "hunter2") && !bytes.Contains(data, []byte("hunter2")) {
			t.Errorf("Write() shows a secret:\n%s", b.String())
		}
		report.Origins()
	})
}
