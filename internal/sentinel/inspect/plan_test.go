package inspect_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/sentinel/decision"
	"github.com/fleetloop/fleetloop/internal/sentinel/inspect"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// sample returns a fleet with one resource of every kind.
func sample() *fleet {
	f := newFleet()
	changed := resource("c1", v1.PhaseReady, time.Minute, "region=eu")
	changed.Generation, changed.UpdatedTime = 2, time.Now().Add(-5*time.Second)
	ahead := resource("c4", v1.PhaseReady, 10*time.Minute, "region=eu")
	ahead.Status.ObservedGeneration = 7
	future := resource("c5", v1.PhaseReady, -time.Hour, "region=eu")
	nameless := resource("c6", v1.PhaseReady, 10*time.Minute, "region=eu")
	nameless.Name = ""
	f.put(v1.CollectionClusters,
		resource("c0", v1.PhaseReady, time.Minute, "region=us"),
		changed,
		resource("c2", v1.PhaseProvisioning, 42*time.Second, "region=eu"),
		resource("c3", v1.PhaseReady, 31*time.Minute, "region=eu", "tier=gold"),
		ahead, future, nameless,
	)
	return f
}

func TestPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := sample()
		w := watch(t, "eu.yaml", f, "region=eu",
			settings.MapEntry{Key: "id", Value: ".id"},
			settings.MapEntry{Key: "meta", Map: settings.OrderedMap{{Key: "tier", Value: ".labels.tier"}, {Key: "name", Value: "{{.name}}"}}},
		)
		var progress []int
		got, err := inspect.Plan(t.Context(), w, 3, func(n int) { progress = append(progress, n) })
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now().UTC()
		want := &inspect.PlanReport{
			Config: "eu.yaml", Endpoint: "http://fleet.example", Collection: "clusters", Selector: "region=eu", Profile: "generation-then-age",
			MaxAgeReadySeconds: 1800, MaxAgeNotReadySeconds: 10,
			Began: began, Ended: began,
			OnServer: 7, Matching: 6, Due: 4, Changed: 1,
			Reasons: []inspect.Count{
				{Name: "max age expired (ready)", Count: 2},
				{Name: "max age not expired", Count: 2},
				{Name: "generation changed - new spec to reconcile", Count: 1},
				{Name: "max age expired (not ready)", Count: 1},
			},
			Phases: []inspect.Count{{Name: "Ready", Count: 5}, {Name: "Provisioning", Count: 1}},
			MostUrgent: []inspect.DueResource{
				{
					ID: "c1", Name: "name-c1", Phase: "Ready", Generation: 2, ObservedGeneration: 1, Reason: "generation changed - new spec to reconcile",
					Since: began.Add(-5 * time.Second), OverdueSeconds: 5,
				},
				{ID: "c5", Name: "name-c5", Phase: "Ready", Generation: 1, ObservedGeneration: 1, Reason: "max age expired (ready)"},
				{
					ID: "c3", Name: "name-c3", Phase: "Ready", Generation: 1, ObservedGeneration: 1, Reason: "max age expired (ready)",
					Since: began.Add(-31 * time.Minute), OverdueSeconds: 60,
				},
			},
			Events: inspect.EventRate{
				PerMinute: 6 + 5.0/30, Once: 1, WorstPerMinute: 36,
				Ready: inspect.RatePart{Resources: 5, PerMinute: 5.0 / 30}, NotReady: inspect.RatePart{Resources: 1, PerMinute: 6},
			},
			EmptyFields: []inspect.EmptyField{
				{Key: "message_data.meta.tier", Reason: "the resource has no such field: .labels.tier", Resources: 5, Example: "c1"},
				{Key: "message_data.meta.name", Reason: "the result is an empty string", Resources: 1, Example: "c6"},
			},
			PayloadsChecked: 6,
			TextFields:      []inspect.TextField{},
			Payload:         &inspect.PayloadExample{ID: "c1", Due: true, Data: json.RawMessage(`{"id":"c1","meta":{"tier":"","name":"name-c1"}}`)},
			Warnings: []inspect.WarningCount{
				{Warning: "observed_generation ahead of generation - potential API issue", Resources: 1, Example: "c4"},
				{Warning: "status time in the future - potential clock issue", Resources: 1, Example: "c5"},
			},
		}
		for i := range got.MostUrgent {
			if id := got.MostUrgent[i].EventID; !strings.HasPrefix(id, "evt-") {
				t.Errorf("event id %q", id)
			}
		}
		same := cmp.Options{
			cmpopts.IgnoreFields(inspect.DueResource{}, "EventID"), cmpopts.EquateApprox(0, 1e-9),
		}
		if diff := cmp.Diff(want, got, same); diff != "" {
			t.Errorf("plan (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]int{3, 6, 7}, progress); diff != "" {
			t.Errorf("progress (-want +got):\n%s", diff)
		}
	})
}

