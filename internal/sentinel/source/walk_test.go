package source_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fleetloop/fleetloop/internal/sentinel/hyperfleettest"
	"github.com/fleetloop/fleetloop/internal/sentinel/source"
)

// TestWalk: whatever way of paging the server knows, every resource is seen
// once, by as few requests as that takes.
func TestWalk(t *testing.T) {
	const n = 57
	cases := map[string]struct {
		reason       string
		change       func(*fleet)
		flavour      source.Flavour
		size         int
		wantRequests int
		wantAgain    int // in the next walk
		want         source.Flavour
	}{
		"Tokens":         {reason: "8 pages", size: 8, wantRequests: 8, wantAgain: 8, want: source.FlavourFleetloop},
		"TokensOnePage":  {reason: "all at once", size: 500, wantRequests: 1, wantAgain: 1, want: source.FlavourFleetloop},
		"TokensExact":    {reason: "the last page is full", size: 19, wantRequests: 3, wantAgain: 3, want: source.FlavourFleetloop},
		"TokensCapped":   {reason: "the server gives less than asked for", change: func(f *fleet) { f.most = 10 }, size: 500, wantRequests: 6, wantAgain: 6, want: source.FlavourFleetloop},
		"Numbers":        {reason: "20 at first, then by numbers, and from then on", change: func(f *fleet) { f.tokens = false }, flavour: source.FlavourFleetloop, size: 30, wantRequests: 1 + 2, wantAgain: 2, want: source.FlavourFleetloop},
		"NumbersCapped":  {reason: "the server gives less than asked for", change: func(f *fleet) { f.tokens, f.most = false, 10 }, flavour: source.FlavourFleetloop, size: 30, wantRequests: 1 + 6, wantAgain: 6, want: source.FlavourFleetloop},
		"NumbersExact":   {reason: "the last page is full", change: func(f *fleet) { f.tokens = false }, flavour: source.FlavourFleetloop, size: 19, wantRequests: 1 + 3, wantAgain: 3, want: source.FlavourFleetloop},
		"NumbersOnePage": {reason: "the default page holds not all, one of ours does", change: func(f *fleet) { f.tokens = false }, flavour: source.FlavourFleetloop, size: 100, wantRequests: 2, wantAgain: 1, want: source.FlavourFleetloop},
		"NumbersFound":   {reason: "the same by itself, after two questions", change: func(f *fleet) { f.tokens = false }, size: 30, wantRequests: 1 + 2 + 2, wantAgain: 2, want: source.FlavourHyperfleet},
	}
	for run := range 2 * len(cases) {
		name := slices.Sorted(maps.Keys(cases))[run/2]
		tc, head := cases[name], 30*(run%2) // as a whole, and in two parts
		t.Run(fmt.Sprintf("%s/%d", name, head), func(t *testing.T) {
			f := newFleet(n)
			if tc.change != nil {
				tc.change(f)
			}
			src := &fakeLister{answer: f.answer, head: head}
			defer src.wantClosed(t)
			w := source.NewWalker(source.WalkerConfig{Collection: "clusters", PageSize: tc.size, Flavour: tc.flavour}, src)
			var at source.Place
			for i, want := range []int{tc.wantRequests, tc.wantAgain} {
				var r pageReader
				_, err := w.FetchResources(t.Context(), at, r.read)
				if err != nil {
					t.Fatal(err)
				}
				r.wantOnce(t, fmt.Sprintf("%s: walk %d", tc.reason, i), f.ids)
				if calls := src.requests(); len(calls) != want {
					t.Errorf("%s: walk %d: %d requests, want %d: %q", tc.reason, i, len(calls), want, calls)
				}
				at = w.FirstPlace()
			}
			if got := w.Flavour(); got != tc.want {
				t.Errorf("%s: flavour %s", tc.reason, got)
			}
		})
	}
}

// TestHalfReadPages checks that a page is closed even if it was not read to its end.
func TestHalfReadPages(t *testing.T) {
	stop := errors.New("enough")
	src := &fakeLister{answer: newFleet(57).answer, head: 30}
	w := source.NewWalker(source.WalkerConfig{Collection: "clusters", PageSize: 10}, src)
	r := pageReader{fail: func(pg source.Page) error {
		if pg.At.Later() {
			return stop
		}
		return nil
	}}
	if _, err := w.FetchResources(t.Context(), source.Place{}, r.read); !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
	src.wantClosed(t)
}

