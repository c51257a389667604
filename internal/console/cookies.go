package console

import (
	"net/http"

	"github.com/fleetloop/fleetloop/internal/console/session"
)

// The cookies. Both hold random ids that mean nothing elsewhere.
const (
	sessionCookie = "fleetloop-console"
	csrfCookie    = "fleetloop-console-csrf"
)

// cookies sets and reads the cookies of the console.
type cookies struct {
	base   string // their path
	secure bool   // browsers use TLS
}

// cookieNameWithPrefix returns the name of a cookie with the strictest prefix that its path and the connection
// allow. A browser keeps cookies of such names from being set by other hosts or without TLS.
func (c cookies) cookieNameWithPrefix(name string) string {
	switch {
	case c.secure && c.base == "/":
		return "__Host-" + name
	case c.secure:
		return "__Secure-" + name
	}
	return name
}

// setOrRemoveCookie sets a cookie that ends with the browser; an empty value removes it. The session ends on the server.
func (c cookies) setOrRemoveCookie(w http.ResponseWriter, name, value string, sameSite http.SameSite) {
	cookie := &http.Cookie{ //nolint:gosec // not Secure only on a loopback address without TLS
		Name: c.cookieNameWithPrefix(name), Value: value, Path: c.base, HttpOnly: true, Secure: c.secure, SameSite: sameSite,
	}
	if value == "" {
		cookie.MaxAge = -1
	}
	http.SetCookie(w, cookie)
}

// readSessionID returns the id of the session of the browser, or "".
func (c cookies) readSessionID(r *http.Request) string {
	cookie, err := r.Cookie(c.cookieNameWithPrefix(sessionCookie))
	if err != nil {
		return ""
	}
	return cookie.Value
}

// readOrSetCSRFCookie returns the random value to which the CSRF token belongs.
func (c cookies) readOrSetCSRFCookie(w http.ResponseWriter, r *http.Request) (value string) {
	if cookie, err := r.Cookie(c.cookieNameWithPrefix(csrfCookie)); err == nil && cookie.Value != "" {
		return cookie.Value
	}
	value = session.NewRandomID()
	c.setOrRemoveCookie(w, csrfCookie, value, http.SameSiteStrictMode)
	return value
}
