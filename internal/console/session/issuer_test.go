package session_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/fleetloop/fleetloop/internal/console"
	"github.com/fleetloop/fleetloop/internal/console/consoletest"
	"github.com/fleetloop/fleetloop/internal/console/session"
	"github.com/fleetloop/fleetloop/internal/processtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is a console that uses the provider, and a browser.
type fixture struct {
	t        *testing.T
	provider *consoletest.Issuer
	issuer   *session.Issuer
	server   *httptest.Server
	browser  *http.Client
	log      *processtest.Buffer
	bearer   string // that the fleet API has got
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, provider: consoletest.StartIssuer(t), log: &processtest.Buffer{}}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	var err error
	f.issuer, err = session.NewIssuer(session.IssuerConfig{URL: f.provider.URL, ClientID: consoletest.ClientID, Scopes: []string{"openid", "offline_access"}, Token: "id_token"}, transport)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(f.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	cfg := console.Config{Mode: console.ModeOIDC, FleetAPI: "http://127.0.0.1:1", SignInsPerMinute: 100, Session: session.Config{Idle: time.Hour, Lifetime: time.Hour}}
	c, err := console.New(cfg, console.Deps{
		ListenAddr: "127.0.0.1:0", Issuer: f.issuer, Log: log, Metrics: prometheus.NewRegistry(),
		Sessions: session.New(cfg.Session, session.NewRandomKey(), session.NewMemoryStore(), f.issuer.RefreshTokens, log),
		Identify: func(_ context.Context, token string) (session.User, error) {
			f.bearer = token
			return session.User{Name: "alice"}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	f.server = httptest.NewServer(c.Handler())
	t.Cleanup(f.server.Close)
	f.browser = f.newBrowser()
	return f
}

func (f *fixture) newBrowser() *http.Client {
	f.t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		f.t.Fatal(err)
	}
	b := &http.Client{Jar: jar, Transport: &http.Transport{}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	f.t.Cleanup(b.CloseIdleConnections)
	return b
}

// get returns the status, the place of a redirect and the body.
func (f *fixture) get(b *http.Client, where string) (status int, location, body string) {
	f.t.Helper()
	req, err := http.NewRequestWithContext(f.t.Context(), http.MethodGet, where, http.NoBody)
	if err != nil {
		f.t.Fatal(err)
	}
	resp, err := b.Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header.Get("Location"), string(text)
}

// begin begins a sign-in and returns the callback of a person who has signed in.
func (f *fixture) begin(to string) *url.URL {
	f.t.Helper()
	status, where, body := f.get(f.browser, f.server.URL+"/console/login?to="+url.QueryEscape(to))
	if status != http.StatusFound {
		f.t.Fatalf("login = %d %s", status, body)
	}
	return f.provider.SignInAndGetCallback(f.t, where)
}

func (f *fixture) signedIn(b *http.Client) bool {
	f.t.Helper()
	_, _, body := f.get(b, f.server.URL+"/console/session")
	return strings.Contains(body, `"signed_in":true`)
}

// TestSignIn covers a sign-in from its beginning to the page, and that a callback counts once.
func TestSignIn(t *testing.T) {
	f := newFixture(t)
	callback := f.begin("/executions?phase=waiting")
	status, where, _ := f.get(f.browser, callback.String())
	if status != http.StatusFound || where != "/executions?phase=waiting" || !f.signedIn(f.browser) {
		t.Errorf("callback = %d %s, signed in %t", status, where, f.signedIn(f.browser))
	}
	if strings.Count(f.bearer, ".") != 2 {
		t.Errorf("the fleet API got %q, want the ID token", f.bearer)
	}
	if _, where, _ = f.get(f.browser, callback.String()); where != "/signin?failed=expired" {
		t.Errorf("a second time: %s", where)
	}
	if text := f.log.String(); strings.Contains(text, "secret") || strings.Contains(text, f.bearer) || strings.Contains(text, "code-") {
		t.Errorf("a token is in the log:\n%s", text)
	}
}

// TestSignInRefuses covers callbacks that are not the end of the browser's own sign-in.
func TestSignInRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(f *fixture, callback *url.URL)
		failed string
	}{
		"OtherState": {func(_ *fixture, u *url.URL) { setQuery(u, "state", "forged") }, "expired"},
		"NoState":    {func(_ *fixture, u *url.URL) { setQuery(u, "state", "") }, "expired"},
		"OtherBrowser": {func(f *fixture, _ *url.URL) {
			f.browser = f.newBrowser() // an attacker has sent the link
		}, "expired"},
		"OtherLogin": {func(f *fixture, u *url.URL) {
			other := f.begin("/") // a code of one sign-in with the state of another
			setQuery(u, "state", other.Query().Get("state"))
		}, "refused"},
		"Denied":     {func(_ *fixture, u *url.URL) { setQuery(u, "error", "access_denied") }, "denied"},
		"WrongCode":  {func(_ *fixture, u *url.URL) { setQuery(u, "code", "guess") }, "refused"},
		"WrongNonce": {func(f *fixture, _ *url.URL) { f.provider.Change = func(c map[string]any) { c["nonce"] = "other" } }, "unavailable"},
		"WrongAudience": {func(f *fixture, _ *url.URL) {
			f.provider.Change = func(c map[string]any) { c["aud"] = "other" }
		}, "unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			callback := f.begin("/")
			tc.change(f, callback)
			if _, where, _ := f.get(f.browser, callback.String()); where != "/signin?failed="+tc.failed || f.signedIn(f.browser) {
				t.Errorf("sent to %s, signed in %t", where, f.signedIn(f.browser))
			}
		})
	}
}

