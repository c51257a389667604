package sentinelapp_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fleetloop/fleetloop/internal/app/sentinelapp"
	"github.com/fleetloop/fleetloop/internal/sentinel/hyperfleettest"
	"github.com/fleetloop/fleetloop/internal/sentinel/inspect"
	"github.com/fleetloop/fleetloop/internal/sentinel/state"
)

// newFleet is the public API with five clusters, two of them reported on.
func newFleet(t *testing.T) (endpoint string, ids []string) {
	t.Helper()
	api := hyperfleettest.New(hyperfleettest.Config{})
	for i := range 5 {
		region := []string{"eu", "us"}[i%2]
		ids = append(ids, api.CreateResource("clusters", fmt.Sprint("cluster-", i), "region", region))
	}
	for _, id := range ids[:2] {
		api.ReportAllConditionsTrue("clusters", id, "validation", 1)
		api.ReportAllConditionsTrue("clusters", id, "dns", 1)
	}
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	return server.URL, ids
}

// configure makes a configuration file for clusters with a selector.
func configure(t *testing.T, endpoint, sel string) string {
	t.Helper()
	return writeConfig(t, fmt.Sprintf(`resource_type: clusters
hyperfleet_api: {endpoint: %q, page_size: 2}
label_selector: %q
message_data: {id: .id, owner: .labels.owner}
`, endpoint, sel))
}

func TestPlanOfALiveFleet(t *testing.T) {
	t.Parallel()
	endpoint, _ := newFleet(t)
	file := configure(t, endpoint, "region=eu")
	got := runCLI(t.Context(), t, nil, "plan", "--config", file, "-o", "json")
	if got.err != nil {
		t.Fatal(got.err)
	}
	var r inspect.PlanReport
	if err := json.Unmarshal([]byte(got.stdout), &r); err != nil {
		t.Fatal(err)
	}
	if r.OnServer != 5 || r.Matching != 3 || r.Due != 2 || r.Config != file || len(r.MostUrgent) != 2 || r.PayloadsChecked != 3 {
		t.Errorf("plan: %s", got.stdout)
	}
	if len(r.EmptyFields) != 1 || r.EmptyFields[0].Key != "message_data.owner" || r.EmptyFields[0].Resources != 3 {
		t.Errorf("empty fields are %+v", r.EmptyFields)
	}
	if got.stderr != "" {
		t.Errorf("progress on what is no terminal: %q", got.stderr)
	}
	if text := runCLI(t.Context(), t, nil, "plan", "--config", file); !strings.HasPrefix(text.stdout, "2 of 3 watched resources are due now") {
		t.Errorf("plan as text: %s", text.stdout)
	}
}

