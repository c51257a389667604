package e2e

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/internal/broker/brokertest"
)

// A scrape is what /metrics said.
type scrape struct {
	types  map[string]string // by metric
	series []series
}

// A series is one line.
type series struct {
	name   string
	labels map[string]string
	value  float64
}

// metrics asks a process for its metrics.
func (p *process) metrics(t *testing.T) scrape {
	t.Helper()
	return p.metricsAt(t, "/metrics")
}

// metricsAt is metrics at another path.
func (p *process) metricsAt(t *testing.T, path string) scrape {
	t.Helper()
	code, body := get(t, "http://"+p.addr(t, "metrics")+path)
	if code != http.StatusOK {
		t.Fatalf("%s of %s: %d %s", path, p.name, code, body)
	}
	s := scrape{types: map[string]string{}}
	for line := range strings.Lines(body) {
		line = strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, _ := strings.Cut(rest, " ")
			s.types[name] = kind
			continue
		}
		if line == "" || line[0] == '#' {
			continue
		}
		one, err := parseSeries(line)
		if err != nil {
			t.Fatalf("%s of %s: %q: %v", path, p.name, line, err)
		}
		s.series = append(s.series, one)
	}
	return s
}

// parseSeries reads name{label="value",…} number.
func parseSeries(line string) (series, error) {
	at := strings.LastIndexByte(line, ' ')
	value, err := strconv.ParseFloat(line[at+1:], 64)
	if err != nil {
		return series{}, err
	}
	name, rest, _ := strings.Cut(line[:at], "{")
	one := series{name: name, labels: map[string]string{}, value: value}
	for rest = strings.TrimSuffix(rest, "}"); rest != ""; {
		label, after, _ := strings.Cut(rest, "=")
		quoted, err := strconv.QuotedPrefix(after)
		if err != nil {
			return series{}, err
		}
		if one.labels[label], err = strconv.Unquote(quoted); err != nil {
			return series{}, err
		}
		rest = strings.TrimPrefix(after[len(quoted):], ",")
	}
	return one, nil
}

// family is the name of the metric that a series belongs to, and its labels.
func (s scrape) family(one series) (name, labels string) {
	name = one.name
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if base, ok := strings.CutSuffix(name, suffix); ok && s.types[base] == "histogram" {
			name = base
		}
	}
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(one.labels)), func(label string) bool { return label == "le" })
	return name, strings.Join(names, " ")
}

// sum adds up the series of a metric, those that have all the given labels,
// written as label, value, label, value.
func (s scrape) sum(name string, labels ...string) float64 {
	total := 0.0
	for _, one := range s.series {
		match := one.name == name
		for i := 0; i+1 < len(labels); i += 2 {
			match = match && one.labels[labels[i]] == labels[i+1]
		}
		if match {
			total += one.value
		}
	}
	return total
}

// table reads the metrics of the sentinel from its specification, with their
// types and labels.
func table(t *testing.T) map[string][2]string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(specification, "operator/metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	metrics := map[string][2]string{}
	for line := range strings.Lines(string(raw)) {
		cells := strings.Split(strings.NewReplacer("`", "", ",", "").Replace(line), "|")
		if name := strings.TrimSpace(cells[1]); strings.HasPrefix(name, "hyperfleet_") {
			labels := strings.Fields(cells[3])
			slices.Sort(labels)
			metrics[name] = [2]string{strings.ToLower(strings.TrimSpace(cells[2])), strings.Join(labels, " ")}
		}
	}
	if len(metrics) != 7 {
		t.Fatalf("the table has %d metrics, want 7: %s", len(metrics), raw)
	}
	return metrics
}

