package intake

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/nodefault"
)

func drawReport(t *rapid.T) nodefault.Report {
	return nodefault.Report{Node: "n1", Healthy: rapid.Bool().Draw(t, "healthy"), Fault: v1alpha1.Fault{
		Source: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "source"), Check: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "check"),
		Entity: rapid.SampledFrom([]string{"", "GPU/0", "GPU/1", "GPU/0,GPU/1"}).Draw(t, "entity"), ObserveOnly: rapid.Bool().Draw(t, "observe"),
		DetectedAt: metav1.NewMicroTime(time.Unix(int64(rapid.IntRange(0, 9).Draw(t, "since")), 0)),
	}}
}

// TestFoldAndChanges verifies the result of a list of reports: as if each was stored
// separately, without duplicate faults and without writes of unchanged ones.
func TestFoldAndChanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before := applyReportsToFaults(nil, rapid.SliceOfN(rapid.Custom(drawReport), 0, 6).Draw(t, "before"))
		reports := rapid.SliceOfN(rapid.Custom(drawReport), 0, 8).Draw(t, "reports")
		after := applyReportsToFaults(before, reports)

		one := before
		for _, r := range reports {
			one = applyReportsToFaults(one, []nodefault.Report{r})
		}
		if len(diffFaults(one, after)) != 0 {
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
			wantLastReport(t, after, reports[len(reports)-1])
		}
		applied := before
		for _, c := range diffFaults(before, after) {
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
		if len(diffFaults(applied, after)) != 0 {
			t.Fatalf("the changes make %+v of %+v, want %+v", applied, before, after)
		}
		if len(diffFaults(after, applyReportsToFaults(after, nil))) != 0 {
			t.Fatal("nothing reported changes something")
		}
	})
}

// wantLastReport verifies that the last report takes effect.
func wantLastReport(t *rapid.T, after []v1alpha1.Fault, r nodefault.Report) {
	f := findFaultByKey(after, r.Fault)
	if !r.Healthy {
		if f == nil || f.ObserveOnly && !r.Fault.ObserveOnly || f.ObserveOnly == r.Fault.ObserveOnly && r.Fault.DetectedAt.Before(&f.DetectedAt) {
			t.Fatalf("after %+v there is %+v", r.Fault, f)
		}
		return
	}
	for _, f := range after {
		if f.Source == r.Fault.Source && f.Check == r.Fault.Check && CoversEntities(r.Fault.Entity, f.Entity) && (f.ObserveOnly || !r.Fault.ObserveOnly) {
			t.Fatalf("%s outlives that it is well", nodefault.KeyOf(f))
		}
	}
}

// TestFitFaults verifies which faults of a node are kept at the maximum.
func TestFitFaults(t *testing.T) {
	t.Parallel()
	some := func(source string, n int, change func(*v1alpha1.Fault)) []v1alpha1.Fault {
		var all []v1alpha1.Fault
		for i := range n {
			f := v1alpha1.Fault{Source: source, Check: fmt.Sprintf("c%02d", i)}
			if change != nil {
				change(&f)
			}
			all = append(all, f)
		}
		return all
	}
	fatal := func(f *v1alpha1.Fault) { f.Fatal = true }
	for name, tc := range map[string]struct {
		reason    string
		was, come []v1alpha1.Fault
		left      []string
	}{
		"Room":     {"there is a place", some("chatty", 63, nil), some("new", 1, nil), nil},
		"Noise":    {"what does not count displaces nothing", some("chatty", 64, nil), some("new", 1, nil), []string{"new/c00/"}},
		"Fatal":    {"what counts displaces the last that does not", some("chatty", 64, nil), some("new", 2, fatal), []string{"chatty/c63/", "chatty/c62/"}},
		"Quiet":    {"a chatty source makes room, and not another", append(some("chatty", 60, nil), some("quiet", 4, nil)...), some("new", 1, fatal), []string{"chatty/c59/"}},
		"Together": {"what is new and does not count goes first", some("chatty", 63, nil), append(some("new", 1, fatal), some("other", 1, nil)...), []string{"other/c00/"}},
		"Full":     {"what counts is not displaced", some("chatty", 64, fatal), some("new", 1, fatal), []string{"new/c00/"}},
		"Forced":   {"what a source has done counts", append(some("forced", 63, func(f *v1alpha1.Fault) { f.QuarantineOverride = v1alpha1.OverrideForce }), some("z", 1, nil)...), some("new", 1, fatal), []string{"z/c00/"}},
		"Observed": {"a fatal fault that is only to be known of does not count", some("watcher", 64, func(f *v1alpha1.Fault) { f.Fatal, f.ObserveOnly = true, true }), some("new", 1, fatal), []string{"watcher/c63/"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kept, left := removeFaultsOverMaximum(tc.was, append(slices.Clone(tc.was), tc.come...))
			var keys []string
			for _, f := range left {
				keys = append(keys, nodefault.KeyOf(f))
			}
			if diff := cmp.Diff(tc.left, keys); diff != "" || len(kept)+len(left) != len(tc.was)+len(tc.come) {
				t.Errorf("%s: %d are kept, left out are (-want +got)\n%s", tc.reason, len(kept), diff)
			}
		})
	}
}
