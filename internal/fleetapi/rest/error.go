package rest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// ErrorContentType is the media type of error answers.
const ErrorContentType = "application/problem+json"

// A Code identifies a kind of problem. The set is closed.
type Code string

// The codes.
const (
	CodeInvalidBody          Code = "invalid_body"
	CodeInvalidFields        Code = "invalid_fields"
	CodeInvalidQuery         Code = "invalid_query"
	CodeUnauthenticated      Code = "unauthenticated"
	CodeForbidden            Code = "forbidden"
	CodeNotFound             Code = "not_found"
	CodeMethodNotAllowed     Code = "method_not_allowed"
	CodeNameTaken            Code = "name_taken"
	CodeBeingDeleted         Code = "being_deleted"
	CodeNotBeingDeleted      Code = "not_being_deleted"
	CodeHasChildren          Code = "has_children"
	CodeTooManyAdapters      Code = "too_many_adapters"
	CodeSyncRunning          Code = "sync_running"
	CodeSyncPaused           Code = "sync_paused"
	CodeShootNotDeleted      Code = "shoot_not_deleted"
	CodeCursorExpired        Code = "cursor_expired"
	CodePreconditionFailed   Code = "precondition_failed"
	CodeBodyTooLarge         Code = "body_too_large"
	CodeUnsupportedMediaType Code = "unsupported_media_type"
	CodeParentRequired       Code = "parent_required"
	CodeTimestampOutOfRange  Code = "timestamp_out_of_range"
	CodeInternal             Code = "internal"
	CodeUnavailable          Code = "unavailable"
)

// HTTPStatus returns the HTTP status of answers with the code.
func (c Code) HTTPStatus() int {
	switch c {
	case CodeInvalidBody, CodeInvalidFields, CodeInvalidQuery:
		return http.StatusBadRequest
	case CodeUnauthenticated:
		return http.StatusUnauthorized
	case CodeForbidden:
		return http.StatusForbidden
	case CodeNotFound:
		return http.StatusNotFound
	case CodeMethodNotAllowed:
		return http.StatusMethodNotAllowed
	case CodeNameTaken, CodeBeingDeleted, CodeNotBeingDeleted, CodeHasChildren, CodeTooManyAdapters, CodeSyncRunning, CodeSyncPaused, CodeShootNotDeleted:
		return http.StatusConflict
	case CodeCursorExpired:
		return http.StatusGone
	case CodePreconditionFailed:
		return http.StatusPreconditionFailed
	case CodeBodyTooLarge:
		return http.StatusRequestEntityTooLarge
	case CodeUnsupportedMediaType:
		return http.StatusUnsupportedMediaType
	case CodeParentRequired, CodeTimestampOutOfRange:
		return http.StatusUnprocessableEntity
	case CodeUnavailable:
		return http.StatusServiceUnavailable
	case CodeInternal:
	}
	return http.StatusInternalServerError
}

// An Error is a problem to answer with.
type Error struct {
	Code Code
	// Detail is a sentence for the client.
	Detail string
	// Fields lists the invalid fields of CodeInvalidFields and CodeInvalidQuery.
	Fields []v1.FieldError
	// RetryAfter, if set, is the delay after which the client should retry.
	RetryAfter time.Duration
	// Allow lists the allowed methods of CodeMethodNotAllowed.
	Allow []string
	// Challenge is the authentication challenge of CodeUnauthenticated.
	Challenge string
	// Loaded is the progress of a bulk load before the problem.
	Loaded *v1.LoadResult
	// Cause is logged and not sent to the client.
	Cause error
}

// NewError returns a problem with a detail.
func NewError(code Code, detailFormat string, args ...any) *Error {
	return &Error{Code: code, Detail: fmt.Sprintf(detailFormat, args...)}
}

// NewFieldsError returns the problem of invalid fields in the body.
func NewFieldsError(fields []v1.FieldError) *Error {
	return &Error{Code: CodeInvalidFields, Detail: joinFieldErrorTexts(fields), Fields: fields}
}

// NewQueryError returns the problem of one invalid query parameter.
func NewQueryError(parameter, constraint, value, messageFormat string, args ...any) *Error {
	f := v1.FieldError{Field: parameter, Constraint: constraint, Message: fmt.Sprintf(messageFormat, args...), Value: value}
	return &Error{Code: CodeInvalidQuery, Detail: "query parameter " + joinFieldErrorTexts([]v1.FieldError{f}), Fields: []v1.FieldError{f}}
}

func joinFieldErrorTexts(fields []v1.FieldError) string {
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

// WriteProblem answers with the problem. The trace is the id under which the logs show the request.
func WriteProblem(w http.ResponseWriter, r *http.Request, problem *Error, traceID string) {
	status := problem.Code.HTTPStatus()
	body, err := json.Marshal(v1.Problem{
		Type:     "about:blank",
		Title:    http.StatusText(status),
		Status:   status,
		Detail:   problem.Detail,
		Instance: r.URL.EscapedPath(),
		Code:     string(problem.Code),
		TraceID:  traceID,
		Errors:   problem.Fields,
		Loaded:   problem.Loaded,
	})
	if err != nil { // a value in Fields that JSON cannot represent
		body = []byte(`{"type":"about:blank","title":"Internal Server Error","status":500,"code":"internal"}`)
		status = http.StatusInternalServerError
	}
	h := w.Header()
	h.Set("Content-Type", ErrorContentType)
	h.Set("X-Content-Type-Options", "nosniff")
	if problem.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int((problem.RetryAfter+time.Second-1)/time.Second)))
	}
	if len(problem.Allow) > 0 {
		h.Set("Allow", strings.Join(problem.Allow, ", "))
	}
	if problem.Challenge != "" {
		h.Set("WWW-Authenticate", problem.Challenge)
	}
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that is gone misses nothing
}
