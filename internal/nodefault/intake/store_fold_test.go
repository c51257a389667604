package intake

import (
	"errors"
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
		DetectedAt:  metav1.NewMicroTime(testNow().Add(-time.Duration(rapid.IntRange(0, 9).Draw(t, "since")) * time.Second)),
		GeneratedAt: rapid.SampledFrom([]*metav1.MicroTime{nil, ago(1), ago(5), ago(30)}).Draw(t, "generated"),
	}}
}

// TestFoldAndChanges verifies the result of a list of reports: as if each was stored
// separately, without duplicate faults and without writes of unchanged ones.
func TestFoldAndChanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before, _ := applyReports(nodeState{}, rapid.SliceOfN(rapid.Custom(drawReport), 0, 6).Draw(t, "before"), testNow())
		reports := rapid.SliceOfN(rapid.Custom(drawReport), 0, 8).Draw(t, "reports")
		after, errs := applyReports(before, reports, testNow())

		one := before
		for _, r := range reports {
			one, _ = applyReports(one, []nodefault.Report{r}, testNow())
		}
		if diff := cmp.Diff(one, after, cmp.AllowUnexported(nodeState{})); diff != "" {
			t.Fatalf("one by one and together (-one +together):\n%s", diff)
		}
		keys := map[string]bool{}
		for _, f := range after.faults {
			if keys[nodefault.KeyOf(f)] {
				t.Fatalf("%s is there twice", nodefault.KeyOf(f))
			}
			keys[nodefault.KeyOf(f)] = true
		}
		if last := len(reports) - 1; last >= 0 && errs[last] == nil {
			wantLastReport(t, after.faults, reports[last])
		}
		applied := before
		for _, c := range diffStates(before, after) {
			applied = applyChange(applied, c)
			if most := max(len(before.ended), len(after.ended)); len(applied.ended) > most {
				t.Fatalf("after a change there are %d ends, at most %d are needed", len(applied.ended), most)
			}
		}
		if changes := diffStates(applied, after); len(changes) != 0 {
			t.Fatalf("the changes make %+v of %+v, want %+v", applied, before, after)
		}
		if same, _ := applyReports(after, nil, testNow()); len(diffStates(after, same)) != 0 {
			t.Fatal("nothing reported changes something")
		}
	})
}

// applyChange returns a state after a change, as the field manager of its fault would write it.
func applyChange(s nodeState, c faultChange) (after nodeState) {
	for _, f := range s.faults {
		if nodefault.KeyOf(f) != nodefault.KeyOf(c.id) {
			after.faults = append(after.faults, f)
		}
	}
	for _, e := range s.ended {
		if !isEndOf(e, c.id) {
			after.ended = append(after.ended, e)
		}
	}
	if c.fault != nil {
		after.faults = append(after.faults, *c.fault)
	}
	if c.end != nil {
		after.ended = append(after.ended, *c.end)
	}
	return after
}

// TestReportOrder verifies that reports which are delayed or repeated have no effect after a later one that had one. A
// source reports a fault and its end by turns. Each report arrives at least once in order, or never.
func TestReportOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var sent, arriving []nodefault.Report
		for i := range rapid.IntRange(1, 6).Draw(t, "reports") {
			// As far apart as the precision of a repeat.
			sent = append(sent, newTimedReport(i%2 == 1, 100-12*i))
			if i == 0 || rapid.Bool().Draw(t, "arrives") {
				arriving = append(arriving, sent[i])
			}
		}
		var want nodeState
		var last *metav1.MicroTime // of the last report that changed something
		for _, r := range arriving {
			next, errs := applyReports(want, []nodefault.Report{r}, testNow())
			if errs[0] != nil {
				t.Fatalf("in order: %v", errs[0])
			}
			if len(diffStates(want, next)) > 0 {
				last = r.Fault.GeneratedAt
			}
			want = next
		}
		var late []nodefault.Report
		for _, r := range rapid.SliceOfN(rapid.SampledFrom(sent), 1, 4).Draw(t, "late") {
			if !last.Before(r.Fault.GeneratedAt) {
				late = append(late, r)
			}
		}
		got, _ := applyReports(want, late, testNow())
		if diff := cmp.Diff(keysOf(want.faults), keysOf(got.faults)); diff != "" {
			t.Fatalf("faults after %d late reports (-want +got):\n%s", len(late), diff)
		}
	})
}

func keysOf(faults []v1alpha1.Fault) (keys []string) {
	for _, f := range faults {
		keys = append(keys, nodefault.KeyOf(f))
	}
	return keys
}

func testNow() time.Time { return time.Unix(1_800_000_000, 0).UTC() }

func ago(seconds int) *metav1.MicroTime {
	at := metav1.NewMicroTime(testNow().Add(-time.Duration(seconds) * time.Second))
	return &at
}

// newTimedReport returns a report of a source with a clock.
func newTimedReport(healthy bool, secondsAgo int) nodefault.Report {
	return nodefault.Report{Node: "n1", Healthy: healthy, Fault: v1alpha1.Fault{
		Source: "a", Check: "x", Entity: "GPU/0", DetectedAt: *ago(secondsAgo), GeneratedAt: ago(secondsAgo),
	}}
}

