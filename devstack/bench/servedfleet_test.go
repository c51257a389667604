package main

import (
	"encoding/json"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// ask reads a response of a fleet.
func ask[T any](t *testing.T, f *servedFleet, query string) (answer T, size int) {
	t.Helper()
	w := httptest.NewRecorder()
	f.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", v1.BasePath+"/clusters?"+query, nil))
	size = w.Body.Len()
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != 200 {
		t.Fatalf("%s: %d, %v", query, w.Code, err)
	}
	return answer, size
}

// TestServedFleet: a fleet that is made page by page is that of Page.
func TestServedFleet(t *testing.T) {
	const n = 1234
	now := time.Now()
	f := newServedFleet(n, now)
	seen := map[string]bool{}
	query := "limit=500"
	for pages := 1; ; pages++ {
		list, size := ask[v1.List](t, f, query)
		for _, r := range list.Items {
			if r.Name != "cluster-"+r.ID[len(r.ID)-6:] && pages == 1 && len(seen) < 10 {
				t.Errorf("%q is called %q", r.ID, r.Name)
			}
			if age := now.Sub(r.Status.LastUpdatedTime); seen[r.ID] || age < -time.Second || age > 25*time.Minute {
				t.Fatalf("%q comes again, or was reported on %s ago", r.ID, age)
			}
			seen[r.ID] = true
		}
		if each := size / len(list.Items); each < 900 || each > 1400 || list.Cursor == "" {
			t.Errorf("resources of %d bytes, cursor %q", each, list.Cursor)
		}
		if list.Continue == "" {
			break
		}
		query = "limit=500&continue=" + list.Continue
	}
	if len(seen) != n {
		t.Errorf("%d resources, want %d", len(seen), n)
	}
	first, _ := ask[v1.List](t, f, "ids=019a8e30-7c40-7b21-9d0e-0000000000ff,019a8e30-7c40-7b21-9d0e-ffffffffffff")
	if len(first.Items) != 1 || first.Items[0].Name != "cluster-000255" || first.Items[0].Href != v1.BasePath+"/clusters/"+first.Items[0].ID {
		t.Errorf("by id: %+v", first.Items)
	}
	if changes, _ := ask[v1.Changes](t, f, "changed_since=x"); changes.Cursor == "" || changes.More || len(changes.Items) > 0 {
		t.Errorf("changes: %+v", changes)
	}
	want := fleetCounts{Sweeps: 1, Swept: 1, Polls: 1, IDs: 1}
	if diff := cmp.Diff(want, f.Counts()); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
	if err := f.Await(t.Context(), func(c fleetCounts) bool { return c == want }); err != nil {
		t.Error(err)
	}
}