// TestFiltered: a page says whether the server was asked to select by all that
// the selector says.
func TestFiltered(t *testing.T) {
	for name, tc := range map[string]struct {
		selector string
		labels   bool // the server knows them
		want     bool
	}{
		"Tokens":       {selector: "region=eu", labels: true, want: true},
		"All":          {selector: "", labels: true, want: false},
		"Search":       {selector: "region=eu", want: true},
		"PartOfSearch": {selector: "region=eu,cluster-type=a", want: false},
		"NoWords":      {selector: "cluster-type=a", want: false},
	} {
		t.Run(name, func(t *testing.T) {
			var got []bool
			read := func(pg source.Page) (source.Envelope, error) {
				got = append(got, pg.Filtered)
				return pg.ScanItems(source.NewScanner(false), func(*source.Item) error { return nil })
			}
			cfg := source.WalkerConfig{Collection: "clusters", PageSize: 20, Selector: mustParse(t, tc.selector)}
			w := source.NewWalker(cfg, &fakeLister{answer: newFleet(3).answer})
			if !tc.labels {
				api := hyperfleettest.New(hyperfleettest.Config{})
				for i := range 30 {
					api.CreateResource("clusters", fmt.Sprintf("c-%04d", i), "region", "eu", "cluster-type", "a")
				}
				w = newWalker(t, api, new(bytes.Buffer), cfg)
			}
			for range 2 { // it is found out in the first
				got = nil
				if _, err := w.FetchResources(t.Context(), source.Place{}, read); err != nil {
					t.Fatal(err)
				}
			}
			if len(got) == 0 || slices.Contains(got, !tc.want) {
				t.Errorf("filtered is %v, want %t", got, tc.want)
			}
		})
	}
}

func TestOddPages(t *testing.T) {
	cases := map[string]struct {
		reason  string
		body    func(url.Values) string
		want    string
		wantErr string
		most    int // requests
	}{
		"Bare": {
			reason: "an array is the whole list",
			body:   func(url.Values) string { return `[{"id":"a"},{"id":"b"}]` },
			want:   "a b", most: 1,
		},
		"NullItems": {reason: "an empty list", body: func(url.Values) string { return `{"items":null}` }, most: 1},
		"NumbersWithoutTotal": {
			reason: "a short page is the last",
			body: func(q url.Values) string {
				if q.Get("page") == "" {
					return `{"items":[{"id":"a"}],"total":4}`
				}
				if q.Get("page") == "1" {
					return `{"items":[{"id":"a"},{"id":"b"}]}`
				}
				return `{"items":[{"id":"c"}]}`
			},
			want: "a b c", most: 3,
		},
		"NumbersWithEmptyPage": {
			reason: "an empty page is the last, whatever the total says",
			body: func(q url.Values) string {
				if q.Get("page") == "" || q.Get("page") == "1" {
					return `{"items":[{"id":"a"},{"id":"b"}],"total":400}`
				}
				return `{"items":[],"total":400}`
			},
			want: "a b", most: 3,
		},
		"SameToken": {
			reason: "a token that leads to itself",
			body:   func(url.Values) string { return `{"items":[{"id":"a"}],"continue":"x"}` },
			want:   "a a", wantErr: "the server repeats a continue token", most: 3,
		},
		"Circle": {
			reason: "tokens that lead in a circle",
			body: func(q url.Values) string {
				n := map[string]string{"": "0", "0": "1", "1": "2", "2": "3", "3": "4", "4": "1"}[q.Get("continue")]
				return `{"items":[{"id":"a` + n + `"}],"continue":"` + n + `"}`
			},
			wantErr: "the server repeats a continue token", most: 20,
		},
		"WrongGuess": {
			reason: "what looks like a token at the end of a page need not be one",
			body: func(q url.Values) string {
				switch q.Get("continue") {
				case "":
					return `{"continue":"n\u0065xt","items":[{"id":"a","spec":{"continue":"trap"}}]}`
				case "next":
					return `{"items":[{"id":"b","spec":{"continue":"trap"}}]}`
				}
				return `{"items":[{"id":"trap"}]}`
			},
			want: "a b", most: 4,
		},
		"NumberIgnored": {
			reason: "a server that gives the same page for every number hides the rest of its list",
			body: func(url.Values) string {
				return `{"items":[{"id":"a"},{"id":"b"}],"total":1000000}`
			},
			want: "a b a b", wantErr: "ignores the page number", most: 3,
		},
		"EscapedToken": {
			reason: "a token may need its escapes read",
			body: func(q url.Values) string {
				if q.Get("continue") == `q"/` {
					return `{"items":[{"id":"b"}]}`
				}
				return `{"items":[{"id":"a"}],"continue":"q\"\/"}`
			},
			want: "a b", most: 2,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			src := &fakeLister{answer: func(_ string, q url.Values) (string, error) { return tc.body(q), nil }}
			w := source.NewWalker(source.WalkerConfig{Collection: "clusters", PageSize: 2, Flavour: source.FlavourFleetloop}, src)
			var r pageReader
			_, err := w.FetchResources(t.Context(), source.Place{}, r.read)
			if tc.wantErr == "" && err != nil || tc.wantErr != "" && (err == nil || !strings.Contains(err.Error(), tc.wantErr)) {
				t.Errorf("%s: err %v", tc.reason, err)
			}
			if got := strings.Join(r.seen, " "); tc.want != "" && got != tc.want {
				t.Errorf("%s: saw %q, want %q", tc.reason, got, tc.want)
			}
			if n := len(src.requests()); n > tc.most {
				t.Errorf("%s: %d requests, want at most %d", tc.reason, n, tc.most)
			}
		})
	}
}

