package e2e

import (
	"net/http"
	"os"
	"strings"
	"testing"
)

// TestLabelsNotReturned runs the specification's configuration, unchanged, on the
// resource of the specification, which has no labels: the API selects by them and
// does not return them.
func TestLabelsNotReturned(t *testing.T) {
	t.Parallel()
	// The comments of the specification are taken out, for JSON has none.
	const item = `{
  "id": "cls-123",
  "generation": 2,
  "status": {
    "phase": "Provisioning",
    "observed_generation": 1,
    "last_transition_time": "2025-10-21T10:00:00Z",
    "last_updated_time": "2025-10-21T12:00:00Z"
  }
}`
	api := newStub(t, func(w http.ResponseWriter, r *http.Request) {
		items := "[]"
		if r.URL.Query().Get("labels") == "region=us-east" {
			items = "[" + item + "]"
		}
		text(http.StatusOK, `{"items":`+items+`}`)(w, r)
	})
	q := openQueue(t, binding{url: rabbit(t).URL(), exchange: exchangeOf(t), queue: exchangeOf(t)})
	config := "../specification/service/sentinel-us-east-config.yaml"
	if _, err := os.Stat(config); err != nil {
		t.Fatal(err)
	}
	env := mergeEnv(rabbitEnv(rabbit(t).Addr(), exchangeOf(t)), map[string]string{"HYPERFLEET_API_ENDPOINT": api.URL})
	s := start(t, "sentinel", sentinelEnv(env), "--config", config)
	e := q.wantEvents(t, "cls-123", 1, patience)[0]
	if e.str("resource_id") != "cls-123" || e.Type != clusterEvent {
		t.Errorf("event %s with %s", e.Type, e.Data)
	}
	s.wantReady(t)
	api.wantMore(t, 2)
	const warning = "api filters by labels but does not return them, trusting its filter"
	s.wantLine(t, warning, map[string]any{"level": "warn", "selector": "region=us-east"})
	if n := strings.Count(s.log.String(), warning); n != 1 {
		t.Errorf("%d warnings, want one", n)
	}
	if got := s.metrics(t).sum("hyperfleet_sentinel_selector_mismatches_total"); got != 0 {
		t.Errorf("%g resources dropped", got)
	}
}