func setQuery(u *url.URL, name, value string) {
	q := u.Query()
	q.Set(name, value)
	u.RawQuery = q.Encode()
}

// TestOpenRedirect covers targets that a browser would take for another host.
func TestOpenRedirect(t *testing.T) {
	f := newFixture(t)
	for _, to := range []string{
		"https://evil.example.com", "//evil.example.com", "/\\evil.example.com", "\\\\evil.example.com", "/\t/evil.example.com", "/\n/evil.example.com",
		"javascript:alert(1)", "evil.example.com", " //evil.example.com", "/ /evil.example.com",
	} {
		if status, where, _ := f.get(f.browser, f.server.URL+"/console/login?to="+url.QueryEscape(to)); status != http.StatusBadRequest || where != "" {
			t.Errorf("%q = %d %s", to, status, where)
		}
	}
	f.begin("/clusters/a%2Fb?x=//y")
}

// TestIssuerRefresh covers that tokens are renewed, and that a refusal is told from an issuer that is away.
func TestIssuerRefresh(t *testing.T) {
	f := newFixture(t)
	f.provider.Refresh = 7
	got, err := f.issuer.RefreshTokens(t.Context(), "secret-refresh-7")
	if err != nil || got.Refresh != "secret-refresh-8" || time.Until(got.Expires) < 50*time.Minute || strings.Count(got.Bearer, ".") != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	_, err = f.issuer.RefreshTokens(t.Context(), "secret-refresh-7")
	if !errors.Is(err, session.ErrRefused) || strings.Contains(err.Error(), "secret") {
		t.Errorf("used again: %v", err)
	}
	f.provider.Close()
	if _, err = f.issuer.RefreshTokens(t.Context(), "secret-refresh-8"); err == nil || errors.Is(err, session.ErrRefused) {
		t.Errorf("while the issuer is away: %v", err)
	}
}

// TestIssuerRefreshWithoutBearer covers an issuer that has replaced the refresh token, but sends no usable ID token.
func TestIssuerRefreshWithoutBearer(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*consoletest.Issuer)
		err    error
	}{
		"NoKeys":    {func(i *consoletest.Issuer) { i.KeyFailures = 1 }, nil},
		"NoIDToken": {func(i *consoletest.Issuer) { i.NoIDToken = true }, session.ErrNoIDToken},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			tc.change(f.provider)
			got, err := f.issuer.RefreshTokens(t.Context(), "secret-refresh-0")
			final := errors.Is(err, session.ErrRefused) || errors.Is(err, session.ErrIDTokenUnverified)
			if err == nil || final || tc.err != nil && !errors.Is(err, tc.err) {
				t.Errorf("got the error %v", err)
			}
			if want := (session.Tokens{Refresh: "secret-refresh-1"}); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
			f.provider.NoIDToken = false
			if got, err = f.issuer.RefreshTokens(t.Context(), got.Refresh); err != nil || got.Bearer == "" {
				t.Errorf("the second time: %+v, %v", got, err)
			}
		})
	}
}

// hangingTransport answers no request before it ends.
type hangingTransport struct{ asked chan struct{} }

func (h hangingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	h.asked <- struct{}{}
	<-r.Context().Done()
	return nil, context.Cause(r.Context())
}

// TestDiscoveryHangs covers that a request which has ended does not wait for the discovery of another one, and that
// all others share it.
func TestDiscoveryHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := hangingTransport{make(chan struct{}, 10)}
		issuer, err := session.NewIssuer(session.IssuerConfig{URL: "https://login.example.com", ClientID: consoletest.ClientID}, transport)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		discover := func(ctx context.Context, most time.Duration) {
			_, err := issuer.BuildAuthURL(ctx, "", "", "", "")
			if err == nil || time.Since(began) > most {
				t.Errorf("after %s, want at most %s: %v", time.Since(began), most, err)
			}
		}
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() { discover(t.Context(), 10*time.Second) })
		}
		synctest.Wait()
		ended, end := context.WithCancel(t.Context())
		end()
		discover(ended, 0)
		all.Wait()
		if n := len(transport.asked); n != 1 {
			t.Errorf("the issuer was asked %d times", n)
		}
	})
}

func TestNewRefuses(t *testing.T) {
	for _, cfg := range []session.IssuerConfig{{}, {URL: "https://login.example.com"}, {ClientID: consoletest.ClientID}} {
		if _, err := session.NewIssuer(cfg, nil); err == nil {
			t.Errorf("%+v: got no error", cfg)
		}
	}
}
