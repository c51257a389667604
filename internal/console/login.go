package console

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"github.com/fleetloop/fleetloop/internal/console/session"
)

// An Issuer signs people in with OpenID Connect.
type Issuer interface {
	// AuthURL returns the URL at which a person signs in.
	AuthURL(ctx context.Context, redirect, state, nonce, verifier string) (string, error)
	// Exchange returns the tokens for a code. It returns session.ErrRefused if a retry is useless.
	Exchange(ctx context.Context, redirect, code, nonce, verifier string) (session.Tokens, error)
}

// loginCookie holds a sign-in that has begun, encrypted, so that any replica can finish it.
const (
	loginCookie = "fleetloop-console-login"
	loginTime   = 10 * time.Minute
)

// A login is a sign-in that has begun in one browser.
type login struct {
	State    string    `json:"state"`
	Nonce    string    `json:"nonce"`
	Verifier string    `json:"verifier"`
	To       string    `json:"to"`
	Until    time.Time `json:"until"`
}

// An issuerLogin signs people in at the issuer.
type issuerLogin struct{ console *Console }

// begin sends the browser to the issuer.
func (l issuerLogin) begin(w http.ResponseWriter, r *http.Request) {
	c := l.console
	if c.deps.Issuer == nil {
		WriteProblem(w, http.StatusNotFound, "The console does not use an issuer.", "Choose the sign-in that the page shows.")
		return
	}
	to := r.URL.Query().Get("to")
	if to == "" {
		to = c.base
	}
	if !isLocalPath(to) {
		WriteProblem(w, http.StatusBadRequest, "to must be a path of this host.", "")
		return
	}
	begun := login{State: session.NewID(), Nonce: session.NewID(), Verifier: oauth2.GenerateVerifier(), To: to, Until: time.Now().Add(loginTime)}
	where, err := c.deps.Issuer.AuthURL(r.Context(), l.redirectURL(r), begun.State, begun.Nonce, begun.Verifier)
	if err != nil {
		c.log.WarnContext(r.Context(), "issuer not reached", "err", err)
		l.redirectFailed(w, "unavailable")
		return
	}
	text, err := json.Marshal(begun)
	if err != nil {
		c.writeError(w, r, fmt.Errorf("encode sign-in: %w", err))
		return
	}
	c.cookies.set(w, loginCookie, c.deps.Sessions.Seal(loginCookie, text), http.SameSiteLaxMode)
	redirect(w, where)
}

// finish receives the browser from the issuer.
func (l issuerLogin) finish(w http.ResponseWriter, r *http.Request) {
	c := l.console
	if c.deps.Issuer == nil {
		WriteProblem(w, http.StatusNotFound, "The console does not use an issuer.", "")
		return
	}
	begun, err := l.read(r)
	c.cookies.set(w, loginCookie, "", http.SameSiteLaxMode) // it counts once
	q := r.URL.Query()
	switch {
	case err != nil:
		l.redirectFailed(w, "expired")
		return
	case subtle.ConstantTimeCompare([]byte(q.Get("state")), []byte(begun.State)) != 1:
		l.redirectFailed(w, "expired") // another browser or tab began it
		return
	case q.Get("error") != "" || q.Get("code") == "":
		c.metrics.countSignIn(c.cfg.Mode, ErrToken)
		l.redirectFailed(w, "denied")
		return
	}
	tokens, err := c.deps.Issuer.Exchange(r.Context(), l.redirectURL(r), q.Get("code"), begun.Nonce, begun.Verifier)
	var who session.User
	if err == nil {
		who, err = c.deps.Identify(r.Context(), tokens.Bearer)
	}
	var id string
	if err == nil {
		id, err = c.beginSession(r, who, tokens)
	}
	c.metrics.countSignIn(c.cfg.Mode, err)
	if err != nil {
		c.log.WarnContext(r.Context(), "sign-in failed", "err", err)
		reason := "unavailable"
		if errors.Is(err, ErrToken) || errors.Is(err, session.ErrRefused) {
			reason = "refused"
		}
		l.redirectFailed(w, reason)
		return
	}
	c.cookies.set(w, sessionCookie, id, http.SameSiteLaxMode)
	redirect(w, begun.To)
}

var errNoLogin = errors.New("no sign-in has begun")

// read returns the sign-in that has begun in this browser.
func (l issuerLogin) read(r *http.Request) (begun login, err error) {
	cookie, err := r.Cookie(l.console.cookies.nameOf(loginCookie))
	if err != nil {
		return login{}, errNoLogin
	}
	text, err := l.console.deps.Sessions.Open(loginCookie, cookie.Value)
	if err != nil || json.Unmarshal(text, &begun) != nil || time.Now().After(begun.Until) {
		return login{}, errNoLogin
	}
	return begun, nil
}

// redirectFailed sends the browser to the sign-in page, with the reason from a closed set.
func (l issuerLogin) redirectFailed(w http.ResponseWriter, reason string) {
	redirect(w, l.console.base+"signin?failed="+url.QueryEscape(reason))
}

func redirect(w http.ResponseWriter, where string) {
	w.Header().Set("Location", where)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusFound)
}

// redirectURL returns the URL to which the issuer sends the browser.
func (l issuerLogin) redirectURL(r *http.Request) string {
	c := l.console
	if c.public != nil {
		return c.public.Scheme + "://" + c.public.Host + c.base + "console/callback"
	}
	scheme := "http://"
	if c.deps.TLS {
		scheme = "https://"
	}
	return scheme + r.Host + c.base + "console/callback" // isOwnHost has checked the host
}

// isLocalPath reports whether a redirect to a path stays on this host. Browsers read a backslash as a
// slash, drop control characters, and take what follows two slashes for a host.
func isLocalPath(to string) bool {
	if !strings.HasPrefix(to, "/") || strings.HasPrefix(to, "//") || strings.ContainsFunc(to, func(c rune) bool { return c == '\\' || c <= ' ' || c == 0x7f }) {
		return false
	}
	u, err := url.Parse(to)
	return err == nil && u.Scheme == "" && u.Host == "" && u.User == nil
}
