package console

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"github.com/fleetloop/fleetloop/internal/console/consoletest"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
)

// testIssuer signs a person in with OpenID Connect, on a fleet API that checks the tokens. The person
// comes back to the deep link, and no token reaches the browser. The name of the person is HTML.
func testIssuer(r run) {
	t, s, b := r.T, r.system, r.browser
	issuer := consoletest.StartIssuer(t)
	issuer.Change = func(claims map[string]any) { claims["sub"], claims["roles"] = shortAttack, "operators" }
	config := filepath.Join(t.TempDir(), "fleet-api.yaml")
	text := fmt.Sprintf("auth:\n  mode: bearer\n  issuers: [{issuer: %q, audience: %s, operator_role: operators}]\n", issuer.URL, consoletest.ClientID)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	fleet, console := freeAddress(t), freeAddress(t)
	s.startBinary(t, "fleet-api", fleet, map[string]string{"DATABASE_URL": pgtest.NewMigratedDatabaseURL(t)}, "--config="+config)
	s.startBinary(t, "console", console, map[string]string{
		"FLEET_API_URL": "http://" + fleet, "CONSOLE_AUTH_MODE": "oidc", "CONSOLE_OIDC_ISSUER": issuer.URL, "CONSOLE_OIDC_CLIENT_ID": consoletest.ClientID,
	})

	p := b.newPage(t, "http://"+console+"/")
	p.expectErrors("401 (Unauthorized)") // the request for the session, before the sign-in
	const link = "clusters?text=eu-west"
	p.open(link)
	p.click("a", "Continue with your organisation")
	p.sees("Issuer")
	p.click("button", "Sign in as alice")
	p.wantPath(link)
	p.sees(shortAttack, "Nothing matches the filter")
	p.wantUnharmed()
	p.wantNoToken(issuer.ListIssuedTokens())
	session := p.wantHiddenCookie()

	p.click("button", "Sign out")
	p.wantPath("signin")
	p.open(link)
	p.sees("Sign in to Fleetloop")
	// The session has ended on the server as well: its cookie is of no use any more.
	call(p, network.SetCookie, network.SetCookieParams{Name: session.Name, Value: session.Value, URL: p.base})
	p.open(link)
	p.sees("Sign in to Fleetloop")
}

// wantNoToken verifies that the page has none of the tokens: not in its document, its addresses, what it
// stores, or what it knows of the session.
func (p *page) wantNoToken(tokens []string) {
	p.Helper()
	known := evaluate[string](p, `(async () => {
  const databases = await indexedDB.databases(), caches_ = await caches.keys()
  const session = await (await fetch('console/session')).text()
  return [document.documentElement.outerHTML, location.href, ...performance.getEntries().map((e) => e.name), document.cookie,
    JSON.stringify({ ...localStorage }), JSON.stringify({ ...sessionStorage }), JSON.stringify(databases), ...caches_, window.name, JSON.stringify(history.state), session].join('\n')
})()`, chromedp.EvalAwaitPromise)
	if len(tokens) == 0 || !strings.Contains(known, `"signed_in":true`) {
		p.Fatalf("%d tokens were issued; the page knows:\n%s", len(tokens), known)
	}
	for _, token := range tokens {
		if strings.Contains(known, token) {
			p.Errorf("the page has the token %s", token)
		}
	}
}

// wantHiddenCookie verifies that scripts cannot read the cookies of the session, and returns it.
func (p *page) wantHiddenCookie() (session *network.Cookie) {
	p.Helper()
	for _, c := range call(p, network.GetCookies, network.GetCookiesParams{URLs: []string{p.base}}).Cookies {
		if !c.HTTPOnly || c.SameSite == "" || c.SameSite == network.CookieSameSiteNone {
			p.Errorf("the cookie %s has HttpOnly %t and SameSite %q", c.Name, c.HTTPOnly, c.SameSite)
		}
		if c.Name == "fleetloop-console" {
			session = c
		}
	}
	if session == nil {
		p.Fatal("the browser has no cookie of a session")
	}
	return session
}
