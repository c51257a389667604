package process_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"github.com/fleetloop/fleetloop/internal/app/process"
	"github.com/fleetloop/fleetloop/internal/lifecycle"
	"github.com/fleetloop/fleetloop/internal/processtest"
	"github.com/fleetloop/fleetloop/internal/settings"
	"github.com/fleetloop/fleetloop/internal/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 20 * time.Second

// A log keeps lines and finds addresses in them.
type log struct{ processtest.Buffer }

// waitForAddress waits until the log says where something is served.
func (l *log) waitForAddress(t *testing.T, purpose string) string {
	t.Helper()
	mark := `"server":"` + purpose + `","addr":"`
	var addr string
	eventually(t, func() bool {
		_, rest, ok := strings.Cut(l.String(), mark)
		addr, _, _ = strings.Cut(rest, `"`)
		return ok
	})
	return addr
}

func eventually(t *testing.T, check func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for !check() {
		select {
		case <-ctx.Done():
			t.Fatalf("not within %s", patience)
		case <-ticker.C:
		}
	}
}

func newConfig(metrics, health string) process.Config {
	return process.Config{MetricsAddr: metrics, HealthAddr: health, StopTimeout: 5 * time.Second}
}

func newProcess(t *testing.T, cfg process.Config) (*process.Process, *log) {
	t.Helper()
	l := &log{}
	p, err := process.New(t.Context(), "test", cfg, l)
	if err != nil {
		t.Fatal(err)
	}
	return p, l
}

// wantAnswer asks for a page and checks status and parts of the body.
func wantAnswer(t *testing.T, url string, status int, parts ...string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != status {
		t.Errorf("%s: status %d, want %d: %s", url, resp.StatusCode, status, body)
	}
	for _, part := range parts {
		if !strings.Contains(string(body), part) {
			t.Errorf("%s lacks %q:\n%s", url, part, body)
		}
	}
}

// newPart returns a part that waits until it is stopped.
func newPart(name string, ready func() error) lifecycle.Part {
	return lifecycle.Part{Name: name, Run: func(ctx context.Context) error { <-ctx.Done(); return nil }, Ready: ready}
}

// TestEndpoints holds what a process serves beside its parts: metrics, health
// and what it was given, on one address or on two.
func TestEndpoints(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason                 string
		metricsAddr, health    string
		metricsName, probeName string
	}{
		"One": {"equal addresses are one listener", "127.0.0.1:0", "127.0.0.1:0", "metrics and health", "metrics and health"},
		"Two": {"others are two", "127.0.0.1:0", "localhost:0", "metrics", "health"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, l := newProcess(t, newConfig(tc.metricsAddr, tc.health))
			p.HandleOnHealthServer("/extra/", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
			ctx, cancel := context.WithCancel(t.Context())
			stuck := make(chan struct{})
			var broken, dead syncedError
			parts := []lifecycle.Part{
				newPart("first", nil),
				newPart("second", broken.getError),
				{Name: "slow", Run: func(ctx context.Context) error { <-ctx.Done(); <-stuck; return nil }},
			}
			done := make(chan error, 1)
			go func() { done <- p.Run(ctx, dead.getError, parts...) }()
			metrics, probes := "http://"+l.waitForAddress(t, tc.metricsName), "http://"+l.waitForAddress(t, tc.probeName)
			wantAnswer(t, metrics+"/metrics", http.StatusOK, `fleetloop_build_info{component="test"`, "go_goroutines")
			wantAnswer(t, probes+"/healthz", http.StatusOK, "ok")
			wantAnswer(t, probes+"/readyz?verbose", http.StatusOK, "[+]running ok\n[+]second ok\n")
			wantAnswer(t, probes+"/extra/x", http.StatusTeapot)

			broken.setError(errors.New("it is away"))
			wantAnswer(t, probes+"/readyz", http.StatusServiceUnavailable, "[-]second failed: it is away")
			wantAnswer(t, probes+"/healthz", http.StatusOK)
			dead.setError(errors.New("no progress"))
			wantAnswer(t, probes+"/healthz", http.StatusServiceUnavailable, "no progress")
			broken.setError(nil)
			dead.setError(nil)

			// It answers while it stops, and says so.
			cancel()
			eventually(t, func() bool { return ctx.Err() != nil })
			wantAnswer(t, probes+"/readyz", http.StatusServiceUnavailable, "[-]running failed: process is stopping")
			wantAnswer(t, probes+"/healthz", http.StatusOK)
			close(stuck)
			if err := <-done; err != nil {
				t.Errorf("%s: %v", tc.reason, err)
			}
			if !strings.Contains(l.String(), `"msg":"stopped"`) {
				t.Error("the log does not say that it stopped")
			}
		})
	}
}

