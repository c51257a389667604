package shoot

import (
	"errors"
	"fmt"
	"time"
)

// A Class is the kind of an error, which determines the reaction to it. The set is
// closed, so that it can be a metric label.
type Class string

// Classes of errors.
const (
	// ClassInvalid is a Shoot that Gardener rejects until it is changed: a bad value,
	// or one that the cloud profile does not have.
	ClassInvalid Class = "invalid_shoot"
	// ClassForbidden is a missing permission of the credentials.
	ClassForbidden Class = "forbidden"
	// ClassApproval is a deletion that another user has to confirm.
	ClassApproval Class = "waiting_for_approval"
	// ClassForeign is a name that belongs to a Shoot of another cluster or client.
	ClassForeign Class = "not_owned"
	// ClassConflict is a Shoot that changed during the request. A retry may succeed.
	ClassConflict Class = "conflict"
	// ClassThrottled is a server that asks the client to wait.
	ClassThrottled Class = "throttled"
	// ClassUnavailable is a server that does not answer properly: refused connections,
	// timeouts, 5xx. The server or this Shoot may be the cause.
	ClassUnavailable Class = "unavailable"
	// ClassUnknown is any other error.
	ClassUnknown Class = "unknown"
)

// ListClasses returns all classes, in the order of their declaration.
func ListClasses() []Class {
	return []Class{ClassInvalid, ClassForbidden, ClassApproval, ClassForeign, ClassConflict, ClassThrottled, ClassUnavailable, ClassUnknown}
}

// ErrNotFound means that the Shoot does not exist.
var ErrNotFound = errors.New("the Shoot was not found")

// ErrExpired means that a watch cannot continue from its resource version, and that the
// caller has to list again.
var ErrExpired = errors.New("resource version of the watch is too old")

// An Error is the error of a failed request.
type Error struct {
	Class Class
	// RetryAfter is how long the server asked to wait, 0 if it did not.
	RetryAfter time.Duration
	// Err is the cause, in words that can be shown to a user.
	Err error
}

// Error returns the message of the cause.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// NewClassErrorf returns an error of a class.
func NewClassErrorf(class Class, format string, args ...any) error {
	return &Error{Class: class, Err: fmt.Errorf(format, args...)}
}

// ClassOf returns the class of an error, ClassUnknown if it has none.
func ClassOf(err error) (class Class) {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Class
	}
	return ClassUnknown
}

// RetryAfter returns how long the server asked to wait, 0 if it did not.
func RetryAfter(err error) (delay time.Duration) {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.RetryAfter
	}
	return 0
}
