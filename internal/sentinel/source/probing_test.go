package source_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/fleetloop/fleetloop/internal/sentinel/hyperfleettest"
	"github.com/fleetloop/fleetloop/internal/sentinel/source"
)

// TestErrorsWhileProbing checks that the error of a busy or broken server is not taken for a
// missing feature. The walk fails, and the next one probes again.
func TestErrorsWhileProbing(t *testing.T) {
	for _, flavour := range []source.Flavour{source.FlavourAuto, source.FlavourHyperfleet} {
		for failing := range 8 {
			for _, code := range []int{http.StatusServiceUnavailable, http.StatusTooManyRequests, http.StatusForbidden} {
				api := hyperfleettest.New(hyperfleettest.Config{})
				var ids []string
				for i := range 120 {
					id := api.CreateResource("clusters", "c-"+strconv.Itoa(i), "region", []string{"us-east", "eu"}[i%2])
					if i%2 == 1 {
						ids = append(ids, id)
					}
				}
				n := 0
				var log bytes.Buffer
				w := newWalker(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					if n++; n == failing+1 {
						rw.Header().Set("Retry-After", "7")
						http.Error(rw, "not now", code)
						return
					}
					api.ServeHTTP(rw, r)
				}), &log, source.WalkerConfig{PageSize: 50, Flavour: flavour, Selector: mustParse(t, "region=eu")})
				at, err := w.FetchResources(t.Context(), source.Place{}, new(pageReader).read)
				if n <= failing {
					continue // so many are not needed
				}
				if err == nil || !strings.Contains(err.Error(), strconv.Itoa(code)) || !strings.Contains(err.Error(), "list clusters") {
					t.Fatalf("%s: request %d refused with %d: got %v", flavour, failing, code, err)
				}
				if at.Later() {
					continue // probing was over
				}
				var r pageReader
				if _, err := w.FetchResources(t.Context(), at, r.read); err != nil {
					t.Fatal(err)
				}
				r.wantOnce(t, fmt.Sprintf("%s: after request %d was refused with %d", flavour, failing, code), ids)
				if !strings.Contains(log.String(), "paging=ids filter=\"search=labels.region='eu'\"") {
					t.Errorf("%s: after request %d was refused with %d: %s", flavour, failing, code, log.String())
				}
			}
		}
	}
}

// TestServerChanges: a server may be replaced by one that can do less while we
// list, or by one that can do more.
func TestServerChanges(t *testing.T) {
	const n = 60
	full := hyperfleettest.Config{}
	cases := map[string]struct {
		reason string
		to     hyperfleettest.Config
		refuse string // requests with this are refused
		want   string // logged
	}{
		"NoSearch":       {reason: "every page would be the first", to: hyperfleettest.Config{IgnoreSearch: true}, want: "paging is inconsistent"},
		"NoOrder":        {reason: "the rest of the list would never come", to: hyperfleettest.Config{IgnoreOrder: true}, want: "paging is inconsistent"},
		"SmallerPages":   {reason: "the size is refused", to: hyperfleettest.Config{MaxSize: 30}},
		"RefusesBehind":  {reason: "refused in the middle", to: full, refuse: "id+%3E", want: "paging is inconsistent"},
		"RefusesOrder":   {reason: "refused at all", to: full, refuse: "order=", want: "paging is inconsistent"},
		"RefusesFilters": {reason: "refused at all", to: full, refuse: "search=", want: "cannot filter by this selector"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var apis [2]*hyperfleettest.Server
			apis[0], apis[1] = hyperfleettest.New(full), hyperfleettest.New(tc.to)
			var ids [2][]string
			for i, api := range apis {
				for j := range n {
					ids[i] = append(ids[i], api.CreateResource("clusters", "c-"+strconv.Itoa(j), "region", "eu"))
				}
			}
			now := 0
			var log bytes.Buffer
			w := newWalker(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				if now == 1 && tc.refuse != "" && strings.Contains(r.URL.RawQuery, tc.refuse) {
					http.Error(rw, "no", http.StatusBadRequest)
					return
				}
				apis[now].ServeHTTP(rw, r)
			}), &log, source.WalkerConfig{PageSize: 50, Selector: mustParse(t, "region=eu")})
			for i := range 2 {
				now = i
				for range 2 {
					var r pageReader
					if _, err := w.FetchResources(t.Context(), source.Place{}, r.read); err != nil {
						t.Fatal(err)
					}
					r.wantOnce(t, tc.reason, ids[i])
				}
			}
			if !strings.Contains(log.String(), tc.want) {
				t.Errorf("%s: logged\n%s", tc.reason, log.String())
			}
			if name != "NoSearch" && name != "RefusesFilters" {
				return // it takes many walks until it is looked at again
			}
			now = 0
			log.Reset()
			for range 102 {
				var r pageReader
				if _, err := w.FetchResources(t.Context(), source.Place{}, r.read); err != nil {
					t.Fatal(err)
				}
				r.wantOnce(t, "replaced back", ids[0])
			}
			if tc.want != "" && !strings.Contains(log.String(), "paging=ids filter=\"search=labels.region='eu'\"") {
				t.Errorf("%s: replaced back, logged\n%s", tc.reason, log.String())
			}
		})
	}
}

