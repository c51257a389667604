package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/sentinel/inspect"
)

// publicConfig writes the configuration file that the chart of the public
// sentinel makes, for a fleet API and without its token.
func publicConfig(t *testing.T, apiURL string, replace ...string) string {
	t.Helper()
	raw, err := os.ReadFile("../../internal/app/sentinelapp/testdata/public.yaml")
	if err != nil {
		t.Fatal(err)
	}
	replace = append(replace,
		"http://hyperfleet-api.hyperfleet-system.svc.cluster.local:8000", apiURL,
		"      token_path: /var/run/secrets/hyperfleet/token\n", "")
	return write(t, "config.yaml", strings.NewReplacer(replace...).Replace(string(raw)))
}

// output runs the sentinel binary to its end and gives what it wrote.
func output(t *testing.T, env map[string]string, args ...string) string {
	t.Helper()
	p := start(t, "sentinel", env, args...)
	if code := p.wait(t, patience); code != 0 {
		t.Fatalf("sentinel %s ended with code %d, want 0:\n%s", strings.Join(args, " "), code, p.log)
	}
	return p.log.String()
}

// TestPublicRules evaluates the rules of the public sentinel on the answers of
// the fleet API. A cluster that no adapter has reported on is due only when
// its age has passed, which is an hour here.
func TestPublicRules(t *testing.T) {
	t.Parallel()
	f := newFleet(t, oneAdapter())
	config := filepath.Join(t.TempDir(), "sentinel-config.yaml")
	converted := output(t, nil, "convert", publicConfig(t, f.url, `duration("10s")`, `duration("1h")`))
	if err := os.WriteFile(config, []byte(converted), 0o600); err != nil {
		t.Fatal(err)
	}
	due := func(when string, want int) {
		t.Helper()
		var plan inspect.PlanReport
		if err := json.Unmarshal([]byte(output(t, nil, "plan", "--config", config, "-o", "json")), &plan); err != nil {
			t.Fatal(err)
		}
		if plan.Matching != 1 || plan.Due != want {
			t.Errorf("%s: %d of %d clusters are due, want %d of 1", when, plan.Due, plan.Matching, want)
		}
	}
	c := f.create(t, "unanswered", "shard=1")
	due("nobody has reported", 0)
	f.report(t, c.ID, 1, true)
	due("the adapter has reported", 0)
	f.patch(t, c.ID)
	due("nobody has reported on the new generation", 0)
}

// TestHyperFleetHowTo pastes the commands of "Run it" from the how-to into a
// shell beside a converted file. Only the address of RabbitMQ differs. The queue
// is bound as those of public adapters are, and the event has the types that
// they read.
func TestHyperFleetHowTo(t *testing.T) {
	t.Parallel()
	f := newFleet(t, oneAdapter())
	c := f.create(t, "announced", "shard=1")
	q := openQueue(t, binding{url: rabbit(t).URL(), exchange: "hyperfleet-system-clusters", exchangeType: "topic", queue: "hyperfleet-system-clusters-validation"})

	dir := t.TempDir()
	converted := output(t, nil, "convert", publicConfig(t, f.url, `duration("10s")`, `duration("1ms")`))
	if err := os.WriteFile(filepath.Join(dir, "sentinel-config.yaml"), []byte(converted), 0o600); err != nil {
		t.Fatal(err)
	}
	script := "cd " + dir + "\n" + codeBelow(t, "../../docs/how-to/connect-to-hyperfleet.md", "## Run it")
	script = strings.NewReplacer("127.0.0.1:5672", rabbit(t).Addr(), "\nsentinel ", "\nexec sentinel ").Replace(script)
	env := sentinelEnv(map[string]string{"PATH": filepath.Dir(binary(t, "sentinel")) + ":" + os.Getenv("PATH")})
	s := startProgram(t, "sentinel", "/bin/bash", env, "-euc", script)

	e := q.wantEvents(t, c.ID, 1, patience)[0]
	if e.delivery.RoutingKey != "" || e.data["generation"] != float64(1) || e.str("kind") != v1.KindCluster {
		t.Errorf("routing key %q, data %s; want the empty key, and the generation as a number", e.delivery.RoutingKey, e.Data)
	}
	s.wantReady(t)
}

