package sentinelapp_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/internal/app/sentinelapp"
	"github.com/fleetloop/fleetloop/internal/sentinel/decision"
	"github.com/fleetloop/fleetloop/internal/sentinel/hyperfleettest"
	"github.com/fleetloop/fleetloop/internal/sentinel/payload"
	"github.com/fleetloop/fleetloop/internal/sentinel/source"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// TestConvertGolden: every file in testdata is converted as it says there, and the
// result is a valid file of ours.
func TestConvertGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			got := mustConvert(t, file)
			golden := strings.TrimSuffix(file, ".yaml") + ".golden"
			if *sentinelapp.Update {
				if err := os.WriteFile(golden, got, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			wantValid(t, got)
		})
	}
}

func mustConvert(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got, err := sentinelapp.ConvertPublicConfig(file, text)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// wantValid holds that `sentinel validate` takes a file.
func wantValid(t *testing.T, text []byte) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "sentinel-config.yaml")
	// The token is not there where the test runs.
	text = bytes.ReplaceAll(text, []byte("  token_file:"), []byte("  # token_file:"))
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := sentinelapp.NewCommand(&out, &out, func(string) (string, bool) { return "", false })
	cmd.SetArgs([]string{"validate", "--config", file})
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Errorf("not valid: %v\n%s", err, text)
	}
}

const least = "resource_type: clusters\nclients: {hyperfleet_api: {base_url: http://api:8000}}\n"

func TestConvertRefuses(t *testing.T) {
	cases := map[string]struct {
		reason string
		text   string
		want   []string
	}{
		"UnknownKey":     {"with its place and what was meant", least + "poll_intervall: 5s\n", []string{`f.yaml:3:1: unknown key "poll_intervall"`, `did you mean "poll_interval"?`}},
		"Ours":           {"a file of ours needs no conversion", "resource_type: clusters\nhyperfleet_api: {endpoint: http://api}\n", []string{`f.yaml:2:1: unknown key "hyperfleet_api"`, `"clients.hyperfleet_api"`, "base_url"}},
		"NotYAML":        {"with its line", "resource_type: [\n", []string{"f.yaml:"}},
		"Empty":          {"it has to say what to watch", "", []string{"resource_type", "base_url"}},
		"OtherKind":      {"the kinds that this sentinel can watch", strings.Replace(least, "clusters", "wifconfigs", 1), []string{"f.yaml:1:16:", "wifconfigs", "clusters"}},
		"Version":        {"there is but one", strings.Replace(least, "base_url", "version: v2, base_url", 1), []string{"f.yaml:2:37:", "v2"}},
		"Password":       {"secrets do not belong there", strings.Replace(least, "//", "//user:geheim@", 1), []string{"f.yaml:2:38:", "token_path"}},
		"PageSize":       {"as the public sentinel does", strings.Replace(least, "base_url", "page_size: 501, base_url", 1), []string{"f.yaml:2:39:", "page_size"}},
		"BadDuration":    {"as the public sentinel does", least + "poll_interval: often\n", []string{"f.yaml:3:16:", "poll_interval"}},
		"BadParam":       {"rules are compiled", least + "message_decision:\n  params: [{name: a, expr: 'resource.'}]\n  result: a\n", []string{"f.yaml:4:28:", `param "a"`}},
		"BadResult":      {"rules are compiled", least + "message_decision:\n  result: 'size(now)'\n", []string{"f.yaml:4:11:", "result"}},
		"ParamTooEarly":  {"there it compiles and hides every resource", least + "message_decision:\n  params: [{name: a, expr: b}, {name: b, expr: 'true'}]\n  result: a\n", []string{"f.yaml:4:28:", `param "a"`, "'b'"}},
		"ParamsAlone":    {"nothing would be due", least + "message_decision:\n  params: [{name: a, expr: 'true'}]\n", []string{"message_decision", "result"}},
		"BadMessageData": {"so is the payload", least + "message_data:\n  a: resource.id\n  b: {c: 'nosuch(1)'}\n", []string{"f.yaml:5:10:", `"message_data.b.c"`, "nosuch"}},
		"TwoValues":      {"nothing could be selected", least + "resource_selector: [{label: a, value: x}, {label: a, value: y}]\n", []string{"f.yaml:3:20:", "cannot be both"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := sentinelapp.ConvertPublicConfig("f.yaml", []byte(tc.text))
			if err == nil {
				t.Fatalf("%s: converted to\n%s", tc.reason, got)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s: error %q lacks %q", tc.reason, err, want)
				}
			}
			if strings.Contains(err.Error(), "geheim") {
				t.Errorf("the error shows a password: %v", err)
			}
		})
	}
}

