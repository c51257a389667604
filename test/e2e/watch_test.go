package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// respecify gives a cluster a spec of its own.
func (f *fleet) respecify(t *testing.T, id string, n int) {
	t.Helper()
	spec := json.RawMessage(fmt.Sprintf(`{"replicas":%d}`, 10+n))
	if _, err := f.api.Clusters().Patch(t.Context(), id, v1.PatchRequest{Spec: spec}); err != nil {
		t.Fatal(err)
	}
}

// TestWatch holds that a changed spec is published without a poll: the poll
// interval is an hour. It is so when the watch was cut, and when the API was
// down meanwhile.
func TestWatch(t *testing.T) {
	t.Parallel()
	p := newProxied(t, "poll_interval: 1h\n", nil)
	wantMetric(t, p.sentinel, "hyperfleet_sentinel_source_mode", 1, "mode", "watch")
	c := p.create(t, "cluster-1", "")
	p.queue.wantEvents(t, c.ID, 1, patience)
	for i := range 3 {
		p.apiWay.ResetConnections()
		p.respecify(t, c.ID, i)
		p.queue.wantEvents(t, c.ID, 2+i, patience)
	}
	wantMetric(t, p.sentinel, "hyperfleet_sentinel_resyncs_total", 0)
	if got := len(p.queue.of(c.ID)); got != 4 {
		t.Errorf("%d events for 4 generations", got)
	}
}

// TestWhy holds that anyone can ask the running sentinel, and that its record
// asks for the token of the metrics.
func TestWhy(t *testing.T) {
	t.Parallel()
	f := newFleet(t, oneAdapter())
	q := openQueue(t, binding{url: rabbit(t).URL(), exchange: exchangeOf(t), queue: exchangeOf(t)})
	const config = "resource_type: clusters\nhyperfleet_api: {endpoint: API}\nmax_age_not_ready: 1h\n"
	s := newSentinel(t, f.url, config, mergeEnv(rabbitEnv(rabbit(t).Addr(), exchangeOf(t)), map[string]string{"METRICS_TOKEN": "let-me-see"}))
	s.wantReady(t)
	c := f.create(t, "cluster-1", "")
	event := q.wantEvents(t, c.ID, 1, patience)[0]

	url := "http://" + s.addr(t, "metrics")
	if code, _ := get(t, url+"/metrics"); code != 401 {
		t.Errorf("metrics without a token: status %d", code)
	}
	ask := func(token string, want ...string) {
		t.Helper()
		p := start(t, "sentinel", map[string]string{"METRICS_TOKEN": token}, "why", c.ID, "--config", writeConfig(t, f.url, config), "--sentinel-url", url)
		if code := p.wait(t, slack); code != 0 {
			t.Errorf("exit code %d", code)
		}
		for _, text := range want {
			if !strings.Contains(p.log.String(), text) {
				t.Errorf("it does not say %q:\n%s", text, p.log)
			}
		}
		if strings.Contains(p.log.String(), "let-me-see") {
			t.Error("it shows the token")
		}
	}
	ask("let-me-see", "generation changed - new spec to reconcile", "last event   "+event.ID, "confirmed")
	ask("wrong", "generation changed - new spec to reconcile", "METRICS_TOKEN")
}

// TestStopsWithWatches holds that an API with open watches stops at once, and
// that the sentinel notices.
func TestStopsWithWatches(t *testing.T) {
	t.Parallel()
	l := newLoop(t, oneAdapter(), "poll_interval: 100ms\n")
	wantMetric(t, l.sentinel, "hyperfleet_sentinel_source_mode", 1, "mode", "watch")
	if code := l.stop(t, syscall.SIGTERM, 5*time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	l.sentinel.wantUnready(t, "[-]sentinel failed: ")
	eventually(t, patience, func() error {
		if l.sentinel.metrics(t).sum("hyperfleet_sentinel_api_errors_total") == 0 {
			return errors.New("no API error is counted")
		}
		return nil
	})
}
