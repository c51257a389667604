package apitest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/console/consoletest"
	"github.com/fleetloop/fleetloop/internal/fleetapi/auth"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
)

// A person has a configuration folder, and a browser.
type person struct {
	*testing.T

	env     map[string]string
	browser func(ctx context.Context, url string) error
	stderr  io.Writer // nil records only

	mu   sync.Mutex
	said strings.Builder
}

func newPerson(t *testing.T) *person {
	t.Helper()
	return &person{T: t, env: map[string]string{"XDG_CONFIG_HOME": t.TempDir()}}
}

func (p *person) file(name string) string {
	return filepath.Join(p.env["XDG_CONFIG_HOME"], "fleetloop", name)
}

// runs runs a command, which must exit so, and gives all its output.
func (p *person) runs(code int, stdin string, args ...string) string {
	p.Helper()
	var out strings.Builder
	env := cli.Env{
		Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &out, OpenBrowser: p.browser,
		LookupEnv: func(name string) (string, bool) { v, ok := p.env[name]; return v, ok },
	}
	if p.stderr != nil {
		env.Stderr = io.MultiWriter(&out, p.stderr)
	}
	got := cli.Run(p.Context(), env, cli.Command(env), args)
	p.mu.Lock()
	p.said.WriteString(out.String())
	p.mu.Unlock()
	if got != code {
		p.Errorf("fleetloop %s: exit code %d, want %d\n%s", strings.Join(args, " "), got, code, out.String())
	}
	return out.String()
}

func (p *person) sees(text string, want ...string) {
	p.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			p.Errorf("no %q in\n%s", w, text)
		}
	}
}

// newIssuerAPI starts an issuer, and a fleet API that trusts it.
func newIssuerAPI(t *testing.T) (*consoletest.Issuer, string) {
	t.Helper()
	issuer := consoletest.StartIssuer(t)
	issuer.Change = func(claims map[string]any) { claims["roles"], claims["tenant"] = "operators", "payments" }
	return issuer, newAPIWith(t, pgtest.NewMigratedDatabaseURL(t), auth.Config{
		Mode:    auth.ModeBearer,
		Issuers: []auth.Issuer{{Issuer: issuer.URL, Audience: consoletest.ClientID, OperatorRole: "operators"}},
	})
}

// visit is a browser in which alice signs in.
func visit(t *testing.T, issuer *consoletest.Issuer) func(context.Context, string) error {
	t.Helper()
	return func(ctx context.Context, url string) error {
		callback := issuer.SignInAndGetCallback(t, url)
		forged := *callback
		forged.RawQuery = "code=forged&state=forged" // of another page of the browser
		getPage(ctx, t, forged.String(), http.StatusBadRequest)
		getPage(ctx, t, callback.String(), http.StatusOK)
		return nil
	}
}

func getPage(ctx context.Context, t *testing.T, url string, want int) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		t.Error(err)
		return
	}
	_ = resp.Body.Close()
	if resp.StatusCode != want {
		t.Errorf("%s = %d, want %d", url, resp.StatusCode, want)
	}
}

