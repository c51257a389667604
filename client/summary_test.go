package client

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

func TestSummary(t *testing.T) {
	t.Parallel()
	want := v1.Summary{Kinds: map[string]v1.KindSummary{"clusters": {LabelSummary: v1.LabelSummary{Total: 3, Phases: map[v1.Phase]int64{v1.PhaseReady: 3}}}}}
	c := newClient(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.Path != v1.SummaryPath {
			t.Errorf("got %s %s", r.Method, r.URL.Path)
		}
		writeJSON(w, http.StatusOK, want)
	})
	got, err := c.Summary(t.Context())
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestStuckReadsEveryPage(t *testing.T) {
	t.Parallel()
	pages := map[string]v1.StuckList{
		"":  {Items: []v1.StuckResource{{Name: "a"}}, Continue: "1"},
		"1": {Items: []v1.StuckResource{}, Continue: "2"}, // a page may be empty
		"2": {Items: []v1.StuckResource{{Name: "b"}}},
	}
	var asked []string
	c := newClient(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RawQuery)
		writeJSON(w, http.StatusOK, pages[r.URL.Query().Get("continue")])
	})
	q := StuckOptions{Collection: v1.CollectionClusters, Causes: []v1.StuckCauseType{v1.StuckOnPause, v1.StuckOnAdapter}, OlderThan: time.Minute, PageSize: 2}
	var names []string
	for item, err := range c.Stuck(t.Context(), q) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, item.Name)
	}
	const query = "kind=clusters&limit=2&older_than=1m0s"
	if diff := cmp.Diff([]string{"cause=paused%2Cadapter&" + query, "cause=paused%2Cadapter&continue=1&" + query, "cause=paused%2Cadapter&continue=2&" + query}, asked); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"a", "b"}, names); diff != "" {
		t.Errorf("items (-want +got):\n%s", diff)
	}
	pages["2"] = v1.StuckList{Continue: "2"}
	var last error
	for _, err := range c.Stuck(t.Context(), q) {
		last = err
	}
	if !errors.Is(last, ErrInvalidResponse) {
		t.Errorf("a page that continues with itself: %v", last)
	}
}
