package state_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/sentinel/state"
)

// servedRecords returns two records: of clusters, and of node pools in one region.
func servedRecords() map[string]*state.DecisionRecord {
	clusters, pools := state.NewDecisionRecord(10), state.NewDecisionRecord(10)
	clusters.RecordDecision([]byte("a"), state.DecisionEntry{
		At: at(5), Reason: changed, Published: true, Generation: 3, ObservedGeneration: 2, Phase: "Ready",
		LastUpdated: at(-60), Since: at(4), Next: at(3), EventID: "evt-1",
	})
	clusters.RecordConfirmed("a", "evt-1", at(6))
	clusters.RecordDecisionIfKnown([]byte("a"), state.DecisionEntry{
		At: at(10), Reason: announced, Generation: 3, ObservedGeneration: 2, Phase: "Ready", LastUpdated: at(-60), Next: at(16),
	})
	clusters.RecordDecision([]byte("b"), state.DecisionEntry{At: at(1), Reason: changed, Published: true, Generation: 1, EventID: "evt-2"})
	clusters.RecordFailed("b", "evt-2", at(2), http.ErrHandlerTimeout)
	pools.RecordDecision([]byte("a"), state.DecisionEntry{At: at(3), Reason: changed, Published: true, Generation: 1, EventID: "evt-3"})
	return map[string]*state.DecisionRecord{"clusters": clusters, "nodepools region=eu": pools}
}

const path = "/debug/decisions"

func getRecords(t *testing.T, method, target string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	state.NewRecordHandler(servedRecords()).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, target, nil))
	return w
}

// TestRecordWireForm spells out the field names, because readers of the response depend on them.
func TestRecordWireForm(t *testing.T) {
	w := getRecords(t, http.MethodGet, path+"?id=a")
	var got map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != http.StatusOK {
		t.Fatalf("status %d, body %s: %v", w.Code, w.Body, err)
	}
	delete(got, "time")
	want := map[string]any{
		"total": 3.0,
		"resources": []any{
			map[string]any{
				"watch": "clusters", "resource_id": "a",
				"decisions": []any{
					map[string]any{
						"last_time": "2026-11-20T16:00:10Z", "first_time": "2026-11-20T16:00:10Z", "count": 1.0, "publish": false,
						"reason": announced, "generation": 3.0, "observed_generation": 2.0, "phase": "Ready",
						"last_updated_time": "2026-11-20T15:59:00Z", "due_time": "2026-11-20T16:00:16Z",
					},
					map[string]any{
						"last_time": "2026-11-20T16:00:05Z", "first_time": "2026-11-20T16:00:05Z", "count": 1.0, "publish": true,
						"reason": changed, "generation": 3.0, "observed_generation": 2.0, "phase": "Ready",
						"last_updated_time": "2026-11-20T15:59:00Z", "age_from": "2026-11-20T16:00:04Z", "due_time": "2026-11-20T16:00:03Z",
						"event_id": "evt-1", "confirmed_at": "2026-11-20T16:00:06Z",
					},
				},
			},
			map[string]any{
				"watch": "nodepools region=eu", "resource_id": "a",
				"decisions": []any{map[string]any{
					"last_time": "2026-11-20T16:00:03Z", "first_time": "2026-11-20T16:00:03Z", "count": 1.0, "publish": true,
					"reason": changed, "generation": 1.0, "observed_generation": 0.0, "phase": "", "event_id": "evt-3",
				}},
			},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
}

func TestRecordLatest(t *testing.T) {
	cases := map[string]struct {
		reason string
		query  string
		want   []string
	}{
		"All":   {"of all watches, the most recently noted first; a skip is no note", "", []string{"clusters a", "nodepools region=eu a", "clusters b"}},
		"Limit": {"no more than were asked for", "?limit=2", []string{"clusters a", "nodepools region=eu a"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var answer state.RecordResponse
			w := getRecords(t, http.MethodGet, path+tc.query)
			if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, d := range answer.Resources {
				got = append(got, d.Watch+" "+d.ResourceID)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if off := time.Since(answer.Time); off < 0 || off > time.Minute {
				t.Errorf("the answer is of %s, want now", answer.Time)
			}
		})
	}
}

func TestRecordHandlerRefusals(t *testing.T) {
	cases := map[string]struct {
		method, query string
		status        int
		code          string
	}{
		"Unknown":   {http.MethodGet, "?id=c", http.StatusNotFound, "no_decisions"},
		"NoNumber":  {http.MethodGet, "?limit=ten", http.StatusBadRequest, "invalid_query"},
		"TooMany":   {http.MethodGet, "?limit=1001", http.StatusBadRequest, "invalid_query"},
		"NoMethod":  {http.MethodPost, "", http.StatusMethodNotAllowed, "method_not_allowed"},
		"NoneAtAll": {http.MethodGet, "?limit=0", http.StatusBadRequest, "invalid_query"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := getRecords(t, tc.method, path+tc.query)
			var p v1.Problem
			if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
				t.Fatal(err)
			}
			if w.Code != tc.status || p.Status != tc.status || p.Code != tc.code || p.Detail == "" {
				t.Errorf("status %d with %+v, want %d with code %s and a detail", w.Code, p, tc.status, tc.code)
			}
			if got := w.Header().Get("Content-Type"); got != "application/problem+json" {
				t.Errorf("content type %q", got)
			}
		})
	}
}
