package apiapp_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/app/apiapp"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
	"github.com/fleetloop/fleetloop/internal/telemetry/logtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const patience = 30 * time.Second

// A call is one call of the binary's command line.
type call struct {
	stdout, stderr logtest.Buffer
	cancel         context.CancelFunc
	done           chan struct{}
	err            error // once done is closed
}

// start calls the command line with addresses of its own.
func start(t *testing.T, env map[string]string, args ...string) *call {
	t.Helper()
	all := map[string]string{
		"LISTEN_ADDRESS": "127.0.0.1:0", "METRICS_BIND_ADDRESS": "127.0.0.1:0", "HEALTH_PROBE_BIND_ADDRESS": "127.0.0.1:0",
	}
	maps.Copy(all, env)
	c := &call{done: make(chan struct{})}
	cmd := apiapp.Command(&c.stdout, &c.stderr, func(name string) (string, bool) {
		value, ok := all[name]
		return value, ok
	})
	cmd.SetArgs(args)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	c.cancel = cancel
	go func() {
		defer close(c.done)
		c.err = cmd.ExecuteContext(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-c.done
		if t.Failed() {
			t.Logf("%v: %v\n%s%s", args, c.err, c.stdout.String(), c.stderr.String())
		}
	})
	return c
}

// wait waits for the end and gives the error.
func (c *call) wait(t *testing.T) error {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-c.done:
	case <-timer.C:
		t.Fatalf("still running after %s", patience)
	}
	return c.err
}

// url is where something is served, by the log's account.
func (c *call) url(t *testing.T, purpose string) string {
	t.Helper()
	mark := `"for":"` + purpose + `","addr":"`
	var addr string
	eventually(t, func() error {
		_, rest, ok := strings.Cut(c.stderr.String(), mark)
		if !ok {
			return fmt.Errorf("it does not say where it listens for %s", purpose)
		}
		addr, _, _ = strings.Cut(rest, `"`)
		return nil
	})
	return "http://" + addr
}

func eventually(t *testing.T, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("not within %s: %v", patience, err)
		case <-ticker.C:
		}
	}
}

// send sends a request and gives the answer.
func send(t *testing.T, method, where, body string) (status int, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, where, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(raw)
}

// TestServe brings an empty database up to date, serves on it, and ends.
func TestServe(t *testing.T) {
	t.Parallel()
	c := start(t, map[string]string{"DATABASE_URL": pgtest.EmptyURL(t)})
	health := c.url(t, "metrics and health")
	eventually(t, func() error {
		if status, body := send(t, http.MethodGet, health+"/readyz?verbose", ""); status != http.StatusOK {
			return fmt.Errorf("not ready: %s", body)
		}
		return nil
	})
	status, body := send(t, http.MethodPost, c.url(t, "fleet API")+v1.BasePath+"/clusters", `{"name":"cluster-1","spec":{}}`)
	var r v1.Resource
	if err := json.Unmarshal([]byte(body), &r); err != nil || status != http.StatusCreated || r.Generation != 1 {
		t.Errorf("create: %d %s", status, body)
	}
	c.cancel()
	if err := c.wait(t); err != nil {
		t.Errorf("told to stop, it ended with %v", err)
	}
}

