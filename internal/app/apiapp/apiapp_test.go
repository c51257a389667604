package apiapp_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/app/apiapp"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
	"github.com/fleetloop/fleetloop/internal/processtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// startAPI runs the command line on free addresses.
func startAPI(t *testing.T, env map[string]string, args ...string) *processtest.RunningCommand {
	t.Helper()
	return processtest.StartCommandInGoroutine(t, apiapp.NewCommand, env, args...)
}

// TestServe brings an empty database up to date, serves on it, and ends.
func TestServe(t *testing.T) {
	t.Parallel()
	c := startAPI(t, map[string]string{"DATABASE_URL": pgtest.NewEmptyDatabaseURL(t)})
	health := c.WaitForURLInLog(t, "metrics and health")
	processtest.Eventually(t, func() error {
		if status, body := processtest.SendRequest(t, http.MethodGet, health+"/readyz?verbose", ""); status != http.StatusOK {
			return fmt.Errorf("not ready: %s", body)
		}
		return nil
	})
	status, body := processtest.SendRequest(t, http.MethodPost, c.WaitForURLInLog(t, "fleet API")+v1.BasePath+"/clusters", `{"name":"cluster-1","spec":{}}`)
	var r v1.Resource
	if err := json.Unmarshal([]byte(body), &r); err != nil || status != http.StatusCreated || r.Generation != 1 {
		t.Errorf("create: %d %s", status, body)
	}
	c.Cancel()
	if err := c.WaitUntilEnded(t); err != nil {
		t.Errorf("told to stop, it ended with %v", err)
	}
}

// TestServeWithoutItsStandby verifies that a standby that cannot be reached affects neither readiness nor reads.
func TestServeWithoutItsStandby(t *testing.T) {
	t.Parallel()
	const password = "canary"
	c := startAPI(t, map[string]string{"DATABASE_URL": pgtest.NewMigratedDatabaseURL(t), "DATABASE_READ_URL": "postgres://u:" + password + "@127.0.0.1:1/d"})
	health := c.WaitForURLInLog(t, "metrics and health")
	processtest.Eventually(t, func() error {
		if status, body := processtest.SendRequest(t, http.MethodGet, health+"/readyz?verbose", ""); status != http.StatusOK {
			return fmt.Errorf("not ready: %s", body)
		}
		if _, body := processtest.SendRequest(t, http.MethodGet, health+"/metrics", ""); !strings.Contains(body, "fleetloop_api_standby_usable 0") {
			return fmt.Errorf("the metrics do not tell that the standby is not usable")
		}
		return nil
	})
	if status, body := processtest.SendRequest(t, http.MethodGet, c.WaitForURLInLog(t, "fleet API")+v1.BasePath+"/clusters", ""); status != http.StatusOK {
		t.Errorf("list: %d %s", status, body)
	}
	c.Cancel()
	if err := c.WaitUntilEnded(t); err != nil {
		t.Errorf("told to stop, it ended with %v", err)
	}
	if strings.Contains(c.Stderr.String(), password) {
		t.Errorf("the password is shown:\n%s", c.Stderr.String())
	}
}

