package changes_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/app/changes"
	"github.com/fleetloop/fleetloop/internal/app/process"
	"github.com/fleetloop/fleetloop/internal/processtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 30 * time.Second

// A sink keeps what it is sent.
type sink struct {
	*httptest.Server
	got chan posted
}

type posted struct {
	path    string
	payload changeevent.Payload
}

// newSink starts a sink. wait is done before each answer; it may be nil.
func newSink(t *testing.T, wait func(context.Context)) *sink {
	t.Helper()
	s := &sink{got: make(chan posted, 100)}
	s.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		p := posted{path: r.URL.Path}
		if err := json.Unmarshal(body, &p.payload); err != nil {
			t.Errorf("the body is no payload: %v: %s", err, body)
		}
		s.got <- p
		if wait != nil {
			wait(r.Context())
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// nextEvent is what came next.
func (s *sink) nextEvent(t *testing.T) posted {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case p := <-s.got:
		return p
	case <-timer.C:
		t.Fatalf("nothing came within %s", patience)
	}
	return posted{}
}

func newProcess(t *testing.T) (*process.Process, *processtest.Buffer) {
	t.Helper()
	var out processtest.Buffer
	p, err := process.New(t.Context(), "test", process.Config{MetricsAddr: "127.0.0.1:0", HealthAddr: "127.0.0.1:0", StopTimeout: 10 * time.Second}, &out)
	if err != nil {
		t.Fatal(err)
	}
	return p, &out
}

// newConfig sends to a URL.
func newConfig(url string) changes.Config {
	cfg := changes.Config{Enabled: true, ClusterName: "prod", ShutdownTimeout: time.Second}
	cfg.Endpoint = url
	return cfg
}

func newSinks(t *testing.T, cfg changes.Config) (*changes.Sinks, *process.Process, *processtest.Buffer) {
	t.Helper()
	p, out := newProcess(t)
	s, err := changes.New(cfg, changeevent.SourceFaultQuarantine, p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, p, out
}

var cordon = changeevent.ChangeEvent{Action: changeevent.ActionCordon, NodeName: "n1", CheckName: "xid"}

// TestTellsAllSinks verifies that each sink receives an event with the source of the process, and
// that metrics distinguish the sinks.
func TestTellsAllSinks(t *testing.T) {
	t.Parallel()
	first, second := newSink(t, nil), newSink(t, nil)
	cfg := newConfig(first.URL + "/changes")
	cfg.Sinks = []changes.SinkConfig{{Name: "second", Target: changes.Target{Endpoint: second.URL, Tuning: changes.Tuning{AppendCluster: new(bool)}}}}
	s, p, _ := newSinks(t, cfg)
	s.SendChangeEvent(t.Context(), cordon)
	for _, want := range []struct {
		sink *sink
		path string
	}{{first, "/changes/prod"}, {second, "/"}} {
		got := want.sink.nextEvent(t)
		if got.path != want.path || got.payload.Source != "nvsentinel/fault-quarantine" || got.payload.Cluster != "prod" || got.payload.DryRun || got.payload.Node != "n1" {
			t.Errorf("at %s came %+v, want it at %s", got.path, got.payload, want.path)
		}
	}
	var names []string
	for _, each := range s.List() {
		names = append(names, each.Name)
		each.Client.SendChangeEvent(t.Context(), cordon)
	}
	if diff := cmp.Diff([]string{"default", "second"}, names); diff != "" {
		t.Errorf("the sinks: -want +got\n%s", diff)
	}
	first.nextEvent(t)
	second.nextEvent(t)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if n, err := testutil.GatherAndCount(p.Metrics, "nvsentinel_change_events_total"); err != nil || n == 0 {
		t.Errorf("%d series count the events, %v", n, err)
	}
}

// TestOff verifies that without settings there are no sinks, no requests and no logs.
func TestOff(t *testing.T) {
	t.Parallel()
	var none *changes.Sinks
	off := newConfig("https://sink.example")
	off.Enabled = false
	s, _, out := newSinks(t, off)
	for _, s := range []*changes.Sinks{none, s} {
		s.SendChangeEvent(t.Context(), cordon)
		if n := len(s.List()); n != 0 {
			t.Errorf("%d sinks are told", n)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := off.ValidateSinks(); err != nil {
		t.Errorf("nothing is wrong with being off: %v", err)
	}
	if strings.Contains(out.String(), `"level":"error"`) {
		t.Errorf("the log has errors:\n%s", out.String())
	}
}

// TestBroken verifies that invalid settings are logged once and do not end the process. The other
// sinks receive events, and Check returns an error.
func TestBroken(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		change func(*changes.Config)
		want   string
	}{
		"NoEndpoint": {"enabled, and nowhere to send to", func(c *changes.Config) { c.Endpoint = "" }, "CHANGE_EVENTS_ENDPOINT"},
		"NoCluster":  {"each sink needs one", func(c *changes.Config) { c.ClusterName = "" }, "ClusterName"},
		"PlainHTTP":  {"the token could be read on the way", func(c *changes.Config) { c.Endpoint = "http://sink.example" }, "plain http"},
		"NoKey":      {"PagerDuty wants one", func(c *changes.Config) { c.Format = changeevent.FormatPagerDuty }, "RoutingKey"},
		"BadLink":    {"nobody could click on it", func(c *changes.Config) { c.Links = []changes.Link{{Href: "ftp://x"}} }, "ftp://x"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := newConfig("https://sink.example")
			tc.change(&cfg)
			if err := cfg.ValidateSinks(); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: Check() = %v, want %q in it", tc.reason, err, tc.want)
			}
			s, p, out := newSinks(t, cfg)
			s.SendChangeEvent(t.Context(), cordon)
			if n := strings.Count(out.String(), `"level":"error"`); n != 1 || !strings.Contains(out.String(), tc.want) {
				t.Errorf("%s: %d errors in the log, want one with %q:\n%s", tc.reason, n, tc.want, out.String())
			}
			if each := s.List(); len(each) != 1 || each[0].Client != nil || each[0].Name != changes.DefaultSink {
				t.Errorf("%s: the sinks are %+v, want one without a client", tc.reason, each)
			}
			wantConfigValid(t, p, map[string]float64{changes.DefaultSink: 0})
		})
	}

	good := newSink(t, nil)
	cfg := newConfig("http://sink.example")
	cfg.Sinks = []changes.SinkConfig{{Name: "good", Target: changes.Target{Endpoint: good.URL}}}
	s, p, _ := newSinks(t, cfg)
	s.SendChangeEvent(t.Context(), cordon)
	good.nextEvent(t)
	wantConfigValid(t, p, map[string]float64{changes.DefaultSink: 0, "good": 1})
	shown := getDebug(t, s)
	for _, want := range []string{`"invalidSinks"`, `"sink": "default"`, `"sink": "good"`} {
		if !strings.Contains(shown, want) {
			t.Errorf("/debug/change-events lacks %s:\n%s", want, shown)
		}
	}
}

// TestMissingFile verifies that a sink with a missing token file receives its events once the file
// exists. Both states are visible.
func TestMissingFile(t *testing.T) {
	t.Parallel()
	place := newSink(t, nil)
	file := filepath.Join(t.TempDir(), "token")
	cfg := newConfig(place.URL)
	cfg.AuthTokenFile = file
	if err := cfg.ValidateSinks(); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("Check() = %v, want that it names the file", err)
	}
	s, p, out := newSinks(t, cfg)
	s.SendChangeEvent(t.Context(), cordon)
	if n := strings.Count(out.String(), `"level":"error"`); n != 1 || !strings.Contains(out.String(), file) || len(s.List()) != 1 {
		t.Errorf("%d errors in the log and %d sinks, want one of each:\n%s", n, len(s.List()), out.String())
	}
	shown := getDebug(t, s)
	for _, want := range []string{`"waitingForFiles": true`, `"auth_token": "read file of AuthToken: open ` + file, `"pending": 1`} {
		if !strings.Contains(shown, want) {
			t.Errorf("/debug/change-events lacks %s:\n%s", want, shown)
		}
	}
	const metric = `
		# HELP fleetloop_change_events_sink_file_unreadable 1 if this process cannot read a file that it needs to send change events to a sink, 0 otherwise. The label file names what the file contains: endpoint, auth_token, routing_key, signing_key or ca. The process uses the content that it read last; if it has never read the file, change events wait.
		# TYPE fleetloop_change_events_sink_file_unreadable gauge
		fleetloop_change_events_sink_file_unreadable{file="auth_token",sink="default"} 1
	`
	if err := testutil.GatherAndCompare(p.Metrics, strings.NewReader(metric), "fleetloop_change_events_sink_file_unreadable"); err != nil {
		t.Error(err)
	}
	wantConfigValid(t, p, map[string]float64{changes.DefaultSink: 0})
	if err := os.WriteFile(file, []byte("token"), 0o600); err != nil {
		t.Fatal(err)
	}
	place.nextEvent(t)
	wantConfigValid(t, p, map[string]float64{changes.DefaultSink: 1})
}

