// Package problem defines the error answers of the API. They have the type
// application/problem+json, as defined by RFC 9457, and a code from a closed set on which a client
// may branch.
package problem

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// ContentType is the media type of error answers.
const ContentType = "application/problem+json"

// A Code identifies a kind of problem. The set is closed.
type Code string

// The codes.
const (
	InvalidBody          Code = "invalid_body"
	InvalidFields        Code = "invalid_fields"
	InvalidQuery         Code = "invalid_query"
	Unauthenticated      Code = "unauthenticated"
	Forbidden            Code = "forbidden"
	NotFound             Code = "not_found"
	MethodNotAllowed     Code = "method_not_allowed"
	NameTaken            Code = "name_taken"
	BeingDeleted         Code = "being_deleted"
	NotBeingDeleted      Code = "not_being_deleted"
	HasChildren          Code = "has_children"
	TooManyAdapters      Code = "too_many_adapters"
	SyncRunning          Code = "sync_running"
	SyncPaused           Code = "sync_paused"
	ShootNotDeleted      Code = "shoot_not_deleted"
	CursorExpired        Code = "cursor_expired"
	PreconditionFailed   Code = "precondition_failed"
	BodyTooLarge         Code = "body_too_large"
	UnsupportedMediaType Code = "unsupported_media_type"
	ParentRequired       Code = "parent_required"
	TimestampOutOfRange  Code = "timestamp_out_of_range"
	Internal             Code = "internal"
	Unavailable          Code = "unavailable"
)

// Status returns the HTTP status of answers with the code.
func (c Code) Status() int {
	switch c {
	case InvalidBody, InvalidFields, InvalidQuery:
		return http.StatusBadRequest
	case Unauthenticated:
		return http.StatusUnauthorized
	case Forbidden:
		return http.StatusForbidden
	case NotFound:
		return http.StatusNotFound
	case MethodNotAllowed:
		return http.StatusMethodNotAllowed
	case NameTaken, BeingDeleted, NotBeingDeleted, HasChildren, TooManyAdapters, SyncRunning, SyncPaused, ShootNotDeleted:
		return http.StatusConflict
	case CursorExpired:
		return http.StatusGone
	case PreconditionFailed:
		return http.StatusPreconditionFailed
	case BodyTooLarge:
		return http.StatusRequestEntityTooLarge
	case UnsupportedMediaType:
		return http.StatusUnsupportedMediaType
	case ParentRequired, TimestampOutOfRange:
		return http.StatusUnprocessableEntity
	case Unavailable:
		return http.StatusServiceUnavailable
	case Internal:
	}
	return http.StatusInternalServerError
}

// An Error is a problem to answer with.
type Error struct {
	Code Code
	// Detail is a sentence for the client.
	Detail string
	// Fields lists the invalid fields of InvalidFields and InvalidQuery.
	Fields []v1.FieldError
	// RetryAfter, if set, is the delay after which the client should retry.
	RetryAfter time.Duration
	// Allow lists the allowed methods of MethodNotAllowed.
	Allow []string
	// Challenge is the authentication challenge of Unauthenticated.
	Challenge string
	// Loaded is the progress of a bulk load before the problem.
	Loaded *v1.LoadResult
	// Cause is logged and not sent to the client.
	Cause error
}

// New returns a problem with a detail.
func New(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Detail: fmt.Sprintf(format, args...)}
}

// Invalid returns the problem of invalid fields in the body.
func Invalid(fields []v1.FieldError) *Error {
	return &Error{Code: InvalidFields, Detail: joinFieldErrors(fields), Fields: fields}
}

// Query returns the problem of one invalid query parameter.
func Query(parameter, constraint, value, format string, args ...any) *Error {
	f := v1.FieldError{Field: parameter, Constraint: constraint, Message: fmt.Sprintf(format, args...), Value: value}
	return &Error{Code: InvalidQuery, Detail: "query parameter " + joinFieldErrors([]v1.FieldError{f}), Fields: []v1.FieldError{f}}
}

func joinFieldErrors(fields []v1.FieldError) string {
	parts := make([]string, len(fields))
	for i, f := range fields {
		parts[i] = f.Field + " " + f.Message
	}
	return strings.Join(parts, "; ")
}

// Error returns the detail, and the cause if there is one.
func (e *Error) Error() string {
	if e.Cause != nil {
		return fmt.Sprintf("%s: %v", e.Detail, e.Cause)
	}
	return e.Detail
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Write answers with the problem. The trace is the id under which the logs show the request.
func Write(w http.ResponseWriter, r *http.Request, e *Error, trace string) {
	status := e.Code.Status()
	body, err := json.Marshal(v1.Problem{
		Type:     "about:blank",
		Title:    http.StatusText(status),
		Status:   status,
		Detail:   e.Detail,
		Instance: r.URL.EscapedPath(),
		Code:     string(e.Code),
		TraceID:  trace,
		Errors:   e.Fields,
		Loaded:   e.Loaded,
	})
	if err != nil { // a value in Fields that JSON cannot represent
		body = []byte(`{"type":"about:blank","title":"Internal Server Error","status":500,"code":"internal"}`)
		status = http.StatusInternalServerError
	}
	h := w.Header()
	h.Set("Content-Type", ContentType)
	h.Set("X-Content-Type-Options", "nosniff")
	if e.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int((e.RetryAfter+time.Second-1)/time.Second)))
	}
	if len(e.Allow) > 0 {
		h.Set("Allow", strings.Join(e.Allow, ", "))
	}
	if e.Challenge != "" {
		h.Set("WWW-Authenticate", e.Challenge)
	}
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that is gone misses nothing
}
