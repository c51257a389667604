package source_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/fleetloop/fleetloop/internal/sentinel/hyperfleettest"
	"github.com/fleetloop/fleetloop/internal/sentinel/source"
)

// TestWalkChanged: a page that is as it was is not sent again, and the list is
// still gone through to its end.
func TestWalkChanged(t *testing.T) {
	f := newFleet(50)
	src := &fakeLister{answer: f.answer}
	w := source.NewWalker(source.WalkerConfig{Collection: "clusters", PageSize: 10}, src)
	walk := func(when string, read, unchanged, requests int) {
		t.Helper()
		r := &pageReader{}
		if _, err := w.FetchResourcesIfChanged(t.Context(), r.read); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		if calls := src.requests(); len(r.seen) != read || r.unchanged != unchanged || len(calls) != requests {
			t.Errorf("%s: read %d, unchanged %d, %d requests; want %d, %d, %d", when, len(r.seen), r.unchanged, len(calls), read, unchanged, requests)
		}
	}
	walk("first", 50, 0, 5)
	walk("nothing changed", 0, 50, 5)

	f.labels["r00025"] = "moved"
	walk("one changed", 10, 40, 5)
	walk("nothing since", 0, 50, 5)

	// A new resource in the second page moves the border of all behind it.
	f.ids = slices.Insert(f.ids, 15, "r00014x")
	walk("one more", 41, 10, 6)
	walk("nothing since", 0, 51, 6)

	f.ids = f.ids[:20]
	walk("the end is gone", 10, 10, 2)
	walk("nothing since", 0, 20, 2)
	f.ids = nil
	walk("all gone", 0, 0, 1)
	f.ids = newFleet(3).ids
	walk("others", 3, 0, 1)

	// A resource that the reader did not process is passed again.
	f.labels["r00001"] = "moved"
	r := &pageReader{fail: func(source.Page) error { return errDown }}
	if _, err := w.FetchResourcesIfChanged(t.Context(), r.read); !errors.Is(err, errDown) {
		t.Errorf("got %v", err)
	}
	src.requests()
	walk("taken now", 3, 0, 1)
	walk("nothing since", 0, 3, 1)

	src.untagged = true
	walk("a server without tags", 3, 0, 1)
	walk("always", 3, 0, 1)
}

// TestWalkChangedBroken checks that an interrupted walk keeps the state of the pages that it did
// not reach.
func TestWalkChangedBroken(t *testing.T) {
	f := newFleet(50)
	down := false
	src := &fakeLister{answer: func(path string, q url.Values) (string, error) {
		if down && q.Get("continue") == "r00029" {
			return "", errDown
		}
		return f.answer(path, q)
	}}
	w := source.NewWalker(source.WalkerConfig{Collection: "clusters", PageSize: 10}, src)
	if _, err := w.FetchResourcesIfChanged(t.Context(), new(pageReader).read); err != nil {
		t.Fatal(err)
	}
	down = true
	var r pageReader
	at, err := w.FetchResourcesIfChanged(t.Context(), r.read)
	if !errors.Is(err, errDown) || at.String() != `the page at "r00029"` || r.unchanged != 30 {
		t.Errorf("stopped at %s, %d unchanged: %v", at, r.unchanged, err)
	}
	down, r = false, pageReader{}
	if _, err := w.FetchResourcesIfChanged(t.Context(), r.read); err != nil || r.unchanged != 50 {
		t.Errorf("%d unchanged: %v", r.unchanged, err)
	}
}

// TestWalkChangedCircle: pages that have not changed can lead in a circle as
// well as others.
func TestWalkChangedCircle(t *testing.T) {
	last := `{"items":[{"id":"c"}]}`
	src := &fakeLister{answer: func(_ string, q url.Values) (string, error) {
		switch q.Get("continue") {
		case "":
			return `{"items":[{"id":"a"}],"continue":"1"}`, nil
		case "1":
			return `{"items":[{"id":"b"}],"continue":"2"}`, nil
		}
		return last, nil
	}}
	w := source.NewWalker(source.WalkerConfig{Collection: "clusters", PageSize: 1}, src)
	if _, err := w.FetchResourcesIfChanged(t.Context(), new(pageReader).read); err != nil {
		t.Fatal(err)
	}
	last = `{"items":[{"id":"c"}],"continue":"1"}`
	for range 2 {
		if _, err := w.FetchResourcesIfChanged(t.Context(), new(pageReader).read); err == nil || !strings.Contains(err.Error(), "the server repeats a continue token") {
			t.Errorf("got %v", err)
		}
	}
}

// TestWalkChangedPublicly checks a proxy with tags in front of the public API. Tags of another way
// of paging do not count.
func TestWalkChangedPublicly(t *testing.T) {
	for _, cfg := range []hyperfleettest.Config{{}, {IgnoreSearch: true}, {IgnoreOrder: true}} {
		api := hyperfleettest.New(cfg)
		var ids []string
		for i := range 70 {
			ids = append(ids, api.CreateResource("clusters", fmt.Sprintf("c-%d", i)))
		}
		w := newWalker(t, tagging(api), new(bytes.Buffer), source.WalkerConfig{PageSize: 20})
		var r pageReader
		if _, err := w.FetchResourcesIfChanged(t.Context(), r.read); err != nil || r.unchanged != 0 {
			t.Fatalf("%d unchanged, %v", r.unchanged, err)
		}
		r.wantOnce(t, "first", ids)
		r = pageReader{}
		if _, err := w.FetchResourcesIfChanged(t.Context(), r.read); err != nil || r.unchanged != 70 || len(r.seen) > 0 {
			t.Errorf("%+v: %d unchanged, %d read, %v", cfg, r.unchanged, len(r.seen), err)
		}
		api.PatchSpec("clusters", ids[30], `{"x":1}`)
		r = pageReader{}
		if _, err := w.FetchResourcesIfChanged(t.Context(), r.read); err != nil || r.unchanged != 50 || !slices.Contains(r.seen, ids[30]) {
			t.Errorf("%+v: after a patch %d unchanged, %d read, %v", cfg, r.unchanged, len(r.seen), err)
		}
	}
}

// tagging adds a tag to every response, as a caching proxy does.
func tagging(h http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		tag := fmt.Sprintf(`"%x"`, sha256.Sum256(w.Body.Bytes()))
		rw.Header().Set("ETag", tag)
		if w.Code == http.StatusOK && r.Header.Get("If-None-Match") == tag {
			rw.WriteHeader(http.StatusNotModified)
			return
		}
		rw.Header().Set("Content-Type", w.Header().Get("Content-Type"))
		rw.WriteHeader(w.Code)
		_, _ = rw.Write(w.Body.Bytes())
	})
}
