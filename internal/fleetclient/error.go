package fleetclient

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

// What a caller may tell apart besides an *Error.
var (
	// ErrUnreachable means that there was no answer: nothing listens, the
	// connection broke, or it took longer than the timeout. A request with
	// effects may or may not have had them.
	ErrUnreachable = errors.New("fleet API unreachable")

	// ErrBadAnswer means that there was an answer, and it is not one of a
	// fleet API: too large, not JSON, or cut short.
	ErrBadAnswer = errors.New("invalid response")
)

// errTimeout is the cause of a request that ran into Config.Timeout, as
// opposed to one whose caller gave up.
var errTimeout = errors.New("request timed out")

// errSilence is the cause of a stream on which the server said nothing for
// too long.
var errSilence = fmt.Errorf("the server sent nothing for %s", silence)

const (
	maxErrorBody = 256 << 10
	maxErrorText = 200
)

// An Error is an answer of the server that is not a success.
type Error struct {
	// Op is the request's method and path.
	Op string

	// Status is the HTTP status.
	Status int

	// Problem is what the server said. Its Title and Detail are filled from
	// the status and the text of the answer where the server sent no problem.
	Problem v1.Problem

	// TokenSent says that the request had a token, so that a 401 is about it.
	TokenSent bool

	retryAfter time.Duration
}

// Error says what was asked for, and what the server made of it.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d %s", e.Op, e.Status, e.Problem.Title)
	if e.Problem.Detail != "" {
		fmt.Fprintf(&b, ": %s", e.Problem.Detail)
	}
	for _, f := range e.Problem.Errors {
		if strings.Contains(e.Problem.Detail, f.Message) {
			continue // the detail is the sum of the fields where there is no more to say
		}
		fmt.Fprintf(&b, "; %s: %s", f.Field, f.Message)
	}
	if e.Problem.TraceID != "" {
		fmt.Fprintf(&b, " (trace %s)", e.Problem.TraceID)
	}
	return b.String()
}

// RetryAfter is how long the server asked to wait, 0 if it did not say.
func (e *Error) RetryAfter() time.Duration { return e.retryAfter }

// StatusCode is Status, for callers that can not name this type.
func (e *Error) StatusCode() int { return e.Status }

// IsNotFound reports whether the resource is not there.
func IsNotFound(err error) bool { return hasStatus(err, http.StatusNotFound) }

// IsConflict reports whether the resource's state forbids the request.
func IsConflict(err error) bool { return hasStatus(err, http.StatusConflict) }

// IsChanged reports whether the resource is not as the request required.
func IsChanged(err error) bool { return hasStatus(err, http.StatusPreconditionFailed) }

// IsUnauthorized reports whether the server wants another token, or any.
func IsUnauthorized(err error) bool { return hasStatus(err, http.StatusUnauthorized) }

func hasStatus(err error, status int) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Status == status
}

// newError makes an Error of an answer and as much of its body as was read.
func newError(op string, resp *http.Response, body []byte, now time.Time) *Error {
	e := &Error{Op: op, Status: resp.StatusCode, retryAfter: retryAfter(resp.Header.Get("Retry-After"), now)}
	e.TokenSent = resp.Request != nil && resp.Request.Header.Get("Authorization") != ""
	if isJSON(resp.Header.Get("Content-Type")) {
		_ = json.Unmarshal(body, &e.Problem) // what can not be read is filled in below
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
	// Without a type is how net/http refuses HTTP on a TLS port.
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

// retryAfter reads the header, which holds seconds or a date. A date that is
// past, and what is neither, count as not given.
func retryAfter(value string, now time.Time) time.Duration {
	const most = 24 * time.Hour // beyond that it is no plan but a mistake
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
