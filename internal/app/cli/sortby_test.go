package cli

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// TestSortBy sorts lists by numbers, texts and times. Resources without the field come first.
func TestSortBy(t *testing.T) {
	t.Parallel()
	f := newSyncs()
	for n, spec := range []string{
		`{"n":10, "version":"1.10", "until":"2026-03-01T12:00:00.25Z"}`, `{"n":9, "version":"1.9", "until":"2026-03-01T12:00:00.5Z"}`,
		`{"n":"x", "on":true, "version":"v1.2", "until":"2026-03-01T12:00:00Z"}`, `{}`,
		`{"n":-1.5, "version":"1.10.1", "until":"2026-03-01T14:00:00+03:00"}`, `{"n":null}`, `{"n":[1]}`,
	} {
		f.items[n].Spec = json.RawMessage(spec)
		f.items[n].CreatedTime = now.Add(-time.Duration(n*n%5) * time.Hour)
	}
	f.items = f.items[:6]
	cases := map[string]struct {
		reason, args string
		want         string
	}{
		"Number":  {"by value, and before text", "get clusters --sort-by .spec.n", "c-paused c-synced c-pending c-backing-off c-stuck c-running"},
		"Name":    {"with braces, and no dot", "get clusters --sort-by {.name}", "c-backing-off c-paused c-pending c-running c-stuck c-synced"},
		"Time":    {"the oldest first", "get clusters --sort-by created_time", "c-running c-paused c-backing-off c-pending c-stuck c-synced"},
		"Bool":    {"as text", "get clusters --sort-by .spec.on --limit 2", "c-stuck c-backing-off"},
		"Limit":   {"of the sorted list", "get clusters --sort-by .spec.n --limit 3", "c-paused c-synced c-pending"},
		"Named":   {"too", "get cluster c-stuck c-paused --sort-by name", "c-paused c-stuck"},
		"Unknown": {"a slip is named", "get clusters --sort-by .spec.m", "!no item has this field"},
		"Object":  {"there is no order", "get clusters --sort-by .spec", "!choose a field in it"},
		"Syntax":  {"what is wrong", "get clusters --sort-by {.spec", "!unclosed action"},
		"Watch":   {"changes have no order", "get clusters -w --sort-by name", "!cannot be combined"},
		"Version": {"1.9 before 1.10", "get clusters --sort-by .spec.version", "c-paused c-synced c-backing-off c-stuck c-pending c-running"},
		"Until":   {"times in any zone", "get clusters --sort-by .spec.until", "c-paused c-synced c-pending c-running c-stuck c-backing-off"},
		"Nothing": {"and nothing to sort", "get clusters -l odd=7 --sort-by .spec.m", ""},
	}
	for name, tc := range cases {
		r := run{args: append(strings.Fields(tc.args), "-o", "name")}.runCLI(t, f)
		if text, failed := strings.CutPrefix(tc.want, "!"); failed {
			if r.code != CodeUsage || !strings.Contains(r.stderr, text) {
				t.Errorf("%s: %s: exit code %d, %q", name, tc.reason, r.code, r.stderr)
			}
			continue
		}
		if got := strings.ReplaceAll(strings.Join(strings.Fields(r.stdout), " "), "cluster/", ""); got != tc.want || r.code != CodeOK {
			t.Errorf("%s: %s: exit code %d, got %s, want %s\n%s", name, tc.reason, r.code, got, tc.want, r.stderr)
		}
	}
}
