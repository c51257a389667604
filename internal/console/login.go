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
	// BuildAuthURL returns the URL at which a person signs in.
	BuildAuthURL(ctx context.Context, redirectURL, state, nonce, pkceVerifier string) (authURL string, err error)
	// ExchangeCode returns the tokens for a code. It returns session.ErrRefused if a retry is useless.
	ExchangeCode(ctx context.Context, redirectURL, code, nonce, pkceVerifier string) (tokens session.Tokens, err error)
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

// An oidcLogin signs people in at the issuer.
type oidcLogin struct{ console *Console }

// redirectToIssuer sends the browser to the issuer.
func (l oidcLogin) redirectToIssuer(w http.ResponseWriter, r *http.Request) {
	c := l.console
	if c.deps.Issuer == nil {
		WriteProblemJSON(w, http.StatusNotFound, "The console does not use an issuer.", "Choose the sign-in that the page shows.")
		return
	}
	to := r.URL.Query().Get("to")
	if to == "" {
		to = c.base
	}
	if !isSafeLocalPath(to) {
		WriteProblemJSON(w, http.StatusBadRequest, "to must be a path of this host.", "")
		return
	}
	begun := login{
		State:    session.NewRandomID(),
		Nonce:    session.NewRandomID(),
		Verifier: oauth2.GenerateVerifier(),
		To:       to,
		Until:    time.Now().Add(loginTime),
	}
	where, err := c.deps.Issuer.BuildAuthURL(r.Context(), l.callbackURL(r), begun.State, begun.Nonce, begun.Verifier)
	if err != nil {
		c.log.WarnContext(r.Context(), "issuer not reached", "err", err)
		l.redirectToSignInPage(w, "unavailable")
		return
	}
	text, err := json.Marshal(begun)
	if err != nil {
		c.writeErrorProblem(w, r, fmt.Errorf("encode sign-in: %w", err))
		return
	}
	c.cookies.setOrRemoveCookie(w, loginCookie, c.deps.Sessions.EncryptForCookie(loginCookie, text), http.SameSiteLaxMode)
	redirectUncached(w, where)
}

// handleCallback receives the browser from the issuer.
func (l oidcLogin) handleCallback(w http.ResponseWriter, r *http.Request) {
	c := l.console
	if c.deps.Issuer == nil {
		WriteProblemJSON(w, http.StatusNotFound, "The console does not use an issuer.", "")
		return
	}
	begun, err := l.readLoginCookie(r)
	c.cookies.setOrRemoveCookie(w, loginCookie, "", http.SameSiteLaxMode) // it counts once
	q := r.URL.Query()
	switch {
	case err != nil:
		l.redirectToSignInPage(w, "expired")
		return
	case subtle.ConstantTimeCompare([]byte(q.Get("state")), []byte(begun.State)) != 1:
		l.redirectToSignInPage(w, "expired") // another browser or tab began it
		return
	case q.Get("error") != "" || q.Get("code") == "":
		c.metrics.countSignInResult(c.cfg.Mode, ErrToken)
		l.redirectToSignInPage(w, "denied")
		return
	}
	id, err := l.exchangeCodeForSession(r, q.Get("code"), begun)
	c.metrics.countSignInResult(c.cfg.Mode, err)
	if err != nil {
		c.log.WarnContext(r.Context(), "sign-in failed", "err", err)
		reason := "unavailable"
		if errors.Is(err, ErrToken) || errors.Is(err, session.ErrRefused) {
			reason = "refused"
		}
		l.redirectToSignInPage(w, reason)
		return
	}
	c.cookies.setOrRemoveCookie(w, sessionCookie, id, http.SameSiteLaxMode)
	redirectUncached(w, begun.To)
}

func (l oidcLogin) exchangeCodeForSession(r *http.Request, code string, begun login) (sessionID string, err error) {
	deps := l.console.deps
	tokens, err := deps.Issuer.ExchangeCode(r.Context(), l.callbackURL(r), code, begun.Nonce, begun.Verifier)
	if err != nil {
		return "", err
	}
	user, err := deps.Identify(r.Context(), tokens.Bearer)
	if err != nil {
		return "", err
	}
	return l.console.replaceSession(r, user, tokens)
}

var errNoLogin = errors.New("no sign-in has begun")

// readLoginCookie returns the sign-in that has begun in this browser.
func (l oidcLogin) readLoginCookie(r *http.Request) (started login, err error) {
	cookie, err := r.Cookie(l.console.cookies.cookieNameWithPrefix(loginCookie))
	if err != nil {
		return login{}, errNoLogin
	}
	text, err := l.console.deps.Sessions.DecryptFromCookie(loginCookie, cookie.Value)
	if err != nil || json.Unmarshal(text, &started) != nil || time.Now().After(started.Until) {
		return login{}, errNoLogin
	}
	return started, nil
}

// redirectToSignInPage sends the browser to the sign-in page, with the reason from a closed set.
func (l oidcLogin) redirectToSignInPage(w http.ResponseWriter, failureReason string) {
	redirectUncached(w, l.console.base+"signin?failed="+url.QueryEscape(failureReason))
}

func redirectUncached(w http.ResponseWriter, location string) {
	w.Header().Set("Location", location)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusFound)
}

// callbackURL returns the URL to which the issuer sends the browser.
func (l oidcLogin) callbackURL(r *http.Request) string {
	c := l.console
	if c.public != nil {
		return c.public.Scheme + "://" + c.public.Host + c.base + "console/callback"
	}
	scheme := "http://"
	if c.deps.TLS {
		scheme = "https://"
	}
	return scheme + r.Host + c.base + "console/callback" // isAllowedHost has checked the host
}

// isSafeLocalPath reports whether a redirect to a path stays on this host. Browsers read a backslash as a
// slash, drop control characters, and take what follows two slashes for a host.
func isSafeLocalPath(path string) bool {
	isAbsolutePath := strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "//")
	isMisread := strings.ContainsFunc(path, func(c rune) bool { return c == '\\' || c <= ' ' || c == 0x7f })
	if !isAbsolutePath || isMisread {
		return false
	}
	u, err := url.Parse(path)
	return err == nil && u.Scheme == "" && u.Host == "" && u.User == nil
}
