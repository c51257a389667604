package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// Errors for callers to check, in addition to *Error.
var (
	// ErrUnreachable means that no response arrived: nothing listens, the connection broke, or the
	// request exceeded the timeout. A request with effects may or may not have had them.
	ErrUnreachable = errors.New("fleet API unreachable")

	// ErrInvalidResponse means that the response is not one of a fleet API: too large, not JSON, or truncated.
	ErrInvalidResponse = errors.New("invalid response")
)

// errTimeout is the cause of a request that exceeded Config.Timeout, in contrast to one that the caller cancelled.
var errTimeout = errors.New("request timed out")

// errSilence is the cause of a stream on which the server was silent for too long.
var errSilence = fmt.Errorf("the server sent nothing for %s", silence)

const (
	maxErrorBody = 256 << 10
	maxErrorText = 200
)

// An Error is an unsuccessful response of the server.
type Error struct {
	// Op is the method and path of the request.
	Op string

	// Status is the HTTP status.
	Status int

	// Problem is the problem that the server sent. If it sent none, Title and Detail are derived
	// from the status and the text of the response.
	Problem v1.Problem

	// TokenSent says that the request had a token, so that a 401 concerns the token.
	TokenSent bool

	retryAfter time.Duration
}

// Error returns the request and the server's problem.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d %s", e.Op, e.Status, e.Problem.Title)
	if e.Problem.Detail != "" {
		fmt.Fprintf(&b, ": %s", e.Problem.Detail)
	}
	for _, f := range e.Problem.Errors {
		if strings.Contains(e.Problem.Detail, f.Message) {
			continue // then the detail only repeats the fields
		}
		fmt.Fprintf(&b, "; %s: %s", f.Field, f.Message)
	}
	if e.Problem.TraceID != "" {
		fmt.Fprintf(&b, " (trace %s)", e.Problem.TraceID)
	}
	return b.String()
}

// RetryAfter returns the delay that the server requested, or 0 if it requested none.
func (e *Error) RetryAfter() time.Duration { return e.retryAfter }

// StatusCode returns Status, for callers that cannot import this type.
func (e *Error) StatusCode() int { return e.Status }

// IsNotFound reports whether the resource does not exist.
func IsNotFound(err error) bool { return hasStatus(err, http.StatusNotFound) }

// IsConflict reports whether the resource's state forbids the request.
func IsConflict(err error) bool { return hasStatus(err, http.StatusConflict) }

// IsChanged reports whether the resource differs from the version that the request required.
func IsChanged(err error) bool { return hasStatus(err, http.StatusPreconditionFailed) }

// IsUnauthorized reports whether the server requires another token, or any.
func IsUnauthorized(err error) bool { return hasStatus(err, http.StatusUnauthorized) }

// IsForbidden reports whether the caller lacks a permission.
func IsForbidden(err error) bool { return hasStatus(err, http.StatusForbidden) }

// IsExpired reports whether the server no longer has the changes since a cursor. Watch from now on,
// and list the collection after the first bookmark.
func IsExpired(err error) bool { return hasStatus(err, http.StatusGone) }

// IsTransient reports whether the same request may succeed later, because the server was
// unreachable, overloaded or broken.
func IsTransient(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return errors.Is(err, ErrUnreachable) ||
		ok && (e.Status >= http.StatusInternalServerError || e.Status == http.StatusTooManyRequests || e.Status == http.StatusRequestTimeout)
}

func hasStatus(err error, status int) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Status == status
}

// newError returns an Error for a response and the part of its body that was read.
func newError(op string, resp *http.Response, body []byte, now time.Time) *Error {
	e := &Error{Op: op, Status: resp.StatusCode, retryAfter: parseRetryAfter(resp.Header.Get("Retry-After"), now)}
	e.TokenSent = resp.Request != nil && resp.Request.Header.Get("Authorization") != ""
	if isJSON(resp.Header.Get("Content-Type")) {
		_ = json.Unmarshal(body, &e.Problem) // an unreadable problem is filled in below
	}
	if e.Problem.Title == "" {
		e.Problem.Title = http.StatusText(resp.StatusCode)
	}
	if e.Problem.Status == 0 {
		e.Problem.Status = resp.StatusCode
	}
	if e.Problem.Detail == "" {
		e.Problem.Detail = fallbackDetail(resp, body)
	}
	return e
}

func fallbackDetail(resp *http.Response, body []byte) string {
	if to := resp.Header.Get("Location"); to != "" && resp.StatusCode < http.StatusBadRequest {
		return fmt.Sprintf("redirect to %q not followed", to)
	}
	// No type: net/http refuses HTTP on a TLS port this way.
	kind := resp.Header.Get("Content-Type")
	if kind != "" && !strings.HasPrefix(kind, "text/plain") || !utf8.Valid(body) {
		return ""
	}
	text := strings.Join(strings.Fields(string(body)), " ")
	if len(text) > maxErrorText {
		cut := maxErrorText
		for !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = text[:cut] + "…"
	}
	return text
}

// parseRetryAfter parses the header, which holds seconds or a date. A past date or an invalid value counts as missing.
func parseRetryAfter(value string, now time.Time) time.Duration {
	const most = 24 * time.Hour // a longer delay is a mistake
	if value == "" {
		return 0
	}
	if n, err := strconv.ParseUint(value, 10, 32); err == nil {
		return min(time.Duration(n)*time.Second, most)
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), most)
}
