package fleetapi_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
)

// at returns the time s seconds after noon.
func at(s int) time.Time { return time.Date(2026, 3, 1, 12, 0, s, 0, time.UTC) }

// newDNSReport returns a valid report for a generation.
func newDNSReport(gen int64, available v1.ConditionStatus) v1.Report {
	return v1.Report{
		Adapter:            "dns",
		ObservedGeneration: gen,
		Conditions: []v1.ReportCondition{
			{Type: v1.ConditionAvailable, Status: available, Reason: "Done", Message: "all records are there"},
			{Type: v1.ConditionApplied, Status: v1.ConditionTrue},
			{Type: v1.ConditionHealth, Status: v1.ConditionTrue},
		},
	}
}

func withObservedTime(r v1.Report, t time.Time) v1.Report {
	r.ObservedTime = &t
	return r
}

func TestAcceptReport(t *testing.T) {
	first, verdict := fleetapi.DecideReport(withObservedTime(newDNSReport(2, v1.ConditionTrue), at(10)), nil, 2, at(11))
	if verdict != fleetapi.ReportStored {
		t.Fatalf("the first report: %s", verdict)
	}
	cases := map[string]struct {
		reason  string
		report  v1.Report
		last    *v1.AdapterStatus
		verdict fleetapi.ReportVerdict
		time    time.Time
	}{
		"NoTime":         {"no time is now", newDNSReport(2, v1.ConditionTrue), &first, fleetapi.ReportStored, at(20)},
		"SameTime":       {"sent twice is kept twice", withObservedTime(newDNSReport(2, v1.ConditionTrue), at(10)), &first, fleetapi.ReportStored, at(10)},
		"Later":          {"a report moves its adapter's time", withObservedTime(newDNSReport(2, v1.ConditionTrue), at(15)), &first, fleetapi.ReportStored, at(15)},
		"Earlier":        {"overtaken on its way", withObservedTime(newDNSReport(2, v1.ConditionFalse), at(9)), &first, fleetapi.ReportStale, time.Time{}},
		"ClockAhead":     {"a clock that runs ahead counts as now", withObservedTime(newDNSReport(2, v1.ConditionTrue), at(59)), &first, fleetapi.ReportStored, at(20)},
		"OlderSpec":      {"a report on an older generation never overwrites", newDNSReport(1, v1.ConditionTrue), &first, fleetapi.ReportBehind, time.Time{}},
		"NewerSpec":      {"the time never goes back", withObservedTime(newDNSReport(3, v1.ConditionTrue), at(5)), &first, fleetapi.ReportStored, at(10)},
		"NotYetASpec":    {"nobody can have seen this", newDNSReport(4, v1.ConditionTrue), &first, fleetapi.ReportAhead, time.Time{}},
		"NotYetFirst":    {"nor as the first report", newDNSReport(4, v1.ConditionTrue), nil, fleetapi.ReportAhead, time.Time{}},
		"Unknown":        {"not knowing does not undo knowing", newDNSReport(2, v1.ConditionUnknown), &first, fleetapi.ReportUnknown, time.Time{}},
		"UnknownNewSpec": {"of a newer spec neither", newDNSReport(3, v1.ConditionUnknown), &first, fleetapi.ReportUnknown, time.Time{}},
		"UnknownFirst":   {"the first may not know", newDNSReport(1, v1.ConditionUnknown), nil, fleetapi.ReportStored, at(20)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, v := fleetapi.DecideReport(tc.report, tc.last, 3, at(20))
			if v != tc.verdict || !got.LastReportTime.Equal(tc.time) {
				t.Errorf("%s: got %s at %v, want %s at %v", tc.reason, v, got.LastReportTime, tc.verdict, tc.time)
			}
		})
	}
}