// TestConvertOddTexts: whatever stands in a text stands in the result as a text.
func TestConvertOddTexts(t *testing.T) {
	odd := []string{"yes", "null", "1", "1e3", "a: b", "# no comment", "it's", `"quoted"`, "two\nlines", "\ttab", "\u00fcber", "\u2028", "- list", "{map}", "&anchor", "*alias", "!tag", "%", "@", "`", " spaces ", "---", "-"}
	for i, text := range odd {
		literal, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		in := least + fmt.Sprintf("message_data:\n  key%d: %s\n", i, jsonText(t, string(literal)))
		out, err := sentinelapp.ConvertPublicConfig("odd\n.yaml", []byte(in))
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		cfg := sentinelapp.OverriddenDefaults()
		if _, err := settings.Load(&cfg, settings.Source{File: "out", FileData: out}); err != nil {
			t.Errorf("%q: %v\n%s", text, err, out)
			continue
		}
		if got := cfg.MessageData[0].Value; got != "cel:"+string(literal) {
			t.Errorf("got %q, want %q", got, "cel:"+string(literal))
		}
	}
}

func jsonText(t *testing.T, s string) string {
	t.Helper()
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestConvertedSameDue: by the rules that the public sentinel comes with, the same
// resources are due, and the events say the same.
func TestConvertedSameDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := hyperfleettest.New(hyperfleettest.Config{Kinds: []hyperfleettest.Kind{
			{Name: "Cluster", Plural: "clusters", Adapters: []string{"validation", "dns"}},
			{Name: "NodePool", Plural: "nodepools", Parent: "clusters"}, // without adapters, for once
		}})
		reconcile := func(id string, generation int64) {
			api.ReportAllConditionsTrue("clusters", id, "validation", generation)
			api.ReportAllConditionsTrue("clusters", id, "dns", generation)
		}
		stale := api.CreateResource("clusters", "stale")
		reconcile(stale, 1)
		time.Sleep(20 * time.Minute)
		fresh := api.CreateResource("clusters", "fresh")
		reconcile(fresh, 1)
		time.Sleep(10*time.Minute + time.Second)
		api.CreateResource("clusters", "unanswered")
		halfway := api.CreateResource("clusters", "halfway")
		api.ReportAllConditionsTrue("clusters", halfway, "dns", 1)
		patched := api.CreateResource("clusters", "patched")
		reconcile(patched, 1)
		api.PatchSpec("clusters", patched, `{"x":1}`)
		time.Sleep(10*time.Second + time.Millisecond)
		api.CreateResource("clusters", "brand-new")
		justPatched := api.CreateResource("clusters", "just-patched")
		reconcile(justPatched, 1)
		api.PatchSpec("clusters", justPatched, `{"x":1}`)
		gone := api.CreateResource("clusters", "gone")
		reconcile(gone, 1)
		api.RequestDeletion("clusters", gone)

		cfg := loadConfig(t, "testdata/public.yaml")
		for at, want := range map[time.Duration]string{
			0:                "halfway patched stale unanswered",
			11 * time.Second: "brand-new gone halfway just-patched patched stale unanswered",
		} {
			if got := dueNames(t, cfg, api, "clusters", at); got != want {
				t.Errorf("after %s: due %s, want %s", at, got, want)
			}
			if got := publicDueNames(t, api, "clusters", at); got != want {
				t.Errorf("after %s: publicly due %s, want %s", at, got, want)
			}
		}
		parent := api.CreateResource("clusters/"+fresh+"/nodepools", "np1")
		if got := dueNames(t, cfg, api, "nodepools", 0); got != "np1" || got != publicDueNames(t, api, "nodepools", 0) {
			t.Errorf("without conditions: %q", got)
		}
		wantPayload(t, cfg, api, "/nodepools/"+parent, fmt.Sprintf(
			`{"id":%q,"kind":"NodePool","href":"/api/hyperfleet/v1/clusters/%s/nodepools/%s","generation":1,"why":"message decision matched","reconciledstatus":"","owner_references":{"id":%q}}`,
			parent, fresh, parent, fresh))
	})
}