// TestNames verifies that sinks have distinct names in metrics and NodeFaults.
func TestNames(t *testing.T) {
	t.Parallel()
	for name, names := range map[string][]string{"Twice": {"a", "a"}, "TheDefault": {"default"}, "Letters": {"Chat"}, "Dots": {"a.b"}} {
		cfg := newConfig("https://sink.example")
		for _, n := range names {
			cfg.Sinks = append(cfg.Sinks, changes.SinkConfig{Name: n, Target: changes.Target{Endpoint: "https://sink.example"}})
		}
		p, _ := newProcess(t)
		if s, err := changes.New(cfg, "x", p); err == nil {
			t.Errorf("%s: sinks called %v are taken: %v", name, names, s.Close())
		}
		if cfg.ValidateSinks() == nil {
			t.Errorf("%s: names %v pass the check", name, names)
		}
	}
}

// TestWants verifies which actions a sink accepts, in agreement with its client.
func TestWants(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason     string
		actions    []string
		extensions bool
		want       map[string]bool
	}{
		"All": {"but for what has to be asked for", nil, false, map[string]bool{
			"cordon": true, "shoot-ready": true, "drain-cancelled": true, "reboot-failed": true, "terminate-failed": true, "support-required": true,
			"budget-exhausted": false, "override-detected": false,
		}},
		"Extensions": {"it was asked for", nil, true, map[string]bool{"cordon": true, "budget-exhausted": true}},
		"Some":       {"and no others", []string{"cordon", "budget-exhausted"}, false, map[string]bool{"cordon": true, "budget-exhausted": true, "uncordon": false, "reboot-failed": false}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			place := newSink(t, nil)
			cfg := newConfig(place.URL)
			cfg.Actions, cfg.IncludeOptionalActions = tc.actions, tc.extensions
			s, _, _ := newSinks(t, cfg)
			each := s.List()[0]
			for action, want := range tc.want {
				if got := each.Wants(action); got != want {
					t.Errorf("%s: %s is wanted: %t", tc.reason, action, got)
				}
				told := make(chan changeevent.Delivery, 1)
				each.Client.SendChangeEvent(t.Context(), changeevent.ChangeEvent{
					Action: action, NodeName: "n", OnDelivery: func(d changeevent.Delivery) { told <- d },
				})
				if d := <-told; (d.Attempts > 0) != want {
					t.Errorf("%s: the client sent %s: %+v", tc.reason, action, d)
				}
			}
		})
	}
}

