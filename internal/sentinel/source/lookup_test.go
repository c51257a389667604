package source_test

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/fleetloop/fleetloop/internal/sentinel/source"
)

func TestLookup(t *testing.T) {
	cases := map[string]struct {
		reason   string
		change   func(*fleet)
		answer   func(f *fleet) func(string, url.Values) (string, error)
		ids      []string
		want     []string
		requests int
		again    int // a second time
	}{
		"Together": {
			reason: "all by one request; what is not there is missing",
			ids:    []string{"r00003", "r00001", "gone", "r00002"}, want: []string{"r00001", "r00002", "r00003"}, requests: 1, again: 1,
		},
		"Chunks": {
			reason: "a hundred at a time",
			ids:    newFleet(250).ids, want: newFleet(250).ids, requests: 3, again: 3,
		},
		"Ignored": {
			reason: "a list is not an answer; it is not asked so again",
			change: func(f *fleet) { f.batch = false },
			ids:    []string{"r00001", "gone", "r00249"}, want: []string{"r00001", "r00249"}, requests: 1 + 3, again: 3,
		},
		"IgnoredByNumber": {
			reason: "the first page of a list may hold nothing but what was asked for, and yet not all of it",
			change: func(f *fleet) { f.batch, f.tokens = false, false },
			ids:    newFleet(30).ids, want: newFleet(30).ids, requests: 1 + 30, again: 30,
		},
		"IgnoredWithTokens": {
			reason: "the same with tokens",
			answer: func(f *fleet) func(string, url.Values) (string, error) {
				return func(path string, q url.Values) (string, error) {
					if q.Get("ids") != "" {
						q = url.Values{"limit": {"10"}}
					}
					f.batch = false
					return f.answer(path, q)
				}
			},
			ids: newFleet(20).ids, want: newFleet(20).ids, requests: 1 + 20, again: 20,
		},
		"Refused": {
			reason: "a server that minds parameters that it does not know",
			answer: func(f *fleet) func(string, url.Values) (string, error) {
				return func(path string, q url.Values) (string, error) {
					if q.Get("ids") != "" {
						return "", statusError{http.StatusBadRequest, "unknown parameter ids"}
					}
					return f.answer(path, q)
				}
			},
			ids: []string{"r00001", "r00002"}, want: []string{"r00001", "r00002"}, requests: 1 + 2, again: 2,
		},
		"Comma": {
			reason: "an id with a comma would be two",
			change: func(f *fleet) { f.ids = []string{"a", "b", "a,b"} },
			ids:    []string{"a,b"}, want: []string{"a,b"}, requests: 1, again: 1,
		},
		"OddIDs": {
			reason: "an id that names another place is not asked for",
			change: func(f *fleet) { f.batch = false },
			ids:    []string{"..", "", ".", "r00001"}, want: []string{"r00001"}, requests: 1 + 1, again: 1,
		},
		"None": {reason: "nothing is asked"},
	}
	for run := range 2 * len(cases) {
		name := slices.Sorted(maps.Keys(cases))[run/2]
		tc, head := cases[name], 30*(run%2) // as a whole, and in two parts
		t.Run(fmt.Sprintf("%s/%d", name, head), func(t *testing.T) {
			f := newFleet(250)
			if tc.change != nil {
				tc.change(f)
			}
			src := &fakeLister{answer: f.answer, head: head}
			defer src.wantClosed(t)
			if tc.answer != nil {
				src.answer = tc.answer(f)
			}
			w := source.NewWalker(source.WalkerConfig{Collection: "clusters", PageSize: 10}, src)
			for i, want := range []int{tc.requests, tc.again} {
				var r pageReader
				if err := w.FetchResourcesByID(t.Context(), tc.ids, r.read); err != nil {
					t.Fatal(err)
				}
				r.wantOnce(t, fmt.Sprint(tc.reason, ", time ", i), tc.want)
				if calls := src.requests(); len(calls) != want {
					t.Errorf("%s: time %d: %d requests, want %d: %.200q", tc.reason, i, len(calls), want, calls)
				}
			}
		})
	}
}

// TestLookupErrors: only the server's word that a resource is not there is
// taken for that.
func TestLookupErrors(t *testing.T) {
	stop := errors.New("enough")
	cases := map[string]struct {
		reason string
		answer func(path string, q url.Values) (string, error)
		fail   error
		want   string
	}{
		"Down":      {reason: "says nothing about a resource", answer: func(string, url.Values) (string, error) { return "", errDown }, want: "look up 2 of clusters: it is down"},
		"Busy":      {reason: "says nothing about what it understands", answer: func(string, url.Values) (string, error) { return "", statusError{429, "busy"} }, want: "429"},
		"DownSoon":  {reason: "says nothing about a resource", answer: func(path string, _ url.Values) (string, error) { return downBelow(path) }, want: `read "a": it is down`},
		"Reader":    {reason: "the reader's error ends it", answer: func(string, url.Values) (string, error) { return `{"items":[{"id":"a"}]}`, nil }, fail: stop, want: "enough"},
		"ReaderOne": {reason: "the reader's error ends it", answer: onlySingles, fail: stop, want: `read "a": enough`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := source.NewWalker(source.WalkerConfig{Collection: "clusters", PageSize: 10}, &fakeLister{answer: tc.answer})
			r := pageReader{fail: func(source.Page) error { return tc.fail }}
			err := w.FetchResourcesByID(t.Context(), []string{"a", "b"}, r.read)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: got %v", tc.reason, err)
			}
		})
	}
}

func downBelow(path string) (string, error) {
	if strings.Contains(path, "/") {
		return "", errDown
	}
	return `{"items":[{"id":"x"}]}`, nil
}

func onlySingles(path string, _ url.Values) (string, error) {
	if _, id, ok := strings.Cut(path, "/"); ok {
		return fmt.Sprintf(`{"id":%q}`, id), nil
	}
	return "", statusError{400, "no"}
}

// TestLookupRechecks: one odd answer does not have everything looked up one by
// one for ever.
func TestLookupRechecks(t *testing.T) {
	f := newFleet(250)
	f.batch = false
	src := &fakeLister{answer: f.answer}
	w := source.NewWalker(source.WalkerConfig{Collection: "clusters", PageSize: 10}, src)
	look := func() (requests int) {
		t.Helper()
		before := len(src.requests())
		var r pageReader
		if err := w.FetchResourcesByID(t.Context(), f.ids[:2], r.read); err != nil {
			t.Fatal(err)
		}
		r.wantOnce(t, "looked up", f.ids[:2])
		return len(src.requests()) - before
	}
	if got := look(); got != 3 {
		t.Errorf("%d requests to find out, want 3", got)
	}
	f.batch = true
	for i := range 100 {
		if got := look(); got != 2 {
			t.Fatalf("%d requests at time %d, want 2", got, i)
		}
	}
	for range 3 {
		if got := look(); got != 1 {
			t.Errorf("%d requests after a while, want 1", got)
		}
	}
}
