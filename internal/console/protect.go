package console

import (
	"crypto/subtle"
	"net/http"
	"net/url"
	"strings"

	"github.com/fleetloop/fleetloop/internal/console/session"
	"github.com/fleetloop/fleetloop/internal/httpserver"
)

// contentSecurityPolicy allows only what the console itself serves. Neither scripts nor styles can
// stand in the page.
const contentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

const csrfHeader = "X-Csrf-Token"

// A requestGuard refuses requests that another page may have caused.
type requestGuard struct {
	cookies  cookies
	public   *url.URL // nil: as the browser calls it
	mode     string
	sessions *session.Sessions
	metrics  *metrics
}

// guardAndCountRequests sets the security headers, and refuses what the guard does not let pass.
func (g *requestGuard) guardAndCountRequests(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.setSecurityHeaders(w.Header())
		seen := &statusWriter{ResponseWriter: w}
		defer func() { g.metrics.countRequest(r, g.cookies.base, seen.status) }()
		switch {
		case !g.isAllowedHost(r):
			// A name of another site may point to this address (DNS rebinding).
			WriteProblemJSON(
				seen,
				http.StatusMisdirectedRequest,
				"The console does not answer to this host name.",
				"Set the public URL of the console to the address that browsers use.",
			)
		case isWriteMethod(r.Method) && !g.isSameOriginWithCSRFToken(r):
			WriteProblemJSON(seen, http.StatusForbidden, "The request does not come from a page of the console.", "Load the page again.")
		default:
			next.ServeHTTP(seen, r)
		}
	})
}

func (g *requestGuard) setSecurityHeaders(h http.Header) {
	h.Set("Content-Security-Policy", contentSecurityPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	if g.cookies.secure {
		h.Set("Strict-Transport-Security", "max-age=31536000")
	}
}

func isWriteMethod(method string) bool {
	return method != http.MethodGet && method != http.MethodHead && method != http.MethodOptions
}

// isAllowedHost reports whether the request names a host of the console. It matters where a request needs
// no cookie, and where the console has no public URL: it then listens on loopback, which has known
// names. Otherwise a proxy may use another name.
func (g *requestGuard) isAllowedHost(r *http.Request) bool {
	if httpserver.IsLoopbackHost(r.Host) {
		return true
	}
	if g.public == nil {
		return false
	}
	needsCookie := g.mode != ModeNone && g.mode != ModeDemo
	return needsCookie || strings.EqualFold(r.Host, g.public.Host)
}

// isSameOriginWithCSRFToken reports whether a write comes from a page of the console. It checks the
// headers that every current browser sets, and a token that only such a page can read.
func (g *requestGuard) isSameOriginWithCSRFToken(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" {
		return false
	}
	if origin := r.Header.Get("Origin"); origin != "" && !g.isConsoleOrigin(origin, r) {
		return false
	}
	cookie, err := r.Cookie(g.cookies.cookieNameWithPrefix(csrfCookie))
	if err != nil {
		return false
	}
	want := g.sessions.DeriveCSRFToken(cookie.Value, g.cookies.readSessionID(r))
	return subtle.ConstantTimeCompare([]byte(want), []byte(r.Header.Get(csrfHeader))) == 1
}

func (g *requestGuard) isConsoleOrigin(origin string, r *http.Request) bool {
	u, err := url.Parse(origin)
	if err != nil {
		return false
	}
	if g.public != nil && strings.EqualFold(u.Host, g.public.Host) {
		return u.Scheme == g.public.Scheme
	}
	return httpserver.IsLoopbackHost(u.Host) && u.Host == r.Host
}

// statusWriter remembers the status of an answer.
type statusWriter struct {
	http.ResponseWriter

	status int
}

func (s *statusWriter) WriteHeader(status int) {
	if s.status == 0 {
		s.status = status
	}
	s.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController find the connection.
func (s *statusWriter) Unwrap() http.ResponseWriter { return s.ResponseWriter }
