package console_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/fleetloop/fleetloop/internal/console"
	"github.com/fleetloop/fleetloop/internal/console/session"
	"github.com/fleetloop/fleetloop/internal/processtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fleetAPI is a fleet API that remembers the last request.
type fleetAPI struct {
	*httptest.Server

	last   chan *http.Request
	stream chan string // events to send
}

const goodToken = "alice-secret-token"

func newFleetAPI(t *testing.T) *fleetAPI {
	t.Helper()
	f := &fleetAPI{last: make(chan *http.Request, 10), stream: make(chan string)}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.last <- r
		w.Header().Set("Set-Cookie", "evil=1")
		w.Header().Set("Access-Control-Allow-Origin", "*")
		if strings.HasSuffix(r.URL.Path, "/watch") {
			w.Header().Set("Content-Type", "text/event-stream")
			_ = http.NewResponseController(w).Flush()
			for {
				select {
				case text := <-f.stream:
					_, _ = io.WriteString(w, text)
					_ = http.NewResponseController(w).Flush()
				case <-r.Context().Done():
					return
				}
			}
		}
		_, _ = fmt.Fprintf(w, `{"path":%q}`, r.URL.EscapedPath()) //nolint:gosec // no browser reads it
	}))
	t.Cleanup(f.Close)
	return f
}

// fixture is a console in front of a fleet API, and one browser.
type fixture struct {
	t       *testing.T
	api     *fleetAPI
	console *console.Console
	server  *httptest.Server
	browser *http.Client
	base    string // URL of the first page
	csrf    string
	log     *processtest.Buffer
}

type option func(*console.Config, *console.Deps)

