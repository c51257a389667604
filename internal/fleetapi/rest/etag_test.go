package rest_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/internal/fleetapi/rest"
)

// allETags returns the tags of a condition.
func allETags(l rest.ETagList) []string {
	var tags []string
	l.FindMatchingTag(func(value string) bool {
		tags = append(tags, value)
		return false
	})
	return tags
}

func TestParseETags(t *testing.T) {
	cases := map[string]struct {
		reason string
		lines  []string
		any    bool
		tags   []string
		allows string // of a and b
	}{
		"None":     {reason: "no condition allows everything", allows: "ab"},
		"One":      {lines: []string{`"a"`}, tags: []string{"a"}, allows: "a"},
		"Several":  {lines: []string{`"a", "b"`, `"c"`}, tags: []string{"a", "b", "c"}, allows: "ab"},
		"Weak":     {reason: "a weak tag is no good for a change", lines: []string{`W/"a", "b"`}, tags: []string{"a", "b"}, allows: "b"},
		"Any":      {lines: []string{"*"}, any: true, allows: "ab"},
		"Comma":    {reason: "a comma may be part of a tag", lines: []string{`"a,b" ,,	"b"`}, tags: []string{"a,b", "b"}, allows: "b"},
		"Empty":    {reason: "an empty header names nothing", lines: []string{""}},
		"EmptyTag": {lines: []string{`""`}, tags: []string{""}},
		"Bare":     {reason: "tags have quotes", lines: []string{`a`}},
		"Open":     {reason: "what was read before counts", lines: []string{`"a", "b`, `"b"`}, tags: []string{"a", "b"}, allows: "ab"},
		"WeakBare": {lines: []string{`W/a`}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			l := rest.ParseETagList(tc.lines)
			if diff := cmp.Diff(tc.tags, allETags(l)); diff != "" || l.Any != tc.any || l.Given != (tc.lines != nil) {
				t.Errorf("%+v (-want +got):\n%s%s", l, diff, tc.reason)
			}
			for _, value := range []string{"a", "b"} {
				if got, want := l.SatisfiesIfMatch(value), strings.Contains(tc.allows, value); got != want {
					t.Errorf("allows %s: %t, want %t: %s", value, got, want, tc.reason)
				}
			}
		})
	}
	if value, ok := rest.ParseETagList([]string{`"a", "b"`}).FindMatchingTag(func(v string) bool { return v == "b" }); value != "b" || !ok {
		t.Errorf("found %q, %t", value, ok)
	}
}

func FuzzParseETags(f *testing.F) {
	for _, s := range []string{`"a"`, `W/"a", *`, `"a,b`, `,"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		tags := allETags(rest.ParseETagList([]string{s}))
		quoted := make([]string, len(tags))
		for i, value := range tags {
			if strings.Contains(value, `"`) {
				t.Errorf("a tag with a quote in it: %q", value)
			}
			quoted[i] = rest.QuoteETag(value)
		}
		if again := allETags(rest.ParseETagList([]string{strings.Join(quoted, ", ")})); !slices.Equal(again, tags) {
			t.Errorf("%q and %q", tags, again)
		}
	})
}
