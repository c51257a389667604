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

// nameOf returns the name of a cookie with the strictest prefix that its path and the connection
// allow. A browser keeps cookies of such names from being set by other hosts or without TLS.
func (c cookies) nameOf(name string) string {
	switch {
	case c.secure && c.base == "/":
		return "__Host-" + name
	case c.secure:
		return "__Secure-" + name
	}
	return name
}

// set sets a cookie that ends with the browser; an empty value removes it. The session ends on the server.
func (c cookies) set(w http.ResponseWriter, name, value string, site http.SameSite) {
	cookie := &http.Cookie{ //nolint:gosec // not Secure only on a loopback address without TLS
		Name: c.nameOf(name), Value: value, Path: c.base, HttpOnly: true, Secure: c.secure, SameSite: site,
	}
	if value == "" {
		cookie.MaxAge = -1
	}
	http.SetCookie(w, cookie)
}

// sessionID returns the id of the session of the browser, or "".
func (c cookies) sessionID(r *http.Request) string {
	cookie, err := r.Cookie(c.nameOf(sessionCookie))
	if err != nil {
		return ""
	}
	return cookie.Value
}

// ensureCSRF returns the random value to which the CSRF token belongs.
func (c cookies) ensureCSRF(w http.ResponseWriter, r *http.Request) string {
	if cookie, err := r.Cookie(c.nameOf(csrfCookie)); err == nil && cookie.Value != "" {
		return cookie.Value
	}
	value := session.NewID()
	c.set(w, csrfCookie, value, http.SameSiteStrictMode)
	return value
}
