package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
)

// A fleet is a running fleet API with a database of its own.
type fleet struct {
	*process
	url string
	api *fleetclient.Client
}

// newFleet starts a fleet API on a fresh database. env says what differs from
// the usual.
func newFleet(t *testing.T, env map[string]string) *fleet {
	t.Helper()
	f := startFleet(t, env)
	f.wantReady(t)
	return f
}

// startFleet is newFleet without waiting.
func startFleet(t *testing.T, env map[string]string) *fleet {
	t.Helper()
	all := map[string]string{
		"LISTEN_ADDRESS": "127.0.0.1:0", "METRICS_BIND_ADDRESS": "127.0.0.1:0", "HEALTH_PROBE_BIND_ADDRESS": "localhost:0",
	}
	if env["DATABASE_URL"] == "" {
		all["DATABASE_URL"] = pgtest.NewMigratedDatabaseURL(t)
	}
	maps.Copy(all, env)
	f := &fleet{process: start(t, "fleet-api", all)}
	f.url = "http://" + f.addr(t, "fleet API")
	f.api = newClient(t, fleetclient.Config{Endpoint: f.url})
	return f
}

func newClient(t *testing.T, cfg fleetclient.Config) *fleetclient.Client {
	t.Helper()
	c, err := fleetclient.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdle)
	return c
}

// create creates a cluster with the given labels, written as "k=v,l=w".
func (f *fleet) create(t *testing.T, name, labels string) v1.Resource {
	t.Helper()
	req := v1.CreateRequest{Name: name, Spec: json.RawMessage(`{"replicas":1}`)}
	for pair := range strings.SplitSeq(labels, ",") {
		if key, value, ok := strings.Cut(pair, "="); ok {
			if req.Labels == nil {
				req.Labels = map[string]string{}
			}
			req.Labels[key] = value
		}
	}
	r, err := f.api.Clusters().Create(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// patch gives a cluster, as create makes it, a new spec.
func (f *fleet) patch(t *testing.T, id string) v1.Resource {
	t.Helper()
	r, err := f.api.Clusters().Patch(t.Context(), id, v1.PatchRequest{Spec: json.RawMessage(`{"replicas":2}`)})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// get reads a cluster.
func (f *fleet) get(t *testing.T, id string) v1.Resource {
	t.Helper()
	r, err := f.api.Clusters().Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// report reports as the adapter dns, which just looked, available or not.
func (f *fleet) report(t *testing.T, id string, generation int64, available bool) {
	t.Helper()
	at := time.Now()
	status := v1.ConditionFalse
	if available {
		status = v1.ConditionTrue
	}
	stored, err := f.api.Clusters().Report(t.Context(), id, v1.Report{
		Adapter: "dns", ObservedGeneration: generation, ObservedTime: &at,
		Conditions: []v1.ReportCondition{
			{Type: v1.ConditionAvailable, Status: status},
			{Type: v1.ConditionApplied, Status: status},
			{Type: v1.ConditionHealth, Status: v1.ConditionTrue},
		},
	})
	if err != nil || !stored {
		t.Fatalf("report on %s: stored %v, %v", id, stored, err)
	}
}

// oneAdapter makes one adapter enough for a cluster.
func oneAdapter() map[string]string {
	return map[string]string{"FLEET_API_REQUIRED_ADAPTERS_CLUSTERS": "dns"}
}

// A sentinelConfig is the text of a configuration file; API stands for the
// URL of the fleet API in it.
type sentinelConfig string

// newSentinel starts a sentinel on a configuration file, with metrics and
// health on ports of its own. env must name the broker.
func newSentinel(t *testing.T, apiURL string, config sentinelConfig, env map[string]string) *process {
	t.Helper()
	return start(t, "sentinel", sentinelEnv(env), "--config", writeConfig(t, apiURL, config))
}

func sentinelEnv(env map[string]string) map[string]string {
	all := map[string]string{"METRICS_BIND_ADDRESS": "127.0.0.1:0", "HEALTH_PROBE_BIND_ADDRESS": "localhost:0"}
	maps.Copy(all, env)
	return all
}

func writeConfig(t *testing.T, apiURL string, config sentinelConfig) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "sentinel-config.yaml")
	text := strings.ReplaceAll(string(config), "API", apiURL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// rabbitEnv are the broker's variables for an exchange on RabbitMQ at an
// address.
func rabbitEnv(addr, exchange string) map[string]string {
	host, port, _ := strings.Cut(addr, ":")
	return map[string]string{
		"BROKER_TYPE": "rabbitmq", "BROKER_HOST": host, "BROKER_PORT": port,
		"BROKER_EXCHANGE": exchange, "BROKER_EXCHANGE_TYPE": "fanout",
	}
}

// A loop is a fleet API, a sentinel that watches its clusters, and a queue
// with the sentinel's events.
type loop struct {
	*fleet
	sentinel *process
	queue    *queue
}

// newLoop starts a loop with nothing to do. The configuration is without
// resource_type and hyperfleet_api, which it gets here.
func newLoop(t *testing.T, apiEnv map[string]string, config string) *loop {
	t.Helper()
	l := &loop{fleet: newFleet(t, apiEnv)}
	exchange := exchangeOf(t)
	l.queue = openQueue(t, binding{url: rabbit(t).URL(), exchange: exchange, queue: exchange + "-test"})
	l.sentinel = newSentinel(t, l.url, sentinelConfig("resource_type: clusters\nhyperfleet_api: {endpoint: API}\n"+config), rabbitEnv(rabbit(t).Addr(), exchange))
	l.sentinel.wantReady(t)
	return l
}

// exchangeOf is the exchange of a test.
func exchangeOf(t *testing.T) string {
	t.Helper()
	return "events-" + strings.ReplaceAll(t.Name(), "/", "-")
}

// wantObserved waits until all adapters have reported a generation as
// available.
func (l *loop) wantObserved(t *testing.T, id string, generation int64) {
	t.Helper()
	eventually(t, patience, func() error {
		if r := l.get(t, id); r.Status.Phase != v1.PhaseReady || r.Status.ObservedGeneration != generation {
			return fmt.Errorf("cluster %s is %s at generation %d, want %s at %d", id, r.Status.Phase, r.Status.ObservedGeneration, v1.PhaseReady, generation)
		}
		return nil
	})
}

// wantRounds waits until the sentinel has done n more rounds.
func (l *loop) wantRounds(t *testing.T, n float64) {
	t.Helper()
	const rounds = "hyperfleet_sentinel_reconcile_duration_seconds_count"
	before := l.sentinel.metrics(t).sum(rounds)
	eventually(t, patience, func() error {
		if done := l.sentinel.metrics(t).sum(rounds) - before; done < n {
			return fmt.Errorf("%g rounds, want %g", done, n)
		}
		return nil
	})
}

// statusOf is the HTTP status of an error of the client, 0 if there was no
// answer.
func statusOf(err error) int {
	if err == nil {
		return http.StatusOK
	}
	if e, ok := errors.AsType[*fleetclient.Error](err); ok {
		return e.Status
	}
	return 0
}
