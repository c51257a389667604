package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestStatusShapes holds which resources an API without status.phase has
// announced: what its status says itself counts more than its conditions, and
// conditions that are not known make nothing ready.
func TestStatusShapes(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC()
	stamps := strings.NewReplacer("NOW", now.Format(time.RFC3339), "HOUR", now.Add(-time.Hour).Format(time.RFC3339))
	api := newStub(t, text(http.StatusOK, stamps.Replace(`{"items":[
		{"id":"available-behind","generation":2,"created_time":"NOW","status":{"observed_generation":1,"conditions":[{"type":"Available","status":"False","last_updated_time":"NOW"}]}},
		{"id":"available-alone","generation":1,"created_time":"NOW","status":{"conditions":[{"type":"Available","status":"True","last_updated_time":"NOW"}]}},
		{"id":"available-old","generation":2,"updated_time":"HOUR","status":{"observed_generation":2,"conditions":[{"type":"Available","status":"True","last_updated_time":"NOW"}]}},
		{"id":"ready-behind","generation":2,"status":{"observed_generation":1,"conditions":[{"type":"Ready","status":"True","observed_generation":2,"last_updated_time":"NOW"}]}},
		{"id":"observed-null","generation":1,"status":{"phase":"NotReady","observed_generation":null,"last_updated_time":"NOW"}},
		{"id":"observed-absent","generation":1,"status":{"phase":"Ready","last_updated_time":"NOW"}},
		{"id":"phase-failed","generation":1,"status":{"phase":"Failed","observed_generation":1,"last_updated_time":"HOUR"}},
		{"id":"phase-empty","generation":1,"status":{"phase":"","observed_generation":1,"last_updated_time":"HOUR"}},
		{"id":"phase-absent","generation":1,"status":{"observed_generation":1,"last_updated_time":"HOUR"}},
		{"id":"phase-ready","generation":1,"status":{"phase":"Ready","observed_generation":1,"last_updated_time":"HOUR","conditions":[{"type":"Ready","status":"False"}]}},
		{"id":"nothing-yet","generation":1,"status":{"conditions":[]}},
		{"id":"reconciled","generation":2,"updated_time":"HOUR","status":{"conditions":[
			{"type":"Reconciled","status":"True","observed_generation":2,"last_updated_time":"NOW"},
			{"type":"DnsSuccessful","status":"True","observed_generation":2,"last_updated_time":"NOW"}]}},
		{"id":"without-adapters","href":"/api/hyperfleet/v1/clusters/without-adapters","created_by":"x","generation":2,"updated_time":"NOW","status":{"conditions":[]}}
	]}`)))
	q := openQueue(t, binding{url: rabbit(t).URL(), exchange: exchangeOf(t), queue: exchangeOf(t)})
	s := newSentinel(t, api.URL, `
resource_type: clusters
poll_interval: 200ms
max_age_not_ready: 30m
max_age_ready: 12h
hyperfleet_api: {endpoint: API}
`, rabbitEnv(rabbit(t).Addr(), exchangeOf(t)))
	const notReady = "max age expired (not ready)"
	want := map[string]string{
		"available-behind": reasonGeneration, "available-alone": reasonGeneration, "ready-behind": reasonGeneration,
		"nothing-yet": reasonGeneration, "observed-null": reasonGeneration, "observed-absent": reasonGeneration,
		"available-old": notReady, "phase-failed": notReady, "phase-empty": notReady, "phase-absent": notReady,
	}
	for id, reason := range want {
		if e := q.wantEvents(t, id, 1, patience)[0]; e.str("reason") != reason {
			t.Errorf("%s: reason %q, want %q", id, e.str("reason"), reason)
		}
	}
	api.wantMore(t, 3)
	if n := len(q.all()); n != len(want) {
		t.Errorf("%d events, want %d: of the others two are ready, and one has nothing to wait for", n, len(want))
	}
	for _, id := range []string{"available-behind", "available-alone", "available-old"} {
		s.wantLine(t, "resource has no status.phase and no known condition, treated as not ready",
			map[string]any{"level": "warn", "resource_id": id, "reason": "unknown_status", "field": "status.conditions"})
	}
	wantMetric(t, s, "hyperfleet_sentinel_decode_errors_total", 3, "reason", "unknown_status")
}

// TestTransitionAgeShapes holds that the profile transition-age takes everything
// but the phase Ready, letter for letter, for not ready, and looks at neither
// generations nor conditions.
func TestTransitionAgeShapes(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC()
	stamps := strings.NewReplacer("NOW", now.Format(time.RFC3339), "HOUR", now.Add(-time.Hour).Format(time.RFC3339),
		"FAILING", `"conditions":[{"type":"DnsSuccessful","status":"False","observed_generation":1},{"type":"Available","status":"False"}]`)
	api := newStub(t, text(http.StatusOK, stamps.Replace(`{"items":[
		{"id":"failed","status":{"phase":"Failed","lastTransitionTime":"HOUR"}},
		{"id":"lower-case","status":{"phase":"ready","lastTransitionTime":"HOUR"}},
		{"id":"empty","status":{"phase":"","lastTransitionTime":"HOUR"}},
		{"id":"absent","status":{"lastTransitionTime":"HOUR"}},
		{"id":"absent-failing","status":{"lastTransitionTime":"HOUR",FAILING}},
		{"id":"fresh","generation":5,"status":{"phase":"Provisioning","observedGeneration":1,"lastTransitionTime":"NOW",FAILING}},
		{"id":"fresh-absent","status":{"lastTransitionTime":"NOW",FAILING}},
		{"id":"ready","generation":5,"status":{"phase":"Ready","observedGeneration":1,"lastTransitionTime":"HOUR",FAILING}}
	]}`)))
	q := openQueue(t, binding{url: rabbit(t).URL(), exchange: exchangeOf(t), queue: exchangeOf(t)})
	s := newSentinel(t, api.URL, `
resource_type: clusters
poll_interval: 200ms
max_age_not_ready: 30m
max_age_ready: 12h
decision: {profile: transition-age}
hyperfleet_api: {endpoint: API}
`, rabbitEnv(rabbit(t).Addr(), exchangeOf(t)))
	due := []string{"failed", "lower-case", "empty", "absent", "absent-failing"}
	for _, id := range due {
		if e := q.wantEvents(t, id, 1, patience)[0]; e.str("reason") != "backoff-expired" {
			t.Errorf("%s: reason %q, want %q", id, e.str("reason"), "backoff-expired")
		}
	}
	api.wantMore(t, 3)
	if n := len(q.all()); n != len(due) {
		t.Errorf("%d events, want %d: the others are fresh, or ready", n, len(due))
	}
	wantMetric(t, s, "hyperfleet_sentinel_resources_skipped_total", 2, "ready_state", "not_ready")
	wantMetric(t, s, "hyperfleet_sentinel_resources_skipped_total", 1, "ready_state", "ready")
}
