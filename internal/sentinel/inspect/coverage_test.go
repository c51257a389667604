package inspect_test

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/selector"
	"github.com/fleetloop/fleetloop/internal/sentinel/inspect"
)

func cover(t *testing.T, watches ...*inspect.Watch) *inspect.CoverageReport {
	t.Helper()
	r, err := inspect.CheckCoverage(t.Context(), watches, inspect.AllCollections(), func(string, int) {})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// groups returns groups in readable form, for comparison.
func groups(list []inspect.Group) []string {
	var texts []string
	for _, g := range list {
		var parts []string
		for _, l := range g.Labels {
			if l.Value == nil {
				parts = append(parts, l.Label+" missing")
			} else {
				parts = append(parts, l.Label+"="+*l.Value)
			}
		}
		text := fmt.Sprintf("%s (%d) %s", strings.Join(parts, ","), g.Resources, g.Example)
		if g.Others {
			text = fmt.Sprintf("others (%d)", g.Resources)
		}
		if len(g.Configs) > 0 {
			text = strings.Join(g.Configs, "+") + ": " + text
		}
		texts = append(texts, text)
	}
	return texts
}

func TestCoverage(t *testing.T) {
	day := 24 * time.Hour
	region := func(id string, labels ...string) v1.Resource { return resource(id, v1.PhaseReady, day, labels...) }
	deleted := func(r v1.Resource) v1.Resource { r.DeletedTime = &r.CreatedTime; return r }
	cases := map[string]struct {
		reason         string
		clusters       []v1.Resource
		selectors      []string
		proven         bool
		gaps, overlaps []string
		alone          []int
	}{
		"Proven": {
			reason:    "each resource is of one configuration, one that is being deleted as well",
			clusters:  []v1.Resource{region("a", "region=eu"), region("b", "region=us"), deleted(region("c", "region=us"))},
			selectors: []string{"region=eu", "region=us"},
			proven:    true,
			alone:     []int{1, 2},
		},
		"Gaps": {
			reason: "what nobody selects is told by the labels that the selectors mention",
			clusters: []v1.Resource{
				region("a", "region=eu"), region("b", "region=ap", "tier=gold"), region("c", "region=ap"), region("d"), deleted(region("e", "region=")),
			},
			selectors: []string{"region=eu", "region=us"},
			gaps:      []string{"region=ap (2) b", "region missing (1) d", "region= (1) e"},
			alone:     []int{1, 0},
		},
		"Overlaps": {
			reason:    "what several select is told by who they are",
			clusters:  []v1.Resource{region("a", "region=eu", "tier=gold"), region("b", "region=eu"), region("c", "tier=gold")},
			selectors: []string{"region=eu", "tier=gold", "tier"},
			overlaps:  []string{"0.yaml+1.yaml+2.yaml: region=eu,tier=gold (1) a", "1.yaml+2.yaml: region missing,tier=gold (1) c"},
			alone:     []int{1, 0, 0},
		},
		"Everything": {
			reason:    "without a selector all is selected, and there are no labels to tell by",
			clusters:  []v1.Resource{region("a"), region("b")},
			selectors: []string{"", ""},
			overlaps:  []string{"0.yaml+1.yaml:  (2) a"},
			alone:     []int{0, 0},
		},
		"Nothing": {
			reason:    "an empty collection is covered",
			selectors: []string{"region=eu"},
			proven:    true,
			alone:     []int{0},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet()
				f.put(v1.CollectionClusters, tc.clusters...)
				var watches []*inspect.Watch
				for i, sel := range tc.selectors {
					watches = append(watches, watch(t, fmt.Sprint(i, ".yaml"), f, sel))
				}
				r := cover(t, watches...)
				found := r.Collections[0]
				if r.Proven != tc.proven || found.Resources != len(tc.clusters) {
					t.Errorf("%s: proven is %t for %d resources", tc.reason, r.Proven, found.Resources)
				}
				if diff := cmp.Diff(tc.gaps, groups(found.Gaps)); diff != "" {
					t.Errorf("%s: gaps (-want +got):\n%s", tc.reason, diff)
				}
				if diff := cmp.Diff(tc.overlaps, groups(found.Overlaps)); diff != "" {
					t.Errorf("%s: overlaps (-want +got):\n%s", tc.reason, diff)
				}
				for i, want := range tc.alone {
					if r.Configs[i].Alone != want {
						t.Errorf("%s selects %d alone, want %d", r.Configs[i].Name, r.Configs[i].Alone, want)
					}
				}
				if found.At.IsZero() || found.WalkOnly != "" {
					t.Errorf("it does not hold at an instant: %q", found.WalkOnly)
				}
			})
		})
	}
}

