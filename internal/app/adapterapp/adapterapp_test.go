package adapterapp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/broker/brokertest"
	"github.com/fleetloop/fleetloop/internal/broker/nats"
	"github.com/fleetloop/fleetloop/internal/broker/nats/natsserver"
	"github.com/fleetloop/fleetloop/internal/processtest"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// asRunner makes the test binary an adapter-runner, for a test that kills it.
const asRunner = "FLEETLOOP_TEST_ADAPTER_RUNNER"

func TestMain(m *testing.M) {
	if file, ok := settings.OSEnv(asRunner); ok {
		cmd := NewCommand(os.Stdout, os.Stderr, settings.OSEnv)
		cmd.SetArgs([]string{"-f", file})
		if err := cmd.ExecuteContext(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1) //nolint:forbidigo // this process is the program
		}
		return
	}
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start")) // started by an init function of the Pub/Sub client
}

// A server is a fleet API with one cluster, and the DNS service that the adapter manages.
type server struct {
	*httptest.Server

	mu      sync.Mutex
	works   int
	reports []v1.Report
	stuck   chan struct{} // reports wait for it, if not nil
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{}
	cluster := v1.Resource{ID: "c1", Name: "eu-1", Kind: "Cluster", Generation: 1, Spec: json.RawMessage(`{"zone":"a.example"}`)}
	mux := http.NewServeMux()
	reply := func(w http.ResponseWriter, body any) { _ = json.NewEncoder(w).Encode(body) } // the client may be gone
	mux.HandleFunc("GET "+v1.BasePath+"/clusters", func(w http.ResponseWriter, r *http.Request) {
		list := v1.List{Items: []v1.Resource{}}
		if r.URL.Query().Get("search") == "name = 'eu-1' or id = 'eu-1'" {
			list.Items = append(list.Items, cluster)
		}
		reply(w, list)
	})
	mux.HandleFunc("GET "+v1.BasePath+"/clusters/{id}", func(w http.ResponseWriter, _ *http.Request) { reply(w, cluster) })
	mux.HandleFunc("GET "+v1.BasePath+"/clusters/{id}/statuses", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, v1.AdapterStatusList{Items: []v1.AdapterStatus{}})
	})
	mux.HandleFunc("PUT "+v1.BasePath+"/clusters/{id}/statuses", func(w http.ResponseWriter, r *http.Request) {
		var report v1.Report
		if err := json.NewDecoder(r.Body).Decode(&report); err != nil {
			return // of a killed process
		}
		s.mu.Lock()
		stuck := s.stuck
		if stuck == nil {
			s.reports = append(s.reports, report)
		}
		s.mu.Unlock()
		if stuck != nil {
			<-stuck
		}
		w.WriteHeader(http.StatusCreated)
		reply(w, v1.AdapterStatus{Adapter: report.Adapter})
	})
	mux.HandleFunc("PUT /zones/c1", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.works++
		reply(w, map[string]string{"state": "ready"})
	})
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func (s *server) counts() (works, reports int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.works, len(s.reports)
}

func (s *server) block(stuck chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stuck = stuck
}

