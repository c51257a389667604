package sentinelapp

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/internal/sentinel/inspect"
	"github.com/fleetloop/fleetloop/internal/sentinel/state"
)

var update = flag.Bool("update", false, "write the golden files anew")

// Update is the flag update, for external tests.
var Update = update

// wantGolden compares with testdata/<name>.golden.
func wantGolden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(file, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s differs (-want +got):\n%s", file, diff)
	}
}

var asked = time.Date(2026, 11, 20, 16, 7, 45, 0, time.UTC)

func timeAgo(d time.Duration) time.Time { return asked.Add(-d) }

const id = "01a1f9b6-bee5-729b-8247-7017e854ce96"

func planReport() *inspect.PlanReport {
	return &inspect.PlanReport{
		Config: "./eu.yaml", Endpoint: "http://fleet.example/api/hyperfleet/v1", Collection: "clusters", Selector: "region=eu-west", Profile: "generation-then-age",
		MaxAgeReadySeconds: 1800, MaxAgeNotReadySeconds: 10, Began: timeAgo(1500 * time.Millisecond), Ended: asked,
		OnServer: 60, Matching: 40, Due: 3, Changed: 1,
		Reasons: []inspect.Count{{Name: "max age not expired", Count: 37}, {Name: "max age expired (ready)", Count: 2}, {Name: "generation changed - new spec to reconcile", Count: 1}},
		Phases:  []inspect.Count{{Name: "Ready", Count: 36}, {Name: "Provisioning", Count: 4}},
		MostUrgent: []inspect.DueResource{
			{ID: id, Name: "eu-01", Phase: "Ready", Generation: 3, ObservedGeneration: 2, Reason: "generation changed - new spec to reconcile", Since: timeAgo(5 * time.Second), OverdueSeconds: 5, EventID: "evt-1"},
			{ID: id[:35] + "7", Name: "\x1b[2Jhostile", Phase: "Ready", Generation: 1, ObservedGeneration: 1, Reason: "max age expired (ready)", EventID: "evt-2"},
		},
		Events: inspect.EventRate{
			PerMinute: 25.2, Once: 1, WorstPerMinute: 240, LimitPerMinute: 600,
			Ready: inspect.RatePart{Resources: 36, PerMinute: 1.2}, NotReady: inspect.RatePart{Resources: 4, PerMinute: 24},
		},
		EmptyFields:     []inspect.EmptyField{{Key: "message_data.tier", Reason: "the resource has no such field: .labels.tier", Resources: 12, Example: id}},
		PayloadsChecked: 40,
		TextFields: []inspect.TextField{
			{Key: "message_data.generation", Field: ".generation", Type: "number", Instead: "cel:resource.generation", Resources: 40, Example: id},
		},
		Payload:  &inspect.PayloadExample{ID: id, Due: true, Data: json.RawMessage(`{"id":"` + id + `","generation":"3","note":"\u001b[2J"}`)},
		Warnings: []inspect.WarningCount{{Warning: "status time in the future - potential clock issue", Resources: 1, Example: id}},
	}
}

func whyReport() *inspect.WhyReport {
	last := state.ServedDecision{
		At: timeAgo(4 * time.Second), FirstAt: timeAgo(4 * time.Second), Times: 1, Publish: true, Reason: "max age expired (not ready)",
		Generation: 3, ObservedGeneration: 3, Phase: "Provisioning", LastUpdatedTime: timeAgo(42 * time.Second),
		Since: timeAgo(42 * time.Second), Next: timeAgo(32 * time.Second), EventID: "evt-4c3dad24e994faddeba066ed8172504b", ConfirmedAt: timeAgo(3900 * time.Millisecond),
	}
	held := last
	held.At, held.FirstAt, held.Times, held.Publish, held.EventID, held.ConfirmedAt = timeAgo(time.Second), timeAgo(3*time.Second), 3, false, "", time.Time{}
	held.Reason = "already published, waiting for adapters"
	return &inspect.WhyReport{
		Config: "./eu.yaml", Endpoint: "http://fleet.example/api/hyperfleet/v1", Collection: "clusters", Profile: "generation-then-age",
		Time: asked, ID: id, Name: "eu-01", State: inspect.StateHeld,
		Rule:     "max age expired (not ready): 42s since last_updated_time, max_age_not_ready is 10s; an event for generation 3 was published, waiting for adapters",
		Next:     timeAgo(-6 * time.Second),
		Selector: "region=eu-west,!canary",
		Requirements: []inspect.Requirement{
			{Requirement: "!canary", Label: "canary", Met: true}, {Requirement: "region=eu-west", Label: "region", Value: new("eu-west"), Met: true},
		},
		Inputs: &inspect.Inputs{
			Generation: 3, ObservedGeneration: 3, Phase: "Provisioning", LastUpdatedTime: timeAgo(42 * time.Second), LastTransitionTime: timeAgo(31 * time.Minute),
			MaxAgeSeconds: 10, EarlySeconds: 1,
		},
		Decision: &inspect.Decision{
			Due: true, Reason: "max age expired (not ready)", Since: timeAgo(42 * time.Second), Next: timeAgo(33 * time.Second), IntervalSeconds: 9,
			EventID: "evt-4c3dad24e994faddeba066ed8172504c",
		},
		Sentinel: inspect.Recorded{
			URL:     "http://127.0.0.1:8080",
			Watches: []state.ServedDecisions{{Watch: "clusters region=eu-west,!canary", ResourceID: id, Decisions: []state.ServedDecision{held, last}}}, LastEvent: &last,
		},
	}
}

