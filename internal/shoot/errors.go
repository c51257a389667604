package shoot

import (
	"errors"
	"fmt"
	"time"
)

// A Class says whose an error is, and so what to do about it. The set is
// closed, so that it can be a metric's label.
type Class string

// The classes.
const (
	// ClassInvalid is a Shoot that Gardener refuses and will refuse again until
	// it is changed: a bad value, or one that the cloud profile does not have.
	ClassInvalid Class = "invalid_shoot"
	// ClassForbidden is a right that our credentials lack.
	ClassForbidden Class = "forbidden"
	// ClassApproval is a deletion that somebody else has to confirm.
	ClassApproval Class = "waiting_for_approval"
	// ClassForeign is a name that belongs to a Shoot that is not ours.
	ClassForeign Class = "not_owned"
	// ClassConflict is a Shoot that changed under the request. Another try may do.
	ClassConflict Class = "conflict"
	// ClassThrottled is a server that asks us to wait.
	ClassThrottled Class = "throttled"
	// ClassUnavailable is a server that does not answer, or not with sense:
	// refused connections, timeouts, 5xx. It may be the server or this Shoot.
	ClassUnavailable Class = "unavailable"
	// ClassUnknown is any other error.
	ClassUnknown Class = "unknown"
)

// Classes are all classes, in the order of their declaration.
func Classes() []Class {
	return []Class{ClassInvalid, ClassForbidden, ClassApproval, ClassForeign, ClassConflict, ClassThrottled, ClassUnavailable, ClassUnknown}
}

// ErrNotFound means that there is no such Shoot.
var ErrNotFound = errors.New("the Shoot was not found")

// ErrExpired means that a watch can not go on from where it was asked to: list
// anew.
var ErrExpired = errors.New("resource version of the watch is too old")

// An Error is a request that failed.
type Error struct {
	Class Class
	// RetryAfter is how long the server asked to wait, 0 if it did not say.
	RetryAfter time.Duration
	// Err says what happened, in words that can be shown to a user.
	Err error
}

// Error is what happened.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Errorf makes an error of a class.
func Errorf(c Class, format string, args ...any) error {
	return &Error{Class: c, Err: fmt.Errorf(format, args...)}
}

// ClassOf is the class of an error, ClassUnknown if it has none.
func ClassOf(err error) Class {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Class
	}
	return ClassUnknown
}

// RetryAfter is how long the server asked to wait, 0 if it did not.
func RetryAfter(err error) time.Duration {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.RetryAfter
	}
	return 0
}