// TestCoverageLooksAtAllCollections: what no configuration names may be there
// all the same.
func TestCoverageLooksAtAllCollections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		f.put(v1.CollectionClusters, resource("a", v1.PhaseReady, 0))
		f.put(v1.CollectionNodePools, resource("p", v1.PhaseReady, 0), resource("q", v1.PhaseReady, 0))
		f.put(v1.CollectionManifests)
		other := newFleet()
		other.put(v1.CollectionNodePools, resource("x", v1.PhaseReady, 0))
		elsewhere := watch(t, "other.yaml", other, "")
		elsewhere.Endpoint, elsewhere.Collection = "http://other.example", v1.CollectionNodePools
		r := cover(t, watch(t, "all.yaml", f, ""), elsewhere)
		var got []string
		for _, c := range r.Collections {
			got = append(got, fmt.Sprintf("%s %s served=%t %d of %d %v", c.Endpoint, c.Collection, c.Served, c.Unwatched, c.Resources, c.Configs))
		}
		want := []string{
			"http://fleet.example clusters served=true 0 of 1 [all.yaml]",
			"http://fleet.example nodepools served=true 2 of 2 []",
			"http://fleet.example manifests served=true 0 of 0 []",
			"http://fleet.example workloads served=false 0 of 0 []",
			"http://other.example clusters served=false 0 of 0 []",
			"http://other.example nodepools served=true 0 of 1 [other.yaml]",
			"http://other.example manifests served=false 0 of 0 []",
			"http://other.example workloads served=false 0 of 0 []",
		}
		if diff := cmp.Diff(want, got); diff != "" || r.Proven {
			t.Errorf("proven is %t (-want +got):\n%s", r.Proven, diff)
		}
		if diff := cmp.Diff([]string{" (2) p"}, groups(r.Collections[1].Gaps)); diff != "" {
			t.Errorf("gaps (-want +got):\n%s", diff)
		}
	})
}

// TestCoverageOfAWatchedCollectionThatIsNotServed: a configuration that
// watches nothing is a mistake.
func TestCoverageOfAWatchedCollectionThatIsNotServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, err := inspect.CheckCoverage(t.Context(), []*inspect.Watch{watch(t, "all.yaml", newFleet(), "")}, inspect.AllCollections(), func(string, int) {})
		if err == nil || !strings.Contains(err.Error(), "clusters of http://fleet.example") {
			t.Errorf("got %v, want an error that names the collection", err)
		}
	})
}

// A page is an API with one page of clusters, and nothing else.
type page string

func (p page) ListPage(_ context.Context, path string, _ url.Values, dst []byte) ([]byte, error) {
	if path != v1.CollectionClusters {
		return nil, statusError(404)
	}
	return append(dst[:0], p...), nil
}

func (p page) ListPageIf(ctx context.Context, path string, q url.Values, _ string, dst []byte) ([]byte, io.ReadCloser, string, error) {
	body, err := p.ListPage(ctx, path, q, dst)
	return body, nil, "", err
}

// TestCoverageOfMalformedResources: what no sentinel can read is not covered.
func TestCoverageOfMalformedResources(t *testing.T) {
	r := cover(t, watch(t, "all.yaml", page(`{"items":[{"id":"a"},{"name":"no id"},7,{"id":"b","generation":"x"}]}`), ""))
	if c := r.Collections[0]; r.Proven || c.Resources != 4 || c.Unreadable != 3 || r.Configs[0].Alone != 1 {
		t.Errorf("proven is %t with %d of %d unreadable", r.Proven, c.Unreadable, c.Resources)
	}
}

// TestCoverageSaysWhatItRestsOn: without changes to read it holds for the walk.
func TestCoverageSaysWhatItRestsOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		f.put(v1.CollectionClusters, resource("a", v1.PhaseReady, 0))
		f.quiet = true
		if c := cover(t, watch(t, "all.yaml", f, "")).Collections[0]; !c.At.IsZero() || c.WalkOnly == "" {
			t.Errorf("it holds at %s, because %q", c.At, c.WalkOnly)
		}
		f.quiet = false
		f.before = func(_ string, q url.Values) error {
			if q.Has("changed_since") {
				return statusError(410)
			}
			return nil
		}
		if c := cover(t, watch(t, "all.yaml", f, "")).Collections[0]; !c.At.IsZero() || !strings.Contains(c.WalkOnly, "410") {
			t.Errorf("it holds at %s, because %q", c.At, c.WalkOnly)
		}
	})
}

// TestCoverageIsBounded checks that a fleet with a different label on each resource does not
// produce a report of its size.
func TestCoverageIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		for i := range 600 {
			f.put(v1.CollectionClusters, resource(fmt.Sprintf("c%04d", i), v1.PhaseReady, 0, fmt.Sprint("owner=", i)))
		}
		w := watch(t, "none.yaml", f, "owner=nobody")
		w.PageSize = 500
		c := cover(t, w).Collections[0]
		if c.Unwatched != 600 || len(c.Gaps) != 201 {
			t.Fatalf("%d unwatched in %d groups, want 600 in 201", c.Unwatched, len(c.Gaps))
		}
		if last := c.Gaps[200]; !last.Others || last.Resources != 400 || last.Example == "" {
			t.Errorf("the last group is %+v, want 400 others with an example", last)
		}
	})
}