// codeBelow returns the first shell block below a heading of a document.
func codeBelow(t *testing.T, file, heading string) string {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, below, found := strings.Cut(string(raw), "\n"+heading+"\n")
	_, block, fenced := strings.Cut(below, "\n```sh\n")
	code, _, closed := strings.Cut(block, "\n```\n")
	if !found || !fenced || !closed || code == "" {
		t.Fatalf("%s has no shell block below %q", file, heading)
	}
	return code + "\n"
}

// TestPublicMetrics scrapes the metrics under the names and labels of the
// public sentinel. They are served where SENTINEL_HYPERFLEET_METRICS asks for
// them; the sentinel's own stay as they are.
func TestPublicMetrics(t *testing.T) {
	t.Parallel()
	f := newFleet(t, oneAdapter())
	openQueue(t, binding{url: rabbit(t).URL(), exchange: exchangeOf(t), queue: exchangeOf(t)})
	config := sentinelConfig("resource_type: clusters\npoll_interval: 100ms\nmax_age_not_ready: 1h\nresource_selector: [{label: region, value: us-east}]\nhyperfleet_api: {endpoint: API}\nsource: {mode: sweep}\n")
	env := rabbitEnv(rabbit(t).Addr(), exchangeOf(t))
	plain := newSentinel(t, f.url, config, env)
	if code, _ := get(t, "http://"+plain.addr(t, "metrics")+"/metrics/hyperfleet"); code != http.StatusNotFound {
		t.Errorf("without the setting: status %d, want %d", code, http.StatusNotFound)
	}

	s := newSentinel(t, f.url, config, mergeEnv(env, map[string]string{"SENTINEL_HYPERFLEET_METRICS": "true"}))
	answered, waiting := f.create(t, "answered", "region=us-east"), f.create(t, "waiting", "region=us-east")
	wantMetric(t, s, "hyperfleet_sentinel_events_published_total", 2)
	f.report(t, answered.ID, 1, true)
	wantMetric(t, s, "hyperfleet_sentinel_decisions_total", 1, "reason", "max age not expired")

	const selects = " resource_selector resource_type version"
	want := map[string][2]string{
		"hyperfleet_sentinel_pending_resources":                      {"gauge", "component" + selects},
		"hyperfleet_sentinel_events_published_total":                 {"counter", "component reason" + selects},
		"hyperfleet_sentinel_resources_skipped_total":                {"counter", "component reason" + selects},
		"hyperfleet_sentinel_poll_duration_seconds":                  {"histogram", "component" + selects},
		"hyperfleet_sentinel_api_errors_total":                       {"counter", "component error_type" + selects},
		"hyperfleet_sentinel_broker_errors_total":                    {"counter", "component error_type" + selects},
		"hyperfleet_sentinel_last_successful_poll_timestamp_seconds": {"gauge", "component version"},
	}
	public := s.metricsAt(t, "/metrics/hyperfleet")
	got := map[string][2]string{}
	for _, one := range public.series {
		name, labels := public.family(one)
		got[name] = [2]string{public.types[name], labels}
		if one.labels["component"] != "sentinel" || one.labels["version"] == "" {
			t.Errorf("%s has component %q and version %q", one.name, one.labels["component"], one.labels["version"])
		}
		if selector, ok := one.labels["resource_selector"]; ok && (selector != "region:us-east" || one.labels["resource_type"] != "clusters") {
			t.Errorf("%s has selector %q and type %q, want region:us-east and clusters", one.name, selector, one.labels["resource_type"])
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
	values := map[string]float64{
		"published": public.sum("hyperfleet_sentinel_events_published_total", "reason", reasonGeneration),
		"all":       public.sum("hyperfleet_sentinel_events_published_total"),
	}
	if diff := cmp.Diff(map[string]float64{"published": 2, "all": 2}, values); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	for _, name := range []string{"resources_skipped_total", "poll_duration_seconds_count", "last_successful_poll_timestamp_seconds"} {
		if public.sum("hyperfleet_sentinel_"+name) == 0 {
			t.Errorf("%s is 0", name)
		}
	}
	eventually(t, patience, func() error {
		if n := s.metricsAt(t, "/metrics/hyperfleet").sum("hyperfleet_sentinel_pending_resources"); n != 1 {
			return fmt.Errorf("%g resources are pending, want 1: nobody has answered for %s", n, waiting.ID)
		}
		return nil
	})
	if own := s.metrics(t); own.sum("hyperfleet_sentinel_pending_resources", "shard", "region=us-east") != 2 || own.types["hyperfleet_sentinel_poll_duration_seconds"] != "" {
		t.Error("the sentinel's own metrics are others than without the setting")
	}
}