// TestMetrics holds names, types and labels to the specification's table, and
// the numbers to what happened.
func TestMetrics(t *testing.T) {
	t.Parallel()
	f := newFleet(t, oneAdapter())
	broker, err := brokertest.StartFaultProxy(rabbit(t).Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	api, err := brokertest.StartFaultProxy(strings.TrimPrefix(f.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(api.Close)
	q := openQueue(t, binding{url: rabbit(t).URL(), exchange: "metrics", queue: "metrics"})
	l := &loop{fleet: f, queue: q, sentinel: newSentinel(t, "http://"+api.Addr(), `
resource_type: clusters
poll_interval: 100ms
max_age_not_ready: 1h
resource_selector: [{label: region, value: us-east}]
publish: {max_attempts: 1, timeout: 1s}
hyperfleet_api: {endpoint: API}
`, rabbitEnv(broker.Addr(), "metrics"))}
	l.sentinel.wantReady(t)
	for i := range 3 {
		l.create(t, fmt.Sprintf("east-%d", i), "region=us-east")
		l.create(t, fmt.Sprintf("west-%d", i), "region=us-west")
	}
	wantMetric(t, l.sentinel, "hyperfleet_sentinel_events_published_total", 3)
	wantMetric(t, l.sentinel, "hyperfleet_sentinel_pending_resources", 3)
	wantTable(t, l.sentinel.metrics(t))

	// Skips are counted by state of the resource.
	ready := q.all()[0].Subject
	l.report(t, ready, 1, true)
	l.wantRounds(t, 2)
	before := l.sentinel.metrics(t)
	l.wantRounds(t, 3)
	after := l.sentinel.metrics(t)
	grown := func(state string) float64 {
		const name = "hyperfleet_sentinel_resources_skipped_total"
		return after.sum(name, "ready_state", state) - before.sum(name, "ready_state", state)
	}
	if r, n := grown("ready"), grown("not_ready"); r < 3 || n != 2*r {
		t.Errorf("skipped %g ready and %g others in some rounds over 1 ready and 2 others", r, n)
	}

	// What was not confirmed is not published, but a broker error.
	broker.SetRefuseConnections(true)
	broker.ResetConnections()
	l.patch(t, ready)
	wantMetric(t, l.sentinel, "hyperfleet_sentinel_broker_errors_total", 1, "broker_type", "rabbitmq")
	if n := l.sentinel.metrics(t).sum("hyperfleet_sentinel_events_published_total"); n != 3 {
		t.Errorf("%g events published, want 3", n)
	}
	broker.SetRefuseConnections(false)
	wantMetric(t, l.sentinel, "hyperfleet_sentinel_events_published_total", 4)
	if got := len(q.all()); got != 4 {
		t.Errorf("the queue has %d events, the metric says 4", got)
	}

	api.SetRefuseConnections(true)
	api.ResetConnections()
	wantMetric(t, l.sentinel, "hyperfleet_sentinel_api_errors_total", 1, "operation", "fetch_resources")
	if n := l.sentinel.metrics(t).sum("hyperfleet_sentinel_api_errors_total", "operation", "config_load"); n != 0 {
		t.Errorf("%g errors of the custom resource, want none", n)
	}
}

// wantMetric waits until a metric has at least a value.
func wantMetric(t *testing.T, p *process, name string, want float64, labels ...string) {
	t.Helper()
	eventually(t, patience, func() error {
		if got := p.metrics(t).sum(name, labels...); got < want {
			return fmt.Errorf("%s %v is %g, want %g", name, labels, got, want)
		}
		return nil
	})
}

// wantTable checks the specification's metrics, and that every other label of
// ours comes from a closed set: no series has an id or a name in it.
func wantTable(t *testing.T, s scrape) {
	t.Helper()
	want, got := table(t), map[string][2]string{}
	for _, one := range s.series {
		if !strings.HasPrefix(one.name, "hyperfleet_sentinel_") {
			continue
		}
		if one.labels["shard"] != "region=us-east" || one.labels["resource_type"] != "clusters" {
			t.Errorf("%s has shard %q and resource_type %q, want region=us-east and clusters", one.name, one.labels["shard"], one.labels["resource_type"])
		}
		name, labels := s.family(one)
		if _, ok := want[name]; ok {
			got[name] = [2]string{s.types[name], labels}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
	for _, name := range []string{"go_goroutines", "process_resident_memory_bytes", "fleetloop_build_info"} {
		if s.types[name] == "" {
			t.Errorf("no metric %s", name)
		}
	}
}