func newFixture(t *testing.T, mode string, options ...option) *fixture {
	t.Helper()
	f := &fixture{t: t, api: newFleetAPI(t), log: &processtest.Buffer{}}
	log := slog.New(slog.NewTextHandler(f.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	transport := new(http.Transport)
	cfg := console.Config{Mode: mode, FleetAPI: f.api.URL, SignInsPerMinute: 20, Session: session.Config{Idle: time.Hour, Lifetime: 12 * time.Hour}}
	d := console.Deps{
		ListenAddr: "127.0.0.1:0",
		Sessions:   session.New(cfg.Session, session.NewRandomKey(), session.NewMemoryStore(), nil, log),
		Identify: func(_ context.Context, token string) (session.User, error) {
			if mode != console.ModeNone && token != goodToken {
				return session.User{}, console.ErrToken
			}
			return session.User{Name: "alice", Tenant: "blue", Roles: []string{"viewer"}}, nil
		},
		Transport: transport,
		Log:       log, Metrics: prometheus.NewRegistry(),
	}
	for _, o := range options {
		o(&cfg, &d)
	}
	t.Cleanup(transport.CloseIdleConnections)
	var err error
	if f.console, err = console.New(cfg, d); err != nil {
		t.Fatal(err)
	}
	f.server = httptest.NewServer(f.console.Handler())
	t.Cleanup(f.server.Close)
	f.base = f.server.URL + f.console.BasePath()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	f.browser = &http.Client{Jar: jar, Transport: new(http.Transport), CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	t.Cleanup(f.browser.CloseIdleConnections)
	return f
}

type answer struct {
	status int
	body   string
	header http.Header
}

// send sends a request as a page of the console does. Header fields replace those of the page.
func (f *fixture) send(method, path, body string, header ...string) answer {
	f.t.Helper()
	req, err := http.NewRequestWithContext(f.t.Context(), method, f.base+path, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	if method != http.MethodGet {
		req.Header.Set("Origin", f.server.URL)
		req.Header.Set("Sec-Fetch-Site", "same-origin")
		req.Header.Set("X-Csrf-Token", f.csrf)
	}
	for pair := range slices.Chunk(header, 2) {
		name, value := pair[0], pair[len(pair)-1]
		if name == "Host" {
			req.Host = value
		}
		req.Header.Set(name, value)
	}
	resp, err := f.browser.Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return answer{resp.StatusCode, string(text), resp.Header}
}

func (f *fixture) want(status int, a answer) answer {
	f.t.Helper()
	if a.status != status {
		f.t.Fatalf("got %d %s, want %d", a.status, a.body, status)
	}
	return a
}

type sessionBody struct {
	SignedIn bool          `json:"signed_in"`
	Mode     string        `json:"mode"`
	User     *session.User `json:"user"`
	CSRF     string        `json:"csrf"`
	Demo     []struct {
		Name string `json:"name"`
	} `json:"demo_users"`
}

// session reads the session and remembers its CSRF token.
func (f *fixture) session() sessionBody {
	f.t.Helper()
	var s sessionBody
	if err := json.Unmarshal([]byte(f.want(http.StatusOK, f.send("GET", "console/session", "")).body), &s); err != nil {
		f.t.Fatal(err)
	}
	f.csrf = s.CSRF
	return s
}

// signIn signs in with a token.
func (f *fixture) signIn() {
	f.t.Helper()
	f.session()
	f.want(http.StatusNoContent, f.send("POST", "console/token", `{"token":"`+goodToken+`"}`))
	if s := f.session(); !s.SignedIn || s.User.Name != "alice" {
		f.t.Fatalf("after the sign-in: %+v", s)
	}
}

func (f *fixture) cookie() string {
	u, _ := url.Parse(f.base)
	for _, c := range f.browser.Jar.Cookies(u) {
		if strings.HasSuffix(c.Name, "fleetloop-console") {
			return c.Value
		}
	}
	return ""
}

// TestForward covers that a request reaches the fleet API with the person's token and nothing else of
// the browser, and that the answer sets no cookie.
func TestForward(t *testing.T) {
	f := newFixture(t, console.ModeToken)
	f.want(http.StatusUnauthorized, f.send("GET", "api/hyperfleet/v1/clusters", ""))
	f.signIn()
	a := f.want(http.StatusOK, f.send("GET", "api/hyperfleet/v1/clusters/a%2Fb?x=1", "", "Authorization", "Bearer of-the-browser", "X-Evil", "1", "Idempotency-Key", "k", "Fleetloop-Read-After", "t"))
	got := <-f.api.last
	if got.Header.Get("Authorization") != "Bearer "+goodToken || got.Header.Get("Idempotency-Key") != "k" || got.Header.Get("Fleetloop-Read-After") != "t" || got.Header.Get("Cookie") != "" || got.Header.Get("X-Evil") != "" || got.Header.Get("X-Csrf-Token") != "" {
		t.Errorf("the fleet API got %v", got.Header)
	}
	if got.URL.RequestURI() != "/api/hyperfleet/v1/clusters/a%2Fb?x=1" {
		t.Errorf("path %s", got.URL.RequestURI())
	}
	if a.header.Get("Set-Cookie") != "" || a.header.Get("Access-Control-Allow-Origin") != "" || a.header.Get("Content-Security-Policy") == "" {
		t.Errorf("the browser got %v", a.header)
	}
	for _, name := range []string{"Impersonate-User", "Impersonate-Role", "impersonate_user"} {
		if a := f.want(http.StatusForbidden, f.send("GET", "api/hyperfleet/v1/clusters", "", name, "operator")); !strings.Contains(a.body, "impersonation") {
			t.Errorf("%s: the browser got %s", name, a.body)
		}
	}
	f.want(http.StatusOK, f.send("PATCH", "api/hyperfleet/v1/clusters/1", `{}`))
	if got := <-f.api.last; got.Method != http.MethodPatch || got.Header.Get("Origin") != "" {
		t.Errorf("got %s %v", got.Method, got.Header)
	}
}

// TestForwardStream covers that events arrive one by one, and that the end of the console ends a
// stream properly.
func TestForwardStream(t *testing.T) {
	f := newFixture(t, console.ModeToken)
	f.signIn()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.base+"api/hyperfleet/v1/watch", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := f.browser.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewReader(resp.Body)
	for _, text := range []string{"data: 1\n", "data: 2\n"} {
		f.api.stream <- text
		if got, err := lines.ReadString('\n'); got != text {
			t.Fatalf("got %q, %v, want %q", got, err, text)
		}
	}
	f.console.EndStreams()
	if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
		t.Errorf("it ended with %q, %v", rest, err)
	}
}

// TestNoTokenInTheBrowser covers that a token is in no answer, no cookie and no log.
func TestNoTokenInTheBrowser(t *testing.T) {
	f := newFixture(t, console.ModeToken)
	f.signIn()
	for _, path := range []string{"", "console/session", "clusters/1", "api/hyperfleet/v1/clusters"} {
		a := f.want(http.StatusOK, f.send("GET", path, ""))
		if strings.Contains(a.body+fmt.Sprint(a.header), goodToken) {
			t.Errorf("%q: the answer has the token", path)
		}
	}
	f.want(http.StatusUnauthorized, f.send("POST", "console/token", `{"token":"a-wrong-secret"}`))
	u, _ := url.Parse(f.base)
	if text := f.log.String() + fmt.Sprint(f.browser.Jar.Cookies(u)); strings.Contains(text, "secret") {
		t.Errorf("a token is shown:\n%s", text)
	}
}

// TestWritesNeedTheirPage covers each of the checks against requests of other sites.
func TestWritesNeedTheirPage(t *testing.T) {
	f := newFixture(t, console.ModeToken)
	f.signIn()
	const path = "api/hyperfleet/v1/clusters"
	for name, header := range map[string][]string{
		"NoToken":     {"X-Csrf-Token", ""},
		"WrongToken":  {"X-Csrf-Token", "x" + f.csrf},
		"OtherOrigin": {"Origin", "https://evil.example.com"},
		"OtherPort":   {"Origin", "http://127.0.0.1:1"},
		"NullOrigin":  {"Origin", "null"},
		"CrossSite":   {"Sec-Fetch-Site", "cross-site"},
		"SameSite":    {"Sec-Fetch-Site", "same-site"},
	} {
		for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
			if a := f.send(method, path, `{}`, header...); a.status != http.StatusForbidden {
				t.Errorf("%s: %s = %d %s", name, method, a.status, a.body)
			}
		}
		if a := f.send("POST", "console/logout", "", header...); a.status != http.StatusForbidden {
			t.Errorf("%s: sign-out = %d", name, a.status)
		}
	}
	f.want(http.StatusOK, f.send("POST", path, `{}`))
	before := f.csrf
	f.want(http.StatusNoContent, f.send("POST", "console/token", `{"token":"`+goodToken+`"}`))
	if a := f.send("POST", path, `{}`, "X-Csrf-Token", before); a.status != http.StatusForbidden {
		t.Errorf("the token of an earlier session = %d", a.status)
	}
}

// TestCookies covers the attributes of the cookies with and without TLS.
func TestCookies(t *testing.T) {
	for name, tc := range map[string]struct {
		public string
		prefix string
		path   string
		secure bool
	}{
		"Loopback":  {"", "", "/", false},
		"TLS":       {"https://console.example.com", "__Host-", "/", true},
		"BasePath":  {"https://example.com/ops/console", "__Secure-", "/ops/console/", true},
		"PlainPath": {"http://127.0.0.1:8082/ops/", "", "/ops/", false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, console.ModeToken, func(c *console.Config, _ *console.Deps) { c.PublicURL = tc.public })
			a := f.want(http.StatusOK, f.send("GET", "console/session", ""))
			text := a.header.Get("Set-Cookie")
			if !strings.HasPrefix(text, tc.prefix+"fleetloop-console-csrf=") || !strings.Contains(text, "; Path="+tc.path+";") ||
				!strings.Contains(text, "; HttpOnly") || !strings.Contains(text, "; SameSite=Strict") || strings.Contains(text, "; Secure") != tc.secure {
				t.Errorf("cookie %s", text)
			}
		})
	}
	f := newFixture(t, console.ModeToken)
	f.session()
	text := f.send("POST", "console/token", `{"token":"`+goodToken+`"}`).header.Get("Set-Cookie")
	if !strings.Contains(text, "; HttpOnly") || !strings.Contains(text, "; SameSite=Lax") {
		t.Errorf("session cookie %s", text)
	}
}

