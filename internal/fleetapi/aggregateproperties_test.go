package fleetapi_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
)

func anyConditionStatus() *rapid.Generator[v1.ConditionStatus] {
	return rapid.SampledFrom([]v1.ConditionStatus{v1.ConditionTrue, v1.ConditionFalse, v1.ConditionUnknown})
}

// anyStatusFacts draws any resource with any reports, possible or not.
func anyStatusFacts() *rapid.Generator[fleetapi.StatusFacts] {
	return rapid.Custom(func(t *rapid.T) fleetapi.StatusFacts {
		adapters := []string{"validation", "dns", "provisioning", "billing"}
		f := fleetapi.StatusFacts{
			Generation:  rapid.Int64Range(1, 4).Draw(t, "generation"),
			Deleting:    rapid.Bool().Draw(t, "deleting"),
			Children:    rapid.IntRange(0, 2).Draw(t, "children"),
			CreatedTime: at(0),
			UpdatedTime: at(rapid.IntRange(0, 9).Draw(t, "updated")),
			Required:    adapters[:rapid.IntRange(0, 3).Draw(t, "required")],
			Now:         at(30),
		}
		for _, a := range adapters {
			if rapid.Bool().Draw(t, "reported") {
				r := newAdapterStatus(a, rapid.Int64Range(1, f.Generation).Draw(t, "observed"), rapid.IntRange(1, 29).Draw(t, "second"))
				for _, c := range []string{v1.ConditionAvailable, v1.ConditionHealth, v1.ConditionFinalized} {
					r.Conditions = append(r.Conditions, v1.AdapterCondition{ReportCondition: v1.ReportCondition{Type: c, Status: anyConditionStatus().Draw(t, c)}})
				}
				f.Reports = append(f.Reports, r)
			}
		}
		return f
	})
}

func TestOrderOfReportsDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := anyStatusFacts().Draw(t, "facts")
		want := fleetapi.AggregateStatus(f)
		f.Reports = rapid.Permutation(f.Reports).Draw(t, "order")
		if diff := cmp.Diff(want, fleetapi.AggregateStatus(f)); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

func TestStrangersDoNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := anyStatusFacts().Draw(t, "facts")
		want := fleetapi.AggregateStatus(f)
		f.Reports = append(f.Reports, newAdapterStatus("stranger", f.Generation, 1, unavailable, unhealthy))
		if diff := cmp.Diff(want, fleetapi.AggregateStatus(f)); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

func TestAgainIsTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := anyStatusFacts().Draw(t, "facts")
		f.Previous = fleetapi.AggregateStatus(f)
		f.Now = f.Now.Add(time.Hour)
		if diff := cmp.Diff(f.Previous, fleetapi.AggregateStatus(f)); diff != "" {
			t.Fatalf("nothing happened, and yet (-want +got):\n%s", diff)
		}
	})
}

func TestReadyMeansReady(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := anyStatusFacts().Draw(t, "facts")
		s := fleetapi.AggregateStatus(f)
		if s.ObservedGeneration > f.Generation {
			t.Fatalf("observed %d of %d", s.ObservedGeneration, f.Generation)
		}
		if s.Phase != v1.PhaseReady {
			return
		}
		if s.ObservedGeneration != f.Generation {
			t.Fatalf("ready at %d with generation %d", s.ObservedGeneration, f.Generation)
		}
		for _, c := range s.Conditions {
			if c.Status != v1.ConditionTrue || c.ObservedGeneration != f.Generation {
				t.Fatalf("ready, but %+v", c)
			}
		}

		f.Previous, f.Generation = s, f.Generation+1
		f.UpdatedTime, f.Now = at(40), at(40)
		next := fleetapi.AggregateStatus(f)
		if len(f.Required) > 0 && (next.Phase != v1.PhaseProvisioning || !next.LastTransitionTime.Equal(at(40))) {
			t.Fatalf("a new generation left it %s since %v", next.Phase, next.LastTransitionTime)
		}
	})
}

// TestTimeAndGenerationNeverGoBack sends reports late, twice and out of order, with changes of the
// spec in between.
func TestTimeAndGenerationNeverGoBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		required := []string{"validation", "dns"}
		f := fleetapi.StatusFacts{Generation: 1, CreatedTime: at(0), UpdatedTime: at(0), Required: required, Now: at(0)}
		f.Previous = fleetapi.AggregateStatus(f)
		f.Now = at(10) // far enough from creation for any skew
		kept := make(map[string]v1.AdapterStatus)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			f.Now = f.Now.Add(time.Second)
			if rapid.IntRange(0, 4).Draw(t, "patch") == 0 {
				f.Generation++
				f.UpdatedTime = f.Now
			} else {
				sendReport(t, &f, kept, rapid.SampledFrom(required).Draw(t, "adapter"))
			}
			f.Reports = f.Reports[:0]
			for _, r := range kept {
				f.Reports = append(f.Reports, r)
			}
			s := fleetapi.AggregateStatus(f)
			p := f.Previous
			if s.ObservedGeneration < p.ObservedGeneration || s.LastUpdatedTime.Before(p.LastUpdatedTime) || s.LastTransitionTime.Before(p.LastTransitionTime) {
				t.Fatalf("went back from %+v to %+v", p, s)
			}
			if moved := !s.LastTransitionTime.Equal(p.LastTransitionTime); moved != (s.Phase != p.Phase) {
				t.Fatalf("transition moved: %v, from %s to %s", moved, p.Phase, s.Phase)
			}
			f.Previous = s
		}
	})
}

func sendReport(t *rapid.T, f *fleetapi.StatusFacts, kept map[string]v1.AdapterStatus, adapter string) {
	observed := f.Now.Add(time.Duration(rapid.IntRange(-5, 5).Draw(t, "skew")) * time.Second)
	r := v1.Report{
		Adapter:            adapter,
		ObservedGeneration: rapid.Int64Range(1, f.Generation+1).Draw(t, "observed"),
		ObservedTime:       &observed,
		Conditions: []v1.ReportCondition{
			{Type: v1.ConditionAvailable, Status: anyConditionStatus().Draw(t, "available")},
			{Type: v1.ConditionHealth, Status: anyConditionStatus().Draw(t, "health")},
		},
	}
	var last *v1.AdapterStatus
	if l, ok := kept[adapter]; ok {
		last = &l
	}
	if s, verdict := fleetapi.DecideReport(r, last, f.Generation, f.Now); verdict == fleetapi.ReportStored {
		kept[adapter] = s
	}
}