func loadConfig(t *testing.T, file string) sentinelapp.Config {
	t.Helper()
	cfg := sentinelapp.OverriddenDefaults()
	if _, err := settings.Load(&cfg, settings.Source{File: "out", FileData: mustConvert(t, file)}); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// dueNames returns the names of the resources that are due by the converted profile after a while.
func dueNames(t *testing.T, cfg sentinelapp.Config, api *hyperfleettest.Server, collection string, after time.Duration) string {
	t.Helper()
	profile, err := decision.NewExpressionProfile(cfg.Decision.Params, cfg.Decision.Result, decision.DefaultAges())
	if err != nil {
		t.Fatal(err)
	}
	_, page := api.ServeRequest("GET", "/"+collection+"?size=100", "")
	var names []string
	if _, err := source.NewScanner(false).ScanPage(page, func(it *source.Item) error {
		v := profile.Decide(&it.Resource, time.Now().Add(after))
		if v.Err != nil {
			t.Error(v.Err)
		}
		if v.ShouldPublish {
			var r struct{ Name string }
			if err := json.Unmarshal(it.Resource.Raw, &r); err != nil {
				return err
			}
			names = append(names, r.Name)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// publicDueNames is the same, as the rules read in another language.
func publicDueNames(t *testing.T, api *hyperfleettest.Server, collection string, after time.Duration) string {
	t.Helper()
	_, page := api.ServeRequest("GET", "/"+collection+"?size=100", "")
	var list struct {
		Items []struct {
			Name       string
			Generation int64
			Status     struct {
				Conditions []struct {
					Type, Status       string
					ObservedGeneration int64     `json:"observed_generation"`
					LastUpdatedTime    time.Time `json:"last_updated_time"`
				}
			}
		}
	}
	if err := json.Unmarshal(page, &list); err != nil {
		t.Fatal(err)
	}
	now := time.Now().Add(after)
	var names []string
	for _, r := range list.Items {
		reconciled, observed, updated := false, int64(0), time.Time{}
		for _, c := range r.Status.Conditions {
			if c.Type == "Reconciled" {
				reconciled, observed, updated = c.Status == "True", c.ObservedGeneration, c.LastUpdatedTime
			}
		}
		age := now.Sub(updated)
		if r.Generation == 1 && updated.IsZero() || r.Generation > observed ||
			reconciled && age > 30*time.Minute || !reconciled && !updated.IsZero() && age > 10*time.Second {
			names = append(names, r.Name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func wantPayload(t *testing.T, cfg sentinelapp.Config, api *hyperfleettest.Server, path, want string) {
	t.Helper()
	builder, err := payload.New(cfg.MessageData, payload.SnakeCase)
	if err != nil {
		t.Fatal(err)
	}
	_, raw := api.ServeRequest("GET", path, "")
	got, problems, err := builder.AppendPayload(nil, payload.Input{Raw: raw, Reason: "message decision matched", Now: time.Now()})
	if err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
