package fleetapi_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

const testPageBytes = 20_000

// newLargeRowsFixture returns an API with small pages, the cursor before three clusters that have half of
// such a page each, and their names and ids.
func newLargeRowsFixture(t *testing.T) (f *fixture, cursor string, names, ids []string) {
	t.Helper()
	f = newFixture(t)
	f.api.SetPageBytes(testPageBytes)
	cursor = f.list("clusters?limit=1").Cursor
	for _, name := range []string{"c-one", "c-two", "c-three"} {
		r := read[v1.Resource](f.do("POST", "clusters", v1.CreateRequest{
			Name: name, Labels: map[string]string{"shard": "1"}, Spec: []byte(`{"padding":"` + strings.Repeat("x", testPageBytes/2) + `"}`),
		}).want(http.StatusCreated))
		names, ids = append(names, name), append(ids, r.ID)
	}
	return f, cursor, names, ids
}

// TestLargeRowsEndPages checks that a page ends at a size, and that the next one continues with the next row.
func TestLargeRowsEndPages(t *testing.T) {
	f, _, names, ids := newLargeRowsFixture(t)
	for _, order := range []string{"", "created_time desc"} {
		want := slices.Clone(names)
		parameters := []string{"limit", "500"}
		if order != "" {
			slices.Reverse(want)
			parameters = append(parameters, "order", order)
		}
		var got []string
		var sizes []int
		for token := ""; ; {
			page := f.list(query("clusters", append(parameters, pair("continue", token)...)...))
			got, sizes = append(got, namesOf(page)...), append(sizes, page.Size)
			if token = page.Continue; token == "" {
				break
			}
		}
		wantEqual(t, "rows", want, got)
		wantEqual(t, "rows per page", []int{2, 1}, sizes)
	}

	const shorter = "must be at most 2 here"
	f.do("GET", "clusters?page=1&size=3", nil).problem(400, "invalid_query", shorter)
	f.do("GET", "clusters", nil).problem(400, "invalid_query", shorter)
	wantEqual(t, "the second page by number", []string{"c-one"}, f.names("clusters?page=2&size=2"))
	f.do("GET", "clusters?ids="+strings.Join(ids, ","), nil).problem(400, "invalid_query", "give at most 2 of these ids")
	wantEqual(t, "two by id", 2, len(f.names("clusters?ids="+strings.Join(ids[:2], ","))))
}

// TestLargeRowsEndPagesOfChanges checks the same for changes, and that a row that left the selection early in the page
// and changed again at its end is not lost.
func TestLargeRowsEndPagesOfChanges(t *testing.T) {
	f, cursor, names, ids := newLargeRowsFixture(t)
	var got []string
	for more := true; more; {
		page := f.since("clusters", cursor)
		if len(page.Items) > 2 {
			t.Errorf("%d large rows in a page", len(page.Items))
		}
		for _, r := range page.Items {
			got = append(got, r.Name)
		}
		cursor, more = page.Cursor, page.More
	}
	wantEqual(t, "rows", names, got)

	f.relabel("clusters/"+ids[0], `{"shard":"2"}`)
	for _, id := range []string{ids[1], ids[2], ids[0]} {
		f.report("clusters/"+id, "dns", 1)
	}
	removed := false
	for more := true; more; {
		page := f.since("clusters", cursor, "labels", "shard=1")
		removed = removed || slices.Contains(page.Removed, ids[0])
		cursor, more = page.Cursor, page.More
	}
	if !removed {
		t.Error("the client is not told that a row left its selection")
	}
}

// pair returns a parameter, or none if its value is empty.
func pair(name, value string) []string {
	if value == "" {
		return nil
	}
	return []string{name, value}
}
