package source_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/internal/sentinel/decision"
	"github.com/fleetloop/fleetloop/internal/sentinel/source"
)

// TestStatusAgreesWithTheObject holds every mixture of what a status may hold
// against the rules, read from the object as templates and expressions see it.
func TestStatusAgreesWithTheObject(t *testing.T) {
	parts := [][]string{
		{``, `"phase":null`, `"phase":""`, `"phase":"Ready"`, `"phase":"Provisioning"`, `"phase":"Ready","phase":null`},
		{``, `"observed_generation":null`, `"observed_generation":0`, `"observedGeneration":1`, `"observed_generation":2`},
		{``, `"last_updated_time":null`, `"lastUpdatedTime":"2025-10-21T12:00:00Z"`, `"updated_at":"2025-10-21T12:30:00Z"`},
		{``, `"last_transition_time":"2025-10-21T10:00:00Z"`},
		{
			``, `"conditions":null`, `"conditions":[]`, `"conditions":{}`, `"conditions":[7]`, `"conditions":[{"type":"Available","status":"True"}]`,
			`"conditions":[{"type":"Ready","status":"True","observed_generation":3,"last_updated_time":"2025-10-21T13:00:00Z"}]`,
			`"conditions":[{"type":"Reconciled","status":"True","observed_generation":3,"last_transition_time":"2025-10-21T09:00:00Z"},{"type":"DnsSuccessful","observed_generation":4}]`,
			`"conditions":[{"type":"Reconciled","status":"False"},{"type":"Available","status":"True"}]`,
			`"conditions":[{"type":"DnsSuccessful","status":"True","observed_generation":4,"last_updated_time":"2025-10-21T13:00:00Z"}]`,
		},
	}
	statuses := []string{""}
	for _, choices := range parts {
		var longer []string
		for _, status := range statuses {
			for _, part := range choices {
				longer = append(longer, strings.Trim(status+","+part, ","))
			}
		}
		statuses = longer
	}
	s := source.NewScanner(false)
	for _, marks := range []string{``, `"href":"/x","created_by":"y",`} {
		for _, status := range statuses {
			item := `{"id":"a",` + marks + `"generation":5,"updated_time":"2025-10-21T08:00:00Z","status":{` + status + `}}`
			parsed, err := decision.ParseObject([]byte(item), nil)
			if err != nil {
				t.Fatal(err)
			}
			want, unknown := wantStatus(parsed)
			if err := s.ScanResource([]byte(item), func(it *source.Item) error {
				r := it.Resource
				got := decision.Resource{ObservedGeneration: r.ObservedGeneration, Phase: r.Phase, LastUpdated: r.LastUpdated, LastTransition: r.LastTransition}
				if diff := cmp.Diff(want, got); diff != "" || it.Fault.Skips() || (it.Fault == source.FaultStatus) != unknown {
					t.Errorf("%s: fault %s, -want +got\n%s", item, it.Fault, diff)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// wantStatus returns the status of a resource by the rules, and whether its form is unknown to
// them.
func wantStatus(item map[string]any) (want decision.Resource, unknown bool) {
	status, _ := item["status"].(map[string]any)
	first := func(m map[string]any, names ...string) any {
		for _, name := range names {
			if v := m[name]; v != nil {
				return v
			}
		}
		return nil
	}
	timeOf := func(v any) (t time.Time) {
		if text, ok := v.(string); ok {
			return parsedTime(text)
		}
		return t
	}
	phase, hasPhase := first(status, "phase").(string)
	observed, hasObserved := first(status, "observed_generation", "observedGeneration").(int64)
	want = decision.Resource{
		Phase: phase, ObservedGeneration: observed,
		LastUpdated:    timeOf(first(status, "last_updated_time", "lastUpdatedTime", "updated_at")),
		LastTransition: timeOf(first(status, "last_transition_time", "lastTransitionTime")),
	}
	if hasPhase || status["conditions"] == nil {
		return want, false
	}
	conditions, isList := status["conditions"].([]any)
	known := map[string]map[string]any{}
	for _, c := range conditions {
		fields, _ := c.(map[string]any)
		kind, _ := fields["type"].(string)
		known[kind] = fields
	}
	summary := known["Reconciled"]
	if summary == nil {
		summary = known["Ready"]
	}
	adapter := known["DnsSuccessful"]
	switch {
	case !isList, len(conditions) > 0 && summary == nil && adapter == nil:
		return want, true
	case len(conditions) == 0 && item["href"] != nil && !hasObserved && want.LastUpdated.IsZero() && want.LastTransition.IsZero():
		return decision.Resource{Phase: "Ready", ObservedGeneration: 5, LastUpdated: timeOf(item["updated_time"])}, false
	case len(conditions) == 0:
		return want, false
	}
	want.Phase = "NotReady"
	if summary["status"] == "True" {
		want.Phase = "Ready"
	}
	if !hasObserved {
		from := adapter
		if known["Ready"] != nil {
			from = summary
		}
		want.ObservedGeneration, _ = from["observed_generation"].(int64)
	}
	if summary == nil {
		summary = adapter
	}
	if want.LastUpdated.IsZero() {
		want.LastUpdated = timeOf(summary["last_updated_time"])
	}
	if want.LastTransition.IsZero() {
		want.LastTransition = timeOf(summary["last_transition_time"])
	}
	return want, false
}