func getDebug(t *testing.T, s *changes.Sinks) string {
	t.Helper()
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/debug/change-events", http.NoBody))
	if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("it answers %d with %s", w.Code, w.Header().Get("Content-Type"))
	}
	return w.Body.String()
}

// TestDebug holds that it can be seen how a sink is.
func TestDebug(t *testing.T) {
	t.Parallel()
	place := newSink(t, nil)
	s, _, _ := newSinks(t, newConfig(place.URL))
	taken := make(chan struct{})
	e := cordon
	e.OnDelivery = func(changeevent.Delivery) { close(taken) }
	s.SendChangeEvent(t.Context(), e)
	<-taken
	var got struct {
		Sinks []changeevent.Stats `json:"sinks"`
	}
	if err := json.Unmarshal([]byte(getDebug(t, s)), &got); err != nil || len(got.Sinks) != 1 {
		t.Fatalf("it shows %+v, %v", got, err)
	}
	if one := got.Sinks[0]; one.Sink != changes.DefaultSink || one.Succeeded != 1 || one.LastSuccess.IsZero() {
		t.Errorf("it shows %+v", one)
	}
}

// TestPart verifies that the shutdown waits for pending events within its limit. Remaining events
// are logged and are no failure.
func TestPart(t *testing.T) {
	t.Parallel()
	t.Run("Waits", func(t *testing.T) {
		t.Parallel()
		var once sync.Once
		answer := make(chan struct{})
		place := newSink(t, func(ctx context.Context) {
			select {
			case <-answer:
			case <-ctx.Done():
			}
		})
		cfg := newConfig(place.URL)
		cfg.ShutdownTimeout = patience
		s, _, out := newSinks(t, cfg)
		t.Cleanup(func() { once.Do(func() { close(answer) }) })
		s.SendChangeEvent(t.Context(), cordon)
		place.nextEvent(t)
		ended, cancel := runPart(t, s)
		cancel()
		select {
		case <-ended:
			t.Error("it ended before the sink had answered")
		default:
		}
		once.Do(func() { close(answer) })
		if err := <-ended; err != nil || strings.Contains(out.String(), "change events not delivered") {
			t.Errorf("it ended with %v:\n%s", err, out.String())
		}
	})
	t.Run("NotForEver", func(t *testing.T) {
		t.Parallel()
		place := newSink(t, func(ctx context.Context) { <-ctx.Done() })
		cfg := newConfig(place.URL)
		cfg.ShutdownTimeout = 50 * time.Millisecond
		s, _, out := newSinks(t, cfg)
		s.SendChangeEvent(t.Context(), cordon)
		place.nextEvent(t)
		ended, cancel := runPart(t, s)
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("what a sink has not taken ends the process with %v", err)
		}
		if !strings.Contains(out.String(), "change events not delivered before shutdown") {
			t.Errorf("nobody is told what is left:\n%s", out.String())
		}
	})
}

// runPart runs the part of some sinks.
func runPart(t *testing.T, s *changes.Sinks) (ended <-chan error, cancel context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- s.Part().Run(ctx) }()
	return done, cancel
}

// TestStopTimeoutBounds verifies that the wait for sinks ends before the stop timeout of a part.
func TestStopTimeoutBounds(t *testing.T) {
	t.Parallel()
	place := newSink(t, func(ctx context.Context) { <-ctx.Done() })
	p, err := process.New(t.Context(), "test", process.Config{StopTimeout: 100 * time.Millisecond}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	cfg := newConfig(place.URL)
	cfg.ShutdownTimeout = time.Hour
	s, err := changes.New(cfg, "x", p)
	if err != nil {
		t.Fatal(err)
	}
	s.SendChangeEvent(t.Context(), cordon)
	place.nextEvent(t)
	if err := s.Close(); err == nil || !strings.Contains(err.Error(), "90ms") {
		t.Errorf("Close() = %v, want that it waited for 90ms", err)
	}
}
