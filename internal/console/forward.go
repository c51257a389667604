package console

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// writeTimeout limits how long a browser may take to accept a part of an answer.
const writeTimeout = 30 * time.Second

// newFleetAPIProxy returns a handler that forwards requests to the fleet API with the token of the
// signed-in person. Cookies do not reach the fleet API, and nothing that the fleet API sets reaches
// the browser's cookies.
func (c *Console) newFleetAPIProxy(fleetAPIURL *url.URL) http.Handler {
	proxy := &httputil.ReverseProxy{
		Transport:      c.deps.Transport,
		FlushInterval:  -1, // streams are passed on event by event
		ErrorLog:       slog.NewLogLogger(c.log.Handler(), slog.LevelDebug),
		Rewrite:        func(p *httputil.ProxyRequest) { rewriteAndAuthorizeForFleetAPI(p, fleetAPIURL) },
		ModifyResponse: c.stripHeadersAndBindStream,
		ErrorHandler:   c.writeFleetAPIError,
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name := range r.Header {
			// Without these headers, the request would have the rights of the person who is signed in.
			if v1.IsImpersonationHeader(name) {
				WriteProblemJSON(w, http.StatusForbidden, "The console does not forward impersonation.", "Use the command line: fleetloop --as.")
				return
			}
		}
		proxy.ServeHTTP(&deadlineWriter{ResponseWriter: w, control: http.NewResponseController(w)}, r)
	})
}

func rewriteAndAuthorizeForFleetAPI(p *httputil.ProxyRequest, fleetAPIURL *url.URL) {
	out := p.Out
	out.Host = ""
	out.URL.Scheme, out.URL.Host = fleetAPIURL.Scheme, fleetAPIURL.Host
	out.URL.Path = fleetAPIURL.Path + p.In.URL.Path
	out.URL.RawPath = ""
	if p.In.URL.RawPath != "" {
		out.URL.RawPath = fleetAPIURL.EscapedPath() + p.In.URL.RawPath
	}
	removeUnforwardedHeaders(out.Header)
	if token := PersonFromContext(p.In.Context()).Token; token != "" {
		out.Header.Set("Authorization", "Bearer "+token)
	}
}

// removeUnforwardedHeaders removes all headers of a browser that the fleet API does not need. Cookies and
// the browser's own Authorization are among them.
func removeUnforwardedHeaders(h http.Header) {
	for name := range h {
		switch name {
		case "Accept", "Cache-Control", "Content-Type", v1.ReadAfterHeader, "Idempotency-Key", "If-Match", "If-None-Match", "Last-Event-Id", "Prefer",
			"Traceparent", "Tracestate", "User-Agent", "X-Request-Id", "Expect":
		default:
			h.Del(name)
		}
	}
}

// stripHeadersAndBindStream removes the headers on which the console decides: cookies, and what a browser may do
// with an answer. A stream ends with the others.
func (c *Console) stripHeadersAndBindStream(resp *http.Response) error {
	for name := range resp.Header {
		switch name {
		case "Set-Cookie", "Content-Security-Policy", "Strict-Transport-Security", "X-Content-Type-Options", "Referrer-Policy",
			"Cross-Origin-Opener-Policy", "Cross-Origin-Resource-Policy":
			resp.Header.Del(name)
		}
		if strings.HasPrefix(name, "Access-Control-") {
			resp.Header.Del(name)
		}
	}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		resp.Body = c.streams.closeBodyOnStreamsEnd(resp.Body)
	}
	return nil
}

func (c *Console) writeFleetAPIError(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, context.Canceled) {
		w.WriteHeader(http.StatusBadGateway) // nobody is there to read it
		return
	}
	c.log.WarnContext(r.Context(), "fleet API not reached", "method", r.Method, "path", r.URL.Path, "err", err)
	WriteProblemJSON(
		w,
		http.StatusBadGateway,
		"The console cannot reach the fleet API.",
		"Try again. If this lasts, look at the log of the console.",
	)
}

// deadlineWriter moves the deadline of an answer with each write, so that a stream may last.
type deadlineWriter struct {
	http.ResponseWriter

	control *http.ResponseController
}

func (p *deadlineWriter) Write(b []byte) (int, error) {
	p.extendWriteDeadline()
	return p.ResponseWriter.Write(b)
}

// FlushError flushes what is written, as http.ResponseController does.
func (p *deadlineWriter) FlushError() error {
	p.extendWriteDeadline()
	return p.control.Flush()
}

// Unwrap lets http.ResponseController find the connection.
func (p *deadlineWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }

func (p *deadlineWriter) extendWriteDeadline() {
	_ = p.control.SetWriteDeadline(time.Now().Add(writeTimeout)) // connections of a server support it
}