// TestSizeRefusedOnTheWay: pages of another size have other numbers, so the
// walk begins again; what it saw last is then seen again, and is no circle.
func TestSizeRefusedOnTheWay(t *testing.T) {
	f := newFleet(50)
	f.tokens = false
	src := &fakeLister{answer: func(path string, q url.Values) (string, error) {
		if q.Get("page") > "1" && q.Get("size") == "20" {
			return "", statusError{http.StatusBadRequest, "Invalid query parameter; size: size must be at most 10 (trace 19)"}
		}
		return f.answer(path, q)
	}}
	w := source.NewWalker(source.WalkerConfig{Collection: "clusters", PageSize: 20}, src)
	for range 2 {
		var r pageReader
		if _, err := w.FetchResources(t.Context(), source.Place{}, r.read); err != nil {
			t.Fatal(err)
		}
		r.wantOnce(t, "with smaller pages", f.ids)
	}
	if calls := src.requests(); !strings.Contains(calls[len(calls)-1], "page=5") || !strings.Contains(calls[len(calls)-1], "size=10") {
		t.Errorf("asked last %s", calls[len(calls)-1])
	}
}

// TestTooFewToTell: a collection that nearly vanishes while the server is
// examined is examined again when it has grown.
func TestTooFewToTell(t *testing.T) {
	api := hyperfleettest.New(hyperfleettest.Config{})
	var ids []string
	for i := range 60 {
		ids = append(ids, api.CreateResource("clusters", "c-"+strconv.Itoa(i), "region", "eu"))
	}
	few := hyperfleettest.New(hyperfleettest.Config{})
	n := 0
	var log bytes.Buffer
	w := newWalker(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if n++; n > 1 && n < 5 {
			few.ServeHTTP(rw, r)
			return
		}
		api.ServeHTTP(rw, r)
	}), &log, source.WalkerConfig{PageSize: 20, Selector: mustParse(t, "region=eu")})
	for range 3 {
		var r pageReader
		if _, err := w.FetchResources(t.Context(), source.Place{}, r.read); err != nil {
			t.Fatal(err)
		}
		if n > 8 {
			r.wantOnce(t, "grown", ids)
		}
	}
	if !strings.Contains(log.String(), "paging=ids filter=\"search=labels.region='eu'\"") {
		t.Errorf("logged\n%s", log.String())
	}
}

// TestEmptyPageThatCounts: a page without items is not the end if the server
// counts some.
func TestEmptyPageThatCounts(t *testing.T) {
	f := newFleet(50)
	f.tokens = false
	src := &fakeLister{answer: func(path string, q url.Values) (string, error) {
		switch {
		case strings.HasPrefix(q.Get("search"), "id >"):
			return `{"items":[],"total":0}`, nil
		case q.Get("order") == "id" && q.Get("page") == "1":
			return `{"items":[],"total":50}`, nil
		}
		return f.answer(path, q)
	}}
	w := source.NewWalker(source.WalkerConfig{Collection: "clusters", PageSize: 20}, src)
	var r pageReader
	_, err := w.FetchResources(t.Context(), source.Place{}, r.read)
	if calls := src.requests(); err != nil || r.again < 3 || !strings.Contains(calls[len(calls)-1], "order=id") {
		t.Errorf("%v, began %d times, asked %q", err, r.again, calls)
	}
}

