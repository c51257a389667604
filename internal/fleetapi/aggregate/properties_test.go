package aggregate_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi/aggregate"
	reports "github.com/fleetloop/fleetloop/internal/fleetapi/report"
)

func statuses() *rapid.Generator[v1.ConditionStatus] {
	return rapid.SampledFrom([]v1.ConditionStatus{v1.ConditionTrue, v1.ConditionFalse, v1.ConditionUnknown})
}

// facts draws any resource with any reports, possible or not.
func facts() *rapid.Generator[aggregate.Facts] {
	return rapid.Custom(func(t *rapid.T) aggregate.Facts {
		adapters := []string{"validation", "dns", "provisioning", "billing"}
		f := aggregate.Facts{
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
				r := report(a, rapid.Int64Range(1, f.Generation).Draw(t, "observed"), rapid.IntRange(1, 29).Draw(t, "second"))
				for _, c := range []string{v1.ConditionAvailable, v1.ConditionHealth, v1.ConditionFinalized} {
					r.Conditions = append(r.Conditions, v1.AdapterCondition{ReportCondition: v1.ReportCondition{Type: c, Status: statuses().Draw(t, c)}})
				}
				f.Reports = append(f.Reports, r)
			}
		}
		return f
	})
}

func TestOrderOfReportsDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := facts().Draw(t, "facts")
		want := aggregate.Status(f)
		f.Reports = rapid.Permutation(f.Reports).Draw(t, "order")
		if diff := cmp.Diff(want, aggregate.Status(f)); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

func TestStrangersDoNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := facts().Draw(t, "facts")
		want := aggregate.Status(f)
		f.Reports = append(f.Reports, report("stranger", f.Generation, 1, unavailable, unhealthy))
		if diff := cmp.Diff(want, aggregate.Status(f)); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

func TestAgainIsTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := facts().Draw(t, "facts")
		f.Previous = aggregate.Status(f)
		f.Now = f.Now.Add(time.Hour)
		if diff := cmp.Diff(f.Previous, aggregate.Status(f)); diff != "" {
			t.Fatalf("nothing happened, and yet (-want +got):\n%s", diff)
		}
	})
}

func TestReadyMeansReady(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := facts().Draw(t, "facts")
		s := aggregate.Status(f)
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
		next := aggregate.Status(f)
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
		f := aggregate.Facts{Generation: 1, CreatedTime: at(0), UpdatedTime: at(0), Required: required, Now: at(0)}
		f.Previous = aggregate.Status(f)
		f.Now = at(10) // far enough from creation for any skew
		kept := make(map[string]v1.AdapterStatus)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			f.Now = f.Now.Add(time.Second)
			if rapid.IntRange(0, 4).Draw(t, "patch") == 0 {
				f.Generation++
				f.UpdatedTime = f.Now
			} else {
				send(t, &f, kept, rapid.SampledFrom(required).Draw(t, "adapter"))
			}
			f.Reports = f.Reports[:0]
			for _, r := range kept {
				f.Reports = append(f.Reports, r)
			}
			s := aggregate.Status(f)
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

func send(t *rapid.T, f *aggregate.Facts, kept map[string]v1.AdapterStatus, adapter string) {
	observed := f.Now.Add(time.Duration(rapid.IntRange(-5, 5).Draw(t, "skew")) * time.Second)
	r := v1.Report{
		Adapter:            adapter,
		ObservedGeneration: rapid.Int64Range(1, f.Generation+1).Draw(t, "observed"),
		ObservedTime:       &observed,
		Conditions: []v1.ReportCondition{
			{Type: v1.ConditionAvailable, Status: statuses().Draw(t, "available")},
			{Type: v1.ConditionHealth, Status: statuses().Draw(t, "health")},
		},
	}
	var last *v1.AdapterStatus
	if l, ok := kept[adapter]; ok {
		last = &l
	}
	if s, verdict := reports.Accept(r, last, f.Generation, f.Now); verdict == reports.Stored {
		kept[adapter] = s
	}
}