// TestOutdatedReports verifies which reports are rejected because a later one is stored.
func TestOutdatedReports(t *testing.T) {
	t.Parallel()
	fault := func(secondsAgo int) nodefault.Report { return newTimedReport(false, secondsAgo) }
	healthy := func(secondsAgo int) nodefault.Report { return newTimedReport(true, secondsAgo) }
	untimed := func(r nodefault.Report) nodefault.Report { r.Fault.GeneratedAt = nil; return r }
	fatal := func(r nodefault.Report) nodefault.Report { r.Fault.Fatal = true; return r }
	whole := func(r nodefault.Report) nodefault.Report { r.Fault.Entity = ""; return r }
	another := func(r nodefault.Report) nodefault.Report { r.Fault.Entity = "GPU/1"; return r }
	for name, tc := range map[string]struct {
		reason   string
		reports  []nodefault.Report
		rejected bool // the last report
		faults   int
	}{
		"LateFault":         {"the fault is over", []nodefault.Report{fault(30), healthy(20), fault(30)}, true, 0},
		"LateHealthy":       {"the fault came again", []nodefault.Report{fault(30), healthy(20), fault(10), healthy(20)}, true, 1},
		"LostHealthy":       {"the healthy report was never stored in time", []nodefault.Report{fault(100), fault(80), healthy(90)}, true, 1},
		"LateWhole":         {"a report about all entities is late, too", []nodefault.Report{fault(10), whole(healthy(20))}, true, 1},
		"LateAndLess":       {"an older report does not replace a later one", []nodefault.Report{fatal(fault(70)), fault(75)}, true, 1},
		"NewFault":          {"a fault can come again", []nodefault.Report{fault(30), healthy(20), fault(10)}, false, 1},
		"SameTime":          {"order of arrival at the same time", []nodefault.Report{fault(20), healthy(20)}, false, 0},
		"AnotherEntity":     {"the end of one fault says nothing about another", []nodefault.Report{fault(30), healthy(20), another(fault(30))}, false, 1},
		"UntimedFault":      {"order of arrival without a time", []nodefault.Report{fault(30), healthy(20), untimed(fault(30))}, false, 1},
		"UntimedHealthy":    {"order of arrival without a time", []nodefault.Report{fault(10), untimed(healthy(20))}, false, 0},
		"UntimedEnd":        {"the end has no time", []nodefault.Report{fault(30), untimed(healthy(20)), fault(30)}, false, 1},
		"UntimedBefore":     {"the stored fault has no time", []nodefault.Report{untimed(fault(10)), healthy(20)}, false, 0},
		"RebootedNode":      {"the clock of a rebooted node is behind", []nodefault.Report{fault(10), healthy(601)}, false, 0},
		"LateButPlausible":  {"the limit itself", []nodefault.Report{fault(10), healthy(600)}, true, 1},
		"TwiceOver":         {"the last end counts", []nodefault.Report{fault(50), healthy(40), fault(30), healthy(20), fault(25)}, true, 0},
		"ClockOfController": {"a controller whose clock is behind cannot tell", []nodefault.Report{fault(-90), healthy(-100)}, false, 0},
		"EndInTheFuture":    {"the clock of the node was ahead and is right again", []nodefault.Report{fault(-100), healthy(-90), fault(5)}, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to, errs := applyReports(nodeState{}, tc.reports, testNow())
			for i, err := range errs {
				wantErr := tc.rejected && i == len(errs)-1
				if errors.Is(err, ErrOutdated) != wantErr {
					t.Errorf("%s: report %d: %v", tc.reason, i, err)
				}
			}
			if len(to.faults) != tc.faults || tc.rejected && len(to.faults) > 0 && to.faults[0].Fatal != tc.reports[0].Fault.Fatal {
				t.Errorf("%s: faults %+v", tc.reason, to.faults)
			}
		})
	}
}

// TestRepeatsAreRarelyWritten verifies that a repeat that changes nothing is written only for its time.
func TestRepeatsAreRarelyWritten(t *testing.T) {
	t.Parallel()
	stored, _ := applyReports(nodeState{}, []nodefault.Report{newTimedReport(false, 60)}, testNow())
	for secondsAgo, writes := range map[int]int{60: 0, 51: 0, 50: 1, 40: 1} {
		after, _ := applyReports(stored, []nodefault.Report{newTimedReport(false, secondsAgo)}, testNow())
		if got := len(diffStates(stored, after)); got != writes {
			t.Errorf("a repeat after %d seconds: %d writes, want %d", 60-secondsAgo, got, writes)
		}
	}
}

// TestEndedFaultsAreLimited verifies that the schema's maximum is kept, and that the latest ends are.
func TestEndedFaultsAreLimited(t *testing.T) {
	t.Parallel()
	var s nodeState
	for i := range 2 * maxFaults {
		s.recordEnd(v1alpha1.Fault{Source: "a", Check: fmt.Sprint(i)}, *ago(2*maxFaults - (i+7)%(2*maxFaults)))
	}
	for _, e := range s.ended {
		if age := testNow().Sub(e.GeneratedAt.Time); age > maxFaults*time.Second {
			t.Errorf("the end of %s was %s ago and is kept", e.Check, age)
		}
	}
	if len(s.ended) != maxFaults {
		t.Errorf("%d ends are kept", len(s.ended))
	}
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
