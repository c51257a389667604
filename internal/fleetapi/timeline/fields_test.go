package timeline

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/changeevent"
)

func TestDiffFields(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reason        string
		before, after string
		want          []string
	}{
		"Same":        {"nothing was changed", `{"a":1,"b":[1]}`, `{"b":[1],"a":1}`, nil},
		"Value":       {"a field", `{"version":"1.34","x":1}`, `{"version":"1.35","x":1}`, []string{`spec.version "1.34" "1.35"`}},
		"Nested":      {"a field of a field", `{"a":{"b":{"c":1,"d":2}}}`, `{"a":{"b":{"c":3,"d":2}}}`, []string{`spec.a.b.c 1 3`}},
		"Set":         {"a field that was not set", `{}`, `{"a":{"b":1,"c":null}}`, []string{`spec.a.b - 1`, `spec.a.c - null`}},
		"Removed":     {"a field that is not set any more", `{"a":{"b":1}}`, `{}`, []string{`spec.a.b 1 -`}},
		"Empty":       {"an object without members is a value", `{}`, `{"a":{}}`, []string{`spec.a - {}`}},
		"Emptied":     {"its members went", `{"a":{"b":1}}`, `{"a":{}}`, []string{`spec.a.b 1 -`}},
		"Type":        {"a value of another type", `{"a":1}`, `{"a":{"b":1}}`, []string{`spec.a 1 {"b":1}`}},
		"Item":        {"an item of a list", `{"w":[{"n":"a","max":1},{"n":"b","max":1}]}`, `{"w":[{"n":"a","max":1},{"n":"b","max":9}]}`, []string{`spec.w[1].max 1 9`}},
		"List":        {"a list of another length", `{"z":["a"]}`, `{"z":["a","b"]}`, []string{`spec.z ["a"] ["a","b"]`}},
		"Number":      {"numbers are not rounded", `{"n":12345678901234567890}`, `{"n":12345678901234567891}`, []string{`spec.n 12345678901234567890 12345678901234567891`}},
		"Created":     {"there was none", ``, `{"b":1,"a":2}`, []string{`spec.a - 2`, `spec.b - 1`}},
		"CreatedNone": {"there was none, and there is none", ``, `{}`, nil},
		"Gone":        {"there is none any more", `{"a":1}`, ``, []string{`spec.a 1 -`}},
		"NoJSON":      {"what others have put there", `{`, `{}`, []string{`spec { {}`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, f := range DiffJSONFields("spec", json.RawMessage(c.before), json.RawMessage(c.after)) {
				value := func(raw json.RawMessage) string {
					if len(raw) == 0 {
						return "-"
					}
					return string(raw)
				}
				got = append(got, f.Field+" "+value(f.Before)+" "+value(f.After))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
		})
	}
}

func TestFieldKeys(t *testing.T) {
	t.Parallel()
	deep := "a" + strings.Repeat(".a", 60)
	for field, want := range map[string][]string{
		"spec":                       {"spec"},
		"spec.version":               {"spec", "spec.version"},
		"spec.workers[12].maximum":   {"spec", "spec.workers", "spec.workers.maximum"},
		"spec.m[0][1]":               {"spec", "spec.m"},
		"labels.app.kubernetes.io/x": {"labels", "labels.app", "labels.app.kubernetes", "labels.app.kubernetes.io/x"},
		"spec.x[y].z":                {"spec", "spec.x[y]", "spec.x[y].z"},
		"spec.x[1":                   {"spec", "spec.x[1"},
		".":                          {"."},
		"":                           {},
	} {
		if diff := cmp.Diff(want, fieldPathsWithParents([]changeevent.FieldChange{{Field: field}, {Field: field}})); diff != "" {
			t.Errorf("%q (-want +got):\n%s", field, diff)
		}
	}
	keys := fieldPathsWithParents([]changeevent.FieldChange{{Field: deep}})
	if len(keys) != maxKeyDepth+1 || !slices.Contains(keys, deep) {
		t.Errorf("%d keys of a path of 61 steps", len(keys))
	}
}