// TestServeEndsWatches holds that nobody who watches keeps the server from
// ending, and that he is told where to go on.
func TestServeEndsWatches(t *testing.T) {
	t.Parallel()
	c := start(t, map[string]string{"DATABASE_URL": pgtest.EmptyURL(t)})
	where := c.url(t, "fleet API") + v1.BasePath + "/clusters"
	eventually(t, func() error {
		if status, body := send(t, http.MethodGet, where, ""); status != http.StatusOK {
			return fmt.Errorf("%d %s", status, body)
		}
		return nil
	})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, where+"?watch=true", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if status, body := send(t, http.MethodPost, where, `{"name":"cluster-1","spec":{}}`); status != http.StatusCreated {
		t.Fatalf("create: %d %s", status, body)
	}
	events := bufio.NewReader(resp.Body)
	for line := ""; line != "event: changed\n"; {
		if line, err = events.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	c.cancel()
	rest, err := io.ReadAll(events)
	if err != nil || !strings.Contains(string(rest), "event: bookmark\n") || !strings.HasSuffix(string(rest), "\n\n") {
		t.Errorf("it ended with %q, %v", rest, err)
	}
	if err := c.wait(t); err != nil {
		t.Errorf("told to stop, it ended with %v", err)
	}
}

// TestMigrate brings a database up to date beforehand, as a role that owns the
// schema; the server then leaves it alone.
func TestMigrate(t *testing.T) {
	t.Parallel()
	env := map[string]string{"DATABASE_URL": pgtest.EmptyURL(t)}
	for range 2 { // a second time there is nothing to do
		if err := start(t, env, "migrate").wait(t); err != nil {
			t.Fatal(err)
		}
	}
	c := start(t, env, "--migrate=false")
	eventually(t, func() error {
		if status, body := send(t, http.MethodGet, c.url(t, "fleet API")+v1.BasePath+"/clusters", ""); status != http.StatusOK {
			return fmt.Errorf("%d %s", status, body)
		}
		return nil
	})
	if strings.Contains(c.stderr.String(), "schema migrated") {
		t.Error("it migrated although it was told not to")
	}
}

// TestRefuses holds that a server that can not begin ends at once and says why
// and what to do.
func TestRefuses(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "fleet-api.yaml")
	if err := os.WriteFile(file, []byte("database:\n  max_con: 5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const password = "canary"
	const somewhere = "postgres://u:" + password + "@127.0.0.1:1/d"
	cases := map[string]struct {
		reason string
		env    map[string]string
		args   []string
		want   []string
	}{
		"NoDatabase":        {"says what brings one", nil, nil, []string{"DATABASE_URL", "fleetloop up"}},
		"NoDatabaseMigrate": {"likewise", nil, []string{"migrate"}, []string{"DATABASE_URL"}},
		"BadURL":            {"without its password", map[string]string{"DATABASE_URL": "postgres://u:" + password + "@h:port/d"}, nil, []string{"database URL"}},
		"OpenToAll": {
			"nobody is asked who he is",
			map[string]string{"DATABASE_URL": somewhere, "LISTEN_ADDRESS": ":0"},
			nil,
			[]string{"loopback", "bearer"},
		},
		"NoTokens": {
			"nobody could come in",
			map[string]string{"DATABASE_URL": somewhere, "FLEET_API_AUTH_MODE": "bearer"},
			nil,
			[]string{"token file"},
		},
		"UnknownKey": {
			"with its place",
			map[string]string{"DATABASE_URL": somewhere},
			[]string{"--config", file},
			[]string{file + ":2:3:", "max_con", "max_conns"},
		},
		"Adapter": {
			"no such name",
			map[string]string{"DATABASE_URL": somewhere, "FLEET_API_REQUIRED_ADAPTERS_CLUSTERS": "No Name"},
			nil,
			[]string{"No Name"},
		},
		"Argument": {"nothing takes it", nil, []string{"serve"}, []string{"serve"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := start(t, tc.env, tc.args...)
			err := c.wait(t)
			if err == nil {
				t.Fatalf("%s: got no error", tc.reason)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s: the error lacks %q: %v", tc.reason, want, err)
				}
			}
			if strings.Contains(err.Error()+c.stderr.String(), password) {
				t.Errorf("the password is shown: %v\n%s", err, c.stderr.String())
			}
		})
	}
}

// TestSecretsAreNotShown runs with passwords that the database refuses.
func TestSecretsAreNotShown(t *testing.T) {
	t.Parallel()
	where, err := url.Parse(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	where.User, where.Path = url.UserPassword("nobody", "canary-1"), "/nosuch"
	env := map[string]string{"DATABASE_URL": where.String(), "DATABASE_MIGRATION_URL": strings.ReplaceAll(where.String(), "canary-1", "canary-2"), "LOG_LEVEL": "debug"}

	shown := start(t, env, "config", "show", "--origins")
	if err := shown.wait(t); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"url: '***' # env DATABASE_URL", "migration_url: '***' # env DATABASE_MIGRATION_URL", "mode: none # default"} {
		if !strings.Contains(shown.stdout.String(), want) {
			t.Errorf("config show lacks %q:\n%s", want, shown.stdout.String())
		}
	}
	c := start(t, env)
	health := c.url(t, "metrics and health")
	var body string
	eventually(t, func() error {
		select {
		case <-c.done: // a refusal may also be an end
			return nil
		default:
		}
		var status int
		if status, body = send(t, http.MethodGet, health+"/readyz", ""); status != http.StatusServiceUnavailable || !strings.Contains(body, "[-]database failed: ") {
			return fmt.Errorf("/readyz gives %d %s", status, body)
		}
		return nil
	})
	c.cancel()
	_ = c.wait(t) // it may have been refused for good
	for _, text := range []string{shown.stdout.String(), c.stdout.String(), c.stderr.String(), body, fmt.Sprint(c.err)} {
		if strings.Contains(text, "canary") {
			t.Errorf("a password is shown:\n%s", text)
		}
	}
}