func TestSecurityHeaders(t *testing.T) {
	f := newFixture(t, console.ModeToken)
	for _, path := range []string{"", "console/session", "api/x", "assets/none.js"} {
		h := f.send("GET", path, "").header
		for name, want := range map[string]string{
			"Content-Security-Policy":    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
			"X-Content-Type-Options":     "nosniff",
			"Referrer-Policy":            "no-referrer",
			"Cross-Origin-Opener-Policy": "same-origin",
		} {
			if got := h.Get(name); got != want {
				t.Errorf("%q: %s is %q, want %q", path, name, got, want)
			}
		}
	}
}

// TestRebinding covers that a name of another site that points to this address gets nothing.
func TestRebinding(t *testing.T) {
	f := newFixture(t, console.ModeNone)
	f.want(http.StatusMisdirectedRequest, f.send("GET", "api/hyperfleet/v1/clusters", "", "Host", "evil.example.com"))
}

func TestSignInsAreLimited(t *testing.T) {
	f := newFixture(t, console.ModeToken, func(c *console.Config, _ *console.Deps) { c.SignInsPerMinute = 3 })
	f.session()
	for range 3 {
		f.want(http.StatusUnauthorized, f.send("POST", "console/token", `{"token":"guess"}`))
	}
	f.want(http.StatusTooManyRequests, f.send("POST", "console/token", `{"token":"`+goodToken+`"}`))
}

