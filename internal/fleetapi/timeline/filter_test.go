package timeline

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseTime(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"":                             {},
		"90m":                          now.Add(-90 * time.Minute),
		"0s":                           now,
		"7d":                           now.AddDate(0, 0, -7),
		"2026-02-01":                   time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC),
		"2026-02-01T10:00:00+02:00":    time.Date(2026, 2, 1, 8, 0, 0, 0, time.UTC),
		"2026-02-01T10:00:00.315+0000": time.Date(2026, 2, 1, 10, 0, 0, 315_000_000, time.UTC),
	} {
		got, err := parseTimeParameter(url.Values{"since": {text}}, "since", now)
		if err != nil || !got.Equal(want) {
			t.Errorf("%q is %s, %v; want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"-5m", "d", "-3d", "99999999d", "yesterday", "2026-13-01", "12:00", "5"} {
		if got, err := parseTimeParameter(url.Values{"since": {text}}, "since", now); err == nil {
			t.Errorf("%q is %s", text, got)
		}
	}
}

func TestComponents(t *testing.T) {
	want := []string{"janitor", "nvsentinel/janitor", "fleetloop/janitor", "a/b"}
	if diff := cmp.Diff(want, addPrefixedComponentNames(" janitor,, a/b ")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWantsStream(t *testing.T) {
	for accept, want := range map[string]bool{
		"": false, "*/*": false, "application/json": false, "text/event-stream": true, "text/event-stream;q=0.5, application/json": true,
		"application/json, Text/Event-Stream": true, "text/event-stream;q=0": false, ";": false,
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/changes", http.NoBody)
		r.Header.Set("Accept", accept)
		if got := acceptsEventStream(r); got != want {
			t.Errorf("%q: %t, want %t", accept, got, want)
		}
	}
}

func TestValidName(t *testing.T) {
	for name, want := range map[string]bool{
		"eu-1": true, "arn:aws:eks:us-east-1:123:cluster/prod": true, "Zürich 1": true, strings.Repeat("ü", 253): true,
		"": false, " a": false, "a\n": false, "a\x00b": false, "\xff": false, "a\u2028b": false, strings.Repeat("a", 254): false,
	} {
		if got := isValidName(name); got != want {
			t.Errorf("%q: %t, want %t", name, got, want)
		}
	}
}

// FuzzListing checks that every query is parsed or refused, and that a parsed one can be paged.
func FuzzListing(f *testing.F) {
	for _, seed := range []string{"", "cluster=a&node=b&since=1h", "action=a,b&until=2026-03-01", "limit=5&continue=x", "strict=true", "node=%00", "since=9223372036854775807d", "since=2562047h47m16s"} {
		f.Add(seed)
	}
	tl := &Timeline{retention: DefaultRetention}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, query string) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/changes", http.NoBody)
		r.URL.RawQuery = query
		l, err := tl.parseListRequest(r, Scope{All: true}, now)
		if err != nil {
			return
		}
		if l.query.Limit < 1 || l.query.Limit > maxLimit || l.query.NotBefore.After(now) {
			t.Errorf("%q is %+v", query, l.query)
		}
		for _, at := range []time.Time{l.query.Since, l.query.Until} {
			if y := at.Year(); y < -300 || y > 9999 { // the range of the database
				t.Errorf("%q asks for the year %d", query, y)
			}
		}
	})
}
