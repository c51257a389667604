package selector_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"

	"github.com/fleetloop/fleetloop/internal/selector"
)

func TestParse(t *testing.T) {
	cases := map[string]struct {
		reason string
		in     string
		want   string // the canonical form
	}{
		"Empty":        {"no text requires nothing", "", ""},
		"Blank":        {"nor does white space", " \t", ""},
		"Equals":       {"the plain form", "region=us-east", "region=us-east"},
		"DoubleEquals": {"two signs are one", "region == us-east", "region=us-east"},
		"NoValue":      {"the empty value is a value", "region=", "region="},
		"SetOfOne":     {"a set of one is an equality", "b in (x), a notin (y)", "a!=y,b=x"},
		"Set":          {"values are sorted and unique", "a in (z,x,z,y)", "a in (x,y,z)"},
		"EmptyInSet":   {"the empty value is kept in a set", "a in (,x)", "a in (,x)"},
		"Exists":       {"a label alone", "a , !b", "a,!b"},
		"Twice":        {"what is said twice is said once", "a=b,a=b,a==b", "a=b"},
		"Prefixed":     {"keys may have a prefix", "example.com/tier!=front", "example.com/tier!=front"},
		"Keywords":     {"words of the grammar are fine as names", "in in (in,notin),notin=in", "in in (in,notin),notin=in"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := selector.Parse(tc.in)
			if err != nil || got.String() != tc.want {
				t.Errorf("%s: Parse(%q) = %q, %v, want %q", tc.reason, tc.in, got, err, tc.want)
			}
			if got.Empty() != (tc.want == "") {
				t.Errorf("%s: Empty() = %t", tc.reason, got.Empty())
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	cases := map[string]struct {
		reason string
		in     string
		want   string // within the error
	}{
		"Key":          {"an invalid key", "ok=1,-bad=1", `parse selector "ok=1,-bad=1": column 6: `},
		"Value":        {"an invalid value", "ok in (a,b),  region=us/east", "column 15: "},
		"LongValue":    {"a value past the length of a label", "a=" + strings.Repeat("x", 64), "column 1: "},
		"TwoValues":    {"a second value after an equality", "a=b c", "column 1: found 'c'"},
		"OpenSet":      {"a set that is not closed", "a=b,c in (d", "column 5: "},
		"ClosedSet":    {"a bracket without its partner", "a=b),c", "column 1: "},
		"MissingLast":  {"a comma with nothing behind", "a=b, ", "column 6: a requirement is missing"},
		"MissingFirst": {"a comma with nothing before", ",a=b", "column 1: a requirement is missing"},
		"Comparison":   {"numeric comparison belongs to node affinity", "cores>4", `operator "gt" of label "cores" is not supported`},
		"NUL":          {"what is behind a NUL must not be dropped", "a=b \x00,c=d", "column 5: a NUL byte"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := selector.Parse(tc.in)
			if err == nil {
				t.Fatalf("%s: Parse(%q) = %q, want an error", tc.reason, tc.in, got)
			}
			if !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: Parse(%q) = %v, want it to say %q", tc.reason, tc.in, err, tc.want)
			}
		})
	}
}

func TestFromPairs(t *testing.T) {
	cases := map[string]struct {
		reason string
		in     []selector.Pair
		want   string
		err    string
	}{
		"None":     {reason: "no pair selects everything"},
		"Order":    {reason: "the order of the pairs does not matter", in: []selector.Pair{{"tier", "x"}, {"region", "us"}}, want: "region=us,tier=x"},
		"Twice":    {reason: "the same pair twice is one", in: []selector.Pair{{"a", "b"}, {"a", "b"}}, want: "a=b"},
		"Conflict": {reason: "nothing has two values", in: []selector.Pair{{"a", "b"}, {"a", "c"}}, err: `select by label "a": it cannot be both "b" and "c"`},
		"Value":    {reason: "nothing is escaped, so nothing slips in", in: []selector.Pair{{"a", "b,c=d"}}, err: `select by label "a": `},
		"Key":      {reason: "a label has a name", in: []selector.Pair{{"", "b"}}, err: `select by label "": `},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := selector.FromPairs(tc.in)
			if (err != nil) != (tc.err != "") || err != nil && !strings.HasPrefix(err.Error(), tc.err) {
				t.Fatalf("%s: FromPairs() error = %v, want %q", tc.reason, err, tc.err)
			}
			if got.String() != tc.want {
				t.Errorf("%s: FromPairs() = %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

func TestNewRefuses(t *testing.T) {
	cases := map[string]struct {
		reason string
		in     selector.Requirement
	}{
		"Op":      {"an operator that there is not", selector.Requirement{Key: "a", Op: "like", Values: []string{"b"}}},
		"NoOp":    {"no operator", selector.Requirement{Key: "a"}},
		"NoValue": {"a set without values", selector.Requirement{Key: "a", Op: selector.In}},
		"Two":     {"an equality with two values", selector.Requirement{Key: "a", Op: selector.Equals, Values: []string{"b", "c"}}},
		"Value":   {"a value where none belongs", selector.Requirement{Key: "a", Op: selector.Exists, Values: []string{"b"}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got, err := selector.New(tc.in); err == nil {
				t.Errorf("%s: New(%+v) = %q, want an error", tc.reason, tc.in, got)
			}
		})
	}
}

func TestMatchesWithoutLabel(t *testing.T) {
	s, err := selector.Parse("a!=x,b notin (x,y),!c")
	if err != nil {
		t.Fatal(err)
	}
	if !s.Matches(selector.Map(nil)) {
		t.Errorf("%q does not match a resource without labels; negations do", s)
	}
	if s.Matches(selector.Map{"a": "x"}) || s.Matches(selector.Map{"b": "y"}) || s.Matches(selector.Map{"c": ""}) {
		t.Errorf("%q matches what it excludes", s)
	}
	if !(selector.Selector{}).Matches(selector.Map{"a": "x"}) {
		t.Error("the zero selector does not select everything")
	}
}

// drawRequirement draws from few names and values, so that they collide.
func drawRequirement(t *rapid.T) selector.Requirement {
	r := selector.Requirement{
		Key: rapid.SampledFrom([]string{"a", "b", "example.com/c", "in", "notin"}).Draw(t, "key"),
		Op: rapid.SampledFrom([]selector.Op{
			selector.Equals, selector.NotEquals, selector.In, selector.NotIn, selector.Exists, selector.NotExists,
		}).Draw(t, "op"),
	}
	value := rapid.SampledFrom([]string{"", "x", "y", "in", "notin", "1.0", "A_b"})
	switch r.Op {
	case selector.Equals, selector.NotEquals:
		r.Values = []string{value.Draw(t, "value")}
	case selector.In, selector.NotIn:
		r.Values = rapid.SliceOfN(value, 1, 4).Draw(t, "values")
	case selector.Exists, selector.NotExists:
	}
	return r
}

// TestAgreesWithKubernetes compares with the library's own matching.
func TestAgreesWithKubernetes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		reqs := rapid.SliceOfN(rapid.Custom(drawRequirement), 0, 4).Draw(t, "requirements")
		s, err := selector.New(reqs...)
		if err != nil {
			t.Fatal(err)
		}
		again, err := selector.Parse(s.String())
		if err != nil {
			t.Fatalf("Parse(%q), which New wrote: %v", s, err)
		}
		if diff := cmp.Diff(s.Requirements(), again.Requirements()); diff != "" {
			t.Fatalf("%q reads back as another selector (-want +got):\n%s", s, diff)
		}
		texts := make([]string, len(reqs))
		for i, r := range reqs {
			texts[i] = r.String()
		}
		theirs, err := labels.Parse(strings.Join(texts, ","))
		if err != nil {
			t.Fatal(err)
		}
		set := rapid.MapOfN(
			rapid.SampledFrom([]string{"a", "b", "example.com/c", "in", "notin"}),
			rapid.SampledFrom([]string{"", "x", "y", "in", "1.0"}), 0, 5,
		).Draw(t, "labels")
		if got, want := s.Matches(selector.Map(set)), theirs.Matches(labels.Set(set)); got != want {
			t.Fatalf("%q matches %v: %t, and in Kubernetes %t", s, set, got, want)
		}
	})
}

func TestMatchesAllocatesNothing(t *testing.T) {
	s, err := selector.Parse("region in (us-east,us-west),tier!=test,!retired")
	if err != nil {
		t.Fatal(err)
	}
	var l selector.Labels = selector.Map{"region": "us-west", "tier": "prod"}
	if n := testing.AllocsPerRun(100, func() { s.Matches(l) }); n != 0 {
		t.Errorf("Matches allocates %.0f times, want none", n)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "a=b", "a in (b,,c),!d", "a notin ()", "x=in,in=x", "a>1", "a=b \x00,c", "(", ",,", "a=ü"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		s, err := selector.Parse(in)
		if err != nil {
			if !strings.Contains(err.Error(), "column") && !strings.Contains(err.Error(), "not supported") {
				t.Errorf("Parse(%q) = %v, which does not say where", in, err)
			}
			return
		}
		again, err := selector.Parse(s.String())
		if err != nil || again.String() != s.String() {
			t.Errorf("Parse(%q) = %q, which reads back as %q, %v", in, s, again, err)
		}
	})
}
