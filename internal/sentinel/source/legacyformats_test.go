package source_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/internal/sentinel/decision"
	"github.com/fleetloop/fleetloop/internal/sentinel/source"
)

// TestEras: the status of a resource means the same in the words of every
// version of the API.
func TestEras(t *testing.T) {
	const (
		head = `"id":"a","generation":2,"created_time":"2025-10-20T10:00:00Z","updated_time":"2025-10-21T11:00:00Z"`

		reconciled = `{"type":"Reconciled","status":"True","reason":"ReconciledAll","observed_generation":2,"created_time":"2025-10-20T10:00:00Z",
			"last_updated_time":"2025-10-21T12:00:00Z","last_transition_time":"2025-10-21T10:00:00Z"}`
		lastKnown = `{"type":"LastKnownReconciled","status":"True","observed_generation":1,"last_updated_time":"2025-01-01T00:00:00Z"}`
		dns1      = `{"type":"DnsSuccessful","status":"True","observed_generation":1,"last_updated_time":"2025-10-21T12:00:00Z"}`
		dns2      = `{"type":"DnsSuccessful","status":"True","observed_generation":2,"last_updated_time":"2025-10-21T12:00:00Z"}`
		valid2    = `{"type":"ValidationSuccessful","status":"False","observed_generation":2,"last_updated_time":"2025-10-21T12:30:00Z"}`
		public    = `"href":"/api/hyperfleet/v1/clusters/a","created_by":"owner@example.com",`
		mapped    = `{"type":"Upgradeable","status":"False","observed_generation":1}`
	)
	created, updated := parsedTime("2025-10-20T10:00:00Z"), parsedTime("2025-10-21T11:00:00Z")
	reported, turned := parsedTime("2025-10-21T12:00:00Z"), parsedTime("2025-10-21T10:00:00Z")
	item := func(status string, args ...any) string {
		return `{` + head + `,"status":{` + fmt.Sprintf(status, args...) + `}}`
	}
	conditions := func(list ...string) string { return item(`"conditions":[%s]`, strings.Join(list, ",")) }
	ready := func(observed int64) decision.Resource {
		r := decision.Resource{Generation: 2, ObservedGeneration: observed, Phase: "Ready", LastUpdated: reported, LastTransition: turned}
		if observed < 2 {
			r.Created, r.Updated = created, updated
		}
		return r
	}
	with := func(r decision.Resource, change func(*decision.Resource)) decision.Resource {
		change(&r)
		return r
	}
	notReady := func(r *decision.Resource) { r.Phase = "NotReady" }
	stands := func(r *decision.Resource) { r.Created, r.Updated = created, updated }

	cases := map[string]struct {
		reason string
		item   string
		want   decision.Resource
		fault  source.Fault
		field  string
	}{
		"Earliest": {
			reason: "a phase and updated_at",
			item:   item(`"phase":"Ready","observed_generation":2,"updated_at":"2025-10-21T12:00:00Z","adapters":["dns"]`),
			want:   with(ready(2), func(r *decision.Resource) { stands(r); r.LastTransition = parsedTime("0001-01-01T00:00:00Z") }),
		},
		"EarliestCamel": {
			reason: "the other spelling",
			item:   item(`"phase":"Ready","observedGeneration":2,"updatedAt":"2025-10-21T12:00:00Z"`),
			want:   with(ready(2), func(r *decision.Resource) { stands(r); r.LastTransition = parsedTime("0001-01-01T00:00:00Z") }),
		},
		"EarliestBroken": {
			reason: "a time that can not be read counts as absent",
			item:   item(`"phase":"Ready","observed_generation":2,"updated_at":"soon"`),
			want:   decision.Resource{Generation: 2, ObservedGeneration: 2, Phase: "Ready", Created: created, Updated: updated},
			fault:  source.FaultTime, field: "status.updated_at",
		},
		"Second": {
			reason: "a phase and times; the conditions beside them say it again",
			item:   item(`"phase":"Ready","observed_generation":2,"last_updated_time":"2025-10-21T12:00:00Z","updated_at":"2020-01-01T00:00:00Z","last_transition_time":"2025-10-21T10:00:00Z","conditions":[%s]`, mapped),
			want:   ready(2),
		},
		"SecondBrokenConditions": {
			reason: "are not looked at",
			item:   item(`"conditions":{},"phase":"Ready","observed_generation":2,"last_updated_time":"2025-10-21T12:00:00Z","last_transition_time":"2025-10-21T10:00:00Z"`),
			want:   ready(2),
		},
		"Third": {
			reason: "Ready sums up, and says what was observed",
			item: conditions(`{"type":"Available","status":"True","observed_generation":9}`, `{"type":"Ready","status":"True","observed_generation":1,
				"last_updated_time":"2025-10-21T12:00:00Z","last_transition_time":"2025-10-21T10:00:00Z"}`),
			want: ready(1),
		},
		"ThirdWithAdapters": {
			reason: "where adapters speak for themselves, they know best",
			item:   conditions(dns1, valid2, strings.Replace(reconciled, "Reconciled", "Ready", 1)),
			want:   ready(1),
		},
		"ThirdNotReady": {
			reason: "False is not ready",
			item:   conditions(strings.NewReplacer(`"Reconciled"`, `"Ready"`, `"True"`, `"False"`).Replace(reconciled)),
			want:   with(ready(2), notReady),
		},
		"Today": {
			reason: "Reconciled sums up, and the adapters say what was observed",
			item:   conditions(lastKnown, reconciled, dns2, valid2, mapped),
			want:   ready(2),
		},
		"TodayBehind": {
			reason: "the generation of Reconciled is always that of the resource; an adapter that is behind tells",
			item:   conditions(dns1, reconciled, valid2),
			want:   ready(1),
		},
		"TodayUnseen": {
			reason: "no adapter has reported: nothing was observed",
			item:   conditions(strings.Replace(reconciled, `"True"`, `"False"`, 1), lastKnown),
			want:   with(ready(0), notReady),
		},
		"TodayUnknown": {
			reason: "only True is ready",
			item:   conditions(strings.Replace(reconciled, `"True"`, `"Unknown"`, 1), dns2),
			want:   with(ready(2), notReady),
		},
		"TodayWithReady": {
			reason: "an item in both words is of today",
			item:   conditions(`{"type":"Ready","status":"False","observed_generation":7}`, reconciled, dns2),
			want:   ready(2),
		},
		"TodayCamel": {
			reason: "the other spelling",
			item: conditions(`{"type":"Reconciled","status":"True","observedGeneration":2,"lastUpdatedTime":"2025-10-21T12:00:00Z","lastTransitionTime":"2025-10-21T10:00:00Z"}`,
				`{"type":"DnsSuccessful","observedGeneration":1}`),
			want: ready(1),
		},
		"TodayEscaped": {
			reason: "JSON may spell any letter as an escape",
			item:   conditions(strings.Replace(reconciled, "Reconciled", `R\u0065conciled`, 1), strings.Replace(dns1, "Successful", `Successfu\u006c`, 1)),
			want:   ready(1),
		},
		"NullPhase": {
			reason: "null is absent",
			item:   item(`"phase":null,"conditions":[%s,%s]`, reconciled, dns2),
			want:   ready(2),
		},
		"NoAdapters": {
			reason: "a kind of the public API that no adapter reports on: only its age counts",
			item:   strings.Replace(conditions(), `{`, `{`+public, 1),
			want:   decision.Resource{Generation: 2, ObservedGeneration: 2, Phase: "Ready", Created: created, Updated: updated, LastUpdated: updated},
		},
		"NoConditionsYet": {
			reason: "in any other API nothing was observed yet",
			item:   conditions(),
			want:   decision.Resource{Generation: 2, Created: created, Updated: updated},
		},
		"NoAdaptersButAField": {
			reason: "the public API has no field of its own beside the conditions",
			item:   strings.Replace(item(`"observed_generation":1,"conditions":[]`), `{`, `{`+public, 1),
			want:   decision.Resource{Generation: 2, ObservedGeneration: 1, Created: created, Updated: updated},
		},
		"UnknownAlone": {
			reason: "conditions of which none is known: not ready, and nothing observed",
			item:   conditions(mapped),
			want:   decision.Resource{Generation: 2, Created: created, Updated: updated},
			fault:  source.FaultStatus, field: "status.conditions",
		},
		"UnknownAloneOfThePublicAPI": {
			reason: "the same",
			item:   strings.Replace(conditions(mapped), `{`, `{`+public, 1),
			want:   decision.Resource{Generation: 2, Created: created, Updated: updated},
			fault:  source.FaultStatus, field: "status.conditions",
		},
		"UnknownWithObserved": {
			reason: "the observed generation of the status counts",
			item:   item(`"observed_generation":1,"conditions":[{"type":"Available","status":"False"}]`),
			want:   decision.Resource{Generation: 2, ObservedGeneration: 1, Created: created, Updated: updated},
			fault:  source.FaultStatus, field: "status.conditions",
		},
		"UnknownWithTimes": {
			reason: "the times of the status count",
			item:   item(`"observedGeneration":2,"last_updated_time":"2025-10-21T12:00:00Z","lastTransitionTime":"2025-10-21T10:00:00Z","conditions":[%s]`, mapped),
			want:   decision.Resource{Generation: 2, ObservedGeneration: 2, LastUpdated: reported, LastTransition: turned},
			fault:  source.FaultStatus, field: "status.conditions",
		},
		"UnknownWithPhase": {
			reason: "a phase is enough: conditions are not looked at, and nothing is odd",
			item:   item(`"phase":"Ready","conditions":[%s]`, mapped),
			want:   decision.Resource{Generation: 2, Phase: "Ready", Created: created, Updated: updated},
		},
		"PhaseWithoutObserved": {
			reason: "absent is 0, whatever a condition says",
			item:   item(`"phase":"Ready","last_updated_time":"2025-10-21T12:00:00Z","conditions":[%s,%s]`, reconciled, dns2),
			want:   decision.Resource{Generation: 2, Phase: "Ready", LastUpdated: reported, Created: created, Updated: updated},
		},
		"EmptyPhase": {
			reason: "is a phase, and not ready",
			item:   item(`"phase":"","observed_generation":2,"last_updated_time":"2025-10-21T12:00:00Z","last_transition_time":"2025-10-21T10:00:00Z","conditions":[%s]`, reconciled),
			want:   with(ready(2), func(r *decision.Resource) { r.Phase = "" }),
		},
		"ObservedWithReady": {
			reason: "the observed generation of the status counts, the condition fills in the phase and the times",
			item:   item(`"observed_generation":1,"conditions":[%s]`, strings.Replace(reconciled, "Reconciled", "Ready", 1)),
			want:   ready(1),
		},
		"ObservedZeroWithReconciled": {
			reason: "0 is a generation too",
			item:   item(`"conditions":[%s,%s],"observed_generation":0`, reconciled, dns2),
			want:   ready(0),
		},
		"ObservedNullWithReconciled": {
			reason: "null is absent",
			item:   item(`"conditions":[%s,%s],"observed_generation":1,"observedGeneration":null`, reconciled, dns2),
			want:   ready(2),
		},
		"TimesWithReconciled": {
			reason: "the times of the status count, the conditions fill in the rest",
			item:   item(`"last_updated_time":"2025-10-21T13:00:00Z","lastTransitionTime":"2025-10-21T09:00:00Z","conditions":[%s,%s]`, reconciled, dns1),
			want: with(ready(1), func(r *decision.Resource) {
				r.LastUpdated, r.LastTransition = parsedTime("2025-10-21T13:00:00Z"), parsedTime("2025-10-21T09:00:00Z")
			}),
		},
		"UpdatedAtWithAdapters": {
			reason: "the earliest name of the time counts too",
			item:   item(`"updated_at":"2025-10-21T13:00:00Z","conditions":[%s]`, dns1),
			want: decision.Resource{
				Generation: 2, ObservedGeneration: 1, Phase: "NotReady", LastUpdated: parsedTime("2025-10-21T13:00:00Z"), Created: created, Updated: updated,
			},
		},
		"TimeAlone": {
			reason: "a status that says no more is not ready",
			item:   item(`"last_updated_time":"2025-10-21T12:00:00Z"`),
			want:   decision.Resource{Generation: 2, LastUpdated: reported, Created: created, Updated: updated},
		},
		"NoStatus": {
			reason: "nothing is known, and nothing odd",
			item:   `{` + head + `}`,
			want:   decision.Resource{Generation: 2, Created: created, Updated: updated},
		},
		"AdaptersAlone": {
			reason: "reports without a sum are not ready, and as old as the oldest",
			item:   conditions(valid2, dns1),
			want:   decision.Resource{Generation: 2, ObservedGeneration: 1, Phase: "NotReady", Created: created, Updated: updated, LastUpdated: reported},
		},
		"NullConditions": {
			reason: "null is absent: nothing is known",
			item:   item(`"conditions":null`),
			want:   decision.Resource{Generation: 2, Created: created, Updated: updated},
		},
		"NullCondition": {
			reason: "null is no condition",
			item:   conditions("null", reconciled, dns2, `{"type":null,"status":null,"observed_generation":null}`),
			want:   ready(2),
		},
		"BrokenTime": {
			reason: "counts as absent",
			item:   conditions(strings.Replace(reconciled, "2025-10-21T12:00:00Z", "noon", 1), dns2),
			want:   with(ready(2), func(r *decision.Resource) { stands(r); r.LastUpdated = parsedTime("0001-01-01T00:00:00Z") }),
			fault:  source.FaultTime, field: "status.conditions.last_updated_time",
		},
		"BrokenTransition": {
			reason: "counts as absent",
			item:   conditions(strings.Replace(reconciled, "2025-10-21T10:00:00Z", "noon", 1), dns2),
			want:   with(ready(2), func(r *decision.Resource) { stands(r); r.LastTransition = parsedTime("0001-01-01T00:00:00Z") }),
			fault:  source.FaultTime, field: "status.conditions.last_transition_time",
		},
		"BrokenStranger": {
			reason: "a condition that plays no part may hold anything",
			item:   conditions(`{"type":"Weather","status":7,"observed_generation":"many","last_updated_time":[]}`, reconciled, dns2),
			want:   ready(2),
		},
		"NotAnArray": {
			reason: "who knows what it says: not ready",
			item:   item(`"conditions":{"type":"Reconciled"}`),
			want:   decision.Resource{Generation: 2, Created: created, Updated: updated},
			fault:  source.FaultStatus, field: "status.conditions",
		},
		"NotAnObject": {
			reason: "the same",
			item:   conditions("7", reconciled, "[]"),
			want:   decision.Resource{Generation: 2, Created: created, Updated: updated},
			fault:  source.FaultStatus, field: "status.conditions",
		},
		"TypeOfAnotherType": {
			reason: "it might be any",
			item:   conditions(`{"type":7}`, reconciled),
			want:   decision.Resource{Generation: 2, Created: created, Updated: updated},
			fault:  source.FaultStatus, field: "status.conditions",
		},
		"StatusNumber":   {reason: "skipped", item: conditions(`{"type":"Reconciled","status":1}`), fault: source.FaultWrongType, field: "status.conditions.status"},
		"GenerationText": {reason: "skipped", item: conditions(reconciled, `{"type":"DnsSuccessful","observed_generation":"2"}`), fault: source.FaultWrongType, field: "status.conditions.observed_generation"},
		"TimeNumber":     {reason: "skipped", item: conditions(`{"type":"Ready","last_updated_time":7}`), fault: source.FaultWrongType, field: "status.conditions.last_updated_time"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			// The neighbours are read correctly, in the formats of their own eras.
			got, _, err := scanAll(t, `{"items":[`+conditions(reconciled, dns1)+`,`+tc.item+`,`+item(`"phase":"Ready","observed_generation":2,
				"last_updated_time":"2025-10-21T12:00:00Z","last_transition_time":"2025-10-21T10:00:00Z"`)+`,{"id":"z"}]}`)
			if err != nil || len(got) != 4 {
				t.Fatalf("%s: %d items, err %v", tc.reason, len(got), err)
			}
			for i := range got {
				got[i].Resource.Raw = nil
			}
			neighbours := []decision.Resource{got[0].Resource, got[2].Resource, got[3].Resource}
			if diff := cmp.Diff([]decision.Resource{ready(1), ready(2), {}}, neighbours); diff != "" {
				t.Errorf("%s: neighbours: -want +got\n%s", tc.reason, diff)
			}
			if got[1].Fault != tc.fault || got[1].Field != tc.field {
				t.Errorf("%s: fault %s at %s", tc.reason, got[1].Fault, got[1].Field)
			}
			if tc.fault.Skips() {
				return
			}
			if diff := cmp.Diff(tc.want, got[1].Resource); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

// TestErasAllocateNothing: the public API's items cost no garbage either.
func TestErasAllocateNothing(t *testing.T) {
	const n = 100
	item := `{"id":"019a8e30-7c40-7b21-9d0e-000000000001","generation":2,"updated_time":"2025-10-21T11:00:00Z","status":{"conditions":[
		{"type":"Reconciled","status":"True","observed_generation":2,"last_updated_time":"2025-10-21T12:00:00Z","last_transition_time":"2025-10-21T10:00:00Z"},
		{"type":"DnsSuccessful","status":"True","observed_generation":2,"last_updated_time":"2025-10-21T12:00:00Z"}]}}`
	page := []byte(`{"items":[` + strings.Repeat(item+",", n-1) + item + `]}`)
	s := source.NewScanner(false)
	visit := func(it *source.Item) error {
		if !it.Resource.Ready() || it.Resource.ObservedGeneration != 2 {
			return fmt.Errorf("got %+v", it.Resource)
		}
		return nil
	}
	allocs := testing.AllocsPerRun(20, func() {
		if _, err := s.ScanPage(page, visit); err != nil {
			t.Fatal(err)
		}
	})
	if allocs > 5 {
		t.Errorf("%v allocations for a page of %d", allocs, n)
	}
}