// TestLogin covers a person's day: two contexts, a sign-in in the browser, the tokens' files, and the end.
func TestLogin(t *testing.T) {
	t.Parallel()
	issuer, url := newIssuerAPI(t)
	p := newPerson(t)
	p.browser = visit(t, issuer)
	p.sees(p.runs(cli.CodeUsage, "", "login", "--server", url), "issuer and the client ID", "--oidc-issuer")
	p.runs(cli.CodeOK, "", "config", "set-context", "prod", "--server", url, "--oidc-issuer", issuer.URL, "--oidc-client-id", consoletest.ClientID, "--current")
	p.runs(cli.CodeOK, "", "config", "set-context", "same", "--server", url)
	p.sees(p.runs(cli.CodeFailed, "", "get", "clusters"), "no bearer token", "fleetloop login")
	p.sees(p.runs(cli.CodeOK, "", "login"), "Sign in with the browser: "+issuer.URL, "Logged in to "+url+" as alice")
	p.sees(p.runs(cli.CodeOK, "", "get", "clusters"), "No clusters found in any tenant")
	p.sees(p.runs(cli.CodeOK, "", "whoami"), "Context:         prod", "Subject:         alice", "login at "+issuer.URL+" (browser)", "then it is renewed")
	p.sees(p.runs(cli.CodeOK, "", "whoami", "-o", "json"), `"context": "prod"`, `"token_expires"`, `"server": "`+url)

	for name, args := range map[string][]string{"another context": {"--context", "same"}, "another server": {"--server", newTokenAPI(t)}} {
		if text := p.runs(cli.CodeFailed, "", append(args, "get", "clusters")...); !strings.Contains(text, "no bearer token") {
			t.Errorf("%s gets the token: %s", name, text)
		}
	}
	for _, name := range []string{"config.yaml", "config.credentials.json"} {
		if info, err := os.Stat(p.file(name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	p.sees(p.runs(cli.CodeOK, "", "logout"), "Logged out of "+url)
	p.sees(p.runs(cli.CodeOK, "", "logout"), "There is no login for "+url)
	p.runs(cli.CodeFailed, "", "get", "clusters")
	wantNotSaid(p, issuer)
}

// TestLogout covers that the refresh token ends at the issuer, and that the local tokens are deleted whatever it answers.
func TestLogout(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason     string
		revocation int
		closed     bool
		says       string
		revoked    int
	}{
		"Revoked": {"a copy of the token is of no use", http.StatusOK, false, "", 1},
		"None":    {"the issuer does not offer it", 0, false, "", 0},
		"Failed":  {"the person learns it", http.StatusServiceUnavailable, false, "warning: the refresh token remains valid at the issuer: revoke the refresh token: the issuer answered 503", 0},
		"Away":    {"the person learns it", http.StatusOK, true, "warning: the refresh token remains valid at the issuer", 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			issuer := consoletest.StartIssuer(t)
			issuer.Revocation = tc.revocation
			p := newPerson(t)
			p.browser = visit(t, issuer)
			const server = "http://127.0.0.1:1" // which need not answer
			p.runs(cli.CodeOK, "", "login", "--server", server, "--oidc-issuer", issuer.URL, "--oidc-client-id", consoletest.ClientID)
			refresh := fmt.Sprint("secret-refresh-", issuer.Refresh)
			if tc.closed {
				issuer.Close()
			}
			text := p.runs(cli.CodeOK, "", "logout", "--server", server)
			p.sees(text, "Logged out of "+server, tc.says)
			if tc.says == "" && strings.Contains(text, "warning") {
				t.Errorf("%s: %s", tc.reason, text)
			}
			if got := issuer.ListRevokedTokens(); len(got) != tc.revoked || tc.revoked > 0 && got[0] != refresh {
				t.Errorf("%s: %q were revoked", tc.reason, got)
			}
			data, err := os.ReadFile(p.file("config.credentials.json"))
			if err != nil || strings.Contains(string(data), "secret-") {
				t.Errorf("%s: the tokens are still there: %v", tc.reason, err)
			}
			p.sees(p.runs(cli.CodeOK, "", "logout", "--server", server), "There is no login for "+server)
			wantNotSaid(p, issuer)
		})
	}
}

// wantNotSaid verifies that no token was printed.
func wantNotSaid(p *person, issuer *consoletest.Issuer) {
	p.Helper()
	tokens := issuer.ListIssuedTokens()
	if len(tokens) == 0 {
		p.Error("no tokens were issued")
	}
	for _, token := range append(tokens, "secret-") {
		if strings.Contains(p.said.String(), token) {
			p.Errorf("the token %s was printed", token)
		}
	}
}

// TestLoginWithDevice covers a person who enters the code in a browser elsewhere.
func TestLoginWithDevice(t *testing.T) {
	t.Parallel()
	issuer, url := newIssuerAPI(t)
	p := newPerson(t)
	code := regexp.MustCompile(`enter the code (CODE-\d+)`)
	p.stderr = writerFunc(func(text []byte) (int, error) {
		if m := code.FindSubmatch(text); m != nil {
			issuer.EnterUserCode(t, string(m[1]))
		}
		return len(text), nil
	})
	p.env["FLEETLOOP_SERVER"], p.env["FLEETLOOP_OIDC_ISSUER"], p.env["FLEETLOOP_OIDC_CLIENT_ID"] = url, issuer.URL, consoletest.ClientID
	p.sees(p.runs(cli.CodeOK, "", "login", "--device"), "Open "+issuer.URL+"/device", "as alice")
	p.sees(p.runs(cli.CodeOK, "", "whoami"), "(device)")
	wantNotSaid(p, issuer)
}

type writerFunc func(text []byte) (int, error)

func (f writerFunc) Write(text []byte) (int, error) { return f(text) }

// TestLoginRefused covers tokens that the server does not accept: they are not stored.
func TestLoginRefused(t *testing.T) {
	t.Parallel()
	p := newPerson(t)
	p.env["FLEETLOOP_SERVER"] = newTokenAPI(t)
	for name, tc := range map[string]struct {
		token string
		code  int
		want  string
	}{
		"Wrong": {"wrong-token\n", cli.CodeFailed, "the server does not accept the token"},
		"Empty": {"\n", cli.CodeUsage, "it is empty"},
		"Lines": {"a\nb\n", cli.CodeUsage, "one line"},
	} {
		p.sees(p.runs(tc.code, tc.token, "login", "--token-stdin"), tc.want)
		if _, err := os.Stat(p.file("config.credentials.json")); err == nil {
			t.Errorf("%s: the token was stored", name)
		}
	}
	p.sees(p.runs(cli.CodeOK, "alice-token\n", "login", "--token-stdin"), "as alice")
	p.sees(p.runs(cli.CodeOK, "", "whoami"), "login with a token", "Token expires:   unknown")
	p.env["FLEETLOOP_TOKEN"] = "bob-token"
	p.sees(p.runs(cli.CodeOK, "", "whoami"), "Subject:         bob", "env FLEETLOOP_TOKEN")
	if regexp.MustCompile("(alice|bob|wrong)-token").MatchString(p.said.String()) {
		t.Errorf("a token was printed:\n%s", p.said.String())
	}
}

// TestLoginRenews covers commands at the same time whose token has expired, at an issuer that accepts a refresh
// token once. None of them fails, and afterwards the login still works.
func TestLoginRenews(t *testing.T) {
	t.Parallel()
	issuer, url := newIssuerAPI(t)
	p := newPerson(t)
	p.browser = visit(t, issuer)
	issuer.Life = 20 * time.Second // shorter than the time before the expiry at which tokens are renewed
	p.env["FLEETLOOP_SERVER"], p.env["FLEETLOOP_OIDC_ISSUER"], p.env["FLEETLOOP_OIDC_CLIENT_ID"] = url, issuer.URL, consoletest.ClientID
	p.runs(cli.CodeOK, "", "login")
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() { p.runs(cli.CodeOK, "", "whoami") })
	}
	all.Wait()
	p.runs(cli.CodeOK, "", "whoami")
	if got, want := issuer.Refresh, 1+6+1; got != want {
		t.Errorf("the issuer has given %d refresh tokens, want %d", got, want)
	}
	issuer.Refresh = 100 // it has ended the session
	text := p.runs(cli.CodeFailed, "", "get", "clusters")
	p.sees(text, "the login has expired", "fleetloop login")
	wantNotSaid(p, issuer)
}

// TestVersionOfServer covers what the real API says of itself.
func TestVersionOfServer(t *testing.T) {
	t.Parallel()
	p := newPerson(t)
	p.env["FLEETLOOP_SERVER"] = newAPI(t)
	p.sees(p.runs(cli.CodeOK, "", "version"), "fleetloop, version dev", "fleet-api, version dev (revision: ", p.env["FLEETLOOP_SERVER"])
	p.sees(p.runs(cli.CodeOK, "", "version", "-o", "json"), `"server"`, fmt.Sprintf(`"url": %q`, p.env["FLEETLOOP_SERVER"]))
}
