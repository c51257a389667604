package console

import (
	"crypto/subtle"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/fleetloop/fleetloop/internal/console/session"
)

// contentSecurityPolicy allows only what the console itself serves. Neither scripts nor styles can
// stand in the page.
const contentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

const csrfHeader = "X-Csrf-Token"

// protect sets the security headers, and refuses requests that another page may have caused.
func (c *Console) protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.setSecurityHeaders(w.Header())
		seen := &statusWriter{ResponseWriter: w}
		defer func() { c.metrics.countRequest(r, c.base, seen.status) }()
		switch {
		case !c.isOwnHost(r):
			// A name of another site may point to this address (DNS rebinding).
			WriteProblem(seen, http.StatusMisdirectedRequest, "The console does not answer to this host name.", "Set the public URL of the console to the address that browsers use.")
		case isWrite(r.Method) && !c.isFromOwnPage(r):
			WriteProblem(seen, http.StatusForbidden, "The request does not come from a page of the console.", "Load the page again.")
		default:
			next.ServeHTTP(seen, r)
		}
	})
}

func (c *Console) setSecurityHeaders(h http.Header) {
	h.Set("Content-Security-Policy", contentSecurityPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	if c.secure {
		h.Set("Strict-Transport-Security", "max-age=31536000")
	}
}

func isWrite(method string) bool {
	return method != http.MethodGet && method != http.MethodHead && method != http.MethodOptions
}

// isOwnHost reports whether the request names a host of the console. It matters where a request needs
// no cookie, and where the console has no public URL: it then listens on loopback, which has known
// names. Otherwise a proxy may use another name.
func (c *Console) isOwnHost(r *http.Request) bool {
	if isLoopbackHost(r.Host) || c.public != nil && strings.EqualFold(r.Host, c.public.Host) {
		return true
	}
	return c.public != nil && c.cfg.Mode != ModeNone && c.cfg.Mode != ModeDemo
}

func isLoopbackHost(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.Trim(hostport, "[]")
	}
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// isFromOwnPage reports whether a write comes from a page of the console: by the headers that every
// current browser sets, and by a token that only such a page can read.
func (c *Console) isFromOwnPage(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" {
		return false
	}
	if origin := r.Header.Get("Origin"); origin != "" && !c.isOwnOrigin(origin, r) {
		return false
	}
	cookie, err := r.Cookie(c.cookieName(csrfCookie))
	if err != nil {
		return false
	}
	want := c.deps.Sessions.CSRFToken(cookie.Value, c.sessionID(r))
	return subtle.ConstantTimeCompare([]byte(want), []byte(r.Header.Get(csrfHeader))) == 1
}

func (c *Console) isOwnOrigin(origin string, r *http.Request) bool {
	u, err := url.Parse(origin)
	if err != nil {
		return false
	}
	if c.public != nil && strings.EqualFold(u.Host, c.public.Host) {
		return u.Scheme == c.public.Scheme
	}
	return isLoopbackHost(u.Host) && u.Host == r.Host
}

// The cookies. Both hold random ids that mean nothing elsewhere.
const (
	sessionCookie = "fleetloop-console"
	csrfCookie    = "fleetloop-console-csrf"
)

// cookieName returns the name of a cookie with the strictest prefix that its path and the connection
// allow. A browser keeps cookies of such names from being set by other hosts or without TLS.
func (c *Console) cookieName(name string) string {
	switch {
	case c.secure && c.base == "/":
		return "__Host-" + name
	case c.secure:
		return "__Secure-" + name
	}
	return name
}

func (c *Console) setCookie(w http.ResponseWriter, name, value string, site http.SameSite) {
	cookie := &http.Cookie{ //nolint:gosec // not Secure only on a loopback address without TLS
		Name: c.cookieName(name), Value: value, Path: c.base, HttpOnly: true, Secure: c.secure, SameSite: site,
	}
	if value == "" {
		cookie.MaxAge = -1
	}
	http.SetCookie(w, cookie) // without an expiry it ends with the browser; the session ends on the server
}

func (c *Console) sessionID(r *http.Request) string {
	cookie, err := r.Cookie(c.cookieName(sessionCookie))
	if err != nil {
		return ""
	}
	return cookie.Value
}

// ensureCSRFCookie returns the random value to which the CSRF token belongs.
func (c *Console) ensureCSRFCookie(w http.ResponseWriter, r *http.Request) string {
	if cookie, err := r.Cookie(c.cookieName(csrfCookie)); err == nil && cookie.Value != "" {
		return cookie.Value
	}
	value := session.NewID()
	c.setCookie(w, csrfCookie, value, http.SameSiteStrictMode)
	return value
}

// statusWriter remembers the status of an answer.
type statusWriter struct {
	http.ResponseWriter

	status int
}

// WriteHeader implements http.ResponseWriter.
func (s *statusWriter) WriteHeader(status int) {
	if s.status == 0 {
		s.status = status
	}
	s.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController find the connection.
func (s *statusWriter) Unwrap() http.ResponseWriter { return s.ResponseWriter }