// TestMetricsToken verifies that metrics and debug paths require the configured token, and health
// does not.
func TestMetricsToken(t *testing.T) {
	t.Parallel()
	cfg := newConfig("127.0.0.1:0", "localhost:0")
	cfg.MetricsToken = "right"
	p, l := newProcess(t, cfg)
	p.HandleOnMetricsServer("/debug/decisions", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx, nil, newPart("first", nil)) }()
	metrics, probes := "http://"+l.waitForAddress(t, "metrics"), "http://"+l.waitForAddress(t, "health")
	want := func(token, path string, status int) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, metrics+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", token)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != status {
			t.Errorf("%s with %q: status %d, want %d", path, token, resp.StatusCode, status)
		}
	}
	for _, token := range []string{"", "right", "Bearer wrong", "Bearer right "} {
		want(token+"x", "/metrics", http.StatusUnauthorized)
		want(token+"x", "/debug/decisions", http.StatusUnauthorized)
	}
	want("Bearer right", "/metrics", http.StatusOK)
	want("Bearer right", "/debug/decisions", http.StatusTeapot)
	wantAnswer(t, probes+"/healthz", http.StatusOK, "ok")
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A syncedError is an error that another goroutine may set.
type syncedError struct {
	mu  sync.Mutex
	err error
}

func (e *syncedError) getError() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err
}

func (e *syncedError) setError(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.err = err
}

// TestPartFails holds that a part that gives up ends the process with its name.
func TestPartFails(t *testing.T) {
	t.Parallel()
	p, l := newProcess(t, newConfig("127.0.0.1:0", "127.0.0.1:0"))
	boom := errors.New("boom")
	err := p.Run(t.Context(), nil, newPart("other", nil), lifecycle.Part{Name: "weak", Run: func(context.Context) error { return boom }})
	if !errors.Is(err, boom) || !strings.Contains(err.Error(), "run weak: ") {
		t.Errorf("got %v, want the part's name and its error", err)
	}
	if !strings.Contains(l.String(), `"level":"error","msg":"stopped","err":"run weak: boom"`) {
		t.Errorf("the log does not say why it ended:\n%s", l.String())
	}
}