// TestStrictServers checks servers that refuse unknown parameters instead of ignoring them, without
// naming the parameter.
func TestStrictServers(t *testing.T) {
	cases := map[string]struct {
		reason  string
		refuses func(q url.Values) bool
		want    string // in the last request
		wantErr bool
	}{
		"Ours":       {reason: "our own parameters", refuses: func(q url.Values) bool { return q.Has("limit") || q.Has("labels") }, want: "search=id > "},
		"LargePages": {reason: "sizes that it does not name", refuses: func(q url.Values) bool { return q.Has("limit") || len(q.Get("size")) > 2 }, want: "size=20"},
		"Descending": {reason: "an order with a direction", refuses: func(q url.Values) bool { return q.Has("limit") || strings.Contains(q.Get("order"), " ") }, want: "page=2"},
		"Search":     {reason: "every search", refuses: func(q url.Values) bool { return q.Has("limit") || q.Has("search") }, want: "page=2"},
		"Everything": {reason: "there is nothing left to try", refuses: func(url.Values) bool { return true }, wantErr: true},
		"AllButOne":  {reason: "an order that it took before", refuses: newOnce(), want: "page=2"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			api := hyperfleettest.New(hyperfleettest.Config{})
			var ids []string
			for i := range 130 {
				ids = append(ids, api.CreateResource("clusters", "c-"+strconv.Itoa(i)))
			}
			w := newWalker(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				if tc.refuses(r.URL.Query()) {
					http.Error(rw, "no", http.StatusUnprocessableEntity)
					return
				}
				api.ServeHTTP(rw, r)
			}), new(bytes.Buffer), source.WalkerConfig{PageSize: 100})
			for range 2 {
				var r pageReader
				_, err := w.FetchResources(t.Context(), source.Place{}, r.read)
				if tc.wantErr {
					if err == nil || !strings.Contains(err.Error(), "422") {
						t.Errorf("%s: got %v", tc.reason, err)
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				r.wantOnce(t, tc.reason, ids)
			}
			calls := plain(t, api.ListRequests())
			if len(calls) > 0 && !strings.Contains(calls[len(calls)-1], tc.want) {
				t.Errorf("%s: asked last %s", tc.reason, calls[len(calls)-1])
			}
		})
	}
}

// newOnce refuses every order once it has been examined.
func newOnce() func(url.Values) bool {
	asked := 0
	return func(q url.Values) bool {
		asked++
		return q.Has("limit") || asked > 3 && q.Has("order")
	}
}

// TestErrorsAfterRefusals: an error while it is found out what to ask instead
// is the walk's, beside the refusal.
func TestErrorsAfterRefusals(t *testing.T) {
	src := &fakeLister{answer: func(_ string, q url.Values) (string, error) {
		if q.Has("limit") {
			return "", statusError{http.StatusBadRequest, "unknown parameter limit"}
		}
		return "", errDown
	}}
	w := source.NewWalker(source.WalkerConfig{Collection: "clusters", PageSize: 20}, src)
	_, err := w.FetchResources(t.Context(), source.Place{}, new(pageReader).read)
	if !errors.Is(err, errDown) || !strings.Contains(err.Error(), "unknown parameter limit") {
		t.Errorf("got %v", err)
	}
	src.answer = func(string, url.Values) (string, error) { return "", statusError{http.StatusBadRequest, "bad"} }
	w = source.NewWalker(source.WalkerConfig{Collection: "clusters", PageSize: 20, Flavour: source.FlavourFleetloop}, src)
	src.requests()
	if _, err := w.FetchResources(t.Context(), source.Place{}, new(pageReader).read); err == nil || len(src.requests()) != 1 {
		t.Errorf("our own API means what it says: got %v", err)
	}
}

// TestFilterThatLoses: a server whose filter finds nothing at all is not
// believed, and everything is read.
func TestFilterThatLoses(t *testing.T) {
	api := hyperfleettest.New(hyperfleettest.Config{})
	var ids []string
	for i := range 60 {
		ids = append(ids, api.CreateResource("clusters", "c-"+strconv.Itoa(i), "region", []string{"us-east", "eu"}[i%2]))
	}
	var log bytes.Buffer
	w := newWalker(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Query().Get("search"), "labels.") {
			rw.Header().Set("Content-Type", "application/json")
			_, _ = rw.Write([]byte(`{"items":[],"page":1,"size":0,"total":0}`))
			return
		}
		api.ServeHTTP(rw, r)
	}), &log, source.WalkerConfig{PageSize: 50, Selector: mustParse(t, "region=eu")})
	var r pageReader
	if _, err := w.FetchResources(t.Context(), source.Place{}, r.read); err != nil {
		t.Fatal(err)
	}
	r.wantOnce(t, "unfiltered", ids)
	if !strings.Contains(log.String(), "level=WARN") {
		t.Errorf("logged\n%s", log.String())
	}
}
