package store

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/nodefault"
	"github.com/fleetloop/fleetloop/internal/nodefault/intake"
)

func drawReport(t *rapid.T) nodefault.Report {
	return nodefault.Report{Node: "n1", Healthy: rapid.Bool().Draw(t, "healthy"), Fault: v1alpha1.Fault{
		Source: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "source"), Check: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "check"),
		Entity: rapid.SampledFrom([]string{"", "GPU/0", "GPU/1", "GPU/0,GPU/1"}).Draw(t, "entity"), ObserveOnly: rapid.Bool().Draw(t, "observe"),
		Since: metav1.NewMicroTime(time.Unix(int64(rapid.IntRange(0, 9).Draw(t, "since")), 0)),
	}}
}

// TestFoldAndChanges shows what a list of reports comes to: as if each was stored
// by itself, no fault twice, nothing written that stands there.
func TestFoldAndChanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before := fold(nil, rapid.SliceOfN(rapid.Custom(drawReport), 0, 6).Draw(t, "before"))
		reports := rapid.SliceOfN(rapid.Custom(drawReport), 0, 8).Draw(t, "reports")
		after := fold(before, reports)

		one := before
		for _, r := range reports {
			one = fold(one, []nodefault.Report{r})
		}
		if len(changes(one, after)) != 0 {
			t.Fatalf("one by one: %+v, together: %+v", one, after)
		}
		keys := map[string]bool{}
		for _, f := range after {
			if keys[nodefault.KeyOf(f)] {
				t.Fatalf("%s is there twice", nodefault.KeyOf(f))
			}
			keys[nodefault.KeyOf(f)] = true
		}
		if len(reports) > 0 {
			last(t, after, reports[len(reports)-1])
		}
		applied := before
		for _, c := range changes(before, after) {
			var next []v1alpha1.Fault
			for _, f := range applied {
				if nodefault.KeyOf(f) != nodefault.KeyOf(c.fault) {
					next = append(next, f)
				}
			}
			if !c.gone {
				next = append(next, c.fault)
			}
			applied = next
		}
		if len(changes(applied, after)) != 0 {
			t.Fatalf("the changes make %+v of %+v, want %+v", applied, before, after)
		}
		if len(changes(after, fold(after, nil))) != 0 {
			t.Fatal("nothing reported changes something")
		}
	})
}

// last shows that the last report has had its way.
func last(t *rapid.T, after []v1alpha1.Fault, r nodefault.Report) {
	f := find(after, r.Fault)
	if !r.Healthy {
		if f == nil || f.ObserveOnly && !r.Fault.ObserveOnly || f.ObserveOnly == r.Fault.ObserveOnly && r.Fault.Since.Before(&f.Since) {
			t.Fatalf("after %+v there is %+v", r.Fault, f)
		}
		return
	}
	for _, f := range after {
		if f.Source == r.Fault.Source && f.Check == r.Fault.Check && intake.Covers(r.Fault.Entity, f.Entity) && (f.ObserveOnly || !r.Fault.ObserveOnly) {
			t.Fatalf("%s outlives that it is well", nodefault.KeyOf(f))
		}
	}
}