// TestPlanNamesTheEventAsTheSentinelDoes: the id can be looked for in a log.
func TestPlanNamesTheEventAsTheSentinelDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		r := resource("c1", v1.PhaseReady, 29*time.Minute)
		f.put(v1.CollectionClusters, r)
		w := watch(t, "all.yaml", f, "")
		w.Early = func([]byte) float64 { return 0.1 }
		got, err := inspect.Plan(t.Context(), w, 3, func(int) {})
		if err != nil {
			t.Fatal(err)
		}
		v := w.Decider.Decide(&decision.Resource{
			Generation: 1, ObservedGeneration: 1, Phase: "Ready", LastUpdated: r.Status.LastUpdatedTime, Early: 0.1,
		}, time.Now())
		if want := decision.DeriveEventID("c1", 1, v, time.Now()); len(got.MostUrgent) != 1 || got.MostUrgent[0].EventID != want {
			t.Errorf("due are %+v, want one with the event %s", got.MostUrgent, want)
		}
	})
}

// TestPlanIsBounded checks that the report does not grow with the fleet, and that it contains the
// most urgent resources.
func TestPlanIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		for i := range 3000 {
			f.put(v1.CollectionClusters, resource(fmt.Sprintf("c%04d", i), v1.Phase(fmt.Sprint("Phase", i)), time.Duration(i%2500)*time.Second))
		}
		w := watch(t, "all.yaml", f, "")
		w.PageSize = 500
		got, err := inspect.Plan(t.Context(), w, 2, func(int) {})
		if err != nil {
			t.Fatal(err)
		}
		if n := len(got.Phases); n != 51 || got.Phases[0] != (inspect.Count{Name: "others", Count: 2950}) {
			t.Errorf("%d phases, the first is %v", n, got.Phases[0])
		}
		var ids []string
		for _, d := range got.MostUrgent {
			ids = append(ids, d.ID)
		}
		if diff := cmp.Diff([]string{"c2499", "c2498"}, ids); diff != "" {
			t.Errorf("most urgent (-want +got):\n%s", diff)
		}
	})
}

// TestPlanSurvivesAnAPIThatStumbles: a walk goes on where it was.
func TestPlanSurvivesAnAPIThatStumbles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := sample()
		failures := 0
		f.before = func(_ string, q url.Values) error {
			if q.Get("continue") == "c2" && failures < 3 {
				failures++
				return errDown
			}
			return nil
		}
		got, err := inspect.Plan(t.Context(), watch(t, "eu.yaml", f, ""), 3, func(int) {})
		if err != nil {
			t.Fatal(err)
		}
		if got.OnServer != 7 {
			t.Errorf("%d resources, want 7", got.OnServer)
		}
		f.before = func(_ string, q url.Values) error { return errDown }
		if _, err := inspect.Plan(t.Context(), watch(t, "eu.yaml", f, ""), 3, func(int) {}); err == nil || !strings.Contains(err.Error(), errDown.Error()) {
			t.Errorf("got %v, want the API's error", err)
		}
		f.before = func(_ string, q url.Values) error { return statusError(403) }
		before := len(f.requests)
		if _, err := inspect.Plan(t.Context(), watch(t, "eu.yaml", f, ""), 3, func(int) {}); err == nil || len(f.requests) > before+4 {
			t.Errorf("got %v after %d requests, want a refusal that is not asked for again and again", err, len(f.requests)-before)
		}
	})
}