// TestCoverageIsWhatCountingSays: whatever selectors and labels there are, and
// whatever changes while the fleet is read, the report is what the fleet that
// is there in the end says by brute force.
func TestCoverageIsWhatCountingSays(t *testing.T) {
	selectors := []string{
		"", "a", "!a", "a=1", "a!=1", "a in (1,2)", "a notin (1)", "a=1,b=2", "b", "!b", "b=1", "a=2,!b", "a,b",
	}
	rapid.Check(t, func(rt *rapid.T) {
		anyLabels := rapid.Custom(func(t *rapid.T) map[string]string {
			labels := map[string]string{}
			for _, key := range []string{"a", "b", "c"} {
				if v := rapid.IntRange(0, 3).Draw(t, key); v > 0 {
					labels[key] = fmt.Sprint(v)
				}
			}
			return labels
		})
		anyResource := rapid.Custom(func(t *rapid.T) v1.Resource {
			return v1.Resource{ID: fmt.Sprintf("r%02d", rapid.IntRange(0, 25).Draw(t, "id")), Labels: anyLabels.Draw(t, "labels"), Generation: 1}
		})
		f := newFleet()
		f.put(v1.CollectionClusters, rapid.SliceOfN(anyResource, 0, 20).Draw(rt, "resources")...)
		// The change before each request, if any.
		script := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) func() {
			r := anyResource.Draw(t, "resource")
			return rapid.SampledFrom([]func(){
				func() {},
				func() { f.put(v1.CollectionClusters, r) },
				func() { f.remove(v1.CollectionClusters, r.ID) },
			}).Draw(t, "what")
		}), 0, 10).Draw(rt, "script")
		f.before = func(string, url.Values) error {
			if n := len(f.requests) - 1; n < len(script) {
				script[n]()
			}
			return nil
		}
		chosen := rapid.SliceOfN(rapid.SampledFrom(selectors), 1, 4).Draw(rt, "selectors")
		var watches []*inspect.Watch
		for i, sel := range chosen {
			watches = append(watches, watch(rt, fmt.Sprint(i), f, sel))
		}
		r, err := inspect.CheckCoverage(t.Context(), watches, []string{v1.CollectionClusters}, func(string, int) {})
		if err != nil {
			rt.Fatal(err)
		}
		got := r.Collections[0]
		wantGaps, wantOverlaps := byBruteForce(f, watches)
		if diff := cmp.Diff(wantGaps, tally(got.Gaps)); diff != "" {
			rt.Fatalf("gaps (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(wantOverlaps, tally(got.Overlaps)); diff != "" {
			rt.Fatalf("overlaps (-want +got):\n%s", diff)
		}
		if proven := len(wantGaps)+len(wantOverlaps) == 0; r.Proven != proven || got.At.IsZero() {
			rt.Fatalf("proven is %t, want %t, at %s", r.Proven, proven, got.At)
		}
		for _, g := range append(got.Gaps, got.Overlaps...) {
			if _, ok := f.collections[v1.CollectionClusters][g.Example]; !ok {
				rt.Fatalf("the example %q of %+v is not there", g.Example, g)
			}
		}
	})
}

// byBruteForce counts gaps and overlaps by watches and labels.
func byBruteForce(f *fleet, watches []*inspect.Watch) (gaps, overlaps map[string]int) {
	gaps, overlaps = map[string]int{}, map[string]int{}
	mentioned := map[string]bool{}
	for _, w := range watches {
		for _, r := range w.Selector.Requirements() {
			mentioned[r.Key] = true
		}
	}
	for _, r := range f.collections[v1.CollectionClusters] {
		var by []string
		for _, w := range watches {
			if w.Selector.Matches(selector.Map(r.Labels)) {
				by = append(by, w.Name)
			}
		}
		key := strings.Join(by, "+") + ":"
		for _, label := range []string{"a", "b", "c"} {
			if value, ok := r.Labels[label]; mentioned[label] && ok {
				key += " " + label + "=" + value
			} else if mentioned[label] {
				key += " no " + label
			}
		}
		switch len(by) {
		case 0:
			gaps[key]++
		case 1:
		default:
			overlaps[key]++
		}
	}
	return gaps, overlaps
}

// tally returns the counts of a report, in the form of byBruteForce.
func tally(list []inspect.Group) map[string]int {
	counts := map[string]int{}
	for _, g := range list {
		key := strings.Join(g.Configs, "+") + ":"
		for _, l := range g.Labels {
			if l.Value != nil {
				key += " " + l.Label + "=" + *l.Value
			} else {
				key += " no " + l.Label
			}
		}
		counts[key] += g.Resources
	}
	return counts
}
