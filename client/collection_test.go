package client

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// keysetOf serves total resources, as many per page as asked for.
func keysetOf(total int, failAt int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
		limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
		if failAt > 0 && from >= failAt {
			writeJSON(w, http.StatusServiceUnavailable, v1.Problem{})
			return
		}
		page := v1.List{Items: []v1.Resource{}}
		for i := from; i < min(from+limit, total); i++ {
			page.Items = append(page.Items, v1.Resource{ID: strconv.Itoa(i)})
		}
		if from+limit < total {
			page.Continue = strconv.Itoa(from + limit)
		}
		writeJSON(w, http.StatusOK, page)
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason      string
		total, fail int
		want        int
		err         bool
	}{
		"None":     {"an empty collection", 0, 0, 0, false},
		"OnePage":  {"exactly one page", 3, 0, 3, false},
		"Pages":    {"the last page is short", 8, 0, 8, false},
		"CutShort": {"what came before the error is given", 8, 6, 6, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newClient(t, Config{}, keysetOf(tc.total, tc.fail))
			var got []string
			var last error
			for r, err := range c.Clusters().List(t.Context(), ListOptions{PageSize: 3}) {
				if last = err; err == nil {
					got = append(got, r.ID)
				}
			}
			if len(got) != tc.want || (last != nil) != tc.err {
				t.Errorf("%s: got %d, err %v, want %d", tc.reason, len(got), last, tc.want)
			}
			for i, id := range got {
				if id != strconv.Itoa(i) {
					t.Errorf("place %d holds %s", i, id)
				}
			}
		})
	}
}

func TestListStopsWhenTheReaderDoes(t *testing.T) {
	t.Parallel()
	var pages int
	serve := keysetOf(10, 0)
	c := newClient(t, Config{}, func(w http.ResponseWriter, r *http.Request) { pages++; serve(w, r) })
	for range c.Clusters().List(t.Context(), ListOptions{PageSize: 2}) {
		break
	}
	if pages != 1 {
		t.Errorf("%d pages were read for one resource", pages)
	}
}

func TestListOfAServerThatTurnsInCircles(t *testing.T) {
	t.Parallel()
	c := newClient(t, Config{}, func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, v1.List{Items: []v1.Resource{{ID: "1"}}, Continue: "again"})
	})
	var n int
	var last error
	for _, err := range c.Clusters().List(t.Context(), ListOptions{}) {
		n, last = n+1, err
	}
	if n != 3 || !errors.Is(last, ErrInvalidResponse) {
		t.Errorf("got %d results, the last with %v, want an end after two pages", n, last)
	}
}

func TestQueryValues(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		query  ListOptions
		want   string
	}{
		"All":  {"nothing but the page size", ListOptions{}, "limit=500"},
		"Some": {"all that was asked for", ListOptions{Labels: "a=b", Search: "name='x'", PageSize: 7}, "labels=a%3Db&limit=7&search=name%3D%27x%27"},
	}
	for name, tc := range cases {
		if got := tc.query.Values().Encode(); got != tc.want {
			t.Errorf("%s: %s: got %s, want %s", name, tc.reason, got, tc.want)
		}
	}
}

func TestStatusesReadsAllPages(t *testing.T) {
	t.Parallel()
	const total = 230
	var asked []string
	c := newClient(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RawQuery)
		page, _ := strconv.Atoi(r.URL.Query().Get("page"))
		size, _ := strconv.Atoi(r.URL.Query().Get("size"))
		list := v1.AdapterStatusList{Total: total}
		for i := (page - 1) * size; i < min(page*size, total); i++ {
			list.Items = append(list.Items, v1.AdapterStatus{Adapter: fmt.Sprint(i)})
		}
		writeJSON(w, http.StatusOK, list)
	})
	got, err := c.Clusters().Statuses(t.Context(), "x")
	if err != nil || len(got) != total || got[total-1].Adapter != fmt.Sprint(total-1) {
		t.Fatalf("got %d, err %v, want %d", len(got), err, total)
	}
	if diff := cmp.Diff([]string{"page=1&size=100", "page=2&size=100", "page=3&size=100"}, asked); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func TestStatusesEndsWhereTheTotalIsWrong(t *testing.T) {
	t.Parallel()
	c := newClient(t, Config{}, func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, v1.AdapterStatusList{Total: 5})
	})
	if got, err := c.Clusters().Statuses(t.Context(), "x"); err != nil || len(got) != 0 {
		t.Errorf("got %d, err %v", len(got), err)
	}
}

