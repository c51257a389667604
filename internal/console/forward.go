package console

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
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
		Transport:     c.deps.Transport,
		FlushInterval: -1, // streams are passed on event by event
		ErrorLog:      slog.NewLogLogger(c.log.Handler(), slog.LevelDebug),
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host = fleetAPIURL.Scheme, fleetAPIURL.Host
			p.Out.URL.Path, p.Out.URL.RawPath = fleetAPIURL.Path+p.In.URL.Path, ""
			if p.In.URL.RawPath != "" {
				p.Out.URL.RawPath = fleetAPIURL.EscapedPath() + p.In.URL.RawPath
			}
			p.Out.Host = ""
			removeUnforwardedHeaders(p.Out.Header)
			if token := PersonFromContext(p.In.Context()).Token; token != "" {
				p.Out.Header.Set("Authorization", "Bearer "+token)
			}
		},
		ModifyResponse: func(resp *http.Response) error {
			for name := range resp.Header {
				// The console decides on cookies and on what a browser may do with an answer.
				if name == "Set-Cookie" || strings.HasPrefix(name, "Access-Control-") || name == "Content-Security-Policy" || name == "Strict-Transport-Security" {
					resp.Header.Del(name)
				}
			}
			for _, own := range []string{"X-Content-Type-Options", "Referrer-Policy", "Cross-Origin-Opener-Policy", "Cross-Origin-Resource-Policy"} {
				resp.Header.Del(own) // set by the console already
			}
			if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
				resp.Body = c.streams.closeBodyOnStreamsEnd(resp.Body)
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if errors.Is(err, context.Canceled) {
				w.WriteHeader(http.StatusBadGateway) // nobody is there to read it
				return
			}
			c.log.WarnContext(r.Context(), "fleet API not reached", "method", r.Method, "path", r.URL.Path, "err", err)
			WriteProblemJSON(w, http.StatusBadGateway, "The console cannot reach the fleet API.", "Try again. If this lasts, look at the log of the console.")
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Without these headers, the request would have the rights of the person who is signed in.
		if slices.ContainsFunc(slices.Collect(maps.Keys(r.Header)), v1.IsImpersonationHeader) {
			WriteProblemJSON(w, http.StatusForbidden, "The console does not forward impersonation.", "Use the command line: fleetloop --as.")
			return
		}
		proxy.ServeHTTP(&deadlineWriter{ResponseWriter: w, control: http.NewResponseController(w)}, r)
	})
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

// deadlineWriter moves the deadline of an answer with each write, so that a stream may last.
type deadlineWriter struct {
	http.ResponseWriter

	control *http.ResponseController
}

// Write implements http.ResponseWriter.
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
