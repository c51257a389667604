package allinone_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/app/allinone"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
)

// TestDemo is what a user sees first: a fleet goes from nothing to Ready, and
// the run ends with a summary.
func TestDemo(t *testing.T) {
	t.Parallel()
	r := startProgram(t, nil, "--data-dir", t.TempDir(), "--demo", "--exit-when-ready", "--demo-clusters", "3", "--demo-create-interval", "5ms",
		"--poll-interval", "100ms", "--max-age-not-ready", "300ms", "--adapter-latency", "10ms")
	if err := r.waitForExit(t); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"KIND", "TOTAL", "READY", "Clusters     3       3", "Node pools   6       6", "cloud events published in",
		"Latest changes:", "Adapter validation sent", "Adapter dns sent", "Adapter provisioning sent",
	} {
		if !strings.Contains(r.stdout.String(), want) {
			t.Errorf("the summary lacks %q:\n%s", want, r.stdout.String())
		}
	}
	if strings.Contains(r.stdout.String(), "is not ready") {
		t.Errorf("the summary names resources that are not ready:\n%s", r.stdout.String())
	}
	// Beside the progress there are warnings alone: the sample adapters fail now
	// and then.
	progress := 0
	for line := range strings.Lines(r.stderr.String()) {
		switch {
		case strings.HasPrefix(line, "ready: "):
			progress++
		case !strings.HasPrefix(line, "starting; ") && !strings.Contains(line, `"level":"warn"`):
			t.Errorf("neither progress nor a warning: %s", line)
		}
	}
	if progress == 0 {
		t.Error("there was no line about the progress")
	}
}

// TestDemoNotReadyInTime verifies that a fleet without adapters ends with an error, after a
// summary.
func TestDemoNotReadyInTime(t *testing.T) {
	t.Parallel()
	r := startProgram(t, nil, "--data-dir", t.TempDir(), "--demo", "--exit-when-ready", "--demo-clusters", "1", "--timeout", "1500ms", "--adapters=false", "--gardener=false")
	if err := r.waitForExit(t); err == nil || !strings.Contains(err.Error(), "the demo fleet is not Ready within 1.5s") {
		t.Errorf("got %v, want an error that says so", err)
	}
	for _, want := range []string{"Clusters     1       0", "cluster/us-east-01 is not ready for ", "(Pending)"} {
		if !strings.Contains(r.stdout.String(), want) {
			t.Errorf("the summary lacks %q:\n%s", want, r.stdout.String())
		}
	}
}

// TestEmbeddedPostgres runs on embedded parts alone, and leaves nothing
// behind.
func TestEmbeddedPostgres(t *testing.T) {
	t.Parallel()
	r := startProgram(t, map[string]string{"DATABASE_URL": ""}, "--demo", "--exit-when-ready", "--demo-clusters", "1", "--log-level", "info",
		"--poll-interval", "100ms", "--max-age-not-ready", "300ms", "--adapter-latency", "1ms", "--adapter-failure-rate", "0")
	_, ready := sendRequest(t, http.MethodGet, "http://"+r.healthAddress(t)+"/readyz?verbose", "")
	for _, part := range []string{"PostgreSQL", "database", "fleet API", "broker", "sentinel clusters", "sentinel nodepools"} {
		if !strings.Contains(ready, "]"+part+" ") {
			t.Errorf("/readyz does not name %s:\n%s", part, ready)
		}
	}
	dir := textOf(r.waitForLine(t, "fleet API ready", nil), "data_dir")
	if err := r.waitForExit(t); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(r.stdout.String(), "Clusters     1       1") {
		t.Errorf("the fleet is not ready:\n%s", r.stdout.String())
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the data folder %q of the demo is still there: %v", dir, err)
	}
}

const (
	interval         = time.Second
	reasonGeneration = "generation changed - new spec to reconcile"
)