// TestAddressTaken holds that a process whose address is in use says which,
// and lets go of what it has: its other address and its parts.
func TestAddressTaken(t *testing.T) {
	t.Parallel()
	var lc net.ListenConfig
	taken, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	for _, purpose := range []string{"metrics", "health"} {
		cfg := newConfig("127.0.0.1:0", taken.Addr().String())
		if purpose == "metrics" {
			cfg = newConfig(taken.Addr().String(), "127.0.0.1:0")
		}
		p, l := newProcess(t, cfg)
		closed := false
		idle := newPart("idle", nil)
		idle.Close = func() error { closed = true; return nil }
		err := p.Run(t.Context(), nil, idle)
		if err == nil || !strings.Contains(err.Error(), "serve "+purpose) || !strings.Contains(err.Error(), taken.Addr().String()) {
			t.Errorf("%s: got %v, want the purpose and the address %s", purpose, err, taken.Addr())
		}
		if !closed {
			t.Errorf("%s: the part was not closed", purpose)
		}
		if purpose == "health" {
			again, err := lc.Listen(t.Context(), "tcp", l.waitForAddress(t, "metrics"))
			if err != nil {
				t.Errorf("the address of the metrics is still in use: %v", err)
				continue
			}
			_ = again.Close()
		}
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	if _, err := process.New(t.Context(), "test", process.Config{Log: telemetry.LogConfig{Level: "loud"}}, io.Discard); err == nil {
		t.Error("an unknown level: got no error")
	}
}

// TestCommands runs the commands that every binary has.
func TestCommands(t *testing.T) {
	t.Parallel()
	type settingsOf struct {
		Size  int             `key:"size" env:"SIZE" default:"3" doc:"How large."`
		Token settings.Secret `key:"token" env:"TOKEN" doc:"Who we are."`
	}
	env := map[string]string{"TOKEN": "canary", "SIZE": "5"}
	call := func(args ...string) (string, error) {
		var out bytes.Buffer
		var cfg, more settingsOf
		load := func(*cobra.Command) ([]*settings.Report, error) {
			lookup := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
			first, err := settings.Load(&cfg, settings.Source{Env: lookup})
			second, err2 := settings.Load(&more, settings.Source{})
			return []*settings.Report{first, second}, errors.Join(err, err2)
		}
		root := &cobra.Command{Use: "test", SilenceErrors: true, SilenceUsage: true}
		small := func() error {
			if cfg.Size > 5 {
				return errors.New("it is too large for the place")
			}
			return nil
		}
		root.SetOut(&out)
		root.AddCommand(process.NewConfigCommands("test", &out, load, &cfg, small))
		root.SetArgs(args)
		err := root.ExecuteContext(t.Context())
		return out.String(), err
	}
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"config", "show"}, "size: 5\ntoken: '***'\n---\nsize: 3\ntoken: \"\"\n"},
		{[]string{"config", "show", "--origins"}, "size: 5 # env SIZE\ntoken: '***' # env TOKEN\n---\nsize: 3 # default\ntoken: \"\" # default\n"},
		{[]string{"config", "schema"}, `"title": "test"`},
		{[]string{"config", "check"}, "configuration is valid"},
	} {
		got, err := call(tc.args...)
		if err != nil || !strings.Contains(got, tc.want) {
			t.Errorf("%v: %v\n%s\nwant\n%s", tc.args, err, got, tc.want)
		}
	}
	env["SIZE"] = "7"
	if got, err := call("config", "check"); err == nil || got != "" || !strings.Contains(err.Error(), "too large") {
		t.Errorf("settings that cannot work: got %q and %v", got, err)
	}
	env["SIZE"] = "large"
	if _, err := call("config", "check"); err == nil {
		t.Error("a setting that is no number passes")
	}
	if got, err := call("config", "show"); err == nil || got != "" {
		t.Errorf("a bad setting: got %q and %v", got, err)
	}
}

// TestTakenPort: where a port is taken, the error names the address, and the
// flag and the variable that say another.
func TestTakenPort(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	taken := l.Addr().String()
	const free = "127.0.0.1:0"
	for name, tc := range map[string]struct {
		reason string
		cfg    process.Config
		want   []string
	}{
		"Metrics": {"two binaries have the same default", newConfig(taken, free), []string{"--metrics-bind-address", "METRICS_BIND_ADDRESS"}},
		"Health":  {"likewise", newConfig(free, taken), []string{"--health-probe-bind-address", "HEALTH_PROBE_BIND_ADDRESS"}},
		"Both":    {"one listener serves both", newConfig(taken, taken), []string{"--metrics-bind-address", "METRICS_BIND_ADDRESS", "--health-probe-bind-address", "HEALTH_PROBE_BIND_ADDRESS"}},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := newProcess(t, tc.cfg)
			err := p.Run(t.Context(), nil)
			if err == nil {
				t.Fatal("it runs on a port that is taken")
			}
			for _, part := range append(tc.want, taken) {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s: the error does not name %s: %v", tc.reason, part, err)
				}
			}
		})
	}
}
