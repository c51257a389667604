package fleetapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/fleetloop/fleetloop/internal/fleetapi/auth"
	"github.com/fleetloop/fleetloop/internal/fleetapi/rest"
	"github.com/fleetloop/fleetloop/internal/telemetry"
)

// requestIDHeader is the header with the id of a request, under which the logs show it.
const requestIDHeader = "X-Request-Id"

// retryAfter is the retry delay sent to clients when a dependency is unavailable.
const retryAfter = 2 * time.Second

// timeoutRetryAfter is the retry delay after a statement timeout. It is so long that package client does not repeat the
// request, which would load the database again.
const timeoutRetryAfter = time.Minute

// instrumentAndHandleErrors returns a handler for a path and a method, which the metrics use as labels. It answers with
// the problem that the given handler returns, turns a panic into one, and counts, logs and traces the request.
func (a *API) instrumentAndHandleErrors(path, method string, h handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		ctx := telemetry.WithRemoteTraceContext(r.Context(), r.Header.Get("Traceparent"), r.Header.Get("Tracestate"))
		ctx, span := a.tracer.Start(ctx, method+" "+path, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
			attribute.String("http.route", path), attribute.String("http.request.method", r.Method)))
		defer span.End()

		r = r.WithContext(ctx)
		id := readOrNewRequestID(r)
		w.Header().Set(requestIDHeader, id)
		answer := &observedResponse{
			ResponseWriter: w, api: a, request: r, requestID: id,
			path: path, method: method, span: span, began: began, status: http.StatusOK,
		}
		if err := callRecoveringPanic(h, answer, r); err != nil {
			problem := a.toProblemAndLog(ctx, err, id)
			if !answer.begun {
				rest.WriteProblem(answer, r, problem, traceOrRequestID(span, id))
			}
		}
		answer.observeOnce(ctx)
	})
}

// A panicError is a recovered panic.
type panicError struct {
	value any
	stack []byte
}

func (p *panicError) Error() string { return fmt.Sprintf("panic: %v\n%s", p.value, p.stack) }

func callRecoveringPanic(h handler, w http.ResponseWriter, r *http.Request) (err error) {
	defer func() {
		if v := recover(); v != nil {
			if v == http.ErrAbortHandler { //nolint:errorlint // it is panicked with as it is
				panic(v)
			}
			err = &panicError{v, debug.Stack()}
		}
	}()
	return h(w, r, auth.Principal{})
}

// toProblemAndLog converts an error into a problem. Errors that the client did not cause go into the log
// and not to the client.
func (a *API) toProblemAndLog(ctx context.Context, err error, requestID string) *rest.Error {
	p, ok := errors.AsType[*rest.Error](err)
	switch {
	case ok && p.Cause == nil:
		return p
	case ok && p.Code != rest.CodeUnavailable:
		a.log.DebugContext(ctx, "request rejected", "err", err, "request_id", requestID)
		return p
	case ok:
	case errors.Is(err, ErrUnavailable):
		p = &rest.Error{Code: rest.CodeUnavailable, Detail: "the fleet API cannot reach its database; retry later", RetryAfter: retryAfter}
	case ctx.Err() != nil:
		// The client has gone, or the time for an answer is over.
		return &rest.Error{
			Code:       rest.CodeUnavailable,
			Detail:     "the fleet API could not answer the request in time; retry later",
			RetryAfter: retryAfter,
		}
	case errors.Is(err, ErrStatementTimeout):
		p = newStatementTimeoutError(err)
	default:
		p = &rest.Error{Code: rest.CodeInternal, Detail: "internal error; look for the trace id in the log of the fleet API"}
	}
	a.log.ErrorContext(ctx, "request failed", "err", err, "request_id", requestID)
	return p
}

func newStatementTimeoutError(cause error) *rest.Error {
	return &rest.Error{
		Code:       rest.CodeUnavailable,
		Detail:     "the request took too long in the database; ask for less with filters, a shorter period or a smaller page, or retry later",
		RetryAfter: timeoutRetryAfter,
		Cause:      cause,
	}
}

// readOrNewRequestID returns the caller's request id if it is safe to log, or a new one.
func readOrNewRequestID(r *http.Request) string {
	const longest = 128
	id := r.Header.Get(requestIDHeader)
	isUnprintable := func(c rune) bool { return c <= ' ' || c >= 0x7f }
	if id == "" || len(id) > longest || strings.ContainsFunc(id, isUnprintable) {
		return uuid.NewString()
	}
	return id
}

// traceOrRequestID returns the id that the client and the logs share: the trace id, or the request id where
// the request is not traced.
func traceOrRequestID(span trace.Span, requestID string) string {
	if t := span.SpanContext().TraceID(); t.IsValid() {
		return t.String()
	}
	return requestID
}

// An observedResponse observes the answer to a request.
type observedResponse struct {
	http.ResponseWriter

	api          *API
	request      *http.Request
	requestID    string
	path, method string // for metrics
	span         trace.Span
	began        time.Time

	status   int
	begun    bool // the headers were sent
	observed bool
}

func (w *observedResponse) observeOnce(ctx context.Context) {
	if w.observed {
		return
	}
	w.observed = true
	took := time.Since(w.began)
	w.api.metrics.observeRequest(w.path, w.method, w.status, took)
	w.span.SetAttributes(attribute.Int("http.response.status_code", w.status))
	if w.status >= http.StatusInternalServerError {
		w.span.SetStatus(codes.Error, http.StatusText(w.status))
	}
	w.span.End()
	w.api.log.DebugContext(ctx, "request completed",
		"method", w.request.Method, "path", w.request.URL.Path, "status", w.status, "took", took, "request_id", w.requestID)
}

// OnStreamOpened marks the answer as a long-lived stream. For metrics, traces and the log, the request ends here.
func (w *observedResponse) OnStreamOpened() { w.observeOnce(w.request.Context()) }

// WriteHeader records the status and passes it on.
func (w *observedResponse) WriteHeader(status int) {
	if !w.begun {
		w.status, w.begun = status, true
		w.api.addReadToken(w.ResponseWriter, w.request, status)
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write passes the body on.
func (w *observedResponse) Write(b []byte) (int, error) {
	if !w.begun {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap gives http.ResponseController access to the connection.
func (w *observedResponse) Unwrap() http.ResponseWriter { return w.ResponseWriter }
