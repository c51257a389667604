package consoleapp_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fleetloop/fleetloop/internal/app/apiapp"
	"github.com/fleetloop/fleetloop/internal/app/consoleapp"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
	"github.com/fleetloop/fleetloop/internal/processtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="

// startConsole runs the console and returns the URL of its page.
func startConsole(t *testing.T, env map[string]string) (c *processtest.RunningCommand, url string) {
	t.Helper()
	c = processtest.StartCommandInGoroutine(t, consoleapp.NewCommand, env)
	processtest.Eventually(t, func() error {
		select {
		case <-c.Done:
			t.Fatalf("it ended: %v", c.Err)
		default:
		}
		_, rest, ok := strings.Cut(c.Stderr.String(), `"msg":"console ready","url":"`)
		if !ok {
			return fmt.Errorf("no URL in the log")
		}
		url, _, _ = strings.Cut(rest, `"`)
		return nil
	})
	processtest.EventuallyStatus(t, c.WaitForURLInLog(t, "metrics and health")+"/readyz", http.StatusOK)
	return c, url
}

// browser is a browser that shares its cookies among the replicas of a console.
type browser struct {
	*testing.T
	client *http.Client
	csrf   string
}

func newBrowser(t *testing.T) *browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	b := &browser{T: t, client: &http.Client{Jar: jar, Transport: &http.Transport{}}}
	t.Cleanup(b.client.CloseIdleConnections)
	return b
}

func (b *browser) do(want int, method, url, body string) string {
	b.Helper()
	req, err := http.NewRequestWithContext(b.Context(), method, url, strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	req.Header.Set("X-Csrf-Token", b.csrf)
	resp, err := b.client.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != want {
		b.Fatalf("%s %s = %d %s, %v; want %d", method, url, resp.StatusCode, text, err, want)
	}
	return string(text)
}

func (b *browser) session(url string) {
	b.Helper()
	var s struct {
		CSRF string `json:"csrf"`
	}
	if err := json.Unmarshal([]byte(b.do(http.StatusOK, "GET", url+"console/session", "")), &s); err != nil {
		b.Fatal(err)
	}
	b.csrf = s.CSRF
}

// TestReplicas covers two replicas in front of one fleet API: a person who has signed in at one is
// signed in at the other, follows the fleet, and is signed out at both.
func TestReplicas(t *testing.T) {
	t.Parallel()
	tokens := filepath.Join(t.TempDir(), "tokens.yaml")
	if err := os.WriteFile(tokens, []byte("tokens:\n- {token: secret-alice, subject: alice, tenant: blue}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	database := pgtest.NewMigratedDatabaseURL(t)
	api := processtest.StartCommandInGoroutine(t, apiapp.NewCommand, map[string]string{"DATABASE_URL": database, "FLEET_API_AUTH_MODE": "bearer", "FLEET_API_TOKEN_FILE": tokens})
	processtest.EventuallyStatus(t, api.WaitForURLInLog(t, "metrics and health")+"/readyz", http.StatusOK)
	env := map[string]string{
		"DATABASE_URL": database, "FLEET_API_URL": api.WaitForURLInLog(t, "fleet API"), "CONSOLE_AUTH_MODE": "token", "CONSOLE_SESSION_KEY": key,
	}
	one, first := startConsole(t, env)
	two, second := startConsole(t, env)

	b := newBrowser(t)
	b.session(first)
	b.do(http.StatusUnauthorized, "POST", first+"console/token", `{"token":"secret-mallory"}`)
	b.do(http.StatusNoContent, "POST", first+"console/token", `{"token":"secret-alice"}`)
	b.session(second)
	events := b.follow(first)
	events.waitFor("reset", "clusters")
	events.waitFor("reset", "changes")
	if text := b.do(http.StatusOK, "GET", second+"api/hyperfleet/v1/whoami", ""); !strings.Contains(text, `"alice"`) {
		t.Errorf("whoami = %s", text)
	}
	b.do(http.StatusCreated, "POST", second+"api/hyperfleet/v1/clusters", `{"name":"cluster-1","spec":{}}`)
	events.waitFor("clusters", `"cluster-1"`)
	b.do(http.StatusNoContent, "POST", second+"console/logout", "")
	b.do(http.StatusUnauthorized, "GET", first+"api/hyperfleet/v1/clusters", "")
	if _, err := io.ReadAll(events.lines); err != nil {
		t.Errorf("the stream after the sign-out: %v", err)
	}
	for _, c := range []*processtest.RunningCommand{one, two} {
		c.Cancel()
		if err := c.WaitUntilEnded(t); err != nil {
			t.Error(err)
		}
		if text := c.Stderr.String() + c.Stdout.String(); strings.Contains(text, "secret-") || strings.Contains(text, key) {
			t.Errorf("a secret is in the log:\n%s", text)
		}
	}
}

// follower reads the stream of a page.
type follower struct {
	t     *testing.T
	lines *bufio.Reader
	seen  []string
}

func (b *browser) follow(url string) *follower {
	b.Helper()
	req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, url+"console/stream", http.NoBody)
	if err != nil {
		b.Fatal(err)
	}
	resp, err := b.client.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = resp.Body.Close() })
	timer := time.AfterFunc(processtest.Patience, func() { _ = resp.Body.Close() })
	b.Cleanup(func() { timer.Stop() })
	return &follower{t: b.T, lines: bufio.NewReader(resp.Body)}
}

// waitFor reads up to an event that has a text, unless it has been read.
func (f *follower) waitFor(event, text string) {
	f.t.Helper()
	for {
		for _, e := range f.seen {
			if strings.Contains(e, "event: "+event+"\n") && strings.Contains(e, text) {
				return
			}
		}
		var one strings.Builder
		for line := ""; line != "\n"; {
			var err error
			if line, err = f.lines.ReadString('\n'); err != nil {
				f.t.Fatalf("no event %s with %q in\n%s: %v", event, text, strings.Join(f.seen, ""), err)
			}
			one.WriteString(line)
		}
		f.seen = append(f.seen, one.String())
	}
}

// TestRefuses covers a console that cannot begin: it ends at once and says what to do.
func TestRefuses(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		env  map[string]string
		want string
	}{
		"OpenToAll": {map[string]string{"LISTEN_ADDRESS": ":0"}, "loopback"},
		"NoKey":     {map[string]string{"DATABASE_URL": "postgres://u@127.0.0.1:1/d"}, "CONSOLE_SESSION_KEY"},
		"ShortKey":  {map[string]string{"CONSOLE_SESSION_KEY": "canary"}, "openssl rand"},
		"NoIssuer":  {map[string]string{"CONSOLE_AUTH_MODE": "oidc"}, "CONSOLE_OIDC_ISSUER"},
		"BadURL":    {map[string]string{"FLEET_API_URL": "nowhere"}, "fleet_api_url"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := processtest.StartCommandInGoroutine(t, consoleapp.NewCommand, tc.env)
			if err := c.WaitUntilEnded(t); err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "canary") {
				t.Errorf("got %v, want an error that says %q", err, tc.want)
			}
		})
	}
}