// TestLoop takes a cluster through its life: it becomes Ready, follows its
// spec, is reminded of at its interval while an adapter is dead, recovers, and
// goes.
func TestLoop(t *testing.T) {
	t.Parallel()
	r := startProgram(t, nil, "--data-dir", t.TempDir(), "--poll-interval", "50ms", "--max-age-not-ready", interval.String(),
		"--adapter-latency", "5ms", "--adapter-failure-rate", "0")
	api := r.newClient(t)
	c, err := api.Clusters().Create(t.Context(), v1.CreateRequest{Name: "cluster-1", Spec: json.RawMessage(`{"n":1}`)})
	if err != nil {
		t.Fatal(err)
	}
	l := &life{run: r, api: api, id: c.ID}
	l.wantReady(t, 1)

	l.patchCluster(t, 2)
	l.wantReady(t, 2)
	if first := r.waitForLine(t, "event published", map[string]any{"resource_id": c.ID, "generation": 2.0}); textOf(first, "reason") != reasonGeneration {
		t.Errorf("the new spec was announced because %q, want %q", textOf(first, "reason"), reasonGeneration)
	}

	l.runAdapter(t, "pause")
	l.patchCluster(t, 3)
	l.wantReminders(t, 3, 4)
	if got, err := api.Clusters().Get(t.Context(), c.ID); err != nil || got.Status.Phase == v1.PhaseReady || got.Status.ObservedGeneration != 2 {
		t.Errorf("with a dead adapter the status is %+v, %v; want generation 2 observed and not Ready", got.Status, err)
	}
	l.runAdapter(t, "resume")
	l.wantReady(t, 3)

	if _, err := api.Clusters().Delete(t.Context(), c.ID); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if got, err := api.Clusters().Get(t.Context(), c.ID); !fleetclient.IsNotFound(err) {
			return fmt.Errorf("it is %s: %w", got.Status.Phase, err)
		}
		return nil
	})
	r.stopProgram(t)
	if r.stdout.String() != "" {
		t.Errorf("without --demo there is nothing to say on stdout, got:\n%s", r.stdout.String())
	}
}

// A life is that of one cluster in a run.
type life struct {
	*run
	api *fleetclient.Client
	id  string
}

// patchCluster makes the spec that of a generation.
func (l *life) patchCluster(t *testing.T, generation int64) {
	t.Helper()
	r, err := l.api.Clusters().Patch(t.Context(), l.id, v1.PatchRequest{Spec: json.RawMessage(fmt.Sprintf(`{"n":%d}`, generation))})
	if err != nil || r.Generation != generation {
		t.Fatalf("patched to generation %d, want %d: %v", r.Generation, generation, err)
	}
}

// wantReady waits until a generation is observed and Ready.
func (l *life) wantReady(t *testing.T, generation int64) {
	t.Helper()
	eventually(t, func() error {
		r, err := l.api.Clusters().Get(t.Context(), l.id)
		if err != nil || r.Status.Phase != v1.PhaseReady || r.Status.ObservedGeneration != generation {
			return fmt.Errorf("the cluster is %s at generation %d, want %s at %d: %w", r.Status.Phase, r.Status.ObservedGeneration, v1.PhaseReady, generation, err)
		}
		return nil
	})
}

// wantReminders waits for n events about a generation and checks that they
// come at the interval, not at every poll.
func (l *life) wantReminders(t *testing.T, generation float64, n int) {
	t.Helper()
	var events []map[string]any
	eventually(t, func() error {
		if events = l.outputLines("event published", map[string]any{"resource_id": l.id, "generation": generation}); len(events) < n {
			return fmt.Errorf("%d events about generation %g, want %d", len(events), generation, n)
		}
		return nil
	})
	// A line is written some time after the confirm that the interval counts from.
	const moment = interval / 2
	var last time.Time
	for i, e := range events {
		at, err := time.Parse(time.RFC3339Nano, textOf(e, "time"))
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 && at.Sub(last) < interval-moment {
			t.Errorf("event %d came %s after the one before, want %s", i, at.Sub(last), interval)
		}
		if i > 0 && textOf(e, "event_id") == textOf(events[i-1], "event_id") {
			t.Errorf("two reminders have the id %s", textOf(e, "event_id"))
		}
		last = at
	}
}

// runAdapter calls "fleetloop up pause dns" or resume.
func (l *life) runAdapter(t *testing.T, verb string) {
	t.Helper()
	out, err := newAdapterCommand(t, verb, "dns", "--address", l.healthAddress(t))
	if want := "adapter dns " + verb + "d\n"; err != nil || out != want {
		t.Fatalf("got %q and %v, want %q", out, err, want)
	}
}