func TestAcceptReportKeeps(t *testing.T) {
	r := newDNSReport(1, v1.ConditionTrue)
	r.Data, r.Metadata = json.RawMessage(`{"a":1}`), json.RawMessage(`{"attempt":2}`)
	r.ObservedTime = new(time.Date(2026, 3, 1, 13, 0, 5, 123456789, time.FixedZone("", 3600)))
	first, _ := fleetapi.DecideReport(r, nil, 1, at(20))
	want := v1.AdapterStatus{
		Adapter: "dns", ObservedGeneration: 1, Data: r.Data, Metadata: r.Metadata,
		CreatedTime:    at(20),
		LastReportTime: at(5).Add(123456 * time.Microsecond),
	}
	for _, c := range r.Conditions {
		want.Conditions = append(want.Conditions, v1.AdapterCondition{ReportCondition: c, LastTransitionTime: want.LastReportTime})
	}
	if diff := cmp.Diff(want, first); diff != "" {
		t.Errorf("the first report (-want +got):\n%s", diff)
	}

	r = newDNSReport(1, v1.ConditionFalse)
	r.Conditions = append(r.Conditions, v1.ReportCondition{Type: v1.ConditionFinalized, Status: v1.ConditionFalse})
	second, _ := fleetapi.DecideReport(r, &first, 1, at(30))
	got := make(map[string]time.Time)
	for _, c := range second.Conditions {
		got[c.Type] = c.LastTransitionTime
	}
	transitions := map[string]time.Time{
		v1.ConditionAvailable: at(30), v1.ConditionFinalized: at(30),
		v1.ConditionApplied: want.LastReportTime, v1.ConditionHealth: want.LastReportTime,
	}
	if diff := cmp.Diff(transitions, got); diff != "" {
		t.Errorf("only what changed has a new transition (-want +got):\n%s", diff)
	}
	third, _ := fleetapi.DecideReport(newDNSReport(1, v1.ConditionFalse), &second, 1, at(40))
	got = make(map[string]time.Time)
	for _, c := range third.Conditions {
		got[c.Type] = c.LastTransitionTime
	}
	delete(transitions, v1.ConditionFinalized)
	if diff := cmp.Diff(transitions, got); diff != "" {
		t.Errorf("each condition goes on from its own (-want +got):\n%s", diff)
	}
	if !second.CreatedTime.Equal(at(20)) {
		t.Errorf("the second report moved the creation to %v", second.CreatedTime)
	}
}