// TestServeEndsWatches verifies that open watches do not delay the end of the server, and receive
// the position at which to continue.
func TestServeEndsWatches(t *testing.T) {
	t.Parallel()
	c := startAPI(t, map[string]string{"DATABASE_URL": pgtest.NewEmptyDatabaseURL(t)})
	where := c.WaitForURLInLog(t, "fleet API") + v1.BasePath + "/clusters"
	ready := c.WaitForURLInLog(t, "metrics and health") + "/readyz" // there may be lists before the last migration
	processtest.Eventually(t, func() error {
		if status, body := processtest.SendRequest(t, http.MethodGet, ready, ""); status != http.StatusOK {
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
	if status, body := processtest.SendRequest(t, http.MethodPost, where, `{"name":"cluster-1","spec":{}}`); status != http.StatusCreated {
		t.Fatalf("create: %d %s", status, body)
	}
	events := bufio.NewReader(resp.Body)
	for line := ""; line != "event: changed\n"; {
		if line, err = events.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	c.Cancel()
	rest, err := io.ReadAll(events)
	if err != nil || !strings.Contains(string(rest), "event: bookmark\n") || !strings.HasSuffix(string(rest), "\n\n") {
		t.Errorf("it ended with %q, %v", rest, err)
	}
	if err := c.WaitUntilEnded(t); err != nil {
		t.Errorf("told to stop, it ended with %v", err)
	}
}

// TestMigrate brings a database up to date beforehand, as a role that owns the
// schema; the server then leaves it alone.
func TestMigrate(t *testing.T) {
	t.Parallel()
	env := map[string]string{"DATABASE_URL": pgtest.NewEmptyDatabaseURL(t)}
	for range 2 { // a second time there is nothing to do
		if err := startAPI(t, env, "migrate").WaitUntilEnded(t); err != nil {
			t.Fatal(err)
		}
	}
	c := startAPI(t, env, "--migrate=false")
	processtest.Eventually(t, func() error {
		if status, body := processtest.SendRequest(t, http.MethodGet, c.WaitForURLInLog(t, "fleet API")+v1.BasePath+"/clusters", ""); status != http.StatusOK {
			return fmt.Errorf("%d %s", status, body)
		}
		return nil
	})
	if strings.Contains(c.Stderr.String(), "schema migrated") {
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
			c := startAPI(t, tc.env, tc.args...)
			err := c.WaitUntilEnded(t)
			if err == nil {
				t.Fatalf("%s: got no error", tc.reason)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s: the error lacks %q: %v", tc.reason, want, err)
				}
			}
			if strings.Contains(err.Error()+c.Stderr.String(), password) {
				t.Errorf("the password is shown: %v\n%s", err, c.Stderr.String())
			}
		})
	}
}

// TestSecretsAreNotShown runs with passwords that the database refuses.
func TestSecretsAreNotShown(t *testing.T) {
	t.Parallel()
	where, err := url.Parse(pgtest.NewMigratedDatabaseURL(t))
	if err != nil {
		t.Fatal(err)
	}
	where.User, where.Path = url.UserPassword("nobody", "canary-1"), "/nosuch"
	env := map[string]string{"DATABASE_URL": where.String(), "DATABASE_MIGRATION_URL": strings.ReplaceAll(where.String(), "canary-1", "canary-2"), "LOG_LEVEL": "debug"}

	shown := startAPI(t, env, "config", "show", "--origins")
	if err := shown.WaitUntilEnded(t); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"url: '***' # env DATABASE_URL", "migration_url: '***' # env DATABASE_MIGRATION_URL", "mode: none # default"} {
		if !strings.Contains(shown.Stdout.String(), want) {
			t.Errorf("config show lacks %q:\n%s", want, shown.Stdout.String())
		}
	}
	c := startAPI(t, env)
	health := c.WaitForURLInLog(t, "metrics and health")
	var body string
	processtest.Eventually(t, func() error {
		select {
		case <-c.Done: // a refusal may also be an end
			return nil
		default:
		}
		var status int
		if status, body = processtest.SendRequest(t, http.MethodGet, health+"/readyz", ""); status != http.StatusServiceUnavailable || !strings.Contains(body, "[-]database failed: ") {
			return fmt.Errorf("/readyz gives %d %s", status, body)
		}
		return nil
	})
	c.Cancel()
	_ = c.WaitUntilEnded(t) // it may have been refused for good
	for _, text := range []string{shown.Stdout.String(), c.Stdout.String(), c.Stderr.String(), body, fmt.Sprint(c.Err)} {
		if strings.Contains(text, "canary") {
			t.Errorf("a password is shown:\n%s", text)
		}
	}
}
