package sampleadapter

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/adapter"
	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

func statusOn(name string, generation int64, condition string, s v1.ConditionStatus) v1.AdapterStatus {
	return v1.AdapterStatus{Adapter: name, ObservedGeneration: generation, Conditions: []v1.AdapterCondition{
		{ReportCondition: v1.ReportCondition{Type: v1.ConditionHealth, Status: v1.ConditionTrue}},
		{ReportCondition: v1.ReportCondition{Type: condition, Status: s}},
	}}
}

func TestDecide(t *testing.T) {
	t.Parallel()
	deleted := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	dns := Config{Name: DNS, After: Validation}
	alone := Config{Name: Validation}
	cases := map[string]struct {
		reason   string
		cfg      Config
		resource v1.Resource
		statuses []v1.AdapterStatus
		want     step
	}{
		"First":          {"nothing to wait for", alone, v1.Resource{Generation: 1}, nil, stepWork},
		"Done":           {"a generation is worked on once", alone, v1.Resource{Generation: 1}, []v1.AdapterStatus{statusOn(Validation, 1, "Available", "True")}, stepConfirm},
		"NewSpec":        {"what was done was another spec", alone, v1.Resource{Generation: 2}, []v1.AdapterStatus{statusOn(Validation, 1, "Available", "True")}, stepWork},
		"FailedBefore":   {"a failure is tried again", alone, v1.Resource{Generation: 1}, []v1.AdapterStatus{statusOn(Validation, 1, "Available", "False")}, stepWork},
		"NobodyYet":      {"the precondition has not reported", dns, v1.Resource{Generation: 1}, nil, stepWait},
		"NotYet":         {"it reported that it is not done", dns, v1.Resource{Generation: 1}, []v1.AdapterStatus{statusOn(Validation, 1, "Available", "False")}, stepWait},
		"DoneForOld":     {"it is done with another spec", dns, v1.Resource{Generation: 2}, []v1.AdapterStatus{statusOn(Validation, 1, "Available", "True")}, stepWait},
		"OtherCondition": {"applied is not available", dns, v1.Resource{Generation: 1}, []v1.AdapterStatus{statusOn(Validation, 1, "Applied", "True")}, stepWait},
		"OtherAdapter":   {"somebody else is done", dns, v1.Resource{Generation: 1}, []v1.AdapterStatus{statusOn(Provisioning, 1, "Available", "True")}, stepWait},
		"Met":            {"now it is our turn", dns, v1.Resource{Generation: 1}, []v1.AdapterStatus{statusOn(Validation, 1, "Available", "True")}, stepWork},
		"MetLost":        {"what we did does not stand without the precondition", dns, v1.Resource{Generation: 1}, []v1.AdapterStatus{statusOn(DNS, 1, "Available", "True")}, stepWait},
		"Deleting":       {"cleaning up waits for nobody", dns, v1.Resource{Generation: 2, DeletedTime: &deleted}, nil, stepFinalize},
		"DeletingAgain":  {"cleaning up is done once", dns, v1.Resource{Generation: 2, DeletedTime: &deleted}, []v1.AdapterStatus{statusOn(DNS, 2, "Finalized", "True")}, stepConfirmFinal},
		"FinalizedOld":   {"a report on an older generation finalises nothing", dns, v1.Resource{Generation: 3, DeletedTime: &deleted}, []v1.AdapterStatus{statusOn(DNS, 2, "Finalized", "True")}, stepFinalize},
	}
	for name, tc := range cases {
		if got := decideStep(tc.cfg, adapter.Resource{Resource: tc.resource, Reports: tc.statuses}); got != tc.want {
			t.Errorf("%s: %s: got step %d, want %d", name, tc.reason, got, tc.want)
		}
	}
}

func TestReports(t *testing.T) {
	t.Parallel()
	health := `{"type":"Health","status":"True","reason":"NoErrors","message":"Adapter is healthy"}`
	cases := map[outcome]struct {
		reason string
		want   string
	}{
		outcomeWaiting: {
			"word for word as the status contract has it",
			`{"type":"Available","status":"False","reason":"PreconditionsNotMet","message":"Waiting for validation to complete"},
			 {"type":"Applied","status":"False","reason":"PreconditionsNotMet","message":"Waiting for validation adapter"},` + health,
		},
		outcomeAvailable: {
			"all is well",
			`{"type":"Available","status":"True","reason":"WorkSucceeded","message":"dns is complete"},
			 {"type":"Applied","status":"True","reason":"WorkApplied","message":"dns was applied"},` + health,
		},
		outcomeTransient: {
			"a failed attempt is no ill adapter",
			`{"type":"Available","status":"False","reason":"TransientError","message":"dns failed; it is retried at the next event"},
			 {"type":"Applied","status":"True","reason":"WorkApplied","message":"dns was applied"},` + health,
		},
		outcomeFinalized: {
			"the fourth condition lets the resource go",
			`{"type":"Available","status":"False","reason":"Deleted","message":"Resource is being deleted"},
			 {"type":"Applied","status":"False","reason":"Deleted","message":"dns was removed"},` + health + `,
			 {"type":"Finalized","status":"True","reason":"CleanupComplete","message":"Cleanup is complete"}`,
		},
	}
	for o, tc := range cases {
		raw := `[` + tc.want + `]`
		var want, got any
		if err := json.Unmarshal([]byte(raw), &want); err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(newReport(Config{Name: DNS, After: Validation}, o).Conditions)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", o, tc.reason, diff)
		}
	}
}