func BenchmarkListPage(b *testing.B) {
	page := make([]byte, 500<<10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(page)
	}))
	b.Cleanup(server.Close)
	c, err := New(Config{Endpoint: server.URL})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(c.CloseIdle)
	b.SetBytes(int64(len(page)))
	b.ReportAllocs()
	var buf []byte
	for b.Loop() {
		if buf, err = c.Raw().ListPage(b.Context(), "clusters", nil, buf); err != nil {
			b.Fatal(err)
		}
	}
}

func TestListPageIf(t *testing.T) {
	t.Parallel()
	tag := `"1"`
	c := newClient(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", tag)
		if r.Header.Get("If-None-Match") == tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		writeJSON(w, http.StatusOK, v1.List{Continue: tag})
	})
	buf := make([]byte, 0, 8<<10)
	first, rest, got, err := c.Raw().ListPageIf(t.Context(), "clusters", nil, "", buf)
	if err != nil || rest != nil || got != `"1"` || len(first) == 0 || &first[0] != &buf[:1][0] {
		t.Fatalf("first: tag %q, %d bytes, %v", got, len(first), err)
	}
	same, _, got, err := c.Raw().ListPageIf(t.Context(), "clusters", nil, got, first)
	if err != nil || got != `"1"` || len(same) != 0 || cap(same) != cap(first) {
		t.Fatalf("unchanged: tag %q, %d bytes of %d, %v", got, len(same), cap(same), err)
	}
	tag = `"2"`
	if other, _, got, err := c.Raw().ListPageIf(t.Context(), "clusters", nil, got, same); err != nil || got != `"2"` || len(other) == 0 {
		t.Errorf("changed: tag %q, %d bytes, %v", got, len(other), err)
	}
}

// TestNotModifiedUnasked: a cache in between that answers so to everybody
// must not pass for an empty page.
func TestNotModifiedUnasked(t *testing.T) {
	t.Parallel()
	c := newClient(t, Config{}, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotModified) })
	if _, _, _, err := c.Raw().ListPageIf(t.Context(), "clusters", nil, "", nil); !hasStatus(err, http.StatusNotModified) {
		t.Errorf("got %v, want the answer as an error", err)
	}
}

func TestChanges(t *testing.T) {
	t.Parallel()
	answer := any(v1.Changes{Items: []v1.Resource{{ID: "1"}}, Removed: []string{"2"}, Size: 1, Cursor: "c2", More: true})
	c := newClient(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("changed_since") != "c1" {
			t.Errorf("asked for %s", r.URL)
		}
		writeJSON(w, http.StatusOK, answer)
	})
	if got, err := c.Clusters().Changes(t.Context(), "c1", ListOptions{}); err != nil || got.Cursor != "c2" || !got.More || got.Items[0].ID != "1" || got.Removed[0] != "2" {
		t.Errorf("got %+v, %v", got, err)
	}
	answer = v1.List{Items: []v1.Resource{{ID: "1"}}, Size: 1}
	if _, err := c.Clusters().Changes(t.Context(), "c1", ListOptions{}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("of a server that lists: %v, want errors.ErrUnsupported", err)
	}
}

func TestPatchIf(t *testing.T) {
	t.Parallel()
	revision := 1
	c := newClient(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
		tag := `"` + strconv.Itoa(revision) + `"`
		if match := r.Header.Get("If-Match"); match != "" && match != tag {
			writeJSON(w, http.StatusPreconditionFailed, v1.Problem{Code: "precondition_failed"})
			return
		}
		if r.Method == http.MethodPatch {
			revision++
		}
		w.Header().Set("ETag", tag)
		writeJSON(w, http.StatusOK, v1.Resource{ID: "x"})
	})
	_, tag, err := c.Clusters().GetWithETag(t.Context(), "x")
	if err != nil || tag != `"1"` {
		t.Fatalf("tag %q, %v", tag, err)
	}
	if _, err := c.Clusters().PatchIf(t.Context(), "x", tag, v1.PatchRequest{}); err != nil {
		t.Errorf("unchanged: %v", err)
	}
	if _, err := c.Clusters().PatchIf(t.Context(), "x", tag, v1.PatchRequest{}); !IsChanged(err) {
		t.Errorf("changed meanwhile: %v", err)
	}
	if _, err := c.Clusters().PatchIf(t.Context(), "x", "", v1.PatchRequest{}); err != nil {
		t.Errorf("whatever it is: %v", err)
	}
}