// TestReadsAhead: the next page is fetched while this one is read, and no more
// than that.
func TestReadsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(50)
		src := &fakeLister{answer: f.answer}
		w := source.NewWalker(source.WalkerConfig{Collection: "clusters", PageSize: 10}, src)
		r := pageReader{fail: func(source.Page) error { time.Sleep(time.Second); return nil }}
		done := make(chan error)
		go func() { _, err := w.FetchResources(t.Context(), source.Place{}, r.read); done <- err }()
		total := 0
		for page, want := range []int{2, 3, 4, 5, 5} {
			time.Sleep(time.Second / 2)
			synctest.Wait()
			if total += len(src.requests()); total != want {
				t.Errorf("while page %d is read: %d requests, want %d", page+1, total, want)
			}
			time.Sleep(time.Second / 2)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		r.wantOnce(t, "all", f.ids)
	})
}

// TestTakenUpAgain: a walk that broke off goes on at the page that did not
// come, whatever the way.
func TestTakenUpAgain(t *testing.T) {
	for name, tokens := range map[string]bool{"tokens": true, "numbers": false} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(50)
			f.tokens = tokens
			down := true
			src := &fakeLister{answer: func(path string, q url.Values) (string, error) {
				if down && (q.Get("continue") == "r00029" || q.Get("page") == "4") {
					return "", errDown
				}
				return f.answer(path, q)
			}}
			w := source.NewWalker(source.WalkerConfig{Collection: "clusters", PageSize: 10, Flavour: source.FlavourFleetloop}, src)
			var r pageReader
			at, err := w.FetchResources(t.Context(), source.Place{}, r.read)
			if !errors.Is(err, errDown) || !at.Later() || len(r.seen) != 30 {
				t.Fatalf("saw %d, stopped at %s: %v", len(r.seen), at, err)
			}
			if want := "list clusters: read " + at.String() + ": it is down"; err.Error() != want {
				t.Errorf("got error %q, want %q", err, want)
			}
			if again, err := w.FetchResources(t.Context(), at, r.read); again != at || err == nil {
				t.Errorf("stopped at %s again: %v", again, err)
			}
			down = false
			if _, err := w.FetchResources(t.Context(), at, r.read); err != nil {
				t.Fatal(err)
			}
			r.wantOnce(t, "both parts", f.ids)
		})
	}
}

func TestReadFails(t *testing.T) {
	f := newFleet(50)
	w := source.NewWalker(source.WalkerConfig{Collection: "clusters", PageSize: 10}, &fakeLister{answer: f.answer})
	stop := errors.New("enough")
	pages := 0
	r := pageReader{fail: func(source.Page) error {
		if pages++; pages == 2 {
			return stop
		}
		return nil
	}}
	at, err := w.FetchResources(t.Context(), source.Place{}, r.read)
	if !errors.Is(err, stop) || at.String() != `the page at "r00009"` {
		t.Errorf("stopped at %s: %v", at, err)
	}
}

func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := source.NewWalker(source.WalkerConfig{Collection: "clusters", PageSize: 10, Timeout: time.Second}, hanging{})
		begin := time.Now()
		_, err := w.FetchResources(t.Context(), source.Place{}, new(pageReader).read)
		if err == nil || !strings.Contains(err.Error(), "no response in time") || time.Since(begin) != time.Second {
			t.Errorf("after %s: %v", time.Since(begin), err)
		}
	})
}

type hanging struct{}

func (hanging) ListPage(ctx context.Context, _ string, _ url.Values, _ []byte) ([]byte, error) {
	<-ctx.Done()
	return nil, errors.New("gave up")
}

func (h hanging) ListPageIf(ctx context.Context, path string, q url.Values, _ string, dst []byte) ([]byte, io.ReadCloser, string, error) {
	_, err := h.ListPage(ctx, path, q, dst)
	return nil, nil, "", err
}

func TestPlaces(t *testing.T) {
	if (source.Place{}).Later() || (source.Place{}).String() != "the first page" {
		t.Error("the zero place is the beginning")
	}
	f := newFleet(30)
	f.tokens = false
	src := &fakeLister{answer: f.answer}
	w := source.NewWalker(source.WalkerConfig{Collection: "clusters", PageSize: 10, Flavour: source.FlavourFleetloop}, src)
	var places []string
	_, err := w.FetchResources(t.Context(), source.Place{}, func(pg source.Page) (source.Envelope, error) {
		places = append(places, fmt.Sprintf("%s %t", pg.At, pg.First))
		return source.NewScanner(false).ScanPage(pg.Body, func(*source.Item) error { return nil })
	})
	want := []string{"the first page true", "page 1 of size 10 true", "page 2 of size 10 false", "page 3 of size 10 false"}
	if err != nil || !slices.Equal(places, want) {
		t.Errorf("got %q, %v", places, err)
	}
}