// TestDemo covers the sign-in of a demo person, whose token names the person to the fleet API.
func TestDemo(t *testing.T) {
	f := newFixture(t, console.ModeDemo, func(_ *console.Config, d *console.Deps) {
		d.Demo = []console.DemoPerson{{Name: "alice", Role: "requests", Token: "a"}, {Name: "bob", Role: "approves", Token: "b"}}
	})
	if s := f.session(); s.SignedIn || s.Mode != "demo" || len(s.Demo) != 2 {
		t.Errorf("before: %+v", s)
	}
	f.want(http.StatusBadRequest, f.send("POST", "console/demo", `{"user":"mallory"}`))
	f.want(http.StatusNoContent, f.send("POST", "console/demo", `{"user":"bob"}`))
	if s := f.session(); !s.SignedIn || s.User.Name != "bob" {
		t.Errorf("after: %+v", s)
	}
	f.want(http.StatusOK, f.send("GET", "api/hyperfleet/v1/clusters", ""))
	if got := <-f.api.last; got.Header.Get("Authorization") != "Bearer b" {
		t.Errorf("the fleet API got %v", got.Header)
	}
	f.want(http.StatusNotFound, f.send("POST", "console/token", `{"token":"b"}`))
}

func TestNewRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		cfg  console.Config
		addr string
		says string
	}{
		"NoneForAll":  {console.Config{Mode: console.ModeNone}, ":8082", "loopback"},
		"DemoForAll":  {console.Config{Mode: console.ModeDemo}, "0.0.0.0:8082", "loopback"},
		"TokenPlain":  {console.Config{Mode: console.ModeToken, PublicURL: "http://console.example.com"}, ":8082", "without TLS"},
		"NoPublicURL": {console.Config{Mode: console.ModeToken}, ":8082", "public URL"},
		"BadURL":      {console.Config{Mode: console.ModeToken, PublicURL: "https://u:p@example.com/"}, ":8082", "public URL"}, //nolint:gosec // not a password
		"UnknownMode": {console.Config{Mode: "basic"}, ":8082", `"basic"`},
	} {
		t.Run(name, func(t *testing.T) {
			tc.cfg.FleetAPI = "http://127.0.0.1:8080"
			_, err := console.New(tc.cfg, console.Deps{ListenAddr: tc.addr, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want an error that says %q", err, tc.says)
			}
		})
	}
}