// newAdapterCommand returns the command "up pause" or "up resume".
func newAdapterCommand(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	var out bytes.Buffer
	cmd := allinone.NewCommand(allinone.Env{Stdout: &out, Stderr: io.Discard, LookupEnv: func(string) (string, bool) { return "", false }})
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetOut(io.Discard)
	cmd.SetErr(io.Discard)
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// TestPauseRefuses holds what the address for pausing adapters does not take:
// above all what a page in a browser could send unasked.
func TestPauseRefuses(t *testing.T) {
	t.Parallel()
	r := startProgram(t, nil, "--data-dir", t.TempDir())
	base := "http://" + r.healthAddress(t) + "/adapters/"
	const jsonType = "application/json"
	cases := map[string]struct {
		reason, method, path, contentType string
		status                            int
		body                              string
	}{
		"NoType":         {"a form is sent without asking the user", http.MethodPost, "dns/pause", "", 415, "application/json"},
		"FormType":       {"likewise", http.MethodPost, "dns/pause", "text/plain", 415, "application/json"},
		"BrokenType":     {"no type at all", http.MethodPost, "dns/pause", "application/json; =", 415, "application/json"},
		"UnknownAdapter": {"names it", http.MethodPost, "nosuch/pause", jsonType, 404, `"nosuch"`},
		"UnknownVerb":    {"says which there are", http.MethodPost, "dns/kill", jsonType, 404, "pause or resume"},
		"Get":            {"looking must not change anything", http.MethodGet, "dns/pause", jsonType, 405, ""},
		"NoVerb":         {"nothing to do", http.MethodPost, "dns", jsonType, 404, ""},
		"Pause":          {"with parameters, too", http.MethodPost, "dns/pause", jsonType + "; charset=utf-8", 204, ""},
		"Resume":         {"also one that is not paused", http.MethodPost, "validation/resume", jsonType, 204, ""},
	}
	for name, tc := range cases {
		status, body := sendRequest(t, tc.method, base+tc.path, tc.contentType)
		if status != tc.status || !strings.Contains(body, tc.body) {
			t.Errorf("%s: %s: got %d %q, want %d and %q", name, tc.reason, status, body, tc.status, tc.body)
		}
	}
	_, metrics := sendRequest(t, http.MethodGet, "http://"+r.healthAddress(t)+"/metrics", "")
	for _, want := range []string{`fleetloop_sample_adapter_paused{adapter="dns"} 1`, `fleetloop_sample_adapter_paused{adapter="validation"} 0`} {
		if !strings.Contains(metrics, want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}

	if _, err := newAdapterCommand(t, "pause", "nosuch", "--address", r.healthAddress(t)); err == nil || !strings.Contains(err.Error(), `sample adapter "nosuch" not found`) {
		t.Errorf("the command on an unknown adapter gives %v", err)
	}
	if _, err := newAdapterCommand(t, "pause"); err == nil {
		t.Error("the command without an adapter gives no error")
	}
	r.stopProgram(t)
	if _, err := newAdapterCommand(t, "pause", "dns", "--address", r.healthAddress(t)); err == nil || !strings.Contains(err.Error(), "check that 'fleetloop up' runs and that --address") {
		t.Errorf("the command without a running fleetloop gives %v", err)
	}
}

// TestUpRefuses holds that a run that can not begin ends at once and says why.
func TestUpRefuses(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		env    map[string]string
		args   []string
		want   string
	}{
		"BrokerType":   {"with what there is", map[string]string{"BROKER_TYPE": "kafka"}, nil, `"kafka"`},
		"NoClusters":   {"a demo of nothing", nil, []string{"--demo-clusters", "0"}, "demo"},
		"ZeroInterval": {"it would poll without end", nil, []string{"--poll-interval", "0s"}, "poll"},
		"AlwaysFail":   {"it would never be ready", nil, []string{"--adapter-failure-rate", "1"}, "failure"},
		"View":         {"with what there is", nil, []string{"--view", "3d"}, "live"},
		"Argument":     {"nothing takes it", nil, []string{"now"}, "now"},
		"BadURL":       {"does not show the password", map[string]string{"DATABASE_URL": "postgres://u:canary@h:port/d"}, nil, "database URL"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startProgram(t, tc.env, append(tc.args, "--data-dir", t.TempDir())...)
			if err := r.waitForExit(t); err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "canary") {
				t.Errorf("%s: got %v, want %q in it", tc.reason, err, tc.want)
			}
		})
	}
}

// TestDataStays holds that a fleet without --demo is there again after a
// restart, cloud events included, and that two runs do not share a folder.
func TestDataStays(t *testing.T) {
	t.Parallel()
	dir, database := t.TempDir(), map[string]string{"DATABASE_URL": pgtest.NewMigratedDatabaseURL(t)}
	args := []string{"--data-dir", dir, "--poll-interval", "50ms", "--adapter-latency", "1ms", "--adapter-failure-rate", "0"}
	first := startProgram(t, database, append(args, "--adapters=false")...)
	c, err := first.newClient(t).Clusters().Create(t.Context(), v1.CreateRequest{Name: "cluster-1", Spec: json.RawMessage(`{}`)})
	if err != nil {
		t.Fatal(err)
	}
	first.waitForLine(t, "event published", map[string]any{"resource_id": c.ID})
	if err := startProgram(t, database, args...).waitForExit(t); err == nil || !strings.Contains(err.Error(), "directory in use by another process") {
		t.Errorf("a second run on the same folder gives %v", err)
	}
	first.stopProgram(t)

	second := startProgram(t, database, args...)
	l := &life{run: second, api: second.newClient(t), id: c.ID}
	l.wantReady(t, 1)
	second.stopProgram(t)
}