func coverageReport() *inspect.CoverageReport {
	return &inspect.CoverageReport{
		Began: timeAgo(2 * time.Second), Ended: asked,
		Configs: []inspect.CoveredConfig{
			{Name: "./eu.yaml", Endpoint: "http://fleet.example/api/hyperfleet/v1", Collection: "clusters", Selector: "region=eu-west", Selected: 20, Alone: 18},
			{Name: "./gold.yaml", Endpoint: "http://fleet.example/api/hyperfleet/v1", Collection: "clusters", Selector: "tier=gold", Selected: 7, Alone: 5},
		},
		Collections: []inspect.CoveredCollection{
			{
				Endpoint: "http://fleet.example/api/hyperfleet/v1", Collection: "clusters", Served: true, Configs: []string{"./eu.yaml", "./gold.yaml"},
				Began: timeAgo(2 * time.Second), Ended: timeAgo(time.Second), At: timeAgo(time.Second), Resources: 40, Unreadable: 1, Unwatched: 14, Overlapping: 2,
				Gaps: []inspect.Group{
					{Labels: []inspect.LabelValue{{Label: "region", Value: new("ap-south")}, {Label: "tier"}}, Resources: 11, Example: id},
					{Labels: []inspect.LabelValue{{Label: "region"}, {Label: "tier"}}, Resources: 2, Example: id},
					{Labels: []inspect.LabelValue{}, Others: true, Resources: 1, Example: id},
				},
				Overlaps: []inspect.Group{{
					Configs: []string{"./eu.yaml", "./gold.yaml"},
					Labels:  []inspect.LabelValue{{Label: "region", Value: new("eu-west")}, {Label: "tier", Value: new("gold")}}, Resources: 2, Example: id,
				}},
			},
			{
				Endpoint: "http://fleet.example/api/hyperfleet/v1", Collection: "nodepools", Served: true, Configs: []string{}, Began: timeAgo(time.Second), Ended: asked,
				WalkOnly: "the API has no change cursor", Resources: 3, Unwatched: 3,
				Gaps: []inspect.Group{{Labels: []inspect.LabelValue{}, Resources: 3, Example: id}}, Overlaps: []inspect.Group{},
			},
			{Endpoint: "http://fleet.example/api/hyperfleet/v1", Collection: "manifests", Configs: []string{}, Gaps: []inspect.Group{}, Overlaps: []inspect.Group{}},
		},
	}
}

// TestReports spells out what people read, and the names that programs rely on.
func TestReports(t *testing.T) {
	waiting := whyReport()
	waiting.State, waiting.Rule, waiting.Next = inspect.StateWaiting, "max age not expired: 10m since last_updated_time, max_age_ready is 30m", timeAgo(-20*time.Minute)
	waiting.Inputs.Phase, waiting.Inputs.Ready, waiting.Requirements = "Ready", true, nil
	waiting.Decision = &inspect.Decision{Reason: "max age not expired", Since: timeAgo(10 * time.Minute), Next: waiting.Next, IntervalSeconds: 1800}
	waiting.Sentinel = inspect.Recorded{URL: "http://127.0.0.1:8080", Error: "ask the sentinel: connection refused; is it running there?"}
	absent := &inspect.WhyReport{
		Config: "./eu.yaml", Endpoint: "http://fleet.example", Collection: "clusters", Profile: "generation-then-age", Time: asked, ID: "eu-09",
		State: inspect.StateNotFound, Rule: "not found in clusters", Requirements: []inspect.Requirement{},
		Sentinel: inspect.Recorded{URL: "http://127.0.0.1:8080", Watches: []state.ServedDecisions{}},
	}
	unwatched := whyReport()
	unwatched.State, unwatched.Rule = inspect.StateNotWatched, `the selector does not match: !canary required, but canary is "yes"`
	unwatched.Requirements[0].Met, unwatched.Requirements[0].Value = false, new("yes")
	proven := coverageReport()
	proven.Proven, proven.Collections = true, proven.Collections[:1]
	c := &proven.Collections[0]
	c.Unwatched, c.Overlapping, c.Unreadable, c.Gaps, c.Overlaps = 0, 0, 0, []inspect.Group{}, []inspect.Group{}
	cases := map[string]struct {
		report any
		text   func(*page)
	}{
		"plan":            {planReport(), func(p *page) { writePlanReport(p, planReport()) }},
		"why-held":        {whyReport(), func(p *page) { writeWhyReport(p, whyReport()) }},
		"why-waiting":     {waiting, func(p *page) { writeWhyReport(p, waiting) }},
		"why-not-found":   {absent, func(p *page) { writeWhyReport(p, absent) }},
		"why-not-watched": {unwatched, func(p *page) { writeWhyReport(p, unwatched) }},
		"coverage":        {coverageReport(), func(p *page) { writeCoverageReport(p, coverageReport()) }},
		"coverage-proven": {proven, func(p *page) { writeCoverageReport(p, proven) }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for _, f := range []format{formatText, formatJSON} {
				var out bytes.Buffer
				if err := f.writeReport(&out, tc.report, tc.text); err != nil {
					t.Fatal(err)
				}
				wantGolden(t, name+"-"+string(f), out.Bytes())
			}
		})
	}
}
