package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// withoutControl calls a method without a reason or an end.
func withoutControl(call func(*Syncs, context.Context, string, v1.SyncControl) (v1.ClusterSync, error)) func(*Syncs, context.Context, string) (v1.ClusterSync, error) {
	return func(s *Syncs, ctx context.Context, id string) (v1.ClusterSync, error) {
		return call(s, ctx, id, v1.SyncControl{})
	}
}

// TestControlOfSyncs checks the bodies of requests with a reason, and of a bulk request.
func TestControlOfSyncs(t *testing.T) {
	t.Parallel()
	var asked string
	c := newClient(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		asked = r.URL.Path[len(v1.BasePath):] + " " + string(body)
		writeJSON(w, http.StatusOK, map[string]any{"name": "c-one", "changed": 1, "failed": []v1.BulkSyncFailure{{ID: "b", Code: "not_found"}}})
	})
	until := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	control := v1.SyncControl{Reason: "maintenance", Until: &until}
	if _, err := c.Syncs().Pause(t.Context(), "a", control); err != nil {
		t.Fatal(err)
	}
	if want := `/clusters/a/sync/pause {"reason":"maintenance","until":"2026-03-01T12:00:00Z"}`; asked != want {
		t.Errorf("asked %s, want %s", asked, want)
	}
	got, err := c.Syncs().ControlMany(t.Context(), "pause", v1.BulkSyncControl{IDs: []string{"a", "b"}, SyncControl: control})
	if want := `/clusters/sync/pause {"ids":["a","b"],"reason":"maintenance","until":"2026-03-01T12:00:00Z"}`; asked != want {
		t.Errorf("asked %s, want %s", asked, want)
	}
	if err != nil || got.Changed != 1 || len(got.Failed) != 1 || got.Failed[0].Code != "not_found" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestSyncOfOneCluster(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		call   func(*Syncs, context.Context, string) (v1.ClusterSync, error)
		want   string
	}{
		"Read":   {"nothing changes", (*Syncs).Get, "GET /clusters/a%2Fb/sync"},
		"Retry":  {"without a body", (*Syncs).Retry, "POST /clusters/a%2Fb/sync/retry"},
		"Pause":  {"without a body", withoutControl((*Syncs).Pause), "POST /clusters/a%2Fb/sync/pause"},
		"Resume": {"without a body", withoutControl((*Syncs).Resume), "POST /clusters/a%2Fb/sync/resume"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked string
			status := http.StatusOK
			c := newClient(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
				asked = r.Method + " " + r.URL.EscapedPath()[len(v1.BasePath):]
				if r.ContentLength != 0 {
					t.Errorf("%s: %d bytes came with it", tc.reason, r.ContentLength)
				}
				if status != http.StatusOK {
					writeJSON(w, status, v1.Problem{Code: "sync_running"})
					return
				}
				writeJSON(w, status, v1.ClusterSync{Name: "c-one", State: v1.SyncPending})
			})
			got, err := tc.call(c.Syncs(), t.Context(), "a/b")
			if err != nil || got.Name != "c-one" || got.State != v1.SyncPending || asked != tc.want {
				t.Errorf("%s: %s gave %+v, err %v, want %s", tc.reason, asked, got, err, tc.want)
			}
			status = http.StatusConflict
			if _, err := tc.call(c.Syncs(), t.Context(), "a/b"); !IsConflict(err) {
				t.Errorf("a conflict is %v", err)
			}
			if _, err := tc.call(c.Syncs(), t.Context(), ".."); err == nil {
				t.Error("an id that names another place was sent")
			}
		})
	}
}

func TestClusterSyncs(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason      string
		query       SyncOptions
		total, fail int
		want        int
		asked       []string
		err         bool
	}{
		"None":     {"nothing is unsynced", SyncOptions{PageSize: 3}, 0, 0, 0, []string{"limit=3"}, false},
		"Pages":    {"the last page is short", SyncOptions{PageSize: 3}, 8, 0, 8, []string{"limit=3", "continue=3&limit=3", "continue=6&limit=3"}, false},
		"States":   {"only some", SyncOptions{States: []v1.SyncState{v1.SyncStuck, v1.SyncPaused}}, 1, 0, 1, []string{"limit=500&state=stuck%2Cpaused"}, false},
		"CutShort": {"what came before the error is given", SyncOptions{PageSize: 3}, 8, 6, 6, []string{"limit=3", "continue=3&limit=3", "continue=6&limit=3"}, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked []string
			c := newClient(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
				asked = append(asked, r.URL.RawQuery)
				from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
				limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
				if tc.fail > 0 && from >= tc.fail {
					writeJSON(w, http.StatusServiceUnavailable, v1.Problem{})
					return
				}
				page := v1.ClusterSyncList{}
				for i := from; i < min(from+limit, tc.total); i++ {
					page.Items = append(page.Items, v1.ClusterSync{ClusterID: strconv.Itoa(i)})
				}
				if from+limit < tc.total {
					page.Continue = strconv.Itoa(from + limit)
				}
				writeJSON(w, http.StatusOK, page)
			})
			var got int
			var last error
			for s, err := range c.Syncs().List(t.Context(), tc.query) {
				if last = err; err != nil {
					break
				}
				if s.ClusterID != strconv.Itoa(got) {
					t.Errorf("place %d holds %s", got, s.ClusterID)
				}
				got++
			}
			if got != tc.want || (last != nil) != tc.err {
				t.Errorf("%s: got %d, err %v, want %d", tc.reason, got, last, tc.want)
			}
			if diff := cmp.Diff(tc.asked, asked); diff != "" {
				t.Errorf("%s: asked (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestClusterSyncsOfAServerThatTurnsInCircles(t *testing.T) {
	t.Parallel()
	c := newClient(t, Config{}, func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, v1.ClusterSyncList{Items: []v1.ClusterSync{{}}, Continue: "again"})
	})
	var n int
	var last error
	for _, err := range c.Syncs().List(t.Context(), SyncOptions{}) {
		n, last = n+1, err
	}
	if n != 3 || !errors.Is(last, ErrInvalidResponse) {
		t.Errorf("got %d results, the last with %v, want an end after two pages", n, last)
	}
}

func TestClusterSyncsStopWhenTheReaderDoes(t *testing.T) {
	t.Parallel()
	var pages int
	c := newClient(t, Config{}, func(w http.ResponseWriter, _ *http.Request) {
		pages++
		writeJSON(w, http.StatusOK, v1.ClusterSyncList{Items: []v1.ClusterSync{{}}, Continue: strconv.Itoa(pages)})
	})
	for range c.Syncs().List(t.Context(), SyncOptions{}) {
		break
	}
	if pages != 1 {
		t.Errorf("%d pages were read for one sync", pages)
	}
}