// TestPlanOfTypes verifies that the plan shows the data as sent. It lists the values that lose
// their type, with expressions that keep it.
func TestPlanOfTypes(t *testing.T) {
	t.Parallel()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"items":[{"id":"cls-1","name":"c-eu-1","generation":1,"labels":{},"spec":{"paused":true,"node-count":3}}]}`))
	}))
	t.Cleanup(api.Close)
	plan := func(data string) inspect.PlanReport {
		t.Helper()
		file := writeConfig(t, fmt.Sprintf("resource_type: clusters\nhyperfleet_api: {endpoint: %q}\nmessage_data:\n%s", api.URL, data))
		got := runCLI(t.Context(), t, nil, "plan", "--config", file, "-o", "json")
		if got.err != nil {
			t.Fatal(got.err)
		}
		var r inspect.PlanReport
		if err := json.Unmarshal([]byte(got.stdout), &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	compact := func(data json.RawMessage) string {
		t.Helper()
		var b bytes.Buffer
		if err := json.Compact(&b, data); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}

	texts := plan("  generation: .generation\n  paused: '{{.spec.paused}}'\n  size: .spec.node-count\n  name: .name\n")
	if got := compact(texts.Payload.Data); got != `{"generation":"1","paused":"true","size":"3","name":"c-eu-1"}` || !texts.Payload.Due {
		t.Errorf("data are %s", got)
	}
	want := []inspect.TextField{
		{Key: "message_data.generation", Field: ".generation", Type: "number", Instead: "cel:resource.generation"},
		{Key: "message_data.paused", Field: ".spec.paused", Type: "boolean", Instead: "cel:resource.spec.paused"},
		{Key: "message_data.size", Field: ".spec.node-count", Type: "number", Instead: `cel:resource.spec["node-count"]`},
	}
	if diff := cmp.Diff(want, texts.TextFields, cmpopts.IgnoreFields(inspect.TextField{}, "Resources", "Example")); diff != "" {
		t.Errorf("sent as text (-want +got):\n%s", diff)
	}

	var data strings.Builder
	for _, f := range texts.TextFields {
		fmt.Fprintf(&data, "  %s: %s\n", strings.TrimPrefix(f.Key, "message_data."), f.Instead)
	}
	kept := plan(data.String())
	if got := compact(kept.Payload.Data); got != `{"generation":1,"paused":true,"size":3}` || len(kept.TextFields) != 0 {
		t.Errorf("with what the plan says, data are %s, and sent as text are %+v", got, kept.TextFields)
	}
}

func TestCoverageOfALiveFleet(t *testing.T) {
	t.Parallel()
	endpoint, ids := newFleet(t)
	eu, us, all := configure(t, endpoint, "region=eu"), configure(t, endpoint, "region=us"), configure(t, endpoint, "")
	empty := httptest.NewServer(hyperfleettest.New(hyperfleettest.Config{}))
	t.Cleanup(empty.Close)
	locked := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	t.Cleanup(locked.Close)
	cases := map[string]struct {
		reason string
		args   []string
		code   int
		say    string
	}{
		"Proven":     {"the two take all of it, and there are no node pools", []string{eu, us}, 0, "covered: each of 5 resources"},
		"Gaps":       {"one leaves something out", []string{eu}, 1, "5 resources, 2 not watched, 0 watched more than once"},
		"Overlaps":   {"one takes what the other has", []string{eu, all}, 1, "5 resources, 0 not watched, 3 watched more than once"},
		"NoFile":     {"nothing is not everything", nil, 2, "no configuration files given"},
		"Missing":    {"a file that is not there", []string{filepath.Join(t.TempDir(), "none.yaml")}, 2, "none.yaml"},
		"Twice":      {"a file is no second watch", []string{eu, eu}, 2, "given twice"},
		"Config":     {"the files are arguments", []string{eu, "--config", us}, 2, "--config is not supported"},
		"Format":     {"a format that there is not", []string{eu, "-o", "yaml"}, 2, "text or json"},
		"Flag":       {"a flag that there is not is no gap", []string{eu, "--collection", "clusters"}, 2, "unknown flag"},
		"Excluded":   {"what is watched is looked at", []string{eu, "--collections", "nodepools"}, 2, "not in --collections"},
		"NotServed":  {"the public API has no manifests", []string{eu, us, "--collections", "clusters,manifests"}, 0, "manifests    0           0           0"},
		"Unreached":  {"an API that is down proves nothing, and where it is can be set", []string{configure(t, "http://127.0.0.1:1", "")}, 2, "connection refused; check hyperfleet_api.endpoint or"},
		"NoToken":    {"what is missing is named", []string{configure(t, locked.URL, "")}, 2, "; set a token in HYPERFLEET_API_TOKEN"},
		"Nothing":    {"a proof about nothing is told as one", []string{configure(t, empty.URL, "")}, 0, "covered, but no resource was found"},
		"WalkerOnly": {"it says that the public API does not tell what changed", []string{eu, us}, 0, "the API has no change cursor"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := runCLI(t.Context(), t, nil, append([]string{"coverage"}, tc.args...)...)
			if code := sentinelapp.ExitCode(got.err); code != tc.code {
				t.Errorf("%s: exit code %d, want %d: %v", tc.reason, code, tc.code, got.err)
			}
			if !strings.Contains(got.allOutput(), tc.say) {
				t.Errorf("%s: want %q in %s", tc.reason, tc.say, got.allOutput())
			}
		})
	}
	got := runCLI(t.Context(), t, nil, "coverage", eu, "-o", "json")
	var r inspect.CoverageReport
	if err := json.Unmarshal([]byte(got.stdout), &r); err != nil {
		t.Fatal(err)
	}
	region := "us"
	want := []inspect.Group{{Labels: []inspect.LabelValue{{Label: "region", Value: &region}}, Resources: 2, Example: min(ids[1], ids[3])}}
	if diff := cmp.Diff(want, r.Collections[0].Gaps); diff != "" {
		t.Errorf("gaps (-want +got):\n%s", diff)
	}
}

// TestWhyAsksTheRunningSentinel, and goes on without it.
func TestWhyAsksTheRunningSentinel(t *testing.T) {
	t.Parallel()
	endpoint, ids := newFleet(t)
	file := configure(t, endpoint, "region=eu")
	known := state.NewDecisionRecord(10)
	entry := state.DecisionEntry{At: time.Now(), Reason: "a reason", Published: true, Generation: 1, EventID: "evt-1"}
	known.RecordDecision([]byte(ids[2]), entry)
	known.RecordConfirmed(ids[2], "evt-1", time.Now())
	decisions := state.NewRecordHandler(map[string]*state.DecisionRecord{"clusters region=eu": known})
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/decisions", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		decisions.ServeHTTP(w, r)
	})
	mux.HandleFunc("/text/debug/decisions", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) })
	mux.Handle("/moved/", http.RedirectHandler("/debug/decisions", http.StatusFound))
	running := httptest.NewServer(mux)
	t.Cleanup(running.Close)
	token := map[string]string{"METRICS_TOKEN": "secret"}
	cases := map[string]struct {
		reason string
		id     string
		env    map[string]string
		at     string
		say    string
	}{
		"Known":    {"its last event is told", ids[2], token, running.URL, "evt-1 confirmed"},
		"ByName":   {"it is asked for the id", "cluster-2", token, running.URL, "evt-1 confirmed"},
		"Unknown":  {"that nothing is recorded is an answer", ids[0], token, running.URL, "no decisions recorded"},
		"NoToken":  {"the token is named", ids[2], nil, running.URL, "METRICS_TOKEN"},
		"BadToken": {"a token that is not taken is told from none", ids[2], map[string]string{"METRICS_TOKEN": "old"}, running.URL, "invalid token"},
		"Down":     {"it need not run", ids[2], token, "http://127.0.0.1:1", "check that it runs there"},
		"Another":  {"something else may listen there", ids[2], token, endpoint, "a sentinel of this version"},
		"NoJSON":   {"or anything", ids[2], token, running.URL + "/text", "the response is not from a sentinel"},
		"Redirect": {"the token goes nowhere else", ids[2], token, running.URL + "/moved", "status 302"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := runCLI(t.Context(), t, tc.env, "why", tc.id, "--config", file, "--sentinel-url", tc.at)
			if got.err != nil {
				t.Fatal(got.err)
			}
			if !strings.Contains(got.stdout, tc.say) || !strings.Contains(got.stdout, "DECISION (RULES ONLY)") {
				t.Errorf("%s: want %q in %s", tc.reason, tc.say, got.stdout)
			}
			if strings.Contains(got.allOutput(), "secret") {
				t.Errorf("the token is shown: %s", got.allOutput())
			}
		})
	}
	if got := runCLI(t.Context(), t, nil, "why", ids[0], "--config", file, "--sentinel-url", "sentinel:8080"); got.err == nil || !strings.Contains(got.err.Error(), "must be a URL") {
		t.Errorf("got %v, want a refusal of the URL", got.err)
	}
	got := runCLI(t.Context(), t, map[string]string{"METRICS_BIND_ADDRESS": ":1"}, "why", ids[0], "--config", file)
	if !strings.Contains(got.stdout, "RUNNING SENTINEL http://127.0.0.1:1") {
		t.Errorf("it is not looked for where it listens: %s", got.allOutput())
	}
}