// writeFile writes the file of an adapter for the server, and returns its path.
func (s *server) writeFile(t *testing.T, more string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "dns.yaml")
	text := `apiVersion: adapter.fleetloop.io/v1alpha1
kind: Adapter
name: dns
kinds: [clusters]
secrets: {token: {env: DNS_TOKEN}}
action:
  http:
    method: PUT
    url: "` + s.URL + `/zones/{id}"
    headers: {Authorization: "cel:'Bearer ' + secrets.token"}
    body: {zone: "cel:spec.zone"}
report: {available: result.json.state == 'ready'}
delete: {nothing: true}
` + more
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestKilledBetweenWorkAndReport kills the runner when the work is done and the report is not stored.
// Another one takes the event over, and reports.
func TestKilledBetweenWorkAndReport(t *testing.T) {
	broker, err := natsserver.NewBrokerStartingServerOnRun(natsserver.Config{Dir: t.TempDir()}, nats.Config{}, brokertest.NewTestLogger(t))
	if err != nil {
		t.Fatal(err)
	}
	brokertest.StartBroker(t, broker)
	brokertest.WantReady(t, broker)
	s := newServer(t)
	stuck := make(chan struct{})
	release := sync.OnceFunc(func() { close(stuck) })
	t.Cleanup(release)
	s.block(stuck)
	env := []string{
		asRunner + "=" + s.writeFile(t, "timeout: 10s\n"), "DNS_TOKEN=x", "HYPERFLEET_API_ENDPOINT=" + s.URL,
		"BROKER_TYPE=nats", "BROKER_URL=" + broker.URL(), "BROKER_ACK_WAIT=1s",
		"METRICS_BIND_ADDRESS=127.0.0.1:0", "HEALTH_PROBE_BIND_ADDRESS=127.0.0.1:0",
	}
	kill := startProcess(t, env)
	e := brokertest.NewEvent(1)
	e.Data = []byte(`{"resource_id":"c1","generation":1}`)
	brokertest.Eventually(t, "publish", func() error { return brokertest.PublishWithTimeout(t, broker, e) })
	brokertest.Eventually(t, "work without a report", func() error {
		if works, _ := s.counts(); works == 0 {
			return errors.New("no work yet")
		}
		return nil
	})
	kill()
	if _, reports := s.counts(); reports != 0 {
		t.Fatal("the report was stored before the process was killed")
	}
	s.block(nil)
	release()
	kill = startProcess(t, env)
	brokertest.Eventually(t, "the report of another process", func() error {
		if works, reports := s.counts(); works < 2 || reports != 1 {
			return fmt.Errorf("%d times worked, %d reports", works, reports)
		}
		return nil
	})
	kill()
	if c := s.reports[0].Conditions[0]; c.Type != v1.ConditionAvailable || c.Status != v1.ConditionTrue || s.reports[0].ObservedGeneration != 1 {
		t.Errorf("report %+v", s.reports[0])
	}
}

// startProcess runs the test binary as adapter-runner. kill ends it without warning.
func startProcess(t *testing.T, env []string) (kill func()) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), exe)
	cmd.Env, cmd.Stdout, cmd.Stderr = env, t.Output(), t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // killed
	})
	t.Cleanup(kill)
	return kill
}

// TestCommands checks validate and the dry run, and that the file is required.
func TestCommands(t *testing.T) {
	s := newServer(t)
	good := s.writeFile(t, "")
	for name, tc := range map[string]struct {
		args      []string
		out, want string // of the output and of the error
	}{
		"Validate":    {[]string{"validate", "-f", good}, good + " is valid\n", ""},
		"Invalid":     {[]string{"validate", "-f", s.writeFile(t, "condition: nope\n")}, "", `dns.yaml:14:12: key "condition": expression: line 1, column 1: undeclared reference to 'nope'`},
		"NoFile":      {[]string{"validate"}, "", "set -f"},
		"DryRun":      {[]string{"run", "--dry-run", "cluster", "eu-1", "-f", good}, "Authorization: Bearer <secret token>", ""},
		"UnknownName": {[]string{"run", "--dry-run", "cluster", "eu-2", "-f", good}, "", `0 resources of the kind cluster have the name or id "eu-2"`},
		"UnknownKind": {[]string{"run", "--dry-run", "pod", "eu-2", "-f", good}, "", `the kind is "pod"`},
		"NoName":      {[]string{"run", "--dry-run", "-f", good}, "", "accepts 2 arg(s)"},
		"NoDryRun":    {[]string{"run", "cluster", "eu-1", "-f", good}, "", "unknown command"},
		"NoBroker":    {[]string{"-f", good}, "", "BROKER_TYPE is required"},
		"Schema":      {[]string{"config", "schema"}, `"action"`, ""},
	} {
		c := processtest.StartCommandInGoroutine(t, NewCommand, map[string]string{"HYPERFLEET_API_ENDPOINT": s.URL, "DNS_TOKEN": "canary"}, tc.args...)
		err := c.WaitUntilEnded(t)
		if out := c.Stdout.String(); !strings.Contains(out, tc.out) || strings.Contains(out, "canary") || (tc.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %q; output:\n%s", name, err, tc.want, out)
		}
	}
	if works, reports := s.counts(); works+reports != 0 {
		t.Errorf("a dry run did something: %d requests, %d reports", works, reports)
	}
}
