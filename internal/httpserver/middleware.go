package httpserver

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"time"
)

// Middleware puts something around a handler.
type Middleware = func(http.Handler) http.Handler

// Chain puts middleware around h; the first is the outermost.
func Chain(h http.Handler, list ...Middleware) http.Handler {
	for _, m := range slices.Backward(list) {
		h = m(h)
	}
	return h
}

// BodyTimeout is how long a request's body may take to arrive.
const BodyTimeout = 30 * time.Second

// LimitBody bounds what a handler reads of a request's body: n bytes, within
// BodyTimeout. Reading past n gives an *http.MaxBytesError, which is a 413;
// reading too long gives os.ErrDeadlineExceeded, which is a 408.
func LimitBody(n int64) Middleware {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Body != nil && r.Body != http.NoBody {
				// Of a server that has no deadlines, as in a test, the error
				// says so and nothing else.
				control := http.NewResponseController(w)
				_ = control.SetReadDeadline(time.Now().Add(BodyTimeout))
				r.Body = &body{ReadCloser: http.MaxBytesReader(w, r.Body, n), control: control}
			}
			next.ServeHTTP(w, r)
		})
	}
}

// A body lifts the deadline when it has been read. If it stayed, the server
// would take the client for gone when it passes, however well the handler is.
type body struct {
	io.ReadCloser

	control *http.ResponseController
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		_ = b.control.SetReadDeadline(time.Time{}) // as in LimitBody
	}
	return n, err //nolint:wrapcheck // io.EOF must stay io.EOF
}

// Recover answers a request whose handler panics with 500 and a problem
// document, and logs the panic with its stack. If the answer has begun, the
// connection is cut, so that a half is not taken for a whole.
func Recover(log *slog.Logger) Middleware {
	return RecoverWith(log, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, `{"type":"about:blank","title":"Internal Server Error","status":500}`+"\n")
	})
}

// RecoverWith is Recover with another answer.
func RecoverWith(log *slog.Logger, answer http.HandlerFunc) Middleware {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			rec := record(w)
			defer rec.rescue(r, log, answer)
			next.ServeHTTP(rec, r)
		})
	}
}

// rescue is deferred: it ends the panic that there may be.
func (r *recorder) rescue(req *http.Request, log *slog.Logger, answer http.HandlerFunc) {
	p := recover()
	switch p {
	case nil:
		return
	case http.ErrAbortHandler: // the handler wants the connection cut
		panic(p)
	}
	log.ErrorContext(req.Context(), "handler panicked", "method", req.Method, "route", route(req),
		"err", fmt.Sprint(p), "stack", string(debug.Stack()))
	if r.code != 0 {
		panic(http.ErrAbortHandler)
	}
	answer(r, req)
}

// AccessLog logs each request at debug level when it is done. Like Metrics it
// must be within whatever gives the router another *http.Request, to learn
// the route.
func AccessLog(log *slog.Logger) Middleware {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !log.Enabled(r.Context(), slog.LevelDebug) {
				next.ServeHTTP(w, r)
				return
			}
			rec := record(w)
			defer rec.done(r, log, time.Now()) // after a panic as well
			next.ServeHTTP(rec, r)
		})
	}
}

func (r *recorder) done(req *http.Request, log *slog.Logger, begin time.Time) {
	log.DebugContext(req.Context(), "request done", "method", req.Method, "path", req.URL.Path, "route", route(req),
		"code", r.status(), "bytes", r.bytes, "took", time.Since(begin), "remote", req.RemoteAddr)
}

// route is the pattern that the router chose, which unlike the path is one of
// a closed set.
func route(r *http.Request) string {
	if r.Pattern == "" {
		return "none"
	}
	return r.Pattern
}

// A recorder sees what a handler answers.
type recorder struct {
	http.ResponseWriter

	code  int // 0 until the answer begins
	bytes int64
}

// record is w as a recorder; there is one for all middleware of a request.
func record(w http.ResponseWriter) *recorder {
	if rec, ok := w.(*recorder); ok {
		return rec
	}
	return &recorder{ResponseWriter: w}
}

// status is the code that the client sees.
func (r *recorder) status() int {
	if r.code == 0 {
		return http.StatusOK // of a handler that wrote nothing
	}
	return r.code
}

// WriteHeader implements http.ResponseWriter.
func (r *recorder) WriteHeader(code int) {
	if r.code == 0 && code >= http.StatusOK { // the others are only announcements
		r.code = code
	}
	r.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (r *recorder) Write(p []byte) (int, error) {
	if r.code == 0 {
		r.code = http.StatusOK
	}
	n, err := r.ResponseWriter.Write(p)
	r.bytes += int64(n)
	return n, err //nolint:wrapcheck // a writer's error is the writer's
}

// Flush implements http.Flusher.
func (r *recorder) Flush() {
	if r.code == 0 {
		r.code = http.StatusOK
	}
	_ = http.NewResponseController(r.ResponseWriter).Flush() // Flusher has no error
}

// Unwrap is for http.ResponseController.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