func TestValidateReport(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(*v1.Report)
		want   []string // "field constraint"
	}{
		"Sound":        {"nothing to say", func(*v1.Report) {}, nil},
		"NoAdapter":    {"a report has a sender", func(r *v1.Report) { r.Adapter = "" }, []string{"adapter format"}},
		"LoudAdapter":  {"its name becomes part of a type", func(r *v1.Report) { r.Adapter = "DNS" }, []string{"adapter format"}},
		"LongAdapter":  {"names are bounded", func(r *v1.Report) { r.Adapter = strings.Repeat("a", 64) }, []string{"adapter format"}},
		"NoGeneration": {"generations begin at 1", func(r *v1.Report) { r.ObservedGeneration = 0 }, []string{"observed_generation min"}},
		"FarAhead":     {"a clock that far ahead is wrong", func(r *v1.Report) { r.ObservedTime = new(at(0).Add(fleetapi.MaxReportAhead + 1)) }, []string{"observed_time max"}},
		"JustAhead":    {"the bound itself is allowed", func(r *v1.Report) { r.ObservedTime = new(at(0).Add(fleetapi.MaxReportAhead)) }, nil},
		"TooOld":       {"nobody acts on that", func(r *v1.Report) { r.ObservedTime = new(at(0).Add(-fleetapi.MaxReportAge - 1)) }, []string{"observed_time min"}},
		"JustOld":      {"the bound itself is allowed", func(r *v1.Report) { r.ObservedTime = new(at(0).Add(-fleetapi.MaxReportAge)) }, nil},
		"NoConditions": {"each of the three is asked for", func(r *v1.Report) { r.Conditions = nil }, []string{"conditions required", "conditions required", "conditions required"}},
		"NoHealth":     {"exactly one of", func(r *v1.Report) { r.Conditions = r.Conditions[:2] }, []string{"conditions required"}},
		"TypeTwice":    {"which one would count?", func(r *v1.Report) { r.Conditions = append(r.Conditions, r.Conditions[0]) }, []string{"conditions[3].type unique"}},
		"NoType":       {"an empty type", func(r *v1.Report) { r.Conditions = append(r.Conditions, v1.ReportCondition{Status: "True"}) }, []string{"conditions[3].type format"}},
		"TypeWithADigit": {"a letter first", func(r *v1.Report) {
			r.Conditions = append(r.Conditions, v1.ReportCondition{Type: "2X", Status: "True"})
		}, []string{"conditions[3].type format"}},
		"TypeOk": {"letters and digits", func(r *v1.Report) {
			r.Conditions = append(r.Conditions, v1.ReportCondition{Type: "Az09", Status: "True"})
		}, nil},
		"TypeLong":    {"types are bounded", func(r *v1.Report) { r.Conditions[0].Type = strings.Repeat("A", 64) }, []string{"conditions[0].type format", "conditions required"}},
		"BadStatus":   {"the set is closed", func(r *v1.Report) { r.Conditions[1].Status = "true" }, []string{"conditions[1].status enum"}},
		"LongReason":  {"reasons are bounded", func(r *v1.Report) { r.Conditions[0].Reason = strings.Repeat("ä", 1025) }, []string{"conditions[0].reason max_length"}},
		"LongMessage": {"messages are bounded", func(r *v1.Report) { r.Conditions[0].Message = strings.Repeat("ä", 32769) }, []string{"conditions[0].message max_length"}},
		"NULReason":   {"no database keeps it", func(r *v1.Report) { r.Conditions[0].Reason = "a\x00" }, []string{"conditions[0].reason format"}},
		"LongestWords": {"the bounds themselves are allowed", func(r *v1.Report) {
			r.Conditions[0].Reason, r.Conditions[0].Message = strings.Repeat("ä", 1024), strings.Repeat("ä", 32768)
			r.Conditions = append(r.Conditions, v1.ReportCondition{Type: strings.Repeat("A", 63), Status: v1.ConditionTrue})
			for len(r.Conditions) < 32 {
				r.Conditions = append(r.Conditions, v1.ReportCondition{Type: "X" + strings.Repeat("x", len(r.Conditions)), Status: v1.ConditionTrue})
			}
		}, nil},
		"Many": {"the list is bounded", func(r *v1.Report) {
			r.Conditions = make([]v1.ReportCondition, 33)
		}, []string{"conditions max"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := newDNSReport(1, v1.ConditionTrue)
			tc.change(&r)
			var got []string
			for _, e := range fleetapi.ValidateReport(r, at(0)) {
				got = append(got, e.Field+" "+e.Constraint)
				if e.Message == "" {
					t.Errorf("%s has no message", e.Field)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestReportsNeverGoBack sends any reports in any order and checks the stored ones.
func TestReportsNeverGoBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const generation = 4
		var last *v1.AdapterStatus
		now := at(0)
		for range rapid.IntRange(1, 20).Draw(t, "reports") {
			now = now.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "passes")) * time.Second)
			r := newDNSReport(rapid.Int64Range(1, generation+1).Draw(t, "generation"),
				rapid.SampledFrom([]v1.ConditionStatus{v1.ConditionTrue, v1.ConditionFalse, v1.ConditionUnknown}).Draw(t, "available"))
			if rapid.Bool().Draw(t, "timed") {
				r = withObservedTime(r, now.Add(time.Duration(rapid.IntRange(-10, 10).Draw(t, "skew"))*time.Second))
			}
			got, verdict := fleetapi.DecideReport(r, last, generation, now)
			if verdict != fleetapi.ReportStored {
				continue
			}
			if got.LastReportTime.After(now) || got.ObservedGeneration > generation {
				t.Fatalf("kept a report from the future: %+v at %v", got, now)
			}
			if last != nil && (got.ObservedGeneration < last.ObservedGeneration || got.LastReportTime.Before(last.LastReportTime)) {
				t.Fatalf("went back from %+v to %+v", last, got)
			}
			last = &got
		}
	})
}
