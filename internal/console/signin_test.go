package console_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/fleetloop/fleetloop/internal/console"
)

// setCookie gives the browser a session cookie.
func (f *fixture) setCookie(value string) {
	f.t.Helper()
	u, err := url.Parse(f.base)
	if err != nil {
		f.t.Fatal(err)
	}
	f.browser.Jar.SetCookies(u, []*http.Cookie{{Name: "fleetloop-console", Value: value}}) //nolint:gosec // the test has no TLS
}

// TestSessionLife covers that each sign-in has a new id, that an id from elsewhere never becomes a
// session, and that sign-out ends it on the server.
func TestSessionLife(t *testing.T) {
	f := newFixture(t, console.ModeToken)
	f.setCookie("chosen-by-an-attacker")
	f.signIn()
	first := f.cookie()
	if first == "chosen-by-an-attacker" || len(first) < 40 {
		t.Fatalf("the session has the id %q", first)
	}
	f.signIn()
	second := f.cookie()
	f.setCookie(first)
	if f.session().SignedIn || first == second {
		t.Error("the earlier session still works")
	}
	f.setCookie(second)
	f.session()
	f.want(http.StatusNoContent, f.send("POST", "console/logout", ""))
	if f.cookie() != "" {
		t.Error("the cookie is still there")
	}
	f.setCookie(second)
	if f.session().SignedIn {
		t.Error("the session works after the sign-out")
	}
}
